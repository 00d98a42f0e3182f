package source

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

// threads writes a cgroup of so many threads, of which every fourth runs.
func (m *machine) threads(path string, from, n int) {
	m.t.Helper()
	m.cgroup(path, "1000")
	var list strings.Builder
	for tid := from; tid < from+n; tid++ {
		fmt.Fprintln(&list, tid)
		state := "S"
		if tid%4 == 0 {
			state = "R"
		}
		m.write(fmt.Sprintf("proc/%d/task/%d/stat", tid, tid), fmt.Sprintf("%d (x) %s 1", tid, state))
	}
	m.write("sys/fs/cgroup"+path+"/cgroup.threads", list.String())
}

// slow is a Collector for which reading the clock takes a millisecond, so that the time for threads is over as soon as it is
// checked, and a function that reads at a time of the machine's clock.
func (m *machine) slow() (*Collector, func(seconds int) *tick.Sample) {
	c := m.collector("rules: [{cgroup: /*, class: shared}]")
	now := time.Now()
	c.env.Now = func() time.Time { now = now.Add(time.Millisecond); return now }
	c.env.Interval = 10 * time.Millisecond
	return c, func(seconds int) *tick.Sample {
		m.write("proc/uptime", fmt.Sprintf("%d.00 1.00", seconds))
		return c.Read(false)
	}
}

// shown is each pod's load and threads, "none" where they are absent, and the tick's errors about them.
func shown(s *tick.Sample) string {
	number := func(v *float64) string {
		if v == nil {
			return "none"
		}
		return fmt.Sprint(*v)
	}
	var list []string
	for _, p := range s.Pods {
		list = append(list, fmt.Sprintf("%s %s of %s", p.UID, number(p.Load1), number(p.Threads)))
	}
	for _, e := range s.Errors {
		if e.Source == "load" || e.Source == "cgroup" {
			list = append(list, e.Source+": "+e.Error)
		}
	}
	return strings.Join(list, "; ")
}

// Where the time does not suffice for all threads, the others are read in the next rounds, and the tick's errors report it. No load
// becomes 0 because of that, and a pod with few threads does not wait for one with many.
func TestThreadsAreLookedAtInTurn(t *testing.T) {
	m := newMachine(t)
	m.threads("/huge", 1000, 600)
	m.threads("/small", 10, 4)
	m.write("sys/fs/cgroup/small/pids.current", "4")
	m.write("sys/fs/cgroup/huge/pids.current", "600")
	_, read := m.slow()
	late := func(next string, age, old, unknown int) string {
		return fmt.Sprintf("; load: not all threads were read in 500µs, the next round continues with %s: "+
			"containers whose load is up to %ds old: %d, without a load: %d",
			next, age, old, unknown)
	}
	for _, tt := range []struct {
		at   int
		want string
	}{
		{1000, "/huge none of 600; /small none of 4" + late("/huge", 0, 0, 2)},
		{1001, "/huge none of 600; /small none of 4" + late("/huge", 0, 0, 1)}, // now /small comes first
		{1005, "/huge none of 600; /small none of 4"},                          // some 256 threads a round: done
		{1007, "/huge none of 600; /small 1 of 4" + late("/huge", 0, 0, 1)},    // its first five seconds are not over
		{1010, "/huge 150 of 600; /small 1 of 4" + late("/huge", 5, 1, 0)},
		{1011, "/huge 150 of 600; /small 1 of 4"},
	} {
		if got := shown(read(tt.at)); got != tt.want {
			t.Errorf("at %d:\n got %s\nwant %s", tt.at, got, tt.want)
		}
	}
}

