package tests

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"polder/lib/tick"
)

// isolated is every file that isolate may have to put back, byte for byte.
func isolated(t *testing.T, groups ...*group) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, g := range groups {
		for _, dir := range g.dirs {
			for _, name := range []string{
				"cpuset.cpus", "cpuset.mems", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares", "cpu.idle", "memory.limit_in_bytes",
				"cpu.max", "cpu.weight", "memory.max", "memory.high", "memory.low", "memory.min",
			} {
				if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
					out[filepath.Join(dir, name)] = string(data)
				}
			}
		}
	}
	return out
}

// TestFaultIsolateKilled has isolate killed at random moments of a loop that squeezes and lets go: no cgroup is empty or
// wider than before then, and --restore, even one that is killed itself, gives back the first state, byte for byte. The
// stop before every single write is TestKilledAtEveryWrite of isolate/apply.
func TestFaultIsolateKilled(t *testing.T) {
	skipShort(t)
	needRoot(t)
	t.Parallel()
	rounds := faults(t, "POLDER_FAULT_ROUNDS", 100)
	top := newGroup(t, nil, fmt.Sprintf("polder-test-%d-squeeze", os.Getpid()))
	batch := newGroup(t, top, "batch")
	pod, service := newGroup(t, batch, "pod"), newGroup(t, top, "service")
	inner := newGroup(t, pod, "c")
	inner.sleeper(t)
	groups := []*group{top, batch, pod, inner, service}
	quota := func(g *group) int64 {
		n, err := strconv.ParseInt(g.read("cpu.cfs_quota_us"), 10, 64)
		if err != nil || n < 0 {
			return 1 << 62
		}
		return n
	}
	for _, dir := range batch.dirs {
		if filepath.Base(filepath.Dir(filepath.Dir(dir))) == "cpu" {
			put(t, filepath.Join(dir, "cpu.cfs_quota_us"), "170000")
			put(t, filepath.Join(dir, "cpu.shares"), "777")
		}
	}
	first := isolated(t, groups...)
	widest := map[*group]int64{}
	for _, g := range groups {
		widest[g] = quota(g)
	}
	all := top.read("cpuset.cpus")
	last := all[strings.LastIndexAny(all, ",-")+1:]
	dir := t.TempDir()
	journal, in, out := filepath.Join(dir, "journal"), newFIFO(t, dir, "in"), newFIFO(t, dir, "out")
	sunk := openSink(t, out, nil)
	feed, err := os.OpenFile(in, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	number := 0
	send := func() {
		number++
		wanted := []tick.Cgroup{
			{Cgroup: batch.name, CPUSetCPUs: last, CPUMaxMilliCPU: tick.Ptr(int64(700)), CPUIdle: tick.Ptr(true), MemoryMaxBytes: tick.Ptr(int64(1 << 30))},
			{Cgroup: pod.name, CPUMaxMilliCPU: tick.Ptr(int64(300))},
			{Cgroup: service.name, CPUSetCPUs: all, CPUWeight: tick.Ptr(int64(300))},
		}
		if number%2 == 0 {
			wanted[0].CPUSetCPUs, wanted[0].CPUMaxMilliCPU, wanted[0].CPUIdle = all, tick.Ptr(int64(1500)), tick.Ptr(false)
			wanted[1].CPUMaxMilliCPU = tick.Ptr(int64(1000))
		}
		line, err := tick.Marshal(tick.Tick{V: 1, Node: "n", Time: time.Now().UTC(), Advice: &tick.Advice{Policy: "test", Cgroups: wanted}})
		if err != nil {
			t.Fatal(err)
		}
		_ = feed.SetWriteDeadline(time.Now().Add(patient))
		if _, err := feed.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	isolate := launch(t, "isolate", "--node", "n", "--max-age", "1h", "--stale-after", "0", "--input", in, "--output", out, "--journal", journal, "--log-level", "error")
	restores, midway := 0, 0
	for round := range rounds {
		came := len(sunk.all())
		send()
		sunk.await(came, "isolate works", func(seen) bool { return true })
		kill := time.Now().Add(time.Duration(rand.IntN(8000)) * time.Microsecond)
		for time.Now().Before(kill) {
			send()
			time.Sleep(500 * time.Microsecond)
		}
		isolate.stop(unix.SIGKILL)
		if now := isolated(t, groups...); !cmp.Equal(first, now) {
			midway++
		}
		for _, g := range groups {
			if g.read("cpuset.cpus") == "" && exists("/sys/fs/cgroup/cpuset") { // on version 2 it means the parent's
				t.Errorf("round %d: %s has no CPUs", round, g.name)
			}
			if g != service && g != top && quota(g) > max(widest[g], 150_000) {
				t.Errorf("round %d: %s has a quota of %d, before it had %d", round, g.name, quota(g), widest[g])
			}
		}
		if round%3 == 0 { // else the next run goes on from the journal
			restores++
			if round%2 == 0 { // a restore that is killed as well
				half := launch(t, "isolate", "--restore", "--journal", journal)
				time.Sleep(time.Duration(rand.IntN(12)) * time.Millisecond)
				half.stop(unix.SIGKILL)
			}
			_, log := runTool(t, 0, nil, "isolate", "--restore", "--journal", journal)
			if diff := cmp.Diff(first, isolated(t, groups...)); diff != "" {
				t.Fatalf("round %d: after --restore (-first +now):\n%s\n%s", round, diff, log)
			}
		}
		isolate.start()
	}
	isolate.stop(unix.SIGKILL)
	_, log := runTool(t, 0, nil, "isolate", "--restore", "--journal", journal)
	if diff := cmp.Diff(first, isolated(t, groups...)); diff != "" {
		t.Fatalf("at the end: after --restore (-first +now):\n%s\n%s", diff, log)
	}
	sunk.whole()
	t.Logf("figures | isolate | squeeze and let go | SIGKILL | %d kills, %d with something changed | %d ticks | %d restores gave back the first state", rounds, midway, number, restores+1)
}

// TestFaultCgroupRemade has a cgroup removed and made again all the time while isolate reads and writes it.
func TestFaultCgroupRemade(t *testing.T) {
	skipShort(t)
	needRoot(t)
	t.Parallel()
	top := newGroup(t, nil, fmt.Sprintf("polder-test-%d-remade", os.Getpid()))
	standing := newGroup(t, top, "standing")
	name := top.name + "/comes-and-goes"
	journal := filepath.Join(t.TempDir(), "journal")
	first := isolated(t, standing)
	stop := make(chan struct{})
	var churn sync.WaitGroup
	made := 0
	churn.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, dir := range top.dirs {
				_ = os.Mkdir(filepath.Join(dir, "comes-and-goes"), 0o755)
			}
			made++
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			for _, dir := range top.dirs {
				_ = os.Remove(filepath.Join(dir, "comes-and-goes"))
			}
		}
	})
	var input bytes.Buffer
	const ticks = 1500
	for i := range ticks {
		milli := int64(200 + i%2*300)
		line, err := tick.Marshal(tick.Tick{V: 1, Node: "n", Time: time.Now().UTC(), Advice: &tick.Advice{Policy: "test", Cgroups: []tick.Cgroup{
			{Cgroup: name, CPUMaxMilliCPU: &milli, CPUWeight: tick.Ptr(milli), MemoryMaxBytes: tick.Ptr(milli << 20)},
			{Cgroup: standing.name, CPUMaxMilliCPU: &milli},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		input.Write(append(line, '\n'))
	}
	out, log := runTool(t, 0, input.Bytes(), "isolate", "--node", "n", "--max-age", "1h", "--journal", journal)
	close(stop)
	churn.Wait()
	for line := range bytes.Lines(append(out, '\n')) {
		x, err := tick.ParseLine(bytes.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		d, err := x.Decode(tick.SectionIsolation)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range d.Isolation.Errors {
			if e.Cgroup == standing.name {
				t.Errorf("standing cgroup: %+v", e)
			}
		}
		for _, w := range d.Isolation.Writes {
			if w.Cgroup != name && w.Cgroup != standing.name {
				t.Errorf("wrote %+v", w)
			}
		}
	}
	_, restored := runTool(t, 0, nil, "isolate", "--restore", "--journal", journal)
	if diff := cmp.Diff(first, isolated(t, standing)); diff != "" {
		t.Errorf("after --restore (-first +now):\n%s\n%s", diff, restored)
	}
	t.Logf("figures | a cgroup removed and made again %d times in %d rounds of isolate: status 0; %s; log: %s", made, ticks, restored, clip(log, 300))
}

// TestFaultCgroupsComeAndGo has POLDER_FAULT_CGROUPS cgroups stand and 50 a second replaced while collect runs.
func TestFaultCgroupsComeAndGo(t *testing.T) {
	skipShort(t)
	needRoot(t)
	t.Parallel()
	count := faults(t, "POLDER_FAULT_CGROUPS", 400)
	span := time.Duration(faults(t, "POLDER_FAULT_SECONDS", 6)) * time.Second
	top := newGroup(t, nil, fmt.Sprintf("polder-test-%d-churn", os.Getpid()))
	each := func(i int, do func(string) error) {
		for _, dir := range top.dirs {
			path := filepath.Join(dir, fmt.Sprintf("pod%d", i))
			err := do(path)
			for tries := 0; errors.Is(err, unix.EBUSY) && tries < 100; tries++ {
				time.Sleep(5 * time.Millisecond)
				err = do(path)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	}
	make := func(i int) { each(i, func(path string) error { return os.Mkdir(path, 0o755) }) }
	drop := func(i int) { each(i, os.Remove) }
	oldest, newest := 0, 0
	defer func() {
		for ; oldest < newest; oldest++ {
			drop(oldest)
		}
	}()

	dir := t.TempDir()
	fifo := newFIFO(t, dir, "1")
	out := openSink(t, fifo, nil)
	classify := filepath.Join(dir, "classify.yaml")
	put(t, classify, fmt.Sprintf("rules:\n  - {cgroup: %s/pod*, class: reclaimed}\n", top.name))
	collect := launch(t, "collect", "--classify", classify, "--interval", "250ms", "--rescan", "1s", "--output", fifo)
	_, at := out.await(4, "collect runs", func(seen) bool { return true })
	files, memory := collect.descriptors(), collect.rssKiB()
	for ; newest < count; newest++ {
		make(newest)
	}
	full, fullMemory := 0, 0
	begin := time.Now()
	replaced := 0
	for ; time.Since(begin) < span; replaced++ {
		drop(oldest)
		oldest++
		make(newest)
		newest++
		full, fullMemory = max(full, collect.descriptors()), max(fullMemory, collect.rssKiB())
		time.Sleep(time.Until(begin.Add(time.Duration(replaced+1) * time.Second / 50)))
	}
	for ; oldest < newest; oldest++ {
		drop(oldest)
	}
	collect.alive()
	waitFor(t, "the descriptors are back", func() bool { return collect.descriptors() <= files+2 })
	ticks := len(out.all()) - at
	if ticks < int(span/(250*time.Millisecond))/4 {
		t.Errorf("%d ticks in %s of --interval 250ms", ticks, span)
	}
	out.whole()
	t.Logf("figures | collect with %d cgroups, %d replaced at %.0f a second | %s | %d ticks | descriptors %d -> %d -> %d | RSS KiB %d -> %d -> %d", count, replaced,
		float64(replaced)/time.Since(begin).Seconds(), span, ticks, files, full, collect.descriptors(), memory, fullMemory, collect.rssKiB())
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patient); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patient, what)
		}
	}
}

// TestFaultForkBomb has a fork bomb go off in the batch cgroup, within a limit of processes: the pipe goes on beside it.
func TestFaultForkBomb(t *testing.T) {
	skipShort(t)
	needRoot(t)
	t.Parallel()
	span := time.Duration(faults(t, "POLDER_FAULT_SECONDS", 6)) * time.Second
	top := newGroup(t, nil, fmt.Sprintf("polder-test-%d-bomb", os.Getpid()))
	service, batch := newGroup(t, top, "service"), newGroup(t, top, "batch")
	service.runs(t, "while :; do sleep 0.02; done")
	limited := false
	for _, dir := range batch.dirs {
		if path := filepath.Join(dir, "pids.max"); exists(path) {
			put(t, path, "60")
			limited = true
		}
	}
	if !limited {
		t.Fatal("no pids controller to hold the fork bomb")
	}
	dir := t.TempDir()
	classify := filepath.Join(dir, "classify.yaml")
	put(t, classify, fmt.Sprintf("rules:\n  - {cgroup: %s, class: shared}\n  - {cgroup: %s, class: reclaimed}\n", service.name, batch.name))
	var paths []string
	for i := range 4 {
		paths = append(paths, newFIFO(t, dir, strconv.Itoa(i)))
	}
	out := openSink(t, paths[3], nil)
	journal := filepath.Join(dir, "journal")
	initial := isolated(t, top, service, batch)
	stages := []*proc{
		launch(t, "collect", "--classify", classify, "--node", "n", "--interval", "100ms", "--output", paths[0]),
		launch(t, "advise", "--input", paths[0], "--output", paths[1]),
		launch(t, "isolate", "--node", "n", "--input", paths[1], "--output", paths[2], "--journal", journal),
		launch(t, "evict", "--node", "n", "--input", paths[2], "--output", paths[3]),
	}
	_, at := out.await(5, "the pipe runs", func(x seen) bool { return x.Eviction != nil })
	batch.runs(t, "exec perl -e 'fork while 1'") // goes on where it may fork no more, which a shell does not
	begin := time.Now()
	most := 0
	for time.Since(begin) < span {
		n, err := strconv.Atoi(batch.read("pids.current"))
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
		time.Sleep(20 * time.Millisecond)
	}
	if most < 60 {
		t.Errorf("the bomb had %d processes; want all 60 that it may have", most)
	}
	for _, p := range stages {
		p.alive()
	}
	after := out.all()[at:]
	longest := time.Duration(0)
	for i := 1; i < len(after); i++ {
		longest = max(longest, after[i].Time.Sub(after[i-1].Time))
	}
	if len(after) < int(span/(100*time.Millisecond))/4 {
		t.Errorf("%d ticks in %s of --interval 100ms", len(after), time.Since(begin))
	}
	out.whole()
	t.Logf("figures | fork bomb of %d processes | %s | %d ticks at --interval 100ms, longest gap %s", most, span, len(after), longest)
	for _, p := range stages {
		if status := p.stop(unix.SIGTERM); status != 0 {
			t.Errorf("%s ended with status %d: %s", p.tool, status, p.log)
		}
	}
	runTool(t, 0, nil, "isolate", "--restore", "--journal", journal)
	if diff := cmp.Diff(initial, isolated(t, top, service, batch)); diff != "" {
		t.Errorf("after --restore (-first +now):\n%s", diff)
	}
}
