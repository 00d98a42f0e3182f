package reason

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

// What a reader finds in a text is what its writer put there.
func TestReadersFindWhatWritersWrote(t *testing.T) {
	shares := []Share{
		{Pool: "share", ReserveMilliCPU: 4000, ReserveFrom: "default", NeedMilliCPU: 1234, Containers: 1, SumMilliCPU: 5234, Size: CPUs(6)},
		{
			Pool: "share", ReserveMilliCPU: 400, ReserveOfMilliCPU: 800, ReserveFrom: "config (a) + need 3m", NeedMilliCPU: 0, Containers: 0,
			SystemMilliCPU: 77, SumMilliCPU: 477, Size: CPUs(1), Bound: "other pools need the rest",
		},
		{
			Pool: "share", ReserveMilliCPU: 0, ReserveFrom: "--reserve-cpu", NeedMilliCPU: 1, Containers: 12, SumMilliCPU: 1,
			Size: Amount{MilliCPU: 1}, Bound: "one; two",
		},
	}
	for _, want := range shares {
		if got, ok := ParseShare(want.String()); !ok || got != want {
			t.Errorf("%q is read as %+v; want %+v", want, got, want)
		}
	}
	for _, want := range []fmt.Stringer{
		HoldDown{CPUs(12), 24 * time.Second, 30 * time.Second, "default"},
		HoldDown{Amount{MilliCPU: 1500}, time.Second, 90 * time.Second, "config (node: x)"},
		Shrink{8, 2, "--shrink-step"},
		Floor{Floor: CPUs(4), FloorFrom: "default (10 %)"},
		Floor{Floor: Amount{MilliCPU: 200}, FloorFrom: "default"},
		Floor{Floor: CPUs(4), FloorFrom: "default", Need: 12, Divided: 44},
		Off{Floor: CPUs(4), FloorFrom: "default"},
		Off{Floor: Amount{MilliCPU: 200}, FloorFrom: "a: b"},
		Off{Floor: CPUs(4), FloorFrom: "default", IsSeveral: true},
	} {
		if got := ParseBound(want.String()); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read as %#v; want %#v", want, got, want)
		}
	}
	budget := Budget{48000, 65, 1200, 1, 2400, "capacity - allocatable", 27600, ""}
	for _, want := range []Suppression{
		{budget, "28 CPUs; excluded: 0-1 (a -> b)"},
		{Budget{48000, 65, 40000, 12, 2400, "use outside of pods", -11200, AtLeast(4800, 10)}, "quota 4800m"},
	} {
		if got, ok := ParseSuppression(want.String()); !ok || got != want {
			t.Errorf("%q is read as %+v; want %+v", want, got, want)
		}
	}
	want := GuardStep{3, "disk", 1, 3, "12:00:35", `service "shop/web" waited for I/O for 300 ms per second, target 20 ms`}
	if got, ok := ParseGuardStep(want.String()); !ok || got != want {
		t.Errorf("%q is read as %+v; want %+v", want, got, want)
	}
	if text := NotMeasured("memory (psi)", "no sample"); !IsNotMeasured(text) {
		t.Errorf("%q is not recognized", text)
	}
	if text := SystemUse(77); !IsSystemUse(text) {
		t.Errorf("%q is not recognized", text)
	}
	if text := "70% is used, at or over the " + Threshold + "60%: 1 must be released"; !HasThreshold(text) {
		t.Errorf("%q is not recognized", text)
	}
}

// Recordings of version 0.1 have other wordings.
func TestEarlierWordings(t *testing.T) {
	for text, want := range map[string]fmt.Stringer{
		"held at 12 CPUs for 24s more (hold 30s: default)":                  HoldDown{CPUs(12), 24 * time.Second, 30 * time.Second, "default"},
		"8 CPUs would do, it shrinks by 2 a step (shrink-step: default)":    Shrink{8, 2, "default"},
		"nothing is reclaimed, so it has all but the floor of 4 CPUs (off)": Off{Floor: CPUs(4), FloorFrom: "off"},
	} {
		if got := ParseBound(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read as %#v; want %#v", text, got, want)
		}
	}
	if text := "system: 500m are used beside the confined pods"; !IsSystemUse(text) {
		t.Errorf("%q is not recognized", text)
	}
}

// Another text is none of them.
func TestOtherTexts(t *testing.T) {
	for _, text := range []string{
		"", "share", "other: reserve 4m (x) + need 1m of 1 container = 5m -> 5m", "suppression: no sample: everything stays unchanged",
		"suppression: " + Budget{Percent: 65}.String() + "; no CPU is left for batch pods", "guard: a step of disk is reverted: x",
		"hold-down: 12 CPUs for 24s more (hold long: default)", "system: 5 bytes of memory are used by system pods",
		"batch class: weight 16", "batch disks: limits of blkioQOS", "disk costs: cgroup version 1 has no io.cost", "memory: none is offered",
		"3 pods use more resident memory than their thresholds",
	} {
		_, isShare := ParseShare(text)
		_, isSuppression := ParseSuppression(text)
		_, isStep := ParseGuardStep(text)
		if isShare || isSuppression || isStep || ParseBound(text) != nil || IsSystemUse(text) || IsDisk(text) || IsOffer(text) ||
			HasThreshold(text) {
			t.Errorf("%q is recognized", text)
		}
	}
}