// A load whose last sample is more than a minute old is not known.
func TestLoadIsAbsentWhenItIsOld(t *testing.T) {
	m := newMachine(t)
	m.threads("/huge", 1000, 600)
	m.write("sys/fs/cgroup/huge/pids.current", "600")
	_, read := m.slow()
	var got []string
	for at := 1000; at < 1400; at += 40 {
		got = append(got, strings.Fields(shown(read(at)))[1])
	}
	want := "none none none 150 none 150 150 none 150 150" // a pass takes three rounds
	if got := strings.Join(got, " "); got != want {
		t.Errorf("load1 every 40 s = %s; want %s", got, want)
	}
}

// A walk that an earlier run of collect has begun continues.
func TestLoadGoesOnInTheNextRun(t *testing.T) {
	m := newMachine(t)
	m.threads("/huge", 1000, 440)
	c, read := m.slow()
	read(1000)
	state := c.Save()
	c, read = m.slow()
	if !c.Load(state, 1e9) {
		t.Fatal("the state was refused")
	}
	read(1060)
	if box := c.env.pods.tree.nodes["/huge"].container; box.loads.Load1 != 110 {
		t.Errorf("load1 after the second run = %v; want 110, of all 440 threads", box.loads.Load1)
	}
}

// Threads without a file that has their number are counted within the same time, and the number is kept for a minute, never 0 or a part.
func TestThreadsAreCountedInTurn(t *testing.T) {
	m := newMachine(t)
	for i := range 400 {
		m.threads(fmt.Sprintf("/a/%d", i), 1000+i, 1)
	}
	m.cgroup("/a", "1")
	m.write("sys/fs/cgroup/a/cgroup.threads", "")
	_, read := m.slow()
	var got []string
	for at := 1000; at < 1200; at += 20 {
		s := read(at)
		got = append(got, strings.TrimSuffix(strings.Fields(shown(s))[3], ";"))
		const late = "not all threads were counted in 500µs, the next rounds continue: containers whose number is up to 1m0s old, or absent: 1"
		if reported := strings.Contains(shown(s), "cgroup: "+late); reported != (at%40 == 0) {
			t.Errorf("at %d the tick has: %s", at, shown(s))
		}
	}
	if got := strings.Join(got, " "); got != "none 400 400 400 400 400 400 400 400 400" {
		t.Errorf("threads every 20 s = %s; want none, then always 400", got)
	}
}

// Threads of another pid namespace, or that /proc hides, leave the load unknown, with an error; how many there are is known.
func TestHiddenThreads(t *testing.T) {
	m := newMachine(t)
	read := func(c *Collector, second int, use int) *tick.Sample {
		m.write("proc/uptime", fmt.Sprintf("%d.00 1.00", second))
		for _, name := range []string{"/a", "/b", "/c"} {
			m.cgroup(name, fmt.Sprint(1000+use))
		}
		return c.Read(false)
	}
	c := m.collector("rules: [{cgroup: /*, class: shared}]")
	c.Read(true)
	m.cgroup("/a", "1000")
	m.write("sys/fs/cgroup/a/cgroup.threads", "0\n0\n11\n") // two of another pid namespace
	m.cgroup("/b", "1000")
	m.write("sys/fs/cgroup/b/cgroup.threads", "12\n13\n") // without /proc/12, as with hidepid
	m.cgroup("/c", "1000")
	m.write("sys/fs/cgroup/c/cgroup.threads", "14\n15\n") // 15 has just ended
	m.write("proc/11/stat", "11 (a) R 1")
	m.write("proc/14/stat", "14 (a) R 1")
	c.Read(true)
	var s *tick.Sample
	for i := range 12 {
		s = read(c, 1000+i, i*2000000)
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.Name == "c" {
			if p.Load1 == nil || *p.Load1 != 1 {
				t.Errorf("the load of %s is %v; want 1", p.Name, p.Load1)
			}
		} else if p.Load1 != nil {
			t.Errorf("the load of %s is %v; want it to be unknown", p.Name, *p.Load1)
		}
	}
	if got := shown(s); strings.Count(got, "threads of 2 containers cannot be seen here, first in /") != 1 {
		t.Errorf("%s; want one error", got)
	}
}
