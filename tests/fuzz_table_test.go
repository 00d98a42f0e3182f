package tests

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	fuzzTarget = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(f \*testing\.F\)`)
	codeWord   = regexp.MustCompile("`([^`]+)`")
)

// The table of the page on reliability has every fuzz target of the project, each with its package, and no other.
func TestFuzzTargetsAreListed(t *testing.T) {
	var want []string
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range fuzzTarget.FindAllSubmatch(source, -1) {
			want = append(want, strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")+" "+string(m[1]))
		}
		return err
	})
	if err != nil || len(want) == 0 {
		t.Fatalf("%d fuzz targets, %v", len(want), err)
	}
	page, err := os.ReadFile("../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Fuzzing\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var got []string
	for row := range strings.Lines(table) {
		cells := strings.Split(row, " | ")
		if len(cells) != 2 || !strings.HasPrefix(row, "| ") {
			continue
		}
		dir := ""
		for _, m := range codeWord.FindAllStringSubmatch(cells[1], -1) {
			if strings.HasPrefix(m[1], "Fuzz") {
				got = append(got, dir+" "+m[1])
			} else {
				dir = m[1]
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/reliability.md, the table of fuzz targets (-sources +page):\n%s", diff)
	}
}
