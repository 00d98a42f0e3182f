package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/tick"
)

// hoard holds memory of which it uses a part ten times a second, and after SIGUSR1 all: "hoard MiB MiB-in-use". A page compresses to about
// a third.
func hoard(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("hoard %q: want MiB and MiB in use", args)
	}
	all, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	hot, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	debug.SetGCPercent(-1)
	var inUse atomic.Int64
	inUse.Store(int64(hot) << 20)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGUSR1)
	go func() {
		<-signals
		inUse.Store(int64(all) << 20)
	}()
	waitForStart()
	data, err := unix.Mmap(-1, 0, all<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("mmap %d MiB: %w", all, err)
	}
	page := os.Getpagesize()
	for i := 0; i < len(data); i += page {
		for j := 0; j < page/4; j += 8 {
			n := rand.Uint64()
			for k := range 8 {
				data[i+j+k] = byte(n >> (8 * k))
			}
		}
	}
	for {
		for i := 0; i < int(inUse.Load()); i += page {
			data[i]++
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// cold tests the reclaim of batch's memory that is not in use, with swap in compressed memory.
var cold = suite{
	name:  "cold",
	doc:   "cold memory of batch is taken back, once for each tick that asks for it, and the pod's waiting stops it",
	mount: mountV2,
	tests: []test{{"cold memory", reclaimCold}},
}

// swapModules are loaded for compressed memory, in this order.
var swapModules = []string{"zsmalloc", "lzo", "lzo-rle", "zram"}

// load loads kernel modules that are among the guest's files.
func (t *T) loadModules(names []string) {
	for _, name := range names {
		f, err := os.Open("/modules/" + name + ".ko")
		t.Must(err)
		if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST {
			t.Fatalf("module %s: %v", name, err)
		}
		f.Close()
	}
}

// swapOn enables a GiB of swap in compressed memory until the test's end.
func (t *T) swapOn() {
	t.loadModules(swapModules)
	t.Must(write("/sys/block/zram0/disksize", "1G"))
	for _, command := range []string{"mkswap", "swapon"} {
		if out, err := exec.Command("/bin/busybox", command, "/dev/zram0").CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("/bin/busybox", "swapoff", "/dev/zram0").CombinedOutput(); err != nil {
			t.Errorf("swapoff: %v: %s", err, out)
		}
	})
}

// meminfo is a line of /proc/meminfo, in MiB.
func meminfo(name string) int {
	for line := range strings.Lines(read("/proc/meminfo")) {
		var key string
		var n int
		if _, err := fmt.Sscan(line, &key, &n); err == nil && key == name+":" {
			return n >> 10
		}
	}
	return -1
}

// stalled is for how long a task of a cgroup has waited for memory, in microseconds.
func stalled(dir string) (total int64) {
	some, _, _ := strings.Cut(read(dir+"/memory.pressure"), "\n")
	_, text, _ := strings.Cut(some, "total=")
	_, _ = fmt.Sscan(text, &total) // an unreadable one is 0
	return total
}

// reclaimCold runs a batch job that uses an eighth of its memory. The rest is reclaimed step by step, and the job continues; when it needs
// all of it again, it is left alone. A tick that asks for memory asks once, however often it comes.
func reclaimCold(t *T) {
	t.swapOn()
	t.group("/cold", "cpuset", "cpu", "memory", "pids")
	job := t.group("/cold/job")
	rules := t.classify("  - {cgroup: /cold/job, class: reclaimed}\n")
	const holds, uses = 512, 64
	l := t.startLoad(job, "hoard", itoa(holds), itoa(uses))
	if !within(func() bool { return current(job) >= holds }) {
		t.Fatalf("%d MiB in use; want %d", current(job), holds)
	}
	time.Sleep(5 * time.Second) // it has filled its pages, and uses some of them
	p := t.startPipe("collect --interval 1s --classify "+rules, "advise --batch-reclaim cold", "isolate "+anyAge+" --journal /run/journal-cold")
	t.await(p, "anything", func(*tick.Tick) bool { return true }) // the tools hold memory as well
	before, available, waited, at := current(job), meminfo("MemAvailable"), stalled(job), uptime()
	taken, steps, seen := int64(0), 0, 0
	var asked *tick.Tick
	look := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for ; seen < len(p.ticks); seen++ {
			x := p.ticks[seen]
			if x.Isolation == nil || x.Advice == nil {
				continue
			}
			for _, r := range x.Isolation.Reclaims {
				if r.State == tick.ReclaimSkipped && (strings.Contains(r.Reason, "an earlier one is in progress") || strings.Contains(r.Reason, reclaimRepeated)) {
					continue // a slow guest: the step takes longer than the pause, or isolate has started late
				}
				if r.State != tick.ReclaimDone && r.State != tick.ReclaimPartial && r.State != tick.ReclaimTimeout { // the time of a slow guest runs out
					t.Errorf("%+v", r)
				}
				taken += r.ReclaimedBytes
				steps++
			}
			if x.Advice.MemoryReclaim != nil {
				asked = x
			}
		}
	}
	const wants = 10 // steps, of some 5 MiB each
	if !within(func() bool { look(); return steps >= wants }) {
		last := p.last()
		t.Fatalf("%d steps; the last tick's reasons: %q; the tools logged: %s", steps, last.Advice.Reasons, p.logs())
	}
	span := uptime() - at
	share := float64(stalled(job)-waited) / float64(span.Microseconds())
	t.Logf("in %s: %d steps reclaimed %d MiB; it held %d MiB and holds %d; available were %d MiB and are %d; it waited for memory %.3f %% of the time; zram's mm_stat: %s",
		span.Round(time.Second), steps, taken>>20, before, current(job), available, meminfo("MemAvailable"), 100*share, read("/sys/block/zram0/mm_stat"))
	if now := current(job); taken < 20<<20 || now > before-20 || !l.alive() {
		t.Errorf("%d bytes were reclaimed, it holds %d MiB of %d, alive %t", taken, now, before, l.alive())
	}
	t.leftAlone(p, l)
	look()
	t.stop(p)
	t.repeatCold(job, asked)
	t.tool(0, "", "isolate --restore --if-exists --journal /run/journal-cold")
}

