package tests

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/tick"
)

// writable gives the copy's containers the files that isolate writes.
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

// TestFaultStopped has a stage stand still (SIGSTOP) for POLDER_FAULT_SECONDS while ticks of 30 KB come: collect gives up
// ticks by whole lines and counts them, nobody grows, and what is stale when the stage goes on is not acted on.
func TestFaultStopped(t *testing.T) {
	skipShort(t)
	t.Parallel()
	still := time.Duration(faults(t, "POLDER_FAULT_SECONDS", 6)) * time.Second
	const maxAge = time.Second
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
			before := map[string]int{}
			for name, p := range stages {
				before[name] = p.rssKiB()
			}
			begin := time.Now()
			stages[victim].signal(unix.SIGSTOP)
			time.Sleep(still)
			during := map[string]int{}
			for name, p := range stages {
				p.alive()
				during[name] = p.rssKiB()
			}
			resumed := time.Now()
			stages[victim].signal(unix.SIGCONT)
			_, at := out.await(came, "the pipe acts again", func(x seen) bool {
				return x.Time.After(resumed) && x.Isolation != nil && x.Isolation.Refused == "" && x.Eviction != nil && x.Eviction.Refused == "" && x.Report != nil && x.Report.Refused == ""
			})
			stale := 0
			for _, x := range out.all()[came:at] {
				// Older than the limit when the stage went on, so older still when those behind it had it in hand.
				if old := x.Time.After(begin) && x.Time.Add(maxAge).Before(resumed); !old {
					continue
				}
				switch {
				case victim == "advise" && x.Isolation.Refused == "", victim == "isolate" && x.Isolation.Refused == "" && x.at.After(resumed):
					t.Errorf("isolate acted on a tick of %s at %s", x.Time, x.at)
				case !x.at.After(resumed) || !x.Time.Add(maxAge+50*time.Millisecond).Before(resumed):
				case x.Eviction.Refused == "" && victim != "report": // which has ticks wait that evict had in time
					t.Errorf("evict acted on a tick of %s at %s", x.Time, x.at)
				case x.Report.Refused == "":
					t.Errorf("report acted on a tick of %s at %s", x.Time, x.at)
				}
				stale++
			}
			var memory strings.Builder
			for _, name := range names {
				after := stages[name].rssKiB()
				fmt.Fprintf(&memory, " %s %d/%d/%d", name, before[name], during[name], after)
				if grown := max(during[name], after) - before[name]; grown > 16<<10 {
					t.Errorf("%s has grown by %d KiB while %s stood still", name, grown, victim)
				}
			}
			out.whole()
			given := map[string]int64{"collect": dropped.most()}
			if all := out.all(); victim == "evict" || victim == "report" { // isolate stands before them, and gives up ticks as collect does
				given["isolate"] = all[len(all)-1].Isolation.DroppedTicks
			}
			if given["collect"]+given["isolate"] == 0 {
				t.Errorf("no tick was dropped in %s", still)
			}
			for name, p := range stages {
				if strings.Contains(p.log.String(), "dropped a line") {
					t.Errorf("%s got a line that is none: %s", name, p.log)
				}
			}
			t.Logf("figures | %s stopped | %s | ticks given up and counted: %v | %d stale ticks, none acted on | RSS before/during/after KiB:%s", victim, still, given, stale, memory.String())
		})
	}
}

// counter takes the largest sample.droppedTicks of the lines that pass.
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

// TestFaultSilence has no ticks come: collect and advise have ended while the service gets busy, or collect stands still.
// The fallback holds within --stale-after, and the next advice brings normal back.
func TestFaultSilence(t *testing.T) {
	skipShort(t)
	needRoot(t)
	t.Parallel()
	t.Run("gone", func(t *testing.T) { t.Parallel(); silence(t, false) })
	t.Run("stopped", func(t *testing.T) { t.Parallel(); silence(t, true) })
}

