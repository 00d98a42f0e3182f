package source

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

const cpuV1 = "sys/fs/cgroup/cpu,cpuacct"

// v1 is a root to write whose cgroups are of version 1.
func newV1(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, root: t.TempDir()}
	m.write("proc/stat", "cpu0 100 0 0 900\ncpu1 100 0 0 900\n")
	m.write("sys/devices/system/cpu/online", "0-1")
	m.write(cpuV1+"/cgroup.procs", "")
	m.at(1000)
	return m
}

func (m *machine) at(seconds float64) {
	m.t.Helper()
	m.write("proc/uptime", fmt.Sprintf("%.2f 1.00", seconds))
}

// delaysV2 is delays for a cgroup of version 2.
func (m *machine) delaysV2(path string, usedMilliseconds int, from int, milliseconds ...int) {
	m.t.Helper()
	m.cgroup(path, fmt.Sprint(usedMilliseconds*1000))
	m.write("sys/fs/cgroup"+path+"/cgroup.threads", m.schedstats(from, milliseconds))
}

// delays writes a cgroup that has used so much CPU time, whose threads have waited for so many milliseconds each; a negative number is
// a thread that has ended.
func (m *machine) delays(path string, usedMilliseconds int, from int, milliseconds ...int) {
	m.t.Helper()
	m.write(cpuV1+path+"/cpuacct.usage", fmt.Sprintln(usedMilliseconds*1_000_000))
	m.write(cpuV1+path+"/tasks", m.schedstats(from, milliseconds))
}

// schedstats writes the threads' schedstats, and returns the list of the threads.
func (m *machine) schedstats(from int, milliseconds []int) string {
	m.t.Helper()
	var list strings.Builder
	for i, ms := range milliseconds {
		fmt.Fprintln(&list, from+i)
		text := ""
		if ms >= 0 {
			text = fmt.Sprintf("1000 %d 5\n", ms*1_000_000)
		}
		m.write(fmt.Sprintf("proc/%d/task/%d/schedstat", from+i, from+i), text)
	}
	return list.String()
}

// waited is each pod's waiting by cgroup, "none" where it is not known.
func waited(s *tick.Sample) string {
	var list []string
	for _, p := range s.Pods {
		text := "none"
		if p.CPUWaitPermille != nil {
			text = fmt.Sprint(*p.CPUWaitPermille)
		}
		list = append(list, p.Cgroup+" "+text)
	}
	return strings.Join(list, ", ")
}

const waitRules = "rules: [{cgroup: /batch*, class: reclaimed}, {cgroup: /*, class: shared}]"

// A service's waiting is the growth of its threads' run delays. Threads count from their first reading until they end, and a thread
// number that was used again does not make the growth smaller.
func TestWaitingIsTheGrowthOfRunDelays(t *testing.T) {
	m := newV1(t)
	c := m.collector(waitRules)
	read := func(at float64) string { m.at(at); return waited(c.Read(true)) }
	m.delays("/web", 100, 10, 500, 9000)
	m.delays("/batch", 100, 20, 500)
	for _, tt := range []struct {
		what string
		at   float64
		do   func()
		want string
	}{
		{"after a first reading it is unknown", 1000, func() {}, "/batch none, /web none"},
		{"two threads' growth, added up", 1002, func() { m.delays("/web", 200, 10, 700, 9600); m.delays("/batch", 900, 20, 900) }, "/batch none, /web 400"},
		{"nothing is read again within 1.5 s", 1003, func() { m.delays("/web", 300, 10, 1700, 9600) }, "/batch none, /web 400"},
		{"a third thread is new, with a past", 1004, func() { m.delays("/web", 400, 10, 800, 9600, 80000) }, "/batch none, /web 50"},
		{"the third counts now, the second is gone", 1006, func() { m.delays("/web", 500, 10, 800, -1, 80100) }, "/batch none, /web 50"},
		{"another thread has the third's number", 1008, func() { m.delays("/web", 600, 10, 900, -1, 5) }, "/batch none, /web 50"},
		{"what has not run has not waited", 1010, func() {}, "/batch none, /web 0"},
		{"no thread can be read any more", 1012, func() { m.delays("/web", 700, 10, -1) }, "/batch none, /web none"},
		{"and the first that can starts over", 1014, func() { m.delays("/web", 800, 10, 100) }, "/batch none, /web 0"},
		{"then it counts", 1016, func() { m.delays("/web", 900, 10, 4100) }, "/batch none, /web 2000"},
	} {
		tt.do()
		if got := read(tt.at); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.what, got, tt.want)
		}
	}
}

