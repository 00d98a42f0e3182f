package faults

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
	"polder/tests/await"
	"polder/tests/deep"
	"polder/tests/group"
	"polder/tests/need"
)

// isolated lists every file that isolate may have to restore, byte for byte.
func isolated(t *testing.T, groups ...*group.Group) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, g := range groups {
		for _, dir := range g.Dirs {
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

// TestFaultIsolateKilled kills isolate at random moments of a loop that squeezes and releases batch: no cgroup is empty or
// wider than before then, and --restore, even one that is killed itself, restores the first state, byte for byte. The
// stop before every single write is TestKilledAtEveryWrite of isolate/apply.
func TestFaultIsolateKilled(t *testing.T) {
	need.Root(t)
	t.Parallel()
	rounds := deep.Or(15, 100)
	top := group.New(t, nil, "squeeze")
	batch := group.New(t, top, "batch")
	pod, service := group.New(t, batch, "pod"), group.New(t, top, "service")
	inner := group.New(t, pod, "c")
	inner.Sleep(t)
	groups := []*group.Group{top, batch, pod, inner, service}
	quota := func(g *group.Group) int64 {
		n, err := strconv.ParseInt(g.Read("cpu.cfs_quota_us"), 10, 64)
		if err != nil || n < 0 {
			return 1 << 62
		}
		return n
	}
	for _, dir := range batch.Dirs {
		if filepath.Base(filepath.Dir(filepath.Dir(dir))) == "cpu" {
			put(t, filepath.Join(dir, "cpu.cfs_quota_us"), "170000")
			put(t, filepath.Join(dir, "cpu.shares"), "777")
		}
	}
	first := isolated(t, groups...)
	widest := map[*group.Group]int64{}
	for _, g := range groups {
		widest[g] = quota(g)
	}
	all := top.Read("cpuset.cpus")
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
			{Cgroup: batch.Name, CPUSetCPUs: last, CPUMaxMilliCPU: new(int64(700)), CPUIdle: new(true), MemoryMaxBytes: new(int64(1 << 30))},
			{Cgroup: pod.Name, CPUMaxMilliCPU: new(int64(300))},
			{Cgroup: service.Name, CPUSetCPUs: all, CPUWeight: new(int64(300))},
		}
		if number%2 == 0 {
			wanted[0].CPUSetCPUs, wanted[0].CPUMaxMilliCPU, wanted[0].CPUIdle = all, new(int64(1500)), new(false)
			wanted[1].CPUMaxMilliCPU = new(int64(1000))
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
			if g.Read("cpuset.cpus") == "" && exists("/sys/fs/cgroup/cpuset") { // on version 2 an empty list means the parent's
				t.Errorf("round %d: %s has no CPUs", round, g.Name)
			}
			if g != service && g != top && quota(g) > max(widest[g], 150_000) {
				t.Errorf("round %d: %s has a quota of %d, before it had %d", round, g.Name, quota(g), widest[g])
			}
		}
		if round%3 == 0 { // otherwise the next run resumes from the journal
			restores++
			if round%2 == 0 { // a restore that is killed as well
				half := launch(t, "isolate", "--restore", "--if-exists", "--journal", journal)
				time.Sleep(time.Duration(rand.IntN(12)) * time.Millisecond)
				half.stop(unix.SIGKILL)
			}
			_, log := runTool(t, 0, nil, "isolate", "--restore", "--if-exists", "--journal", journal)
			if diff := cmp.Diff(first, isolated(t, groups...)); diff != "" {
				t.Fatalf("round %d: after --restore (-first +now):\n%s\n%s", round, diff, log)
			}
		}
		isolate.start()
	}
	isolate.stop(unix.SIGKILL)
	_, log := runTool(t, 0, nil, "isolate", "--restore", "--if-exists", "--journal", journal)
	if diff := cmp.Diff(first, isolated(t, groups...)); diff != "" {
		t.Fatalf("at the end: after --restore (-first +now):\n%s\n%s", diff, log)
	}
	sunk.whole()
	t.Logf("figures | isolate | squeeze and let go | SIGKILL | %d kills, %d with something changed | %d ticks | %d restores of the first state", rounds, midway, number, restores+1)
}

