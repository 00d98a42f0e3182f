package rule

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// Pods of any class and size reduce the memory shortage when they end, even if they are no candidates.
func TestMemoryReleasedInProgress(t *testing.T) {
	unknown := podWithMemory("u", tick.QoSShared, 1)
	unknown.Memory, unknown.Containers = nil, nil
	crashed := podWithMemory("crashed", tick.QoSShared, 1)
	crashed.Memory, crashed.Containers, crashed.Cgroup = nil, nil, "/kubepods/podcrashed"
	pods := []tick.Pod{
		podWithMemory("r", tick.QoSReclaimed, 512), podWithMemory("small", tick.QoSReclaimed, 1),
		podWithMemory("s", tick.QoSShared, 1024), podWithMemory("d", tick.QoSDedicated, 2048), unknown, crashed,
	}
	for i := range pods {
		if pods[i].QoS != tick.QoSReclaimed {
			pods[i].MemoryPressure = stall(90)
		}
	}
	s := Defaults()
	s.MemoryNUMABelowTimesReclaimed, s.MemoryKswapdTimes = 1, 1
	s.MemoryPSIEnabled = true
	const watermark, free = 100 * gib * 10 / 10_000, gib / 20
	w := memoryPressure.New()
	var m Measure
	for i := range 2 {
		x := shortTick(5*i, 0.05, pods...)
		x.Sample.Memory.KswapdStealPages = new(float64(i) * 1e6)
		x.Sample.Memory.Pressure = stall(90)
		m = w.Measure(&s, x)
	}
	const mebi = 1 << 20
	missing := fmt.Sprint((watermark - free) / mebi)
	for name, want := range map[string][]string{
		partFree:   {"s 1024", "d 2048", "u " + missing},
		"numa0":    {"s 1024", "d 2048", "u 0", "small 1"},
		partKswapd: {"d 0.19073486328125"}, // 200000 a second
		partPSI:    {"s 8.58306884765625e-05", "d 8.58306884765625e-05", "u 8.58306884765625e-05"},
	} {
		f := part(m, name)
		if f == nil || !f.Met {
			t.Errorf("%s: %+v; want it met", name, f)
			continue
		}
		var got []string
		for _, c := range f.Others {
			got = append(got, fmt.Sprintf("%s %v", c.Pod.Name, c.Releases/mebi))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: others, with MiB (-want +got):\n%s", name, d)
		}
		if f.CooldownKey() != memoryPressure.Name+" "+ScopeMemory {
			t.Errorf("%s: cooldown %q", name, f.CooldownKey())
		}
	}
}
