package apply

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
	"polder/tests/await"
	"polder/tests/binaries"
)

// running is a running tool.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	logs *bytes.Buffer
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{t: t, cmd: exec.Command(binaries.Path(t, "isolate"), append([]string{"--node", "n"}, args...)...), logs: &bytes.Buffer{}}
	r.cmd.Stderr = r.logs
	var err error
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
	await.Until(t, 3*time.Minute, what, await.Is(is))
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
	r := start(t, "--root", root, "--stale-after", "1s", "--max-age", "10m")
	r.send(0, advice)
	if out := r.next(); out.Applied != 1 || out.Fallback {
		t.Fatalf("%+v", out)
	}
	eventually(t, "the fallback after silence", weight("2"))

	r.send(0, advice)
	if out := r.next(); !out.Fallback || out.Applied != 2 {
		t.Errorf("the tick after the fallback: %+v", out)
	}
	// On a busy machine more than a second may pass between two ticks, and then the fallback is correct.
	normal := func(what string) {
		t.Helper()
		eventually(t, what, func() bool {
			r.send(0, advice)
			out := r.next()
			return !out.Fallback && out.Applied == 0 && weight("50")()
		})
	}
	normal("the ticks after that")

	// Ticks that are too old, and ticks without advice, count as silence too.
	for _, c := range []struct {
		name string
		send func()
	}{
		{"old ticks", func() { r.send(time.Hour, advice) }},
		{"ticks without advice", func() { r.send(0, nil) }},
	} {
		isFallback := false
		eventually(t, "the fallback under "+c.name, func() bool {
			c.send()
			isFallback = r.next().Fallback || isFallback
			return weight("2")() && isFallback
		})
		normal("the ticks after " + c.name)
	}
}

func TestDryRunHasNoFallback(t *testing.T) {
	_, base := newCopy(t, map[string]string{"batch/cpu.weight": "100"})
	fallback := &tick.Advice{Fallback: []tick.Cgroup{{Cgroup: "/batch", CPUWeight: p(2)}}}
	r := start(t, "--root", strings.TrimSuffix(base, "/sys/fs/cgroup"), "--stale-after", "20ms", "--max-age", "10m", "--dry-run")
	r.send(time.Hour, fallback)
	r.next()
	// Another isolate that starts later with write permission applies the fallback meanwhile.
	_, other := newCopy(t, map[string]string{"batch/cpu.weight": "100"})
	acts := start(t, "--root", strings.TrimSuffix(other, "/sys/fs/cgroup"), "--stale-after", "20ms", "--max-age", "10m", "--journal", filepath.Join(t.TempDir(), "journal"))
	acts.send(0, fallback)
	acts.next()
	eventually(t, "the fallback of one that acts", func() bool { return read(t, other, "batch/cpu.weight") == "2" })
	r.send(0, nil)
	if out := r.next(); out.Fallback || read(t, base, "batch/cpu.weight") != "100" {
		t.Errorf("%+v, weight %s", out, read(t, base, "batch/cpu.weight"))
	}
}

// TestRestoreAfterSIGKILL repeatedly kills the tool at a random moment, with external changes in between.
func TestRestoreAfterSIGKILL(t *testing.T) {
	names := []string{"batch", "batch/pod", "batch/pod/c", "serve"}
	tree := newRealTree(t, names...)
	tree.set("cpu", "batch", "cpu.shares", "777")
	tree.set("cpu", "batch", "cpu.cfs_quota_us", "150000")
	first := tree.snapshot(names...)
	journal := filepath.Join(t.TempDir(), "journal")

	squeezed := tree.desired()
	easy := tree.desired()
	easy[0].CPUSetCPUs, easy[0].CPUMaxMilliCPU, easy[0].CPUIdle, easy[1].CPUMaxMilliCPU = "0-1", p(1900), new(false), p(1000)
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
			desired := squeezed
			if i%2 == 1 {
				desired = easy
			}
			r.send(0, &tick.Advice{Cgroups: desired})
		}
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		if round%2 == 0 {
			continue // the next run continues from the journal
		}
		out, err := exec.Command(binaries.Path(t, "isolate"), "--restore", "--if-exists", "--journal", journal).CombinedOutput()
		if err != nil {
			t.Fatalf("restore: %v\n%s", err, out)
		}
		if diff := cmp.Diff(first, tree.snapshot(names...)); diff != "" {
			t.Fatalf("round %d: after the restore (-first +now):\n%s\n%s", round, diff, out)
		}
	}
}