// TestFaultCgroupRemade removes a cgroup and creates it again all the time while isolate reads and writes it.
func TestFaultCgroupRemade(t *testing.T) {
	need.Root(t)
	t.Parallel()
	top := group.New(t, nil, "remade")
	standing := group.New(t, top, "standing")
	name := top.Name + "/comes-and-goes"
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
			for _, dir := range top.Dirs {
				_ = os.Mkdir(filepath.Join(dir, "comes-and-goes"), 0o755)
			}
			made++
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			for _, dir := range top.Dirs {
				_ = os.Remove(filepath.Join(dir, "comes-and-goes"))
			}
		}
	})
	var input bytes.Buffer
	const ticks = 1500
	for i := range ticks {
		milli := int64(200 + i%2*300)
		line, err := tick.Marshal(tick.Tick{V: 1, Node: "n", Time: time.Now().UTC(), Advice: &tick.Advice{Policy: "test", Cgroups: []tick.Cgroup{
			{Cgroup: name, CPUMaxMilliCPU: &milli, CPUWeight: new(milli), MemoryMaxBytes: new(milli << 20)},
			{Cgroup: standing.Name, CPUMaxMilliCPU: &milli},
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
			if e.Cgroup == standing.Name {
				t.Errorf("standing cgroup: %+v", e)
			}
		}
		for _, w := range d.Isolation.Writes {
			if w.Cgroup != name && w.Cgroup != standing.Name {
				t.Errorf("wrote %+v", w)
			}
		}
	}
	_, restored := runTool(t, 0, nil, "isolate", "--restore", "--if-exists", "--journal", journal)
	if diff := cmp.Diff(first, isolated(t, standing)); diff != "" {
		t.Errorf("after --restore (-first +now):\n%s\n%s", diff, restored)
	}
	t.Logf("figures | a cgroup removed and created again %d times in %d rounds of isolate: status 0; %s; log: %s", made, ticks, restored, clip(log, 300))
}

// TestFaultCgroupsComeAndGo replaces 50 of hundreds of cgroups a second while collect runs.
func TestFaultCgroupsComeAndGo(t *testing.T) {
	need.Root(t)
	t.Parallel()
	count := deep.Or(200, 2000)
	replacements := deep.Or(100, 1500)
	top := group.New(t, nil, "churn")
	each := func(i int, do func(string) error) {
		for _, dir := range top.Dirs {
			path := filepath.Join(dir, fmt.Sprintf("pod%d", i))
			err := do(path)
			if errors.Is(err, unix.EBUSY) {
				await.Until(t, patient, "the kernel lets go of "+path, func() string {
					if err = do(path); errors.Is(err, unix.EBUSY) {
						return err.Error()
					}
					return ""
				})
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
	put(t, classify, fmt.Sprintf("rules:\n  - {cgroup: %s/pod*, class: reclaimed}\n", top.Name))
	collect := launch(t, "collect", "--classify", classify, "--interval", "250ms", "--rescan", "1s", "--output", fifo)
	_, at := out.await(4, "collect runs", func(seen) bool { return true })
	files, memory := collect.descriptors(), collect.anonymousKiB()
	for ; newest < count; newest++ {
		make(newest)
	}
	full, fullMemory := 0, 0
	begin := time.Now()
	replaced := 0
	pace := time.NewTicker(time.Second / 50)
	defer pace.Stop()
	for ; replaced < replacements || len(out.all()) < at+8; replaced++ { // collect samples meanwhile
		drop(oldest)
		oldest++
		make(newest)
		newest++
		full, fullMemory = max(full, collect.descriptors()), max(fullMemory, collect.anonymousKiB())
		<-pace.C
	}
	span := time.Since(begin)
	for ; oldest < newest; oldest++ {
		drop(oldest)
	}
	collect.alive()
	await.Until(t, patient, "the descriptors are back", func() string {
		if now := collect.descriptors(); now > files+2 {
			return fmt.Sprintf("%d are open; %d were at first", now, files)
		}
		return ""
	})
	ticks := len(out.all()) - at
	out.whole()
	t.Logf("figures | collect with %d cgroups, %d replaced at %.0f a second | %s | %d ticks | descriptors %d -> %d -> %d | anonymous KiB %d -> %d -> %d", count, replaced,
		float64(replaced)/span.Seconds(), span.Round(time.Second), ticks, files, full, collect.descriptors(), memory, fullMemory, collect.anonymousKiB())
}

// TestFaultForkBomb starts a fork bomb in the batch cgroup, within a limit of processes: the pipe continues beside it.
func TestFaultForkBomb(t *testing.T) {
	need.Root(t)
	t.Parallel()
	top := group.New(t, nil, "bomb")
	service, batch := group.New(t, top, "service"), group.New(t, top, "batch")
	service.Run(t, "while :; do sleep 0.02; done")
	limited := false
	for _, dir := range batch.Dirs {
		if path := filepath.Join(dir, "pids.max"); exists(path) {
			put(t, path, "60")
			limited = true
		}
	}
	if !limited {
		t.Fatal("no pids controller to limit the fork bomb")
	}
	dir := t.TempDir()
	classify := filepath.Join(dir, "classify.yaml")
	put(t, classify, fmt.Sprintf("rules:\n  - {cgroup: %s, class: shared}\n  - {cgroup: %s, class: reclaimed}\n", service.Name, batch.Name))
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
	batch.Run(t, "exec perl -e 'fork while 1'") // continues when fork fails, which a shell does not
	begin := time.Now()
	await.Until(t, patient, "the bomb has all 60 processes that it may have", func() string {
		if n := batch.Read("pids.current"); n != "60" {
			return n
		}
		return ""
	})
	_, end := out.await(at+deep.Or(20, 300), "the pipe continues", func(seen) bool { return true })
	span := time.Since(begin)
	for _, p := range stages {
		p.alive()
	}
	after := out.all()[at:end]
	longest := time.Duration(0)
	for i := 1; i < len(after); i++ {
		longest = max(longest, after[i].Time.Sub(after[i-1].Time))
	}
	out.whole()
	t.Logf("figures | fork bomb of 60 processes | %s | %d ticks at --interval 100ms, longest gap %s", span.Round(time.Second), len(after), longest)
	for _, p := range stages {
		if status := p.stop(unix.SIGTERM); status != 0 {
			t.Errorf("%s ended with status %d: %s", p.tool, status, p.log)
		}
	}
	runTool(t, 0, nil, "isolate", "--restore", "--if-exists", "--journal", journal)
	if diff := cmp.Diff(initial, isolated(t, top, service, batch)); diff != "" {
		t.Errorf("after --restore (-first +now):\n%s", diff)
	}
}
