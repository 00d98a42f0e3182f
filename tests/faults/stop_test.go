package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/tick"
	"polder/tests/await"
	"polder/tests/deep"
	"polder/tests/group"
	"polder/tests/need"
)

// writable creates the files in the copy's containers that isolate writes.
func writable(t *testing.T, root string) {
	t.Helper()
	scopes, err := filepath.Glob(filepath.Join(root, "sys/fs/cgroup/kubepods.slice/*.slice/*.slice/*.scope"))
	if err != nil || len(scopes) == 0 {
		t.Fatalf("containers %v, %v", scopes, err)
	}
	for _, scope := range append(scopes, filepath.Join(root, "sys/fs/cgroup/batch.slice")) {
		put(t, filepath.Join(scope, "cpuset.cpus"), "\n")
		put(t, filepath.Join(scope, "cpuset.cpus.effective"), "0-47\n")
	}
}

// isFull reports whether a FIFO has no room at all.
func isFull(t *testing.T, f *os.File) bool {
	t.Helper()
	c, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	ready := 0
	if cErr := c.Control(func(fd uintptr) { ready, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0) }); cErr != nil || err != nil && !errors.Is(err, unix.EINTR) {
		t.Fatal(cErr, err)
	}
	return ready == 0 && err == nil
}

// TestFaultStopped stops a stage (SIGSTOP) while ticks of 30 KB come, until the FIFOs before it are full and their ticks
// are stale: collect drops ticks by whole lines and counts them, no tool's memory grows, and no tool acts on ticks that are stale
// when the stage resumes.
func TestFaultStopped(t *testing.T) {
	t.Parallel()
	const maxAge = 5 * time.Second                    // on a busy machine a tick takes a while to pass five tools
	still := deep.Or(maxAge+maxAge/2, 30*time.Second) // after the FIFOs are full
	// A tool before the victim that may drop ticks does so once the FIFOs from there on are full.
	fillsUp := map[string][]int{"advise": {0}, "isolate": {0, 1}, "evict": {2}, "report": {2, 3}}
	for _, victim := range []string{"advise", "isolate", "evict", "report"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			root, dir := newMachine(t, 45), t.TempDir()
			runClock(t, root)
			writable(t, root)
			var paths []string
			for i := range 5 {
				paths = append(paths, newFIFO(t, dir, fmt.Sprint(i)))
			}
			var before []*os.File // of the victim
			for _, i := range fillsUp[victim] {
				f, err := os.OpenFile(paths[i], os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				before = append(before, f)
			}
			dropped := newCounter()
			out := openSink(t, paths[4], dropped.note)
			acts := []string{"--node", "n", "--max-age", maxAge.String()}
			stages := map[string]*proc{
				"collect": launch(t, "collect", "--root", root, "--node", "n", "--interval", "25ms", "--output", paths[0]),
				"advise":  launch(t, "advise", "--input", paths[0], "--output", paths[1]),
				"isolate": launch(t, "isolate", append([]string{"--root", root, "--input", paths[1], "--output", paths[2], "--stale-after", "0", "--journal", filepath.Join(dir, "journal")}, acts...)...),
				"evict":   launch(t, "evict", append([]string{"--input", paths[2], "--output", paths[3]}, acts...)...),
				"report":  launch(t, "report", append([]string{"--input", paths[3], "--output", paths[4], "--to", "prometheus", "--metrics-file", filepath.Join(dir, "node.prom")}, acts...)...),
			}
			names := []string{"collect", "advise", "isolate", "evict", "report"}
			_, came := out.await(60, "the pipe runs", func(x seen) bool {
				return x.Isolation != nil && x.Isolation.Refused == "" && x.Eviction != nil && x.Report != nil
			})
			memoryBefore := map[string]int{}
			for name, p := range stages {
				memoryBefore[name] = p.anonymousKiB()
			}
			stages[victim].signal(unix.SIGSTOP)
			stages[victim].standsStill()
			begin := time.Now() // what was sampled before may have been in time for the victim
			await.Until(t, patient, "the FIFOs before "+victim+" are full", await.Is(func() bool {
				return !slices.ContainsFunc(before, func(f *os.File) bool { return !isFull(t, f) })
			}))
			await.During(t, still, "while "+victim+" stands still", func() string { // the waiting ticks become older than --max-age
				for _, p := range stages {
					p.alive()
				}
				return ""
			})
			during := map[string]int{}
			for name, p := range stages {
				p.alive()
				during[name] = p.anonymousKiB()
			}
			resumed := time.Now()
			stages[victim].signal(unix.SIGCONT)
			_, at := out.await(came, "the pipe acts again", func(x seen) bool {
				return x.Time.After(resumed) && x.Isolation != nil && x.Isolation.Refused == "" && x.Eviction != nil && x.Eviction.Refused == "" && x.Report != nil && x.Report.Refused == ""
			})
			stale := 0
			for _, x := range out.all()[came:at] {
				// Older than the limit when the stage resumed, so older still when those behind it read it.
				if old := x.Time.After(begin) && x.Time.Add(maxAge).Before(resumed); !old {
					continue
				}
				switch {
				case (victim == "advise" || victim == "isolate") && x.Isolation.Refused == "" && x.at.After(resumed): // before, it was in time
					t.Errorf("isolate acted on a tick of %s at %s", x.Time, x.at)
				case !x.at.After(resumed) || !x.Time.Add(maxAge+50*time.Millisecond).Before(resumed):
				case x.Eviction.Refused == "" && victim != "report": // which has waiting ticks that evict had in time
					t.Errorf("evict acted on a tick of %s at %s", x.Time, x.at)
				case x.Report.Refused == "":
					t.Errorf("report acted on a tick of %s at %s", x.Time, x.at)
				}
				stale++
			}
			var memory strings.Builder
			for _, name := range names {
				after := stages[name].anonymousKiB()
				fmt.Fprintf(&memory, " %s %d/%d/%d", name, memoryBefore[name], during[name], after)
				if grown := max(during[name], after) - memoryBefore[name]; grown > 16<<10 {
					t.Errorf("%s has grown by %d KiB while %s stood still", name, grown, victim)
				}
			}
			out.whole()
			counts := map[string]int64{}
			await.Until(t, patient, "ticks were dropped and counted", await.Is(func() bool {
				counts["collect"] = dropped.most()
				if all := out.all(); victim == "evict" || victim == "report" { // isolate precedes them, and drops ticks as collect does
					counts["isolate"] = all[len(all)-1].Isolation.DroppedTicks
				}
				return counts["collect"]+counts["isolate"] > 0
			}))
			for name, p := range stages {
				if strings.Contains(p.log.String(), "dropped a line") {
					t.Errorf("%s got an invalid line: %s", name, p.log)
				}
			}
			t.Logf("figures | %s stopped | %s | ticks dropped and counted: %v | %d stale ticks, none acted on | anonymous memory before/during/after KiB:%s", victim, still, counts, stale, memory.String())
		})
	}
}

