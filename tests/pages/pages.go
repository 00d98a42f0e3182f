// Package pages reads the commands of README.md and docs/, with the place where each of them runs: every command has one place, and runs
// there as it is written.
package pages

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Places are the marks of blocks whose commands need more than this machine's kernel, with the test that runs or checks them. A mark is a
// comment in the line above the block, which no reader sees: <!-- run: cluster -->.
var Places = map[string]string{
	"bench":    "run as written, the long ones with QUICK=1: tests/supervisor (TestBenchmarkPages) and, on a control plane, tests/cluster/deploy (TestBenchmarkPage)",
	"checkout": "run as written in the checkout: tests/machine (TestDemo, TestCheckoutPages)",
	"cluster":  "run as written on a control plane: tests/cluster/deploy (TestPages)",
	"docker":   "looked up: there is neither docker nor a registry; tests/node runs the image that scripts/image makes",
	"fleet":    "run as written on a control plane: tests/cluster/fleet (TestPages)",
	"guide":    "run as written on the guide's node of 48 CPUs: tests/vmnode (TestKubernetesGuide)",
	"suite":    "looked up: no test can run the suites in itself; .ci/run calls make test and make test-deep, of which the others are parts",
	"memory":   "run as written but for the size of 175G, on a node of 2 GiB: tests/vmnode (TestKubernetesMemory)",
	"node":     "run as written on a real kubelet: tests/node/deploy (TestPages)",
	"package":  "run as written with a release's files under systemd: tests/supervisor (TestPackagePages)",
	"systemd":  "run as written under systemd: tests/supervisor (TestSystemdPages)",
}

// Lookups are the marks of Places whose commands no test runs.
var Lookups = []string{"docker", "suite"}

// Endless marks a block whose collect continues, for later commands of the block, until the block ends it. A block with the mark
// "ctrl-c FILE" continues until FILE has content. In all others collect ends after two ticks, where a reader would press Ctrl-C.
const Endless = "endless"

// Terminal marks a block whose commands draw on a screen: each runs on its own terminal, until it has drawn.
const Terminal = "terminal"

// Top is the repository's directory.
func Top() (string, error) {
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		dir = filepath.Dir(dir)
	}
	return "", fmt.Errorf("find the repository above the working directory: %w", err)
}

// generated are the tools' pages: those are their --manual.
var generated = []string{"collect", "advise", "isolate", "evict", "report", "collect-fleet", "evict-fleet", "report-fleet"}

// Names are the pages that are not generated, from the repository's directory.
func Names() ([]string, error) {
	top, err := Top()
	if err != nil {
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(top, "docs/*.md"))
	if err != nil {
		return nil, err
	}
	all := []string{"CONTRIBUTING.md", "README.md", "SECURITY.md"}
	for _, path := range found {
		if !slices.Contains(generated, strings.TrimSuffix(filepath.Base(path), ".md")) {
			all = append(all, filepath.Join("docs", filepath.Base(path)))
		}
	}
	return all, nil
}

// Of returns the blocks of a page, in its order, and the page's text.
func Of(page string) ([]Block, string, error) {
	top, err := Top()
	if err != nil {
		return nil, "", err
	}
	text, err := os.ReadFile(filepath.Join(top, page))
	if err != nil {
		return nil, "", err
	}
	all, err := blocks(page, string(text))
	return all, string(text), err
}

// Marked returns the blocks of all pages that have a mark.
func Marked(mark string) (all []Block, err error) {
	names, err := Names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		blocks, _, err := Of(name)
		if err != nil {
			return nil, err
		}
		for _, b := range blocks {
			if b.Mark == mark {
				all = append(all, b)
			}
		}
	}
	return all, nil
}

// A Block is a group of commands of a page: an indented block, or a fence with the language sh. A fence with the language
// output is the output of the last command above it.
type Block struct {
	Page     string
	Line     int // of its first line
	Mark     string
	Examples []Example
}

// Example is a command of a page, and the lines that the page shows as its output.
type Example struct {
	Line            int
	Command, Output string
}

