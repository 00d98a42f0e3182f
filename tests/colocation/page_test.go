package colocation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ownSections are the titles of the sections that have a benchmark of their own, in their order at the end of the page. Each benchmark
// replaces its own ones and leaves all others as they are.
var ownSections = []string{guestTitle, disksV2Title, disksTitle}

// The titles of the sections on disks, which `make bench-disks` writes.
const (
	disksV2Title = "Disks with cgroup v2"
	disksTitle   = "Disks"
)

// splitPage separates a page from the sections with a benchmark of their own; a section's text begins below its heading.
func splitPage(page string) (main string, sections map[string]string) {
	const mark = "\n## "
	sections = map[string]string{}
	parts := strings.Split(strings.TrimRight(page, "\n"), mark)
	for i, part := range parts {
		title, text, _ := strings.Cut(part, "\n")
		switch {
		case i == 0:
			main = part
		case slices.Contains(ownSections, title):
			sections[title] = strings.Trim(text, "\n")
		default:
			main += mark + part
		}
	}
	return strings.Trim(main, "\n"), sections
}

// joinPage is the reverse.
func joinPage(main string, sections map[string]string) string {
	parts := []string{main}
	for _, title := range ownSections {
		if text, ok := sections[title]; ok {
			parts = append(parts, "## "+title, text)
		}
	}
	return strings.Trim(strings.Join(parts, "\n\n"), "\n") + "\n"
}

// withSection returns a page with the text in the place of the section with that title.
func withSection(page, title, text string) string {
	main, sections := splitPage(page)
	sections[title] = strings.Trim(text, "\n")
	return joinPage(main, sections)
}

// withSectionsOf returns a page with the sections of an earlier one that have a benchmark of their own.
func withSectionsOf(page, earlier string) string {
	main, _ := splitPage(page)
	_, sections := splitPage(earlier)
	return joinPage(main, sections)
}

// changePage replaces the page in a file by what change makes of it; a file that does not exist is an empty page.
func changePage(path string, change func(page string) string) error {
	page, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, []byte(change(string(page))), 0o644)
}

// writeSection puts a section on the page that COLOCATION_OUTPUT names, or prints it if there is none.
func writeSection(b *testing.B, title, text string) {
	b.Helper()
	out := os.Getenv("COLOCATION_OUTPUT")
	if out == "" {
		fmt.Printf("\n## %s\n%s", title, text)
		return
	}
	if err := changePage(out, func(page string) string { return withSection(page, title, text) }); err != nil {
		fmt.Print(text) // minutes of measurements
		b.Fatal(err)
	}
}

const earlierPage = `# Does colocation work?

Text of an earlier run.

## Summary

Old rows.

## With cgroup v2

| shares |

## Disks with cgroup v2

| rows of a guest |

## Disks

| rows of this machine |
`

func TestSectionIsReplaced(t *testing.T) {
	got := withSection(earlierPage, disksV2Title, "\n| new rows |\n")
	if want := strings.Replace(earlierPage, "rows of a guest", "new rows", 1); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	got = withSection(got, disksTitle, "\n| the last section |\n")
	replacer := strings.NewReplacer("rows of a guest", "new rows", "rows of this machine", "the last section")
	if want := replacer.Replace(earlierPage); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The order of the sections does not depend on the order in which the benchmarks run.
func TestSectionsAreInTheirOrder(t *testing.T) {
	got := withSection(withSection("# Page\n\n## Disks of others\n\nStay.\n", disksTitle, "1\n"), disksV2Title, "2\n")
	if want := "# Page\n\n## Disks of others\n\nStay.\n\n## Disks with cgroup v2\n\n2\n\n## Disks\n\n1\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := withSection("", disksTitle, "1\n"); got != "## Disks\n\n1\n" {
		t.Errorf("a page of its own: %q", got)
	}
}

// The main benchmark replaces its page after each round, and keeps the sections that other benchmarks wrote.
func TestPageKeepsSectionsOfOtherBenchmarks(t *testing.T) {
	x := newTable()
	x.add(cell{&services[0], 50, nil}, alone, 100, result{P99: 2, Busy: 50})
	path := filepath.Join(t.TempDir(), "page.md")
	var first string
	for round := range 2 {
		if round == 0 {
			if err := os.WriteFile(path, []byte(earlierPage), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.write(path); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got := string(data)
		if _, end, _ := strings.Cut(earlierPage, "Old rows.\n"); !strings.HasSuffix(got, end) || strings.Contains(got, "Old rows") ||
			!strings.HasPrefix(got, x.page()) {
			t.Errorf("want the new page and below it %q, got %q", end, got)
		}
		if round == 1 && got != first {
			t.Errorf("the same results change the page from %q to %q", first, got)
		}
		first = got
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := x.write(path); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != x.page() {
		t.Errorf("without an earlier page: %q (%v)", data, err)
	}
}

// Each target of the Makefile runs the benchmarks that are meant, and no others: their patterns do not overlap.
func TestTargetsRunTheirBenchmarks(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^func (Benchmark\w+)\(`).FindAllStringSubmatch(string(data), -1) {
			all = append(all, found[1])
		}
	}
	for target, want := range map[string][]string{
		"bench-colocation": {"BenchmarkColocation", "BenchmarkColocationGuest"},
		"bench-guard":      {"BenchmarkGuardSquareWave", "BenchmarkGuardConstantLoad"},
		"bench-disks":      {"BenchmarkDisks", "BenchmarkDisksGuest"},
	} {
		recipe := regexp.MustCompile(`(?m)^` + target + `:.*\n(?:\t.*\n)*?\t.* -bench (\S+) .*\./tests/colocation$`).FindSubmatch(makefile)
		if recipe == nil {
			t.Errorf("the Makefile has no target %s that runs a benchmark", target)
			continue
		}
		pattern, err := regexp.Compile(string(recipe[1]))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range all {
			if pattern.MatchString(name) {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("make %s runs %v, want %v", target, got, want)
		}
	}
}
