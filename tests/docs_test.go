package tests

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// page is a tool's page in docs/: its --manual, so that the two cannot differ.
func page(t *testing.T, tool string) string {
	t.Helper()
	manual, err := command(tool, "--manual").Output()
	if err != nil {
		t.Fatalf("%s --manual: %v", tool, err)
	}
	return fmt.Sprintf("<!-- %s --manual: make golden regenerates this page. -->\n%s", tool, manual)
}

// The pages of the tools are the output of --manual; go test -update writes them.
func TestPages(t *testing.T) {
	for _, tool := range allCommands {
		path := filepath.Join("..", "docs", id(tool)+".md")
		want := page(t, tool)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is not what --manual prints; run make golden (-want +got):\n%s", path, diff)
		}
	}
}

var (
	link       = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]*))?\)`)
	heading    = regexp.MustCompile(`^ {0,3}#{1,6} +(.*?)(?: +#+)? *$`)
	codeFence  = regexp.MustCompile("^ {0,3}(?:```|~~~)")
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
)

// Relative links in the documentation have existing targets, and anchors of pages name a heading there.
func TestLinks(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"../*.md", "../docs/*.md", "../docs/*/*.md", "../deploy/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	anchors := map[string][]string{}
	for _, path := range pages {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(data), -1) {
			target := path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(path), m[1])
			}
			content, err := os.Stat(target)
			if err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
				continue
			}
			if m[2] == "" || content.IsDir() || filepath.Ext(target) != ".md" {
				continue
			}
			if anchors[target] == nil {
				page, err := os.ReadFile(target)
				if err != nil {
					t.Fatal(err)
				}
				anchors[target] = anchorsOf(string(page))
			}
			if !slices.Contains(anchors[target], m[2]) {
				t.Errorf("%s links to %s#%s: no heading has this anchor", path, m[1], m[2])
			}
		}
	}
}

// anchorsOf returns the anchors that GitHub gives to a page's headings: in lower case, without punctuation, hyphens for spaces, and a
// number after those that the page already has.
func anchorsOf(page string) []string {
	var anchors []string
	isCode := false
	for line := range strings.SplitSeq(page, "\n") {
		if codeFence.MatchString(line) {
			isCode = !isCode
		}
		m := heading.FindStringSubmatch(line)
		if isCode || m == nil {
			continue
		}
		text := linkTarget.ReplaceAllString(m[1], "]")
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, text)
		anchor := name
		for i := 1; slices.Contains(anchors, anchor); i++ {
			anchor = fmt.Sprintf("%s-%d", name, i)
		}
		anchors = append(anchors, anchor)
	}
	return anchors
}

// The anchors are those of GitHub.
func TestAnchors(t *testing.T) {
	const page = "# `--to html`: A page\n## Where this differs, in [Katalyst](k.md#x)\n```\n# code\n```\n" +
		"## Node_1 & node-2\n## Use\n## Use\n## Use-1 ##\n"
	want := []string{"--to-html-a-page", "where-this-differs-in-katalyst", "node_1--node-2", "use", "use-1", "use-1-1"}
	if diff := cmp.Diff(want, anchorsOf(page)); diff != "" {
		t.Errorf("anchors (-want +got):\n%s", diff)
	}
}

// Every target that make help prints exists, and every phony one is printed.
func TestMakeHelp(t *testing.T) {
	out, err := exec.Command("make", "-s", "-C", "..", "help").Output()
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, phony, _ := bytes.Cut(makefile, []byte(".PHONY:"))
	phony, _, _ = bytes.Cut(phony, []byte("\n"))
	for target := range strings.FieldsSeq(string(phony)) {
		if !regexp.MustCompile(`(?m)^` + target + ` +\S`).Match(out) {
			t.Errorf("make help does not list %s:\n%s", target, out)
		}
	}
}

// --version works for every tool, and completion in bash for these and for colocate: flags, and their values where they are listed.
func TestVersionAndCompletion(t *testing.T) {
	for _, tool := range allCommands {
		out, err := command(tool, "--version").Output()
		if want := tool + " version v0.0.0-test\n"; err != nil || string(out) != want {
			t.Errorf("%s --version = %q, %v; want %q", tool, out, err, want)
		}
		if got := completed(t, "_polder_complete", append(strings.Fields(tool), "--log")...); got != "--log-format --log-level" {
			t.Errorf("completion of '%s --log' = %q", tool, got)
		}
	}
	colocate, err := filepath.Abs("../scripts/colocate")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		function string
		words    []string
		want     string
	}{
		{"_polder_complete", []string{"advise", "--policy", ""}, "harvest katalyst koordinator"},
		{"_polder_complete", []string{"advise", "--policy", "=", "ka"}, "katalyst"},
		{"_polder_complete", []string{"advise", "--batch-class", ""}, "idle none weight"},
		{"_polder_complete", []string{"advise", "--limit", "q"}, "quota"},
		{"_polder_complete", []string{"advise", "--shadow", "h"}, "harvest"},
		{"_polder_complete", []string{"report", "--resource-prefix", "koo"}, "koordinator.sh"},
		{"_polder_complete", []string{"evict", "--action", ""}, "delete evict freeze kill log"},
		{"_polder_complete", []string{"evict", "--rules", "memory-pressure-eviction-plugin,rss"}, "memory-pressure-eviction-plugin,rss-overuse-eviction-plugin"},
		{"_polder_complete", []string{"report", "--to", "t"}, "table tty"},
		{"_polder_complete", []string{"collect", "--classify", "x"}, ""},
		{"_polder_complete", []string{"collect", "f"}, "fleet"},
		{"_polder_complete", []string{"collect", "fleet"}, "fleet"},
		{"_polder_complete", []string{"collect", "fleet", "--lease-d"}, "--lease-duration"},
		{"_polder_complete", []string{"collect", "--once", "f"}, ""},
		{"_polder_complete", []string{"evict", "fleet", "--action", ""}, "delete evict log"},
		{"_polder_colocate", []string{colocate, "--ac"}, "--action"},
		{"_polder_colocate", []string{colocate, "--action", ""}, "freeze kill log"},
		{"_polder_colocate", []string{colocate, "--classify", "x"}, ""},
		{"_polder_colocate", []string{colocate, "--dry-run", "--", "--to", "tt"}, "tty"},
	} {
		if got := completed(t, c.function, c.words...); got != c.want {
			t.Errorf("completion of %q = %q; want %q", c.words, got, c.want)
		}
	}
}

// completed returns bash's completions of the last of the words, sorted.
func completed(t *testing.T, function string, words ...string) string {
	t.Helper()
	complete := exec.Command("bash", append([]string{"-c", `. ../scripts/completion.bash; function=$1; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
		$function; printf '%s\n' "${COMPREPLY[@]}"`, "bash", function}, words...)...)
	complete.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "POLDER_BIN="+bin)
	out, err := complete.CombinedOutput()
	if err != nil {
		t.Errorf("completion of %q: %v: %s", words, err, out)
	}
	return strings.Join(slices.Sorted(strings.FieldsSeq(string(out))), " ")
}
