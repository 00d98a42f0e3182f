package tests

import (
	"os"
	"slices"
	"strings"
	"testing"

	"polder/tests/pages"
)

// `make bench` runs each benchmark of the page on performance, as the page says, but for those that are a target of their own.
func TestBenchRunsThePage(t *testing.T) {
	script, err := os.ReadFile("../scripts/bench")
	if err != nil {
		t.Fatal(err)
	}
	steps := strings.Split(string(script), "\n")
	blocks, _, err := pages.Of("docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, b := range blocks {
		for _, x := range b.Examples {
			if b.Mark != "bench" || strings.HasPrefix(x.Command, "make ") {
				continue
			}
			found++
			if !slices.Contains(steps, "step "+x.Command) {
				t.Errorf("docs/performance.md:%d: scripts/bench does not run %s", x.Line, x.Command)
			}
		}
	}
	if found == 0 {
		t.Error("the page has no benchmark: are its blocks still found?")
	}
}
