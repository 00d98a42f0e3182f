package rule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/evictconfig"
	"polder/lib/tick"
)

// waitingPod is a pod that waits for a CPU for so many thousandths of the time, -1 if unknown, and uses so many milli-CPU.
func waitingPod(name, class string, permille, milliCPU float64) tick.Pod {
	p := tick.Pod{UID: "uid-" + name, Name: name, QoS: class}
	if permille >= 0 {
		p.CPUWaitPermille = &permille
	}
	if milliCPU >= 0 {
		p.UsageMilliCPU = &milliCPU
	}
	return p
}

// ofUnknownClass is a pod that the cluster no longer has.
func ofUnknownClass(p tick.Pod) tick.Pod {
	p.Missing = tick.MissingCluster
	return p
}

// ioWaitingPod is a pod that waits for disks for so many hundredths of the time, and reads so many bytes in so many operations per second; -1
// means unknown.
func ioWaitingPod(name, class string, avg10, bytes, operations float64) tick.Pod {
	p := tick.Pod{UID: "uid-" + name, Name: name, QoS: class}
	if avg10 >= 0 {
		p.IOPressure = &tick.Pressure{Some: &tick.PressureLine{Avg10: avg10}}
	}
	if bytes >= 0 || operations >= 0 {
		p.IO = &tick.IO{}
	}
	if bytes >= 0 {
		p.IO.ReadBytesPerSecond = &bytes
	}
	if operations >= 0 {
		p.IO.WritesPerSecond = &operations
	}
	return p
}

// memoryPod is a pod that waits for memory for so many hundredths of the time, and has so many bytes of anonymous memory and of working
// set; -1 means unknown.
func memoryPod(name, class string, avg10, rss, workingSet float64) tick.Pod {
	p := tick.Pod{UID: "uid-" + name, Name: name, QoS: class, Memory: &tick.Memory{UsageBytes: new(950.0)}}
	if avg10 >= 0 {
		p.MemoryPressure = &tick.Pressure{Some: &tick.PressureLine{Avg10: avg10}}
	}
	if rss >= 0 {
		p.Memory.RSSBytes = &rss
	}
	if workingSet >= 0 {
		p.Memory.WorkingSetBytes = &workingSet
	}
	return p
}

// limitedPod is a service that uses 950 bytes, waits for memory half of the time, and has a limit, and whose container has one too.
func limitedPod(pod, container float64) tick.Pod {
	p := memoryPod("limited", tick.QoSShared, 50, 1, 1)
	p.Limits = &tick.Resources{MemoryBytes: &pod}
	p.Containers = []tick.Container{{Memory: p.Memory, Limits: &tick.Resources{MemoryBytes: &container}}, {}}
	return p
}

// waitingRules are the rules of this file, with the setting that enables each, as tests need them.
var waitingRules = []struct {
	rule   *Rule
	enable func(s *Settings, hysteresis float64)
	// pod waits so many thousandths of the time and uses something, or nothing.
	pod      func(name, class string, permille, use float64) tick.Pod
	resource string
}{
	{
		serviceWaiting, func(s *Settings, hysteresis float64) {
			s.ServiceWaiting.Enabled, s.ServiceWaiting.Hysteresis = true, hysteresis
		}, waitingPod, "a CPU",
	},
	{
		serviceIO, func(s *Settings, hysteresis float64) { s.ServiceIO.Enabled, s.ServiceIO.Hysteresis = true, hysteresis },
		func(name, class string, permille, use float64) tick.Pod {
			return ioWaitingPod(name, class, permille/10, use, -1)
		}, "the disk",
	},
	{
		serviceMemory, func(s *Settings, hysteresis float64) {
			s.ServiceMemory.Enabled, s.ServiceMemory.Hysteresis = true, hysteresis
		},
		func(name, class string, permille, use float64) tick.Pod {
			return memoryPod(name, class, permille/10, use, -1)
		}, "memory",
	},
}

const (
	noCPUWaiting = "cpu.wait.services: the waiting of all 1 services is unknown: not measured"
	noIOWaiting  = "io.pressure.services: the waiting of all 1 services is unknown: not measured"
	noMemWaiting = "memory.pressure.services: the waiting of all 1 services is unknown: not measured"
)