// starts is how a command of a page begins, after optional variables' values. Any other line of a block is the output of the
// command above it, so that a command that is missing here fails as output that was not printed.
var starts = regexp.MustCompile(`^(?:[A-Z_]+=\S+ )*(advise|apt|apt-get|cat|collect|colocate|ctr|curl|docker|echo|env|evict|find|findmnt|for|` +
	`git|go|grep|gzip|head|helm|install|isolate|journalctl|jq|kill|kubectl|ls|make|mkdir|printf|ps|report|` +
	`rm|s6-svc|s6-svscanctl|s6-svstat|scripts/\S+|ss|` +
	`systemctl|tail|tar|ulimit|uname|wc|/usr/local/lib/polder/s6/start) `)

var (
	mark  = regexp.MustCompile(`^<!-- run: (.+) -->$`)
	fence = regexp.MustCompile("^ *```(.*)$")
)

// blocks returns the blocks of commands of a page, in its order.
func blocks(page, text string) (all []Block, err error) {
	lines := strings.Split(text, "\n")
	above := "" // the last line that is not blank
	for i := 0; i < len(lines); i++ {
		first, end := i, i
		language := fence.FindStringSubmatch(lines[i])
		switch {
		case language != nil:
			first++
			for end = first; end < len(lines) && fence.FindStringSubmatch(lines[end]) == nil; end++ {
			}
			if language[1] == "output" && len(all) > 0 && len(all[len(all)-1].Examples) > 0 {
				last := &all[len(all)-1]
				last.Examples[len(last.Examples)-1].Output += strings.Join(lines[first:end], "\n") + "\n"
			}
			if language[1] != "sh" {
				above, i = "", end
				continue
			}
		case strings.HasPrefix(lines[i], "    ") && (i == 0 || lines[i-1] == "" || mark.MatchString(lines[i-1])):
			indented := func(i int) bool { return i < len(lines) && strings.HasPrefix(lines[i], "    ") }
			for indented(end) || end < len(lines) && lines[end] == "" && indented(end+1) {
				end++
			}
		default:
			if lines[i] != "" {
				above = lines[i]
			}
			continue
		}
		b := Block{Page: page, Line: first + 1}
		if m := mark.FindStringSubmatch(strings.TrimSpace(above)); m != nil {
			b.Mark = m[1]
		}
		if b.Examples, err = examples(lines[first:end], first+1); err != nil {
			return nil, fmt.Errorf("%s:%w", page, err)
		}
		all = append(all, b)
		above, i = "", max(end-1, first)
		if language != nil {
			i = end
		}
	}
	return all, nil
}

// examples are the commands of a block's lines, the first of which has a number. A command has further lines where bash needs them.
func examples(lines []string, number int) (all []Example, err error) {
	prompt := slices.ContainsFunc(lines, func(s string) bool { return strings.HasPrefix(strings.TrimSpace(s), "$ ") })
	indent := ""
	if len(lines) > 0 {
		indent = lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], " "))]
	}
	for i := 0; i < len(lines); i++ {
		text := strings.TrimPrefix(lines[i], indent)
		command, isCommand := strings.CutPrefix(text, "$ ")
		if !prompt {
			isCommand = starts.MatchString(text + " ")
		}
		switch {
		case text == "" || strings.HasPrefix(text, "#") && !prompt:
		case isCommand:
			x := Example{Line: number + i, Command: command}
			for incomplete(x.Command) {
				if i++; i == len(lines) {
					return nil, fmt.Errorf("%d: the command does not end: %s", x.Line, x.Command)
				}
				x.Command += "\n" + strings.TrimPrefix(lines[i], indent)
			}
			all = append(all, x)
		case len(all) == 0:
			return nil, fmt.Errorf("%d: %q is no command that this test knows: what is no command is in a fence, ```text", number+i, text)
		default:
			all[len(all)-1].Output += text + "\n"
		}
	}
	return all, nil
}

// incomplete reports whether bash would ask for another line.
func incomplete(command string) bool {
	if strings.HasSuffix(command, "\\") {
		return true
	}
	out, _ := exec.Command("bash", "-n", "-c", command).CombinedOutput() // its output decides
	return regexp.MustCompile(`unexpected end of file|unexpected EOF|here-document`).Match(out)
}
