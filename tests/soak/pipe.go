package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var tools = []string{"collect", "advise", "isolate", "evict", "report"}

const node = "soak" // not the machine's own name: the page is published

// pipe is the five tools, joined by anonymous pipes, and their output.
type pipe struct {
	dir   string // its own: tools, state, journal, logs
	args  map[string][]string
	cmds  map[string]*exec.Cmd
	ended chan string // the tools that have ended, as they do

	waiting  sync.WaitGroup
	mu       sync.Mutex
	statuses map[string]error

	ticks atomic.Int64
	last  atomic.Pointer[tickSummary]
}

// tickSummary is what the soak reads of a tick that has passed the whole pipe.
type tickSummary struct {
	pods   int
	age    time.Duration // when it came out
	length int           // in bytes
}

// newPipe copies the tools to dir: another build may run meanwhile, and the last isolate must be the same.
func newPipe(o options, dir, rootName string) (*pipe, error) {
	p := &pipe{dir: dir, cmds: map[string]*exec.Cmd{}, ended: make(chan string, len(tools)), statuses: map[string]error{}}
	for _, tool := range tools {
		data, err := os.ReadFile(filepath.Join(o.bin, tool))
		if err != nil {
			return nil, fmt.Errorf("%w: run 'make build' first", err)
		}
		if err := os.WriteFile(filepath.Join(dir, tool), data, 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(p.path("classify.yaml"), []byte(classify(rootName, o.load)), 0o644); err != nil {
		return nil, err
	}
	p.args = map[string][]string{
		"collect": {"--interval", o.interval.String(), "--node", node, "--classify", p.path("classify.yaml"), "--state", p.path("collect.state")},
		"advise":  {"--state", p.path("advise.state")},
		"isolate": {"--node", node, "--journal", p.path("journal")},
		"evict":   {"--node", node, "--action", "log", "--state", p.path("evict.state")},
		"report":  {"--node", node, "--to", "prometheus", "--metrics-file", p.path("polder.prom")},
	}
	return p, nil
}

func (p *pipe) path(name string) string { return filepath.Join(p.dir, name) }

// classify writes the rules for services and batch: of the many cgroups, one in five is a service. The batch pods
// together request about five times the machine, so that evict has a pressure near its threshold.
func classify(rootName string, plan loadPlan) string {
	const rules = `rules:
  - {cgroup: '%[1]s/service', class: shared, namespace: soak, requests: {milliCPU: 100, memoryBytes: 16777216}}
  - {cgroup: '%[1]s/*[05]', class: shared, namespace: soak, requests: {milliCPU: 2, memoryBytes: 4194304}}
  - {cgroup: '%[1]s/*', class: reclaimed, namespace: soak, requests: {reclaimedMilliCPU: %[2]d, reclaimedMemoryBytes: 4194304}}
`
	batch := max(1, (plan.standing+plan.churning)*4/5)
	return fmt.Sprintf(rules, rootName, runtime.NumCPU()*4500/batch)
}

// start starts the tools from the last to the first, so that each has its reader.
func (p *pipe) start() error {
	end, out, err := os.Pipe()
	if err != nil {
		return err
	}
	p.waiting.Go(func() { p.count(end) })
	for _, tool := range slices.Backward(tools) {
		var in *os.File
		next := out
		if tool != tools[0] {
			if in, next, err = os.Pipe(); err != nil {
				return errors.Join(err, out.Close())
			}
		}
		err := p.startTool(tool, in, out)
		_ = out.Close()
		if in != nil {
			_ = in.Close()
		}
		if err != nil {
			if in != nil {
				_ = next.Close()
			}
			return err
		}
		out = next
	}
	return nil
}

func (p *pipe) startTool(tool string, in, out *os.File) error {
	log, err := os.Create(p.path(tool + ".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := p.command(tool, p.args[tool]...)
	if in != nil {
		cmd.Stdin = in
	}
	cmd.Stdout, cmd.Stderr = out, log
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmds[tool] = cmd
	p.waiting.Go(func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.statuses[tool] = err
		p.mu.Unlock()
		p.ended <- tool
	})
	return nil
}

// command is a tool of this run, protected from the terminal's Ctrl-C: the soak stops them in order.
func (p *pipe) command(tool string, args ...string) *exec.Cmd {
	cmd := exec.Command(p.path(tool), args...)
	for _, variable := range os.Environ() { // POLDER_* and GO* would make it another run than the page describes
		if !strings.HasPrefix(variable, "POLDER_") && !strings.HasPrefix(variable, "GO") && !strings.HasPrefix(variable, "NODE_NAME=") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	return cmd
}

// count counts the ticks that come out, and decodes one in five.
func (p *pipe) count(end *os.File) {
	defer end.Close()
	lines := bufio.NewReaderSize(end, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		if p.ticks.Add(1)%5 != 1 {
			continue
		}
		var tick struct {
			Time   time.Time
			Sample struct{ Pods []json.RawMessage }
		}
		if json.Unmarshal(line, &tick) == nil {
			p.last.Store(&tickSummary{pods: len(tick.Sample.Pods), age: time.Since(tick.Time), length: len(line)})
		}
	}
}

// stop ends the pipe from its head: the others end with their input. A tool that has to be killed, or ends with another
// status than 0, is in the error.
func (p *pipe) stop() error {
	done := make(chan struct{})
	go func() { p.waiting.Wait(); close(done) }()
	p.signal(syscall.SIGTERM, tools[0])
	late := p.waited(done, 15*time.Second)
	if late {
		p.signal(syscall.SIGTERM, tools...)
		p.waited(done, 15*time.Second)
		p.signal(syscall.SIGKILL, tools...)
		<-done
	}
	var errs []error
	if late {
		errs = append(errs, errors.New("the pipe did not end within 15 s of the end of collect"))
	}
	for _, tool := range tools {
		if err := p.statuses[tool]; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", tool, err))
		}
	}
	return errors.Join(errs...)
}

func (p *pipe) signal(signal syscall.Signal, names ...string) {
	for _, tool := range names {
		if cmd := p.cmds[tool]; cmd != nil {
			_ = cmd.Process.Signal(signal)
		}
	}
}

// waited is true when the time is over first.
func (p *pipe) waited(done <-chan struct{}, limit time.Duration) bool {
	select {
	case <-done:
		return false
	case <-time.After(limit):
		return true
	}
}

// restore runs isolate --restore for what is left of its changes.
func (p *pipe) restore() error {
	if !exists(p.path("journal")) {
		return nil
	}
	out, err := p.command("isolate", "--restore", "--if-exists", "--journal", p.path("journal")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("isolate --restore: %w: %s", err, lastLine(string(out)))
	}
	return nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func (p *pipe) version() string {
	out, err := p.command("collect", "--version").Output()
	if err != nil {
		return "unknown"
	}
	fields := strings.Fields(string(out))
	return fields[len(fields)-1]
}

// diskBytes is what the run keeps on the disk: it must not grow either.
func (p *pipe) diskBytes() (state, logs int64) {
	for _, name := range []string{"journal", "collect.state", "advise.state", "evict.state", "polder.prom"} {
		state += size(p.path(name))
	}
	for _, tool := range tools {
		logs += size(p.path(tool + ".log"))
	}
	return state, logs
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

var logMessage = regexp.MustCompile(`level=(WARN|ERROR) msg=("(?:[^"\\]|\\.)*"|\S+)`)

// logged is what the tools logged above INFO: each message once, with its count and the last line of it.
func (p *pipe) logged() []string {
	counts, examples := map[string]int{}, map[string]string{}
	for _, tool := range tools {
		f, err := os.Open(p.path(tool + ".log"))
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if m := logMessage.FindStringSubmatch(lines.Text()); m != nil {
				key := tool + " " + m[1] + " " + m[2]
				counts[key]++
				_, examples[key], _ = strings.Cut(lines.Text(), m[0])
			}
		}
		_ = f.Close()
	}
	var found []string
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		found = append(found, fmt.Sprintf("%d × %s, the last:%s", counts[key], key, examples[key]))
	}
	return found
}