func TestServiceWaiting(t *testing.T) {
	const shared, batch = tick.QoSShared, tick.QoSReclaimed
	ended, endedIO := waitingPod("ended", shared, 900, 0), ioWaitingPod("ended", shared, 90, 0, 0)
	ended.Phase, endedIO.Phase = "Succeeded", "Succeeded"
	missing := waitingPod("gone", shared, 900, 0)
	missing.Missing = tick.MissingCgroup
	throttled := waitingPod("throttled", shared, 900, 200)
	throttled.Containers = []tick.Container{{Name: "free", ThrottledPercent: new(0.0)}, {Name: "limited", ThrottledPercent: new(0.5)}}
	for _, tt := range []struct {
		name  string
		rule  *Rule
		pods  []tick.Pod
		value float64 // -1 if there is no finding
		want  []string
		err   string
	}{
		{"at the threshold", serviceWaiting, []tick.Pod{waitingPod("a", shared, 200, 1), waitingPod("b", batch, -1, 900)}, 200, nil, ""},
		{"the longest waiting counts, the pod with the largest use is first", serviceWaiting, []tick.Pod{
			waitingPod("a", shared, 1, 1), waitingPod("d", tick.QoSDedicated, 201, 1), waitingPod("small", batch, -1, 900), waitingPod("large", batch, -1, 1900),
		}, 201, []string{"large", "small"}, ""},
		{"more than all of the time", serviceWaiting, []tick.Pod{waitingPod("a", shared, 2500, 1), waitingPod("b", batch, -1, 1)}, 2500, []string{"b"}, ""},
		{"a pod with no or unknown use is not evicted", serviceWaiting, []tick.Pod{waitingPod("a", shared, 500, 1), waitingPod("b", batch, -1, 0), waitingPod("c", batch, -1, -1)}, 500, nil, ""},
		{"unknown", serviceWaiting, []tick.Pod{waitingPod("a", shared, -1, 1), waitingPod("b", batch, -1, 900)}, -1, nil, noCPUWaiting},
		{"a pod of unknown class is no service", serviceWaiting, []tick.Pod{
			waitingPod("a", shared, 10, 1), ofUnknownClass(waitingPod("b", shared, 900, 1)),
		}, 10, nil, ""},
		{"its own limit throttles it", serviceWaiting, []tick.Pod{
			throttled, waitingPod("a", shared, 3, 1), waitingPod("b", batch, -1, 900),
		}, 3, nil, ""},
		{"one is known", serviceWaiting, []tick.Pod{waitingPod("a", shared, -1, 1), waitingPod("c", shared, 3, 1)}, 3, nil, ""},
		{"batch waits", serviceWaiting, []tick.Pod{waitingPod("b", batch, 900, 900), waitingPod("a", shared, 0, 1)}, 0, nil, ""},
		{"ended, and without a cgroup", serviceWaiting, []tick.Pod{ended, missing}, -1, nil, ""},
		{"nobody", serviceWaiting, nil, -1, nil, ""},

		{"disk: at the threshold", serviceIO, []tick.Pod{ioWaitingPod("a", shared, 20, 1, 1), ioWaitingPod("b", batch, -1, 900, 1)}, 200, nil, ""},
		{"disk: the longest waiting counts, the pod that reads and writes most is first", serviceIO, []tick.Pod{
			ioWaitingPod("a", shared, 1, 1, 1), ioWaitingPod("d", tick.QoSDedicated, 20.5, 1, 1), ioWaitingPod("small", batch, -1, 1e6, 10), ioWaitingPod("large", batch, -1, 9e6, 10),
			ioWaitingPod("many", batch, -1, 1000, 10_000),
		}, 205, []string{"many", "large", "small"}, ""},
		{"disk: a pod with no or unknown use is not evicted", serviceIO, []tick.Pod{ioWaitingPod("a", shared, 50, 1, 1), ioWaitingPod("b", batch, -1, 0, 0), ioWaitingPod("c", batch, -1, -1, -1)}, 500, nil, ""},
		{"disk: unknown, as on version 1", serviceIO, []tick.Pod{ioWaitingPod("a", shared, -1, 1, 1), ioWaitingPod("b", batch, -1, 900, 1)}, -1, nil, noIOWaiting},
		{"disk: no share of a time", serviceIO, []tick.Pod{ioWaitingPod("a", shared, 101, 1, 1)}, -1, nil, noIOWaiting},
		{"disk: batch waits", serviceIO, []tick.Pod{ioWaitingPod("b", batch, 90, 900, 1), ioWaitingPod("a", shared, 0, 1, 1)}, 0, nil, ""},
		{"disk: ended", serviceIO, []tick.Pod{endedIO}, -1, nil, ""},

		{"memory: at the threshold", serviceMemory, []tick.Pod{
			memoryPod("a", shared, 20, 1, 1), memoryPod("b", batch, -1, 900, 1),
		}, 200, nil, ""},
		{"memory: anonymous memory comes before page cache, then the working set", serviceMemory, []tick.Pod{
			memoryPod("a", shared, 1, 1, 1), memoryPod("d", tick.QoSDedicated, 20.5, 9000, 9000),
			memoryPod("cache", batch, -1, 100, 8000), memoryPod("small", batch, -1, 300, 400),
			memoryPod("large", batch, -1, 300, 500), memoryPod("unknown", batch, -1, -1, 600),
		}, 205, []string{"large", "small", "cache", "unknown"}, ""},
		{"memory: a pod with no or unknown use is not evicted", serviceMemory, []tick.Pod{
			memoryPod("a", shared, 50, 1, 1), memoryPod("b", batch, -1, 0, 0), memoryPod("c", batch, -1, -1, -1),
			{Name: "e", QoS: batch},
		}, 500, nil, ""},
		{"memory: its own limit causes it", serviceMemory, []tick.Pod{
			limitedPod(1000, 9000), limitedPod(9000, 1000), memoryPod("a", shared, 3, 1, 1), memoryPod("b", batch, -1, 900, 1),
		}, 30, nil, ""},
		{"memory: far from its own limit", serviceMemory, []tick.Pod{limitedPod(1001, 0)}, 500, nil, ""},
		{"memory: unknown, as on version 1", serviceMemory, []tick.Pod{
			memoryPod("a", shared, -1, 1, 1), memoryPod("b", batch, -1, 900, 1),
		}, -1, nil, noMemWaiting},
		{"memory: no share of a time", serviceMemory, []tick.Pod{memoryPod("a", shared, 101, 1, 1)}, -1, nil, noMemWaiting},
		{"memory: batch waits", serviceMemory, []tick.Pod{
			memoryPod("b", batch, 90, 900, 1), memoryPod("a", shared, 0, 1, 1),
		}, 0, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Defaults()
			s.ServiceWaiting.Enabled, s.ServiceIO.Enabled = tt.rule == serviceWaiting, tt.rule == serviceIO
			s.ServiceMemory.Enabled = tt.rule == serviceMemory
			m := tt.rule.New().Measure(&s, tickAt(0, tt.pods...))
			if text := strings.Join(m.Errors, "; "); text != tt.err {
				t.Errorf("reported errors %q; want %q", text, tt.err)
			}
			if tt.value < 0 {
				if len(m.Findings) > 0 {
					t.Errorf("findings %+v; want none", m.Findings)
				}
				return
			}
			if len(m.Findings) != 1 {
				t.Fatalf("findings %+v; want one", m.Findings)
			}
			of := map[*Rule]evictconfig.Waiting{
				serviceWaiting: s.ServiceWaiting, serviceIO: s.ServiceIO, serviceMemory: s.ServiceMemory,
			}[tt.rule]
			f := m.Findings[0]
			if f.Value != tt.value || f.Threshold != 200 || f.Met != (tt.value > 200) || !f.Hard ||
				f.Tolerance != of.Duration || f.Cooldown != of.Cooldown {
				t.Errorf("finding %+v; want %v over 200, hard, with tolerance and cooldown", f, tt.value)
			}
			if d := cmp.Diff(tt.want, ranked(f)); d != "" {
				t.Errorf("candidates (-want +got):\n%s", d)
			}
		})
	}
}

