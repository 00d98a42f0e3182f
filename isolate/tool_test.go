package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"polder/isolate/apply"
	"polder/isolate/reclaim"
	"polder/isolate/resched"
	"polder/isolate/resctrl"
	"polder/lib/cgroup"
	"polder/lib/stage"
	"polder/lib/tick"
)

// machine creates a copy of a v1 machine of 4 CPUs with the cgroup /batch on all of them.
func machine(t *testing.T) (root string, batch func() string) {
	t.Helper()
	root = t.TempDir()
	for path, text := range map[string]string{
		"cgroup.procs": "", "cpuset.cpus": "0-3", "cpuset.mems": "0", "cpuset.effective_cpus": "0-3", "cpuset.effective_mems": "0",
		"batch/cgroup.procs": "", "batch/cpuset.cpus": "0-3", "batch/cpuset.mems": "0", "batch/cpuset.effective_cpus": "0-3", "batch/cpuset.effective_mems": "0",
	} {
		path = filepath.Join(root, "sys/fs/cgroup/cpuset", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root, func() string {
		data, err := os.ReadFile(filepath.Join(root, "sys/fs/cgroup/cpuset/batch/cpuset.cpus"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
}

// Old ticks, ticks without an advice, and an advice without a decision count as silence. After --stale-after of
// silence the fallback applies, and the next advice restores normal operation.
func TestWhatCountsAsSilence(t *testing.T) {
	const fallback = `"fallback":[{"cgroup":"/batch","cpusetCPUs":"0"}]`
	for name, quiet := range map[string]string{
		"no advice":   ``,
		"no decision": `,"advice":{"policy":"p","reasons":["no sample: no decision"],` + fallback + `}`,
		"old ticks":   `,"advice":{"policy":"p","cgroups":[{"cgroup":"/batch","cpusetCPUs":"0-2"}],` + fallback + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			root, batch := machine(t)
			var passed atomic.Int64 // isolate reads its clock after it has passed a tick on, too
			now := func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(passed.Load())) }
			in, input := io.Pipe()
			output, out := io.Pipe()
			done := make(chan int)
			go func() {
				done <- command().Execute(t.Context(), stage.Env{
					Args: []string{
						"isolate", "--root", root, "--journal", filepath.Join(t.TempDir(), "journal"), "--node", "n", "--max-age", "3s",
						"--stale-after", "10h", // of the test's clock, whatever the interval; the real one must not get there
					},
					In: in, Out: out, Err: io.Discard, Getenv: os.Getenv, Now: now,
				})
				out.Close()
			}()
			lines := bufio.NewScanner(output)
			send := func(at time.Time, sections string) *tick.Isolation {
				t.Helper()
				fmt.Fprintf(input, `{"v":1,"node":"n","time":%q,"sample":{"periodSeconds":36000}%s}`+"\n",
					at.Format(time.RFC3339), sections)
				if !lines.Scan() {
					t.Fatalf("no tick: %v", lines.Err())
				}
				l, err := tick.ParseLine(lines.Bytes())
				if err != nil {
					t.Fatal(err)
				}
				decoded, err := l.Decode(tick.SectionIsolation)
				if err != nil {
					t.Fatal(err)
				}
				return decoded.Isolation
			}
			if name == "no decision" { // as of an advise that was started with isolate
				send(now(), quiet)
				passed.Add(int64(9 * time.Hour))
				if i := send(now(), quiet); i.Fallback || batch() != "0-3" {
					t.Errorf("batch on %s, isolation %+v before the first decision; want no change yet", batch(), i)
				}
			}
			good := `,"advice":{"policy":"p","cgroups":[{"cgroup":"/batch","cpusetCPUs":"0-2"}],` + fallback + `}`
			send(now(), good)
			if got := batch(); got != "0-2" {
				t.Fatalf("batch on %s; want the advised 0-2", got)
			}
			stale := func() time.Time {
				if name == "old ticks" {
					return now().Add(-time.Hour)
				}
				return now()
			}
			passed.Add(int64(9 * time.Hour))
			send(stale(), quiet)
			if got := batch(); got != "0-2" {
				t.Errorf("batch on %s after 9 h; want no change yet", got)
			}
			passed.Add(int64(time.Hour))
			if i := send(stale(), quiet); batch() != "0" || !i.Fallback || len(i.Writes) != 1 {
				t.Errorf("batch on %s after 10 h, isolation %+v; want the fallback, reported", batch(), i)
			}
			passed.Add(int64(time.Second))
			if i := send(now(), good); batch() != "0-2" || i.Fallback {
				t.Errorf("batch on %s, isolation %+v; want normal back", batch(), i)
			}
			input.Close()
			if got := <-done; got != 0 {
				t.Errorf("exit status %d", got)
			}
		})
	}
}

// Without --stale-after the fallback is applied after three intervals of the ticks if these are longer than 30 seconds.
func TestSilenceFollowsInterval(t *testing.T) {
	for period, want := range map[int]time.Duration{0: 30 * time.Second, 1: 30 * time.Second, 60: 3 * time.Minute} {
		t.Run(fmt.Sprintf("a tick every %d s", period), func(t *testing.T) {
			root, batch := machine(t)
			args := []string{"isolate", "--root", root, "--journal", filepath.Join(t.TempDir(), "journal"), "--node", "n"}
			synctest.Test(t, func(t *testing.T) {
				in, input := io.Pipe()
				output, out := io.Pipe()
				done := make(chan int)
				go func() {
					done <- command().Execute(t.Context(), stage.Env{
						Args: args, In: in, Out: out, Err: io.Discard, Getenv: os.Getenv, Now: time.Now,
					})
					out.Close()
				}()
				fmt.Fprintf(input, `{"v":1,"node":"n","time":%q,"sample":{"periodSeconds":%d},"advice":{"policy":"p",`+
					`"cgroups":[{"cgroup":"/batch","cpusetCPUs":"0-2"}],"fallback":[{"cgroup":"/batch","cpusetCPUs":"0"}]}}`+"\n",
					time.Now().UTC().Format(time.RFC3339), period)
				if lines := bufio.NewScanner(output); !lines.Scan() {
					t.Fatalf("no tick: %v", lines.Err())
				}
				time.Sleep(want - time.Second)
				if got := batch(); got != "0-2" {
					t.Errorf("batch on %s a second before %s; want the advised 0-2", got, want)
				}
				time.Sleep(2 * time.Second)
				if got := batch(); got != "0" {
					t.Errorf("batch on %s a second after %s; want the fallback 0", got, want)
				}
				input.Close()
				if got := <-done; got != 0 {
					t.Errorf("exit status %d", got)
				}
			})
		})
	}
}

// Ticks without advice do not postpone the fallback, if they end before the time is over.
func TestSilenceCountsFromLastAdvice(t *testing.T) {
	root, batch := machine(t)
	synctest.Test(t, func(t *testing.T) {
		in, input := io.Pipe()
		output, out := io.Pipe()
		done := make(chan int)
		go func() {
			done <- command().Execute(t.Context(), stage.Env{
				Args: []string{"isolate", "--root", root, "--node", "n"}, In: in, Out: out, Err: io.Discard, Getenv: os.Getenv, Now: time.Now,
			})
			out.Close()
		}()
		lines := bufio.NewScanner(output)
		send := func(node, advice string) {
			fmt.Fprintf(input, `{"v":1,"node":%q,"time":%q%s}`+"\n", node, time.Now().UTC().Format(time.RFC3339), advice)
			if !lines.Scan() {
				t.Fatalf("no tick: %v", lines.Err())
			}
		}
		send("n", `,"advice":{"policy":"p","cgroups":[{"cgroup":"/batch","cpusetCPUs":"0-2"}],"fallback":[{"cgroup":"/batch","cpusetCPUs":"0"}]}`)
		time.Sleep(28 * time.Second)
		send("n", "")
		send("another", "")
		if got := batch(); got != "0-2" {
			t.Errorf("batch on %s after 28 s; want the advised 0-2", got)
		}
		time.Sleep(3 * time.Second)
		if got := batch(); got != "0" {
			t.Errorf("batch on %s after 31 s; want the fallback 0", got)
		}
		input.Close()
		if got := <-done; got != 0 {
			t.Errorf("exit status %d", got)
		}
	})
}

// A fallback that failed partly is retried, in a silence and at the end of the input, until all of it is applied.
func TestFailedFallbackIsRetried(t *testing.T) {
	for _, atEnd := range []bool{false, true} {
		t.Run(fmt.Sprintf("at the end %t", atEnd), func(t *testing.T) {
			root, batch := machine(t)
			file := filepath.Join(root, "sys/fs/cgroup/cpuset/batch/cpuset.cpus")
			a := silentTool(t, root, 0, 2, slog.New(slog.DiscardHandler))
			a.lastAdvice = time.Now()
			if atEnd {
				if err := a.end(t.Context()); err != nil {
					t.Error(err)
				}
			} else {
				a.applyFallback()
				if a.fallbackApplied || batch() != "0-3" {
					t.Fatalf("after the first try: silent %t, %s holds %s; want it refused", a.fallbackApplied, file, batch())
				}
				a.applyFallback()
				a.applyFallback()
			}
			if !a.fallbackApplied || batch() != "0" || a.apply.Writer.(*refusing).left != 0 {
				t.Errorf("silent %t, batch on %s; want the fallback", a.fallbackApplied, batch())
			}
			if a.unreported == nil || len(a.unreported.Errors) != 0 || a.unreported.Applied != 1 {
				t.Errorf("to be reported: %+v; want one write and no error", a.unreported)
			}
		})
	}
}

// silentTool returns a tool that has no advice, with /batch on CPU 0 as its fallback, of which the first writes are refused.
func silentTool(t *testing.T, root string, contest, refusals int, log *slog.Logger) *tool {
	t.Helper()
	h, err := cgroup.Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage.Session{Env: stage.Env{Now: time.Now}, Log: log}
	a := &tool{s: s, o: options{root: root, staleAfter: time.Second, atEnd: fallbackAtEnd}}
	a.resched = resched.New(resched.Options{Copy: true})
	options := applyOptions(s, a.o, h)
	options.Contest, options.Writer = contest, &refusing{Hierarchy: h, left: refusals}
	a.apply = apply.New(options)
	t.Cleanup(a.apply.Close)
	a.fallback = []tick.Cgroup{{Cgroup: "/batch", CPUSetCPUs: "0"}}
	return a
}

// While no advice arrives the fallback stays in force: what another program changes is written again, a cgroup that appears is
// confined, and a newer fallback replaces the older one. Rounds that find nothing to do are neither logged nor reported.
func TestFallbackIsMaintained(t *testing.T) {
	root, batch := machine(t)
	cpuset := filepath.Join(root, "sys/fs/cgroup/cpuset")
	var log bytes.Buffer
	a := silentTool(t, root, 5, 0, slog.New(slog.NewTextHandler(&log, nil)))
	a.fallback = append(a.fallback, tick.Cgroup{Cgroup: "/late", CPUSetCPUs: "0"})
	a.applyFallback()
	if batch() != "0" || a.unreported == nil || strings.Count(log.String(), "fallback applied") != 1 {
		t.Fatalf("batch on %s, to be reported: %+v, log:\n%s", batch(), a.unreported, log.String())
	}
	a.unreported = nil
	log.Reset()
	for range 20 {
		a.applyFallback()
	}
	if a.unreported != nil || log.Len() > 0 || !a.fallbackApplied {
		t.Errorf("nothing to do: applied %t, to be reported: %+v, log:\n%s", a.fallbackApplied, a.unreported, log.String())
	}

	put(t, filepath.Join(cpuset, "batch/cpuset.cpus"), "0-3")
	a.applyFallback()
	if batch() != "0" || a.unreported == nil || a.unreported.Applied != 1 || !strings.Contains(log.String(), "fallback applied again") {
		t.Errorf("after an external change: batch on %s, to be reported: %+v, log:\n%s", batch(), a.unreported, log.String())
	}
	a.applyFallback() // finds nothing to do
	if a.unreported == nil || a.unreported.Applied != 1 || len(a.unreported.Errors) != 1 {
		t.Errorf("to be reported: %+v; want the write and the external change", a.unreported)
	}

	for _, name := range []string{"cgroup.procs", "cpuset.cpus", "cpuset.mems", "cpuset.effective_cpus", "cpuset.effective_mems"} {
		data, err := os.ReadFile(filepath.Join(cpuset, name))
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(cpuset, "late", name), strings.TrimSpace(string(data)))
	}
	a.applyFallback()
	if data, err := os.ReadFile(filepath.Join(cpuset, "late/cpuset.cpus")); err != nil || string(data) != "0" {
		t.Errorf("a cgroup that appeared is on %q, %v; want 0", data, err)
	}

	advice := &tick.Advice{Fallback: []tick.Cgroup{{Cgroup: "/batch", CPUSetCPUs: "1"}}}
	a.resctrl = resctrl.New(resctrl.Options{Root: root, Hierarchy: a.apply.Hierarchy, Now: time.Now, Log: a.s.Log})
	a.reclaim = reclaim.New(reclaim.Options{Hierarchy: a.apply.Hierarchy, Root: root, Now: time.Now, Log: a.s.Log})
	defer a.reclaim.Close()
	out, err := a.handle(t.Context(), stage.Incoming{Tick: &tick.Tick{Advice: advice}, Line: new(tick.Line)})
	if err != nil {
		t.Fatal(err)
	}
	if i := out.(tick.Isolation); batch() != "1" || !i.Fallback || i.Applied != 3 || len(i.Writes) != 3 {
		t.Errorf("a newer fallback: batch on %s, isolation %+v; want it and all three writes", batch(), i)
	}
}

