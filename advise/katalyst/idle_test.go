package katalyst

import (
	"testing"

	"polder/lib/tick"
)

// A tier that older versions of the other policy left idle prevents kubelet from starting under this one, too.
func TestIdleTierIsCleared(t *testing.T) {
	tk := at(0, shared("a", 1), reclaimed("b"))
	tk.Sample.Kubelet = &tick.Kubelet{CPUManagerPolicy: "none"}
	tk.Sample.Tiers = []tick.Tier{{Name: tick.TierBestEffort, Cgroup: "/kubepods/besteffort", CPUIdle: true}}
	a := New(Defaults()).Decide(tk)
	entries := 0
	for _, c := range a.Cgroups {
		if c.Cgroup == "/kubepods/besteffort" {
			entries++
			if c.CPUIdle == nil || *c.CPUIdle || c.CPUWeight == nil || *c.CPUWeight != 1 {
				t.Errorf("the tier: desired %+v", c)
			}
		}
	}
	if entries != 1 {
		t.Errorf("the tier is advised %d times; want once: isolate leaves others alone", entries)
	}
}
