package tests

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"polder/tests/need"
)

// The help of a tool fits on two screens, and in half the width of a wide terminal.
const (
	helpLines    = 100
	helpColumns  = 100
	helpExamples = 5
)

// help is the output of --help.
func help(t *testing.T, tool string) string {
	t.Helper()
	out, err := command(tool, "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%s --help: %v: %s", tool, err, out)
	}
	return string(out)
}

// helpBlocks are the parts of a help between its empty lines, by their first lines.
func helpBlocks(text string) map[string][]string {
	blocks := map[string][]string{}
	for block := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n\n") {
		first, rest, _ := strings.Cut(block, "\n")
		blocks[first] = strings.Split(rest, "\n")
	}
	return blocks
}

// --help fits on two screens, has an option in each line, and names where the rest is. The variables of options and their details are in
// the manual, which names every option.
func TestHelpFits(t *testing.T) {
	option := regexp.MustCompile(`^  --[a-z]`)
	for _, tool := range allCommands {
		text := help(t, tool)
		lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
		if len(lines) > helpLines {
			t.Errorf("%s --help has %d lines; want %d at most", tool, len(lines), helpLines)
		}
		for i, line := range lines {
			if len([]rune(line)) > helpColumns {
				t.Errorf("%s --help: line %d has %d columns; want %d at most:\n%s", tool, i+1, len([]rune(line)), helpColumns, line)
			}
		}
		options := 0
		for first, rest := range helpBlocks(text) {
			// A family's line has the ends of its options' names, and may continue in the next one.
			if first == "Examples:" || strings.HasPrefix(first, "Limits and settings") || !strings.HasPrefix(rest[0], "  --") {
				continue
			}
			for _, line := range rest {
				if option.MatchString(line) {
					options++
				} else {
					t.Errorf("%s --help: the option above has a second line, of %q:\n%s", tool, first, line)
				}
			}
		}
		if options < 10 {
			t.Errorf("%s --help: %d options were found", tool, options)
		}
		for _, want := range []string{"Usage: " + tool + " [options]\n", "\nExit status: 0 ", " POLDER_" + strings.ToUpper(strings.ReplaceAll(tool, " ", "_")) + "_LOG_LEVEL is --log-level", tool + " --manual, man " + id(tool) + ", docs/" + id(tool) + ".md"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s --help lacks %q", tool, want)
			}
		}
		manual := page(t, tool)
		for _, name := range regexp.MustCompile(`(?m)^  (--[a-z-]*[a-z]) `).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(manual, "\n- `"+name[1]+"`: ") && !strings.Contains(manual, "\n- `"+name[1]+" ") {
				t.Errorf("the manual of %s lacks %s", tool, name[1])
			}
		}
	}
}

// helpCommands are the examples of a help: the lines below each sentence.
func helpCommands(lines []string) (commands []string) {
	for i, line := range lines {
		command, is := strings.CutPrefix(line, "    ")
		switch {
		case !is:
			continue
		case i > 0 && strings.HasPrefix(lines[i-1], "    "):
			commands[len(commands)-1] += "\n" + command
		default:
			commands = append(commands, command)
		}
	}
	return commands
}

// Every example of --help runs, on this machine and on a recording, and succeeds. Those that would run for ever end after two ticks, and
// isolate and evict change nothing. The examples that need a cluster run in tests/cluster/fleet.
func TestHelpExamples(t *testing.T) {
	need.Program(t, "jq", "jq")
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	recording := readDemo(t)
	for _, tool := range allCommands {
		commands := helpCommands(helpBlocks(help(t, tool))["Examples:"])
		if len(commands) == 0 || len(commands) > helpExamples {
			t.Errorf("%s --help has %d examples; want 1 to %d", tool, len(commands), helpExamples)
		}
		for _, command := range commands {
			if strings.Contains(command, "--kubeconfig") || strings.Contains(command, "--in-cluster") {
				continue
			}
			dir := t.TempDir()
			for name, content := range map[string]string{
				"day.jsonl":       recording,
				"fleet.jsonl":     fleetTicks,
				"yesterday.jsonl": recording,
				"advise.yaml":     "reserve-cpu: 2\n",
				"pods.json":       `{"apiVersion":"v1","kind":"List","items":[]}`,
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			run := exec.Command(bash, "-o", "pipefail", "-c", command)
			run.Dir = dir
			run.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "POLDER_EVICT_DRY_RUN=true", "POLDER_COLLECT_INTERVAL=200ms")
			if !strings.Contains(command, "--once") {
				run.Env = append(run.Env, "POLDER_COLLECT_COUNT=2")
			}
			if strings.Contains(command, "--restore") {
				run.Env = append(run.Env, "POLDER_ISOLATE_IF_EXISTS=true")
			} else {
				run.Env = append(run.Env, "POLDER_ISOLATE_DRY_RUN=true")
			}
			if out, err := run.CombinedOutput(); err != nil {
				t.Errorf("%s --help: %s: %v: %s", tool, command, err, bytes.TrimSpace(out))
			}
		}
	}
}

// fleetTicks are those of a node whose agent ends, as collect fleet writes them.
const fleetTicks = `{"v":1,"node":"n1","time":"2026-11-21T12:01:00Z","sample":{"intervalSeconds":10,"agent":{"state":"notReady","since":"2026-11-21T12:00:30Z"},"fleet":{"nodes":10,"ready":9,"notReady":1},"pods":[{"uid":"u","namespace":"batch","name":"a","qos":"reclaimed"}]}}
{"v":1,"node":"n1","time":"2026-11-21T12:21:00Z","sample":{"intervalSeconds":10,"agent":{"state":"notReady","since":"2026-11-21T12:00:30Z"},"fleet":{"nodes":10,"ready":9,"notReady":1},"pods":[{"uid":"u","namespace":"batch","name":"a","qos":"reclaimed"}]}}
`

// readDemo is the recording of the guides, moved to noon, the time that the examples use.
func readDemo(t *testing.T) string {
	t.Helper()
	f, err := os.Open("../scripts/demo-48cpu.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(data), "T08:46:", "T12:02:")
}