// A value that another program keeps changing is left to it during a silence as it is between ticks.
func TestFallbackLeavesContestedValue(t *testing.T) {
	root, batch := machine(t)
	a := silentTool(t, root, 2, 0, slog.New(slog.DiscardHandler))
	a.applyFallback()
	for change := 1; change <= 4; change++ {
		list := fmt.Sprintf("0-%d", 1+change%2)
		put(t, filepath.Join(root, "sys/fs/cgroup/cpuset/batch/cpuset.cpus"), list)
		a.applyFallback()
		if isLeft := batch() == list; isLeft != (change > 2) || a.fallbackApplied {
			t.Errorf("after %d external changes batch is on %s, applied %t", change, batch(), a.fallbackApplied)
		}
	}
}

// What a silence of days wrote is bounded in the next tick.
func TestUnreportedWritesAreBounded(t *testing.T) {
	a := &tool{}
	for i := range 3 {
		writes := make([]tick.Write, apply.MaxListed/2)
		writes[0].New = fmt.Sprint(i)
		a.report(tick.Isolation{Applied: len(writes), Writes: writes})
	}
	if got := a.unreported; len(got.Writes) != apply.MaxListed || got.Writes[0].New != "1" || got.Applied != apply.MaxListed*3/2 {
		t.Errorf("applied %d, %d writes from %q; want all counted and the last %d listed",
			got.Applied, len(got.Writes), got.Writes[0].New, apply.MaxListed)
	}
}

// put writes a file, and creates its directory.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// refusing rejects its first writes.
type refusing struct {
	*cgroup.Hierarchy
	left int
}

func (r *refusing) WriteFile(controller, path, name, value string) error {
	if r.left > 0 {
		r.left--
		return syscall.EIO
	}
	return r.Hierarchy.WriteFile(controller, path, name, value)
}

// A fallback that cannot be applied at the end is a failure, and a signal ends the retries.
func TestFailedFallbackAtEndIsError(t *testing.T) {
	root, _ := machine(t)
	synctest.Test(t, func(t *testing.T) {
		a := silentTool(t, root, 0, 1000, slog.New(slog.DiscardHandler))
		if err := a.end(t.Context()); err == nil || !strings.Contains(err.Error(), "the fallback could not be applied") {
			t.Errorf("end = %v; want a failure", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := a.end(ctx); err != nil {
			t.Errorf("end after a signal = %v; want nil", err)
		}
	})
}