// leftAlone lets the job use all that it holds: then advise asks for nothing in the ticks of more than two steps.
func (t *T) leftAlone(p *pipe, l *load) {
	t.Must(l.Process.Signal(unix.SIGUSR1))
	held := t.await(p, "a pod that is left alone", func(x *tick.Tick) bool {
		return x.Advice != nil && strings.Contains(strings.Join(x.Advice.Reasons, "\n"), "no reclaim for")
	})
	t.Logf("when it used all: %q", held.Advice.Reasons)
	p.mu.Lock()
	from := len(p.ticks)
	p.mu.Unlock()
	const steps = 15 * time.Second // two and more, in which advise must ask for nothing
	t.await(p, "ticks of two steps", func(x *tick.Tick) bool { return x.Time.Sub(held.Time) >= steps })
	p.mu.Lock()
	for _, x := range p.ticks[from:] {
		if x.Advice != nil && x.Advice.MemoryReclaim != nil {
			t.Errorf("it must be left alone, but advice asks for %+v", x.Advice.MemoryReclaim)
		}
	}
	p.mu.Unlock()
}

// reclaimRepeated is why isolate does not act on a request.
const reclaimRepeated = "a repeat, or older than the start of isolate"

// repeatCold sends isolate a tick that has been acted on again, twice, and a made-up current one, twice: that one is acted on once.
func (t *T) repeatCold(job string, asked *tick.Tick) {
	line := func(x *tick.Tick) string {
		text, err := tick.Marshal(tick.Tick{V: x.V, Node: x.Node, Time: x.Time, Advice: &tick.Advice{Policy: x.Advice.Policy, MemoryReclaim: x.Advice.MemoryReclaim}})
		t.Must(err)
		return string(text) + "\n"
	}
	out, in := t.startFed("isolate --max-age 0")
	send := func(x *tick.Tick, count int) *tick.Tick {
		_, err := in.Write([]byte(line(x)))
		t.Must(err)
		return t.await(out, "an answer", func(*tick.Tick) bool { out.mu.Lock(); defer out.mu.Unlock(); return len(out.ticks) >= count })
	}
	use := current(job)
	for i := range 2 {
		got := send(asked, i+1).Isolation.Reclaims
		if len(got) != 1 || got[0].State != tick.ReclaimSkipped || !strings.Contains(got[0].Reason, reclaimRepeated) {
			t.Errorf("a tick of before: %+v", got)
		}
	}
	fresh := *asked
	again := *asked.Advice.MemoryReclaim
	var up float64
	_, err := fmt.Sscan(read("/proc/uptime"), &up)
	t.Must(err)
	again.BootSeconds, again.Cgroups = up, []tick.CgroupReclaim{{Cgroup: "/cold/job", Bytes: 8 << 20}}
	fresh.Advice = &tick.Advice{Policy: "by hand", MemoryReclaim: &again}
	done, count := 0, 2
	repeat := func() {
		count++
		for _, r := range send(&fresh, count).Isolation.Reclaims {
			if r.State != tick.ReclaimSkipped {
				done++
				t.Logf("%+v", r)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	// The result is in the first tick after the kernel's work, which takes seconds on a busy host.
	for deadline := uptime() + patience; done == 0 && uptime() < deadline; {
		repeat()
	}
	for range 20 {
		repeat()
	}
	if done != 1 {
		t.Errorf("a tick that came %d times was acted on %d times; it held %d MiB, and holds %d", count-2, done, use, current(job))
	}
	t.Must(in.Close())
	t.wait(out)
}