// silence makes collect stand still, or has it and advise end.
func silence(t *testing.T, stopped bool) {
	what := map[bool]string{false: "collect and advise gone", true: "collect stopped"}[stopped]
	const staleAfter = 2 * time.Second
	gone := time.Duration(faults(t, "POLDER_FAULT_SECONDS", 6)) * 2 * time.Second
	top := newGroup(t, nil, fmt.Sprintf("polder-test-%d-silence-%t", os.Getpid(), stopped))
	service, batch := newGroup(t, top, "service"), newGroup(t, top, "batch")
	batch.sleeper(t)
	service.runs(t, "while :; do sleep 0.02; done") // a little: one that uses nothing at all counts as unknown
	dir := t.TempDir()
	classify := filepath.Join(dir, "classify.yaml")
	put(t, classify, fmt.Sprintf("rules:\n  - {cgroup: %s, class: shared}\n  - {cgroup: %s, class: reclaimed}\n", service.name, batch.name))
	first, second, third := newFIFO(t, dir, "1"), newFIFO(t, dir, "2"), newFIFO(t, dir, "3")
	out := openSink(t, third, nil)
	journal := filepath.Join(dir, "journal")
	initial := service.limits() + batch.limits()
	collect := launch(t, "collect", "--classify", classify, "--node", "n", "--interval", "200ms", "--output", first)
	advise := launch(t, "advise", "--input", first, "--output", second, "--hold", "0s", "--floor-cpu", "150m", "--reserve-cpu", "100m")
	isolate := launch(t, "isolate", "--node", "n", "--stale-after", staleAfter.String(), "--input", second, "--output", third, "--journal", journal)

	// A step of shrinking at a time, until the batch side has what is not needed.
	wants := func(list []tick.Cgroup) string {
		for _, c := range list {
			if c.Cgroup == batch.name {
				if c.CPUMaxMilliCPU != nil {
					return fmt.Sprint(*c.CPUMaxMilliCPU)
				}
				return c.CPUSetCPUs
			}
		}
		return ""
	}
	has := func(want string) bool { // on few CPUs the advice is by quota, else by CPU list
		return batch.read("cpu.cfs_quota_us") == want+"00" || batch.read("cpuset.cpus") == want || strings.HasPrefix(batch.read("cpu.max"), want+"00 ")
	}
	calm, came := out.await(10, "the batch side has more than the floor", func(x seen) bool {
		return x.Advice != nil && x.Isolation.Refused == "" && wants(x.Advice.Fallback) != "" && wants(x.Advice.Cgroups) != wants(x.Advice.Fallback)
	})
	floor := wants(calm.Advice.Fallback)

	stages := map[string]*proc{"collect": collect, "advise": advise, "isolate": isolate}
	before := map[string]int{}
	for name, p := range stages {
		before[name] = p.rssKiB()
	}
	if stopped {
		collect.signal(unix.SIGSTOP)
	} else {
		collect.stop(unix.SIGTERM)
		advise.stop(unix.SIGTERM)
		service.busy(t)
	}
	waitUntil(t, func() bool { return strings.Contains(isolate.log.String(), "no advice: fallback applied") }, "the fallback", &bytes.Buffer{})
	took := time.Since(out.all()[len(out.all())-1].at)
	if took < staleAfter-time.Second/2 {
		t.Errorf("the fallback was applied %s after the last tick; want --stale-after %s", took, staleAfter)
	}
	for range int(gone / (time.Second / 4)) {
		if !has(floor) {
			t.Fatalf("the batch side has %s in the silence; want the floor of %s", batch.limits(), floor)
		}
		time.Sleep(time.Second / 4)
	}
	isolate.alive()

	if stopped {
		for name, p := range stages {
			if grown := p.rssKiB() - before[name]; grown > 4<<10 {
				t.Errorf("%s has grown by %d KiB while collect stood still", name, grown)
			}
		}
		collect.signal(unix.SIGCONT)
	} else {
		collect.start()
		advise.start()
	}
	back, _ := out.await(came+1, "a tick after the fallback", func(x seen) bool { return x.Isolation != nil && x.Isolation.Fallback })
	written := "" // the last value that isolate says it wrote; what the fallback wrote stands in the tick after it
	next, _ := out.await(came+1, "normal is back", func(x seen) bool {
		if x.Time.Before(back.Time) {
			return false
		}
		for _, w := range x.Isolation.Writes {
			if w.Cgroup == batch.name {
				written = w.New
			}
		}
		return x.Isolation.Refused == "" && wants(x.Advice.Cgroups) != ""
	})
	if want := wants(next.Advice.Cgroups); written != want && written != want+"00" && !strings.HasPrefix(written, want+"00 ") {
		t.Errorf("with the next advice %q was written; want %s: %+v", written, want, next.Isolation)
	}
	waitUntil(t, func() bool { return strings.Contains(isolate.log.String(), "advice is back") }, "that advice is back", &bytes.Buffer{})
	t.Logf("figures | %s | %s | fallback %s after the last tick (--stale-after %s), held; then %s by the next tick", what, gone, took.Round(time.Second/10), staleAfter, wants(next.Advice.Cgroups))
	collect.stop(unix.SIGTERM)
	advise.stop(unix.SIGTERM)
	isolate.stop(unix.SIGTERM)
	_, log := runTool(t, 0, nil, "isolate", "--restore", "--journal", journal)
	if now := service.limits() + batch.limits(); now != initial {
		t.Errorf("after --restore limits are %s; want %s: %s", now, initial, log)
	}
}