// counter keeps the largest sample.droppedTicks of the lines that pass.
type counter struct{ seen chan int64 }

func newCounter() *counter {
	c := &counter{make(chan int64, 1)}
	c.seen <- 0
	return c
}

func (c *counter) note(line []byte) error {
	var sample struct {
		Dropped int64 `json:"droppedTicks"`
	}
	x, err := tick.ParseLine(line)
	if err == nil {
		err = tick.Unmarshal(x.Section(tick.SectionSample), &sample)
	}
	c.seen <- max(sample.Dropped, <-c.seen)
	return err
}

func (c *counter) most() int64 {
	n := <-c.seen
	c.seen <- n
	return n
}

// TestFaultSilence stops the ticks: collect and advise have ended while the service gets busy, or collect is stopped.
// The fallback applies within --stale-after, and the next advice restores the normal state.
func TestFaultSilence(t *testing.T) {
	need.Root(t)
	t.Parallel()
	t.Run("gone", func(t *testing.T) { t.Parallel(); silence(t, false) })
	t.Run("stopped", func(t *testing.T) { t.Parallel(); silence(t, true) })
}

// withoutMachineUse forwards ticks to a FIFO without the usage of the whole machine: other work on it must not lower the test's
// batch offer.
func withoutMachineUse(t *testing.T, path string) func([]byte) error {
	t.Helper()
	out, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	return func(line []byte) error {
		var x map[string]any
		if err := json.Unmarshal(line, &x); err != nil {
			return err
		}
		if sample, ok := x["sample"].(map[string]any); ok {
			delete(sample, "cpu")
		}
		edited, err := json.Marshal(x)
		if err != nil {
			return err
		}
		_, err = out.Write(append(edited, '\n'))
		return err
	}
}

// adviceIsBack is what isolate logs when it acts on a tick after a fallback.
const adviceIsBack = "advice arrives again"

