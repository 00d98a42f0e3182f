package plan

import (
	"fmt"
	"testing"

	"polder/lib/tick"
)

// Each version has its own weight file.
func TestWeightFile(t *testing.T) {
	for version, want := range map[int]string{1: "cpu.shares", 2: "cpu.weight"} {
		if got := WeightFile(version); got != want {
			t.Errorf("version %d: %s, want %s", version, got, want)
		}
	}
}

// Desired states differ if only one has a value, or if the values differ.
func TestSameValue(t *testing.T) {
	one, two := 1, 2
	again := one
	for _, tt := range []struct {
		a, b *int
		want bool
	}{{nil, nil, true}, {&one, &one, true}, {&one, &again, true}, {&one, &two, false}, {nil, &one, false}, {&one, nil, false}} {
		if got := same(tt.a, tt.b); got != tt.want {
			t.Errorf("%v and %v: %t", tt.a, tt.b, got)
		}
	}
}

// I/O weights are 1 to 10000, on version 1 10 to 1000; BFQ uses those of version 1 on both.
func TestWeightsOfIO(t *testing.T) {
	for _, tt := range []struct {
		weight        int64
		v1, v2, bfq   string
		refusedEither bool
	}{
		{1, "10", "default 1", "default 10", false},
		{100, "19", "default 100", "default 19", false},
		{10000, "1000", "default 10000", "default 1000", false},
		{0, "", "", "", true},
		{10001, "", "", "", true},
	} {
		for version, want := range map[int]string{1: tt.v1, 2: tt.v2} {
			s := Setting{Version: version}
			s.Name, s.Alternative = "io.weight", "io.bfq.weight"
			desired, err := setIOWeight(nil, &tick.Cgroup{IOWeight: &tt.weight}, &s)
			if (err != nil) != tt.refusedEither || desired == tt.refusedEither || s.text != want {
				t.Errorf("version %d: weight %d is %q (%t, %v); want %q", version, tt.weight, s.text, desired, err, want)
			}
			if version == 2 && err == nil {
				if s.UseAlternative(); s.Name != "io.bfq.weight" || s.text != tt.bfq {
					t.Errorf("weight %d of %s is %q, want %q", tt.weight, s.Name, s.text, tt.bfq)
				}
			}
		}
	}
	raw := Setting{isFileText: true, text: "default 100", Alternative: "io.bfq.weight"} // the original text: it is restored unchanged
	raw.UseAlternative()
	if raw.text != "default 100" {
		t.Errorf("what was there is restored as %q", raw.text)
	}
	if !Same("io.bfq.weight", "default 100\n8:0 50", "default 100") || Same("io.bfq.weight", "default 100", "default 50") {
		t.Error("the default of io.bfq.weight is not what two texts are compared by")
	}
}

// A quota ranges from none, which is -1, to that of the largest machine.
func TestBoundsOfAQuota(t *testing.T) {
	for milliCPU, want := range map[int64]bool{tick.Unlimited - 1: false, tick.Unlimited: true, 0: true, maxMilliCPU: true, maxMilliCPU + 1: false} {
		if _, err := setQuota(nil, &tick.Cgroup{CPUMaxMilliCPU: &milliCPU}, &Setting{}); (err == nil) != want {
			t.Errorf("%d milli-CPU: %v", milliCPU, err)
		}
	}
}

// The largest quota within another one, in its own period, is valid by the kernel's calculation, and one more microsecond is not.
func TestTheLargestQuotaWithinAShare(t *testing.T) {
	for _, tt := range []struct{ quota, period, own, want string }{
		{"50000", "100000", "100000", "50000"},
		{"50000", "100000", "200000", "100000"},
		{"1000", "100000", "1000000", "10000"},
		{"1000", "100000", "100000", "1000"},
		{"-1", "100000", "100000", "-1"},
		{"max", "100000", "100000", "-1"},
		{"819200000", "100000", "1000000", ""},
		{"1000", "100000", "10000", ""},
		{"1000", "100000", "0", ""},
	} {
		s, err := shareOf(tt.quota, tt.period)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.largestQuota(tt.own)
		if tt.want != "" && got != tt.want || (err == nil) != (tt.want != "" || tt.quota == "819200000") {
			t.Errorf("%+v: %s, %v", tt, got, err)
		}
		if err != nil || s == unlimitedShare {
			continue
		}
		var quota int64
		if _, err := fmt.Sscan(got, &quota); err != nil {
			t.Fatal(err)
		}
		if within, _ := shareOf(got, tt.own); within > s {
			t.Errorf("%+v: %s is over it", tt, got)
		}
		if over, _ := shareOf(fmt.Sprint(quota+1), tt.own); over <= s {
			t.Errorf("%+v: one more than %s would be within it", tt, got)
		}
	}
}

// Values that kubelet repeatedly writes above its pods are no contest: the weight, and no quota if it requests none.
func TestKubeletResets(t *testing.T) {
	for _, tt := range []struct {
		cgroup, name, text string
		want               bool
	}{
		{"/kubepods", "cpu.shares", "2", true},
		{"/kubepods/besteffort", "cpu.weight", "1", true},
		{"/kubepods/besteffort", "cpu.cfs_quota_us", "-1", true},
		{"/kubepods/besteffort", "cpu.cfs_quota_us", "1000", false},
		{"/kubepods/besteffort", "cpu.max", "max 100000", true},
		{"/kubepods/besteffort", "cpu.max", "1000 100000", false},
		{"/kubepods/besteffort", "cpu.idle", "0", true},
		{"/kubepods/besteffort", "cpu.idle", "1", false},
		{"/kubepods/besteffort", "memory.max", "max", false},
		{"/batch", "cpu.weight", "1", false},
		{"/kubepods/besteffort/pod0f7dd0a2-7c6d-4a8e-9a3a-111111111111", "cpu.weight", "1", false},
	} {
		f := File{Cgroup: tt.cgroup}
		if f.Name = tt.name; IsKubeletReset(f, tt.text) != tt.want {
			t.Errorf("%s of %s is %q: want %t", tt.name, tt.cgroup, tt.text, tt.want)
		}
	}
}
