package source

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// A pod's memory pressure is its own cgroup's; a pod whose cgroup has none has none in the sample.
func TestMemoryPressureOfPods(t *testing.T) {
	m := newMachine(t)
	for _, pod := range []string{"/kubepods/poda", "/kubepods/podb"} {
		m.cgroup(pod, "1")
		m.cgroup(pod+"/c", "1")
	}
	const file = "sys/fs/cgroup/kubepods/poda/memory.pressure"
	m.write(file, "some avg10=12.50 avg60=1.00 avg300=0.25 total=77\nfull avg10=2.00 avg60=0.00 avg300=0.00 total=5\n")
	m.write("sys/fs/cgroup/kubepods/poda/c/memory.pressure", "some avg10=99.00 avg60=0.00 avg300=0.00 total=0\n")
	c := m.collector("rules: [{cgroup: /kubepods/pod*, class: shared, containers: children}]")
	pressures := func() map[string]*tick.Pressure {
		s := c.Read(true)
		got := map[string]*tick.Pressure{}
		for i := range s.Pods {
			got[s.Pods[i].Cgroup] = s.Pods[i].MemoryPressure
		}
		return got
	}
	want := map[string]*tick.Pressure{
		"/kubepods/poda": {
			Some: &tick.PressureLine{Avg10: 12.5, Avg60: 1, Avg300: 0.25, TotalMicroseconds: 77},
			Full: &tick.PressureLine{Avg10: 2, TotalMicroseconds: 5},
		},
		"/kubepods/podb": nil,
	}
	if d := cmp.Diff(want, pressures()); d != "" {
		t.Errorf("memory pressure (-want +got):\n%s", d)
	}
	// The kernel updates its averages every 2 s: they are not read more often.
	m.write("proc/uptime", "1001.00 1.00")
	m.write(file, "some avg10=13.00 avg60=1.00 avg300=0.25 total=77\nfull avg10=2.00 avg60=0.00 avg300=0.00 total=5\n")
	if d := cmp.Diff(want, pressures()); d != "" {
		t.Errorf("memory pressure a second later (-want +got):\n%s", d)
	}
	m.write("proc/uptime", "1002.00 1.00")
	want["/kubepods/poda"].Some.Avg10 = 13
	if d := cmp.Diff(want, pressures()); d != "" {
		t.Errorf("memory pressure two seconds later (-want +got):\n%s", d)
	}
	// A file that cannot be parsed is an error and no value; the pod stays.
	m.write(file, "some avg10=12\n")
	s := c.Read(false)
	if len(s.Pods) != 2 || s.Pods[0].MemoryPressure != nil ||
		!slices.ContainsFunc(s.Errors, func(e tick.SourceError) bool {
			return e.Source == "cgroup" && strings.Contains(e.Error, "memory.pressure")
		}) {
		t.Errorf("a broken file: %+v, errors %+v; want the pod without it, and an error", s.Pods, s.Errors)
	}
	m.write(file, "some avg10=0.50 avg60=0.00 avg300=0.00 total=77\n")
	if d := cmp.Diff(map[string]*tick.Pressure{"/kubepods/poda": stalledFor(0.5, 77), "/kubepods/podb": nil}, pressures()); d != "" {
		t.Errorf("repaired (-want +got):\n%s", d)
	}
}

// The pressure of a cgroup can be switched on later: each rescan tries to open the file again.
func TestMemoryPressureThatCameLater(t *testing.T) {
	m := newMachine(t)
	m.cgroup("/a", "1")
	c := m.collector("rules: [{cgroup: /*, class: shared}]")
	if s := c.Read(true); s.Pods[0].MemoryPressure != nil {
		t.Fatalf("memory pressure %+v without a file", s.Pods[0].MemoryPressure)
	}
	m.write("sys/fs/cgroup/a/memory.pressure", "some avg10=0.50 avg60=0.00 avg300=0.00 total=77\n")
	if d := cmp.Diff(stalledFor(0.5, 77), c.Read(true).Pods[0].MemoryPressure); d != "" {
		t.Errorf("memory pressure that came later (-want +got):\n%s", d)
	}
}

func stalledFor(avg10, total float64) *tick.Pressure {
	return &tick.Pressure{Some: &tick.PressureLine{Avg10: avg10, TotalMicroseconds: total}}
}