// The threads of a service that hardly runs and waits are read every 4 s, and as often as the others' as soon as a reading shows more.
func TestWaitingOfAQuietService(t *testing.T) {
	m := newV1(t)
	c := m.collector(waitRules)
	waiting := 0
	for _, tt := range []struct {
		at    float64
		grown int // milliseconds
		want  string
	}{
		{1000, 0, "/web none"}, {1002, 2, "/web 1"}, {1004, 3998, "/web 1"}, {1006, 2, "/web 1000"}, {1008, 2000, "/web 1000"}, {1010, 1000, "/web 500"},
	} {
		waiting += tt.grown
		m.delays("/web", int(tt.at), 10, 100+waiting)
		m.at(tt.at)
		if got := waited(c.Read(true)); got != tt.want {
			t.Errorf("at %v: %s; want %s", tt.at, got, tt.want)
		}
	}
}

// However many threads there are, a round reads a bounded number of them, the next one continues, and a pod whose threads are not read
// keeps its value for half a minute and has none after that.
func TestWaitingIsReadInTurn(t *testing.T) {
	m := newV1(t)
	many := make([]int, 400)
	c := m.collector(waitRules)
	now := time.Now()
	c.env.Now = func() time.Time { now = now.Add(time.Millisecond); return now }
	c.env.Interval = 10 * time.Millisecond
	used, before := 0, -1
	read := func(at float64, each int) string {
		used++
		if each != before {
			before = each
			for i := range many {
				many[i] = each
			}
			m.delays("/huge", used, 1000, many...)
			m.delays("/small", used, 10, each)
		}
		m.write(cpuV1+"/huge/cpuacct.usage", fmt.Sprintln(used))
		m.write(cpuV1+"/small/cpuacct.usage", fmt.Sprintln(used))
		m.at(at)
		return waited(c.Read(true))
	}
	for _, tt := range []struct {
		at   float64
		each int
		want string
	}{
		{1000, 0, "/huge none, /small none"}, // 256 threads of the huge one
		{1002, 0, "/huge none, /small none"}, // the small one first, then the rest
		{1004, 0, "/huge none, /small none"},
		{1006, 8, "/huge 310, /small 2"}, // 155 threads' 8 ms in 4 s; the others were read before
		{1008, 8, "/huge 310, /small 2"},
		{1010, 8, "/huge 490, /small 0"}, // the other 245
	} {
		if got := read(tt.at, tt.each); got != tt.want {
			t.Errorf("at %v: %s; want %s", tt.at, got, tt.want)
		}
	}
	// A pass takes two rounds: of two that are 47 s apart one ends a pass, and at the other the last one is too old.
	if one, other := read(1053, 8), read(1100, 8); strings.HasPrefix(one, "/huge none") == strings.HasPrefix(other, "/huge none") {
		t.Errorf("47 s apart: %s, then %s; want none at one of them", one, other)
	}
}

// Services that have more threads than are remembered have no waiting, which is an error in the tick.
func TestWaitingOfTooManyThreads(t *testing.T) {
	m := newV1(t)
	m.delays("/web", 1, 10, 100, 200)
	c := m.collector(waitRules)
	c.Read(true)
	for _, n := range c.env.pods.tree.nodes {
		if n.container != nil {
			n.container.waits.before = make([]threadDelay, maxDelays)
			n.container.waits.usage = 0
		}
	}
	m.delays("/batch2", 1, 20, 100) // batch's threads are not remembered
	m.delays("/web2", 1, 30, 100)
	m.at(1002)
	s := c.Read(true)
	const want = "the services have more than 65536 threads: how long those of /web2 wait is left out"
	if !slices.ContainsFunc(s.Errors, func(e tick.SourceError) bool { return e.Source == "wait" && e.Error == want }) {
		t.Errorf("reported errors %+v; want %q", s.Errors, want)
	}
}

// On version 2 it is the growth of cpu.pressure's some total; batch has neither that nor io.pressure.
func TestWaitingByPressure(t *testing.T) {
	m := newMachine(t)
	m.write("sys/fs/cgroup/cgroup.controllers", "cpu io memory pids")
	m.cgroup("/web", "1")
	m.cgroup("/batch", "1")
	pressure := func(pod string, total int) {
		for _, resource := range []string{"cpu", "io", "memory"} {
			m.write("sys/fs/cgroup"+pod+"/"+resource+".pressure", fmt.Sprintf("some avg10=1.00 avg60=0.00 avg300=0.00 total=%d\n", total))
		}
	}
	c := m.collector(waitRules)
	for _, tt := range []struct {
		what  string
		at    float64
		total int
		want  string
	}{
		{"a first reading", 1000, 5_000_000, "/batch none, /web none"},
		{"a quarter of two seconds", 1002, 5_500_000, "/batch none, /web 250"},
		{"not read again after one second", 1003, 6_500_000, "/batch none, /web 250"},
		{"never more than all of the time", 1004, 9_000_000, "/batch none, /web 1000"},
		{"another cgroup of the same name", 1006, 10, "/batch none, /web none"},
		{"nothing", 1008, 10, "/batch none, /web 0"},
	} {
		pressure("/web", tt.total)
		pressure("/batch", tt.total)
		m.at(tt.at)
		s := c.Read(true)
		if got := waited(s); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.what, got, tt.want)
		}
		batch, web := &s.Pods[0], &s.Pods[1]
		if web.CPUPressure == nil || web.IOPressure == nil || web.MemoryPressure == nil || batch.MemoryPressure == nil {
			t.Errorf("%s: pressures of /web %v, %v, %v, memory of /batch %v; want all", tt.what, web.CPUPressure, web.IOPressure, web.MemoryPressure, batch.MemoryPressure)
		}
		if batch.CPUPressure != nil || batch.IOPressure != nil {
			t.Errorf("%s: batch has %v and %v; want neither", tt.what, batch.CPUPressure, batch.IOPressure)
		}
	}
}