// Each is disabled by default, and its state from before it was disabled is dropped. The rules' settings are independent.
func TestServiceWaitingOffAndHysteresis(t *testing.T) {
	for i, tt := range waitingRules {
		t.Run(tt.rule.Name, func(t *testing.T) {
			s := Defaults()
			for j := range waitingRules {
				if j != i {
					waitingRules[j].enable(&s, 0.9)
				}
			}
			w := tt.rule.New()
			x := func(seconds int, permille float64) string {
				m := w.Measure(&s, tickAt(seconds, tt.pod("a", tick.QoSShared, permille, 1), tt.pod("b", tick.QoSReclaimed, -1, 500)))
				if len(m.Findings) == 0 {
					return "none"
				}
				f := m.Findings[0]
				return fmt.Sprintf("%v of %v %v %s", f.Value, f.Threshold, f.Met, f.Message)
			}
			if got := x(0, 900); got != "none" {
				t.Errorf("off: %s; want nothing", got)
			}
			tt.enable(&s, 0.5)
			for i, step := range []struct {
				permille float64
				want     string
			}{
				{300, "300 of 200 true service a waits for %s for 300 ms per second, over the threshold of 200 ms, for 0s"},
				{110, "110 of 100 true service a waits for %s for 110 ms per second, over the threshold of 100 ms, for 5s"},
				{100, "100 of 100 false "},
				{110, "110 of 200 false "},
			} {
				if got, want := x(5*i, step.permille), strings.ReplaceAll(step.want, "%s", tt.resource); got != want {
					t.Errorf("step %d: %s; want %s", i, got, want)
				}
			}
		})
	}
}
