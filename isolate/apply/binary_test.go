package apply

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// binary builds the real tool once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "polder-isolate-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "isolate")
	out, err := exec.Command("go", "build", "-o", path, "polder/isolate").CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if built {
		path, _ := binary()
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

var built bool

// running is the tool at work.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	logs *bytes.Buffer
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	built = true
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, cmd: exec.Command(path, append([]string{"--node", "n"}, args...)...), logs: &bytes.Buffer{}}
	r.cmd.Stderr = r.logs
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.out = bufio.NewReader(out)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill(); _ = r.cmd.Wait() })
	return r
}

// send sends a tick of the given age.
func (r *running) send(age time.Duration, advice *tick.Advice) {
	r.t.Helper()
	line, err := tick.Marshal(tick.Tick{V: 1, Node: "n", Time: time.Now().Add(-age).UTC(), Advice: advice})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.in.Write(append(line, '\n')); err != nil {
		r.t.Fatalf("%v; log:\n%s", err, r.logs)
	}
}

func (r *running) next() tick.Isolation {
	r.t.Helper()
	line, err := r.out.ReadBytes('\n')
	if err != nil {
		r.t.Fatalf("%v; log:\n%s", err, r.logs)
	}
	var out tick.Tick
	if err := tick.Unmarshal(line, &out); err != nil || out.Isolation == nil {
		r.t.Fatalf("%v in %s", err, line)
	}
	return *out.Isolation
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func TestFallbackAfterSilence(t *testing.T) {
	_, base := newCopy(t, map[string]string{"batch/cpu.weight": "100"})
	root := strings.TrimSuffix(base, "/sys/fs/cgroup")
	weight := func(want string) func() bool {
		return func() bool { return read(t, base, "batch/cpu.weight") == want }
	}
	advice := &tick.Advice{
		Cgroups:  []tick.Cgroup{{Cgroup: "/batch", CPUWeight: p(50)}},
		Fallback: []tick.Cgroup{{Cgroup: "/batch", CPUWeight: p(2)}},
	}
	r := start(t, "--root", root, "--stale-after", "1s", "--max-age", "10s")
	r.send(0, advice)
	if out := r.next(); out.Applied != 1 || out.Fallback || !weight("50")() {
		t.Fatalf("%+v", out)
	}
	eventually(t, "the fallback after silence", weight("2"))

	r.send(0, advice)
	if out := r.next(); !out.Fallback || out.Applied != 2 || !weight("50")() {
		t.Errorf("the tick after the fallback: %+v", out)
	}
	r.send(0, advice)
	if out := r.next(); out.Fallback || out.Applied != 0 {
		t.Errorf("the next tick: %+v", out)
	}

	// Ticks that are too old to be acted on, and ticks without advice, are silence too.
	for _, c := range []struct {
		name string
		send func()
	}{
		{"old ticks", func() { r.send(time.Hour, advice) }},
		{"ticks without advice", func() { r.send(0, nil) }},
	} {
		told := false
		eventually(t, "the fallback under "+c.name, func() bool {
			c.send()
			told = r.next().Fallback || told
			return weight("2")() && told
		})
		r.send(0, advice)
		if out := r.next(); !weight("50")() || out.Fallback {
			t.Errorf("after %s: %+v", c.name, out)
		}
	}
}

func TestDryRunHasNoFallback(t *testing.T) {
	_, base := newCopy(t, map[string]string{"batch/cpu.weight": "100"})
	r := start(t, "--root", strings.TrimSuffix(base, "/sys/fs/cgroup"), "--stale-after", "20ms", "--dry-run")
	r.send(time.Hour, &tick.Advice{Fallback: []tick.Cgroup{{Cgroup: "/batch", CPUWeight: p(2)}}})
	r.next()
	time.Sleep(200 * time.Millisecond)
	r.send(0, nil)
	if out := r.next(); out.Fallback || read(t, base, "batch/cpu.weight") != "100" {
		t.Errorf("%+v, weight %s", out, read(t, base, "batch/cpu.weight"))
	}
}

// TestRestoreAfterSIGKILL kills the tool at a random moment, again and again, with others' values in between.
func TestRestoreAfterSIGKILL(t *testing.T) {
	names := []string{"batch", "batch/pod", "batch/pod/c", "serve"}
	tree := newRealTree(t, names...)
	tree.set("cpu", "batch", "cpu.shares", "777")
	tree.set("cpu", "batch", "cpu.cfs_quota_us", "150000")
	first := tree.snapshot(names...)
	journal := filepath.Join(t.TempDir(), "journal")

	squeezed := tree.wanted()
	easy := tree.wanted()
	easy[0].CPUSetCPUs, easy[0].CPUMaxMilliCPU, easy[0].CPUIdle, easy[1].CPUMaxMilliCPU = "0-1", p(1900), tick.Ptr(false), p(1000)
	for round := range 10 {
		r := start(t, "--journal", journal, "--log-level", "error")
		go io.Copy(io.Discard, r.out)
		kill := time.After(time.Duration(5+rand.IntN(40)) * time.Millisecond)
	sending:
		for i := 0; ; i++ {
			select {
			case <-kill:
				break sending
			default:
			}
			wanted := squeezed
			if i%2 == 1 {
				wanted = easy
			}
			r.send(0, &tick.Advice{Cgroups: wanted})
		}
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		if round%2 == 0 {
			continue // the next run goes on from the journal
		}
		path, _ := binary()
		out, err := exec.Command(path, "--restore", "--journal", journal).CombinedOutput()
		if err != nil {
			t.Fatalf("restore: %v\n%s", err, out)
		}
		if diff := cmp.Diff(first, tree.snapshot(names...)); diff != "" {
			t.Fatalf("round %d: after the restore (-first +now):\n%s\n%s", round, diff, out)
		}
	}
}