// On version 2 a service without cpu.pressure (psi=0, or switched off for its cgroup) is measured by run delay, at the same times as on
// version 1. One with cpu.pressure is measured by that alone, and its threads are not read; one with neither stays unknown.
func TestWaitingWithoutPressureOnVersion2(t *testing.T) {
	m := newMachine(t)
	c := m.collector("rules: [{cgroup: /batch*, class: reclaimed}, {cgroup: /kubepods/pod*, class: shared, containers: children}, " +
		"{cgroup: /none, class: shared}, {cgroup: /web, class: shared}]")
	m.cgroup("/kubepods/poda", "1")
	pressure := func(pod string, total int) {
		m.write("sys/fs/cgroup"+pod+"/cpu.pressure", fmt.Sprintf("some avg10=1.00 avg60=0.00 avg300=0.00 total=%d\n", total))
	}
	waits := func(path string) *waits { return &c.env.pods.tree.nodes[path].container.waits }
	for _, tt := range []struct {
		what string
		at   float64
		do   func()
		want string
	}{
		{"a first reading", 1000, func() {
			m.delaysV2("/batch", 100, 10, 500)
			m.delaysV2("/kubepods/poda/c", 100, 20, 500)
			m.delaysV2("/kubepods/poda/d", 100, 25, 500)
			m.delaysV2("/none", 100, 30, -1)
			m.delaysV2("/web", 100, 40, 500)
			pressure("/web", 0)
		}, "/batch none, /kubepods/poda none, /none none, /web none"},
		{"two containers' threads, added up", 1002, func() {
			m.delaysV2("/batch", 200, 10, 900)
			m.delaysV2("/kubepods/poda/c", 200, 20, 2500)
			m.delaysV2("/kubepods/poda/d", 200, 25, 1000)
			m.delaysV2("/none", 200, 30, -1)
			m.delaysV2("/web", 200, 40, 1500)
			pressure("/web", 200_000)
		}, "/batch none, /kubepods/poda 1250, /none none, /web 100"},
		{"nothing is read again within 1.5 s", 1003, func() {
			m.delaysV2("/kubepods/poda/c", 300, 20, 9500)
		}, "/batch none, /kubepods/poda 1250, /none none, /web 100"},
		{"its pressure was switched on", 1004, func() {
			m.delaysV2("/kubepods/poda/d", 300, 25, 9500)
			pressure("/kubepods/poda", 0)
			pressure("/web", 200_000)
		}, "/batch none, /kubepods/poda none, /none none, /web 0"},
		{"then that alone counts", 1006, func() {
			m.delaysV2("/kubepods/poda/d", 400, 25, 9900)
			pressure("/kubepods/poda", 500_000)
		}, "/batch none, /kubepods/poda 250, /none none, /web 0"},
	} {
		tt.do()
		m.at(tt.at)
		if got := waited(c.Read(true)); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.what, got, tt.want)
		}
	}
	for _, path := range []string{"/web", "/kubepods/poda/c", "/kubepods/poda/d"} {
		if w := waits(path); len(w.before)+len(w.now) > 0 || w.at != 0 {
			t.Errorf("threads of %s are remembered, read at %v; want none: it has cpu.pressure", path, w.at)
		}
	}
	// The pressure is switched off: the kernel removes the file, and reading the open one returns ENODEV.
	c.env.pods.tree.nodes["/web"].stalls.cpu.close()
	if err := os.Remove(m.root + "/sys/fs/cgroup/web/cpu.pressure"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"none", "400"} {
		m.delaysV2("/web", 500+i, 40, 1500+800*i)
		m.at(1008 + 2*float64(i))
		if got := waited(c.Read(true)); !strings.HasSuffix(got, "/web "+want) {
			t.Errorf("reading %d without pressure: %s; want %s", i, got, want)
		}
	}
}
