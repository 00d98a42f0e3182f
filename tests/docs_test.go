package tests

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/tests/need"
)

// page is a tool's page in docs/: its --help, so that it cannot say anything else.
func page(t *testing.T, tool string) string {
	t.Helper()
	help, err := exec.Command(filepath.Join(bin, tool), "--help").Output()
	if err != nil {
		t.Fatalf("%s --help: %v", tool, err)
	}
	text := strings.ReplaceAll(string(help), "v0.0.0-test", "VERSION")
	return fmt.Sprintf("# %s\n\nThis page is `%s --help`; `make golden` writes it anew.\n\n```\n%s\n```\n", tool, tool, strings.TrimRight(text, "\n"))
}

// The pages of the tools are what --help prints; go test -update writes them.
func TestPages(t *testing.T) {
	for _, tool := range tools {
		path := filepath.Join("..", "docs", tool+".md")
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
			t.Errorf("%s is not what --help prints; run make golden (-want +got):\n%s", path, diff)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

// Relative links in the documentation lead somewhere.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(pages, "../README.md", "../CHANGELOG.md") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllSubmatch(data, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), string(m[1]))); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			}
		}
	}
}

// example is a command of a page, and the lines that the page shows as its output.
type example struct {
	line            int
	command, output string
}

// starts is how a command of a page begins; other indented lines show what the command above them prints.
var starts = regexp.MustCompile(`^(advise|cat|collect|env|evict|find|findmnt|for|grep|gzip|head|install|isolate|jq|ls|printf|ps|report|ss|tail|ulimit|uname|wc) `)

// examples are the indented commands of a page, in its order. One that ends in a pipe goes on in the next line.
func examples(page string) (all []example) {
	open := false
	for i, line := range strings.Split(page, "\n") {
		text, indented := strings.CutPrefix(line, "    ")
		text = strings.TrimSpace(text)
		switch {
		case !indented:
			open = false
		case open:
			all[len(all)-1].command += " " + text
			open = strings.HasSuffix(text, "|")
		case starts.MatchString(text):
			all = append(all, example{line: i + 1, command: text})
			open = strings.HasSuffix(text, "|")
		case len(all) > 0:
			all[len(all)-1].output += text + "\n"
		}
	}
	return all
}

// The commands of the pages for new users that work on a recording end well, and print what the page shows. Commands that look at this
// machine are left out: what they print, and whether they can, is the machine's.
func TestPageCommands(t *testing.T) {
	need.Program(t, "jq", "jq")
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Abs("../scripts")
	if err != nil {
		t.Fatal(err)
	}
	machine := regexp.MustCompile(`\bcollect |\bisolate `)
	recording := regexp.MustCompile(`(day|samples)\.jsonl|advise\.yaml|evict\.yaml`)
	// What the pages expect to be there, for those that do not make it themselves.
	const begin = "gzip -dc scripts/demo-48cpu.jsonl.gz | advise | evict --dry-run > day.jsonl"
	for _, page := range []string{"concepts", "faq", "troubleshooting", "cheatsheet"} {
		text, err := os.ReadFile(filepath.Join("..", "docs", page+".md"))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.Symlink(scripts, filepath.Join(dir, "scripts")); err != nil {
			t.Fatal(err)
		}
		ran := 0
		for _, x := range append([]example{{command: begin}}, examples(string(text))...) {
			if machine.MatchString(x.command) || !recording.MatchString(x.command) {
				continue
			}
			ran++
			run := exec.Command(bash, "-o", "pipefail", "-c", x.command)
			run.Dir = dir
			run.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			var stderr bytes.Buffer
			run.Stderr = &stderr
			out, err := run.Output()
			if err != nil {
				t.Errorf("docs/%s.md:%d: %s: %v: %s", page, x.line, x.command, err, stderr.String())
			}
			if diff := cmp.Diff(x.output, string(out)); x.output != "" && diff != "" {
				t.Errorf("docs/%s.md:%d: %s prints something else (-page +printed):\n%s", page, x.line, x.command, diff)
			}
		}
		if ran < 5 {
			t.Errorf("docs/%s.md: %d commands were run, and 5 at least were expected: are its examples still found?", page, ran)
		}
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
	for _, target := range strings.Fields(string(phony)) {
		if !regexp.MustCompile(`(?m)^` + target + ` +\S`).Match(out) {
			t.Errorf("make help does not list %s:\n%s", target, out)
		}
	}
}

// --version and shell completion work for every tool.
func TestVersionAndCompletion(t *testing.T) {
	for _, tool := range tools {
		out, err := exec.Command(filepath.Join(bin, tool), "--version").Output()
		if want := tool + " version v0.0.0-test\n"; err != nil || string(out) != want {
			t.Errorf("%s --version = %q, %v; want %q", tool, out, err, want)
		}
		script := fmt.Sprintf(`. ../scripts/completion.bash; COMP_WORDS=(%s --log); COMP_CWORD=1; _polder_complete; printf '%%s\n' "${COMPREPLY[@]}"`, tool)
		complete := exec.Command("bash", "-c", script)
		complete.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err = complete.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--log-level") || strings.Contains(string(out), "--output") {
			t.Errorf("completion of '%s --log' = %q, %v; want --log-level and its like", tool, out, err)
		}
	}
}
