package source

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/collect/classify"
	"polder/collect/host"
	"polder/collect/loadavg"
	"polder/lib/cgroup"
	"polder/lib/tick"
)

// machine is a root to write.
type machine struct {
	t    *testing.T
	root string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, root: t.TempDir()}
	m.write("proc/uptime", "1000.00 1.00")
	m.write("proc/stat", "cpu0 100 0 0 900\ncpu1 100 0 0 900\n")
	m.write("sys/devices/system/cpu/online", "0-1")
	m.write("sys/fs/cgroup/cgroup.controllers", "cpu memory pids")
	return m
}

func (m *machine) host() *host.Host {
	m.t.Helper()
	h, err := host.New(m.root)
	if err != nil {
		m.t.Fatal(err)
	}
	return h
}

// defaultRules returns the rules of a machine without a file of its own.
func defaultRules(t testing.TB) *classify.Rules {
	t.Helper()
	text, err := classify.DefaultBelow("")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := classify.Parse("default.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func (m *machine) write(path, content string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// pidNamespace sets collect's own PID namespace.
func (m *machine) pidNamespace(link string) {
	m.t.Helper()
	dir := filepath.Join(m.root, "proc/self/ns")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink(link, filepath.Join(dir, "pid")); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) cgroup(path, usageMicroseconds string) {
	m.t.Helper()
	m.write("sys/fs/cgroup"+path+"/cpu.stat", "usage_usec "+usageMicroseconds+"\n")
}

func (m *machine) collector(rules string) *Collector {
	m.t.Helper()
	r, err := classify.Parse("test.yaml", []byte(rules))
	if err != nil {
		m.t.Fatal(err)
	}
	c := New(&Env{Host: m.host(), Rules: r, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	m.t.Cleanup(func() { _ = c.Close() })
	return c
}

// usage is each pod's use by name, -1 where it is absent.
func usage(s *tick.Sample) map[string]float64 {
	out := map[string]float64{}
	for _, p := range s.Pods {
		out[p.UID] = -1
		if p.UsageMilliCPU != nil {
			out[p.UID] = *p.UsageMilliCPU
		}
	}
	return out
}

func TestRates(t *testing.T) {
	m := newMachine(t)
	m.write("proc/stat", "cpu0 100 0 0 100 0 0 0 50\ncpu1 100 0 0 100 0 0 0 50\n")
	m.cgroup("/a", "1000000")
	m.cgroup("/back", "1000000")
	c := m.collector("rules: [{cgroup: /*, class: shared}]")
	s := c.Read(true)
	if s.IntervalSeconds != nil || s.CPU.UsageMilliCPU != nil || s.CPU.StealMilliCPU != nil {
		t.Errorf("the first reading has rates: %+v", s)
	}
	if diff := cmp.Diff(map[string]float64{"/a": -1, "/back": -1}, usage(s)); diff != "" {
		t.Errorf("first usage (-want +got):\n%s", diff)
	}

	m.write("proc/uptime", "1010.00 1.00")
	m.write("proc/stat", "cpu0 600 0 0 900 0 0 0 150\ncpu2 9000 0 0 900 0 0 0 7000\n") // cpu1 went offline, cpu2 came online
	m.write("sys/devices/system/cpu/online", "0,2")
	m.cgroup("/a", "6000000")
	m.cgroup("/back", "1000") // created again with the same name
	m.cgroup("/new", "5000000")
	s = c.Read(true)
	if s.IntervalSeconds == nil || *s.IntervalSeconds != 10 {
		t.Errorf("intervalSeconds = %v; want 10", s.IntervalSeconds)
	}
	if s.CPU.UsageMilliCPU == nil || *s.CPU.UsageMilliCPU != 500 {
		t.Errorf("node usage = %v; want cpu0's 500 alone", s.CPU.UsageMilliCPU)
	}
	if s.CPU.StealMilliCPU == nil || *s.CPU.StealMilliCPU != 100 {
		t.Errorf("stolen = %v; want cpu0's 100 alone", s.CPU.StealMilliCPU)
	}
	if s.Topology.CPUs != "0,2" || *s.Capacity.MilliCPU != 2000 {
		t.Errorf("topology = %+v; want that of the CPUs that are online now", s.Topology)
	}
	if diff := cmp.Diff(map[string]float64{"/a": 500, "/back": -1, "/new": -1}, usage(s)); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
}

func TestNestedPods(t *testing.T) {
	m := newMachine(t)
	for _, path := range []string{"/system.slice", "/system.slice/web.service", "/system.slice/other.service", "/k/pod1/c2", "/k/pod1/c1", "/k/pod1/c1/inner", "/k/pod2"} {
		m.cgroup(path, "1")
	}
	c := m.collector(`
rules:
  - {cgroup: /system.slice, class: system}
  - {cgroup: /system.slice/web.service, class: shared, name: web, namespace: prod, requests: {milliCPU: 500}}
  - {cgroup: /k/pod*, class: reclaimed, containers: children}
  - {cgroup: /k/pod1/c1, class: shared}
`)
	s := c.Read(true)
	type pod struct {
		UID, Namespace, Name, QoS string
		Containers                []string
	}
	var got []pod
	for _, p := range s.Pods {
		g := pod{p.UID, p.Namespace, p.Name, p.QoS, nil}
		for _, c := range p.Containers {
			g.Containers = append(g.Containers, c.Cgroup+" "+c.Name)
		}
		got = append(got, g)
	}
	want := []pod{
		{"/k/pod1", "", "pod1", "reclaimed", []string{"/k/pod1/c1 c1", "/k/pod1/c2 c2"}},
		{"/k/pod2", "", "pod2", "reclaimed", nil},
		{"/system.slice", "", "system.slice", "system", []string{"/system.slice system.slice"}},
		{"/system.slice/web.service", "prod", "web", "shared", []string{"/system.slice/web.service web"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if r := s.Pods[3].Containers[0].Requests; r == nil || *r.MilliCPU != 500 {
		t.Errorf("requests of web's container = %v; want the pod's", r)
	}
}

func TestState(t *testing.T) {
	m := newMachine(t)
	m.write("proc/sys/kernel/random/boot_id", "one")
	m.cgroup("/a", "1000000")
	first := m.collector("rules: [{cgroup: /*, class: shared}]")
	first.Read(true)
	saved, err := tick.Marshal(first.Save())
	if err != nil {
		t.Fatal(err)
	}
	m.cgroup("/a", "31000000")
	m.write("proc/uptime", "1060.00 1.00")

	tests := []struct {
		name   string
		state  func(*State)
		within float64
		loaded bool
		usage  float64
	}{
		{"a minute old", func(*State) {}, 1e9, true, 500},
		{"too old for rates", func(*State) {}, 10, true, -1},
		{"of another start", func(s *State) { s.BootID = "two" }, 1e9, false, -1},
		{"of the future", func(s *State) { s.Seconds = 2000 }, 1e9, false, -1},
		{"empty", func(s *State) { *s = State{} }, 1e9, false, -1},
		{"of CPUs that cannot be", func(s *State) { s.CPUTimes.CPUs[0].ID = -5 }, 1e9, true, 500},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s State
			if err := tick.Unmarshal(saved, &s); err != nil {
				t.Fatal(err)
			}
			tt.state(&s)
			c := m.collector("rules: [{cgroup: /*, class: shared}]")
			if got := c.Load(&s, tt.within); got != tt.loaded {
				t.Fatalf("Load() = %v; want %v", got, tt.loaded)
			}
			if diff := cmp.Diff(map[string]float64{"/a": tt.usage}, usage(c.Read(true))); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
		})
	}
}

// A state that was saved without the steal time is no state in which none was stolen.
func TestStealOfOlderState(t *testing.T) {
	m := newMachine(t)
	m.write("proc/stat", "cpu0 100 0 0 900 0 0 0 7000\n")
	m.write("sys/devices/system/cpu/online", "0")
	first := m.collector("rules: [{cgroup: /*, class: shared}]")
	first.Read(true)
	for _, hasSteal := range []bool{true, false} {
		saved := first.Save()
		saved.CPUTimes.HasSteal = hasSteal
		if !hasSteal {
			saved.CPUTimes.CPUs[0].StealTicks = 0
		}
		m.write("proc/uptime", "1010.00 1.00")
		m.write("proc/stat", "cpu0 100 0 0 900 0 0 0 7100\n")
		c := m.collector("rules: [{cgroup: /*, class: shared}]")
		if !c.Load(saved, 1e9) {
			t.Fatal("the state was not loaded")
		}
		if got := c.Read(true).CPU.StealMilliCPU; hasSteal != (got != nil && *got == 100) || hasSteal != (got != nil) {
			t.Errorf("with steal time %v: %v", hasSteal, got)
		}
		m.write("proc/uptime", "1020.00 1.00")
		m.write("proc/stat", "cpu0 100 0 0 900 0 0 0 7300\n")
		if got := c.Read(true).CPU.StealMilliCPU; got == nil || *got != 200 {
			t.Errorf("with steal time %v: in the next round %v; want 200", hasSteal, got)
		}
	}
}

// Threads need not be read where hardly any CPU was used since the last sample, 5 s ago, and none was runnable then; the use is the sample.
func TestIdle(t *testing.T) {
	asleep := loadSample{usage: 10, throttled: 3, any: true}
	with := func(change func(*loadSample)) loadSample {
		s := asleep
		change(&s)
		return s
	}
	now := func(used uint64) cgroup.Values {
		return cgroup.Values{Has: cgroup.HasUsage, UsageNanoseconds: 10 + used, ThrottledPeriods: 3}
	}
	throttled := now(0)
	throttled.ThrottledPeriods++
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name string
		last loadSample
		now  cgroup.Values
		use  float64
		want bool
	}{
		{"has not run", asleep, now(0), 0, true},
		{"has run a little", asleep, now(25e6), 0.005, true},
		{"has run for a hundredth", asleep, now(50e6), 0.01, true},
		{"has run for more", asleep, now(51e6), 0, false},
		{"was throttled", asleep, throttled, 0, false},
		{"left out once", with(func(s *loadSample) { s.skipped = 1 }), now(0), 0, true},
		{"may starve: left out twice", with(func(s *loadSample) { s.skipped = 2 }), now(0), 0, false},
		{"starves: runnable last time", with(func(s *loadSample) { s.runnable = 1 }), now(0), 0, false},
		{"no sample yet", loadSample{}, now(0), 0, false},
		{"use not known", asleep, cgroup.Values{UsageNanoseconds: 10, ThrottledPeriods: 3}, 0, false},
		{"another cgroup of the same name", asleep, cgroup.Values{Has: cgroup.HasUsage, UsageNanoseconds: 9, ThrottledPeriods: 3}, 0, false},
	} {
		c := &container{sampled: tt.last, loads: loadavg.Average{At: begin}, group: &cgroup.Group{Values: tt.now}}
		if use, ok := c.idle(begin.Add(5 * time.Second)); ok != tt.want || ok && use != tt.use {
			t.Errorf("%s: idle() = %v, %v; want %v, %v", tt.name, use, ok, tt.use, tt.want)
		}
		if _, ok := c.idle(begin); ok {
			t.Errorf("%s: idle at the time of the last sample", tt.name)
		}
	}
}

// A starved thread is counted at every third sample at least, and at every one from the first that finds it.
func TestStarvedThreadIsCounted(t *testing.T) {
	m := newMachine(t)
	m.cgroup("/a", "1000")
	m.write("sys/fs/cgroup/a/cgroup.threads", "7\n")
	m.write("proc/7/stat", "7 (x) S 1")
	c := m.collector("rules: [{cgroup: /*, class: shared}]")
	c.Read(true)
	at := asTime(c.clock.Seconds())
	box := c.env.pods.tree.nodes["/a"].container
	step := func() float64 {
		at = at.Add(loadavg.Every)
		if box.loadDue(at) {
			box.sampleLoad(c.env.pods.tree.reader, float64(at.Unix()), nil)
		}
		return box.loads.Load1
	}
	for i := range maxSkipped {
		if load := step(); load != 0 || box.sampled.skipped != i+1 {
			t.Fatalf("load1 of a sleeper = %v, left out %d times; want 0, %d", load, box.sampled.skipped, i+1)
		}
	}
	m.write("proc/7/stat", "7 (x) R 1") // it gets no CPU
	for i := range 3 {
		before := box.loads.Load1
		if load := step(); load <= before {
			t.Errorf("sample %d after waking: load1 %v, then %v; want that it rises", i, before, load)
		}
	}
}

func TestContainerID(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, want := range map[string]string{
		id: id, "cri-containerd-" + id + ".scope": id, "docker-" + id + ".scope": id,
		"web": "", "x-" + id[1:] + ".scope": "", "g" + id[1:]: "", "": "",
	} {
		if got := containerID(name); got != want {
			t.Errorf("containerID(%q) = %q; want %q", name, got, want)
		}
	}
}

// A file that cannot be opened takes away its own value only.
func TestFileThatCannotBeOpened(t *testing.T) {
	m := newMachine(t)
	m.cgroup("/a", "1000")
	m.write("sys/fs/cgroup/a/memory.current", "4096")
	if err := os.Symlink("/etc/passwd", filepath.Join(m.root, "sys/fs/cgroup/a/pids.current")); err != nil {
		t.Fatal(err)
	}
	c := m.collector("rules: [{cgroup: /*, class: shared}]")
	c.Read(true)
	m.write("proc/uptime", "1010.00 1.00")
	m.cgroup("/a", "20001000")
	s := c.Read(true)
	isNamed := func(e tick.SourceError) bool {
		return strings.Contains(e.Error, "/a") && strings.Contains(e.Error, "pids.current")
	}
	if usage(s)["/a"] < 0 || s.Pods[0].Memory == nil || !slices.ContainsFunc(s.Errors, isNamed) {
		t.Errorf("usage %v, memory %v, errors %v; want both, and the file's error", usage(s), s.Pods[0].Memory, s.Errors)
	}
}