// silence stops collect, or ends it and advise.
func silence(t *testing.T, stopped bool) {
	what := map[bool]string{false: "collect and advise gone", true: "collect stopped"}[stopped]
	const staleAfter = 2 * time.Second
	gone := deep.Or(2*staleAfter, time.Minute)
	top := group.New(t, nil, fmt.Sprintf("silence-%t", stopped))
	service, batch := group.New(t, top, "service"), group.New(t, top, "batch")
	batch.Sleep(t)
	service.Run(t, "while :; do sleep 0.02; done") // a little: a service without any usage counts as unknown
	dir := t.TempDir()
	classify := filepath.Join(dir, "classify.yaml")
	put(t, classify, fmt.Sprintf("rules:\n  - {cgroup: %s, class: shared}\n  - {cgroup: %s, class: reclaimed}\n", service.Name, batch.Name))
	sampled, first, second, third := newFIFO(t, dir, "sampled"), newFIFO(t, dir, "1"), newFIFO(t, dir, "2"), newFIFO(t, dir, "3")
	in, out := openSink(t, sampled, withoutMachineUse(t, first)), openSink(t, third, nil)
	journal := filepath.Join(dir, "journal")
	initial := service.Limits() + batch.Limits()
	collect := launch(t, "collect", "--classify", classify, "--node", "n", "--interval", "200ms", "--output", sampled)
	advise := launch(t, "advise", "--input", first, "--output", second, "--hold", "0s", "--floor-cpu", "150m", "--reserve-cpu", "100m", "--limit", "quota")
	isolate := launch(t, "isolate", "--node", "n", "--stale-after", staleAfter.String(), "--input", second, "--output", third, "--journal", journal)

	// One step of shrinking at a time, until batch has all that is not needed.
	wants := func(list []tick.Cgroup) string {
		for _, c := range list {
			if c.Cgroup == batch.Name {
				if c.CPUMaxMilliCPU != nil {
					return fmt.Sprint(*c.CPUMaxMilliCPU)
				}
				return c.CPUSetCPUs
			}
		}
		return ""
	}
	has := func(want string) bool { // on few CPUs the advice is by quota, else by CPU list
		return batch.Read("cpu.cfs_quota_us") == want+"00" || batch.Read("cpuset.cpus") == want || strings.HasPrefix(batch.Read("cpu.max"), want+"00 ")
	}
	calm, _ := out.await(10, "the batch side has more than the floor", func(x seen) bool {
		return x.Advice != nil && x.Isolation.Refused == "" && wants(x.Advice.Fallback) != "" && wants(x.Advice.Cgroups) != wants(x.Advice.Fallback)
	})
	floor := wants(calm.Advice.Fallback)

	stages := map[string]*proc{"collect": collect, "advise": advise, "isolate": isolate}
	before := map[string]int{}
	for name, p := range stages {
		before[name] = p.anonymousKiB()
	}
	from := len(out.all())
	if stopped {
		collect.signal(unix.SIGSTOP)
		collect.standsStill()
	} else {
		collect.stop(unix.SIGTERM)
	}
	await.Until(t, patient, "the last tick has passed the pipe", func() string {
		if last, passed := in.last(t), out.last(t); last.IsZero() || !last.Equal(passed) {
			return fmt.Sprintf("that of %s has; the last one is of %s", passed, last)
		}
		return ""
	})
	if !stopped {
		advise.stop(unix.SIGTERM)
		service.Busy(t)
	}
	// On a busy machine the fallback may have been applied before as well, in a gap between two ticks.
	await.Until(t, patient, "the fallback is applied", func() string {
		if log := isolate.log.String(); strings.LastIndex(log, "no advice: fallback applied") <= strings.LastIndex(log, adviceIsBack) {
			return "the log is:\n" + log
		}
		return ""
	})
	took := time.Since(out.last(t))
	if took < staleAfter {
		t.Errorf("the fallback was applied %s after the last tick; want --stale-after %s", took, staleAfter)
	}
	await.During(t, gone, "in the silence", func() string {
		if has(floor) {
			return ""
		}
		return fmt.Sprintf("the batch side has %s; want the floor of %s", batch.Limits(), floor)
	})
	isolate.alive()

	if stopped {
		for name, p := range stages {
			if grown := p.anonymousKiB() - before[name]; grown > 4<<10 {
				t.Errorf("%s has grown by %d KiB while collect stood still", name, grown)
			}
		}
	}
	resumed, returns := time.Now(), strings.Count(isolate.log.String(), adviceIsBack)
	if stopped {
		collect.signal(unix.SIGCONT)
	} else {
		collect.start()
		advise.start()
	}
	back, _ := out.await(from, "a tick after the fallback", func(x seen) bool { return x.Isolation != nil && x.Isolation.Fallback })
	written := "" // the last value that isolate reports as written; what the fallback wrote is in the tick after it
	next, _ := out.await(from, "normal is back", func(x seen) bool {
		if x.Time.Before(back.Time) {
			return false
		}
		for _, w := range x.Isolation.Writes {
			if w.Cgroup == batch.Name {
				written = w.New
			}
		}
		return x.Time.After(resumed) && x.Isolation.Refused == "" && wants(x.Advice.Cgroups) != ""
	})
	if want := wants(next.Advice.Cgroups); written != want && written != want+"00" && !strings.HasPrefix(written, want+"00 ") {
		t.Errorf("with the next advice %q was written; want %s: %+v", written, want, next.Isolation)
	}
	isolate.log.Await(t, patient, adviceIsBack, returns+1)
	t.Logf("figures | %s | %s | fallback %s after the last tick (--stale-after %s), held; then %s by the next tick", what, gone, took.Round(time.Second/10), staleAfter, wants(next.Advice.Cgroups))
	collect.stop(unix.SIGTERM)
	advise.stop(unix.SIGTERM)
	isolate.stop(unix.SIGTERM)
	_, log := runTool(t, 0, nil, "isolate", "--restore", "--if-exists", "--journal", journal)
	if now := service.Limits() + batch.Limits(); now != initial {
		t.Errorf("after --restore limits are %s; want %s: %s", now, initial, log)
	}
}
