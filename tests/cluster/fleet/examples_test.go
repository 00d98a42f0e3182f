package fleet

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
	"polder/tests/need"
	"polder/tests/pages"
)

// The examples of --help that access a cluster from outside run on a real one, and succeed. Those that would run for ever end after two
// rounds, and nothing is written.
func TestExamples(t *testing.T) {
	t.Parallel()
	need.Program(t, "jq", "jq")
	l := start(t)
	l.makeNode(l.node(1))
	l.agent(l.node(1), time.Now())
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, ".kube"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(l.AccountFor("centre"), filepath.Join(home, ".kube", "config")); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, tool := range []string{"collect", "evict", "report"} {
		help, err := exec.Command(binaries.Path(t, tool), "fleet", "--help").Output()
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(string(help), "\nExamples:\n")
		text, _, _ = strings.Cut(text, "\n\n")
		// An example begins with its sentence, which is indented less than its lines.
		for _, lines := range regexp.MustCompile(`(?m)^  \S.*$`).Split(text, -1) {
			example := strings.TrimSpace(lines)
			if !strings.Contains(example, "--kubeconfig ~/.kube/config") {
				continue
			}
			ran++
			run := exec.Command("bash", "-o", "pipefail", "-c", example)
			run.Env = append(os.Environ(), "HOME="+home, "PATH="+binaries.Dir(t)+":"+os.Getenv("PATH"), "POLDER_REPORT_FLEET_DRY_RUN=true",
				"POLDER_COLLECT_FLEET_INTERVAL=200ms", "POLDER_COLLECT_FLEET_NODE_SELECTOR=test="+l.name, "POLDER_COLLECT_FLEET_AGENT_NAMESPACE="+l.agents)
			if !strings.Contains(example, "--once") {
				run.Env = append(run.Env, "POLDER_COLLECT_FLEET_COUNT=2")
			}
			if out, err := run.CombinedOutput(); err != nil {
				t.Errorf("%s fleet --help: %s: %v: %s", tool, example, err, bytes.TrimSpace(out))
			}
		}
	}
	if ran < 5 {
		t.Errorf("%d examples ran; want 5 at least", ran)
	}
}

// The commands of docs/fleet.md run as they are written, and print lines of the form that the page shows.
func TestPages(t *testing.T) {
	t.Parallel()
	need.Program(t, "jq", "jq")
	l := start(t)
	l.makeNode(l.node(1))
	l.agent(l.node(1), time.Now())
	blocks, err := pages.Marked("fleet")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, b := range blocks {
		// collect fleet --once waits ten seconds for its lists, and prints what it knows then.
		l.Eventually(controlplane.Soon, fmt.Sprintf("%s:%d prints what the page shows", b.Page, b.Line), func() string { return l.page(b) })
		ran += len(b.Examples)
	}
	if ran < 2 {
		t.Errorf("%d commands ran; want 2", ran)
	}
}

// page runs a block of a page, and returns the difference from it.
func (l *lab) page(b pages.Block) string {
	l.t.Helper()
	home, outputs := l.t.TempDir(), l.t.TempDir()
	if err := os.Mkdir(filepath.Join(home, ".kube"), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Symlink(l.AccountFor("centre"), filepath.Join(home, ".kube", "config")); err != nil {
		l.t.Fatal(err)
	}
	run := exec.Command("bash", "-c", b.Script(outputs, nil))
	run.Env = append(os.Environ(), "HOME="+home, "PATH="+binaries.Dir(l.t)+":"+os.Getenv("PATH"), "POLDER_REPORT_FLEET_DRY_RUN=true",
		"POLDER_COLLECT_FLEET_INTERVAL=200ms", "POLDER_COLLECT_FLEET_NODE_SELECTOR=test="+l.name, "POLDER_COLLECT_FLEET_AGENT_NAMESPACE="+l.agents)
	if !strings.Contains(b.Examples[0].Command, "--once") { // a reader presses Ctrl-C
		run.Env = append(run.Env, "POLDER_COLLECT_FLEET_COUNT=2")
	}
	if out, err := run.CombinedOutput(); err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	for i, x := range b.Examples {
		printed, err := os.ReadFile(filepath.Join(outputs, strconv.Itoa(i)))
		if err != nil || x.Output != "" && shapeOfLine(string(printed)) != shapeOfLine(x.Output) {
			return fmt.Sprintf("%s:%d: %s prints %q (%v); the page has\n%s", b.Page, x.Line, x.Command, printed, err, x.Output)
		}
	}
	return ""
}

// shapeOfLine is the first line with a placeholder for each string and number.
func shapeOfLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return regexp.MustCompile(`\d+`).ReplaceAllString(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(line, "s"), "n")
}
