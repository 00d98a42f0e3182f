package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readPage is the text of a page below docs/.
func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The list of all pages has every page, and the list of decisions each with its number and its title.
func TestPagesAreListed(t *testing.T) {
	list := readPage(t, "README.md")
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, path := range pages {
		if name := filepath.Base(path); name != "README.md" && !strings.Contains(list, "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
	list = readPage(t, "adr/README.md")
	decisions, err := filepath.Glob("../docs/adr/0*.md")
	if err != nil || len(decisions) == 0 {
		t.Fatal(decisions, err)
	}
	for _, path := range decisions {
		name := filepath.Base(path)
		heading, _, _ := strings.Cut(readPage(t, "adr/"+name), "\n")
		number, title, _ := strings.Cut(strings.TrimPrefix(heading, "# "), ". ")
		if want := fmt.Sprintf("\n%s. [%s](%s)", number, title, name); !strings.Contains(list, want) {
			t.Errorf("docs/adr/README.md does not have the line %q", strings.TrimSpace(want))
		}
	}
}

// The terms of the glossary are in alphabetical order.
func TestGlossaryIsInOrder(t *testing.T) {
	var terms []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(readPage(t, "glossary.md"), -1) {
		terms = append(terms, strings.ToLower(m[1]))
	}
	if len(terms) < 50 {
		t.Fatalf("%d terms; want all", len(terms))
	}
	terms = terms[1:] // the table's head
	for i, term := range terms[1:] {
		if terms[i] > term {
			t.Errorf("%q comes before %q", terms[i], term)
		}
	}
	if unique := slices.Compact(slices.Clone(terms)); len(unique) != len(terms) {
		t.Error("a term occurs twice")
	}
}
