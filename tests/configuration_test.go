package tests

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/customconfig"
)

// fieldTable is the page's table of the fields of a kind that evict reads, from the rows of evict's settings.
func fieldTable(kind customconfig.Kind) string {
	var b strings.Builder
	b.WriteString("| field | setting | value | meaning |\n|---|---|---|---|\n")
	for _, f := range customconfig.Fields(kind) {
		_, path, _ := strings.Cut(f.Path, ".")
		var names, meanings []string
		for _, s := range f.Settings {
			names = append(names, "`"+s.Name+"`")
			meanings = append(meanings, s.Usage)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", path, strings.Join(names, ", "), f.Settings[0].Expected, strings.Join(meanings, "; "))
	}
	return b.String()
}

// The page has every field of the configuration objects that evict reads, and no other; go test -update writes the tables.
func TestConfigurationPage(t *testing.T) {
	const path = "../docs/configuration.md"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	for _, kind := range customconfig.Kinds {
		begin, end := "<!-- evict's fields of "+kind.Name+", written by make golden -->\n", "<!-- end -->"
		before, rest, found := strings.Cut(page, begin)
		table, after, ends := strings.Cut(rest, end)
		if !found || !ends {
			t.Fatalf("%s has no %q with %q after it", path, begin, end)
		}
		want := "\n" + fieldTable(kind) + "\n"
		if strings.Count(want, "\n") < 10 {
			t.Fatalf("%s: a table of a few lines:\n%s", kind.Name, want)
		}
		if diff := cmp.Diff(want, table); diff != "" && !*update {
			t.Errorf("%s: %s differs from evict's settings; run make golden (-want +got):\n%s", path, kind.Name, diff)
		}
		page = before + begin + want + end + after
	}
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The chart's definitions let the API server accept each name that the page lists for a ranking.
func TestDefinitionsAcceptRankings(t *testing.T) {
	rankings := 0
	for _, kind := range customconfig.Kinds {
		data, err := os.ReadFile("../deploy/helm/polder/crds/" + kind.Resource + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range customconfig.Fields(kind) {
			if !strings.HasPrefix(f.Settings[0].Expected, "some of ") {
				continue
			}
			rankings++
			name := f.Path[strings.LastIndexByte(f.Path, '.')+1:]
			line := regexp.MustCompile(`(?m)^ *` + name + `: .*$`).Find(data)
			if line == nil {
				t.Fatalf("%s: no %s", kind.Resource, name)
			}
			enum := regexp.MustCompile(`enum: \[(.*?)\]`).FindSubmatch(line)
			if enum == nil {
				continue // any text is accepted
			}
			accepted := strings.Split(string(enum[1]), ", ")
			for ranked := range f.Settings[0].Names {
				if !slices.Contains(accepted, ranked) {
					t.Errorf("%s: %s refuses %s: it accepts %v", kind.Resource, name, ranked, accepted)
				}
			}
		}
	}
	if rankings != 4 {
		t.Errorf("%d rankings; want those of the machine and of a NUMA node, of both kinds", rankings)
	}
}

// The chart's definitions let the API server refuse a number that collect refuses because it is too small: once it is stored, no change of
// any object of its kind takes effect.
func TestDefinitionsRefuseTooSmallNumbers(t *testing.T) {
	numbers := 0
	for _, kind := range customconfig.Kinds {
		data, err := os.ReadFile("../deploy/helm/polder/crds/" + kind.Resource + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range customconfig.Fields(kind) {
			name := f.Path[strings.LastIndexByte(f.Path, '.')+1:]
			line := regexp.MustCompile(`(?m)^ *` + name + `: .*type: (?:integer|number).*$`).FindString(string(data))
			if line == "" || strings.Contains(line, "exclusiveMinimum: true") {
				continue
			}
			minimum := regexp.MustCompile(`\bminimum: (-?[0-9]+)`).FindStringSubmatch(line)
			if minimum == nil {
				t.Errorf("%s: %s accepts every number", kind.Resource, name)
				continue
			}
			numbers++
			smallest, err := strconv.ParseInt(minimum[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range f.Settings {
				if _, err := s.Read(smallest); err != nil {
					t.Errorf("%s: %s accepts %d, and collect does not: %v", kind.Resource, name, smallest, err)
				}
			}
		}
	}
	if numbers < 10 {
		t.Errorf("only %d numbers were compared", numbers)
	}
}
