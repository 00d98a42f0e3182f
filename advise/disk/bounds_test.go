package disk

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// A limit of 0 becomes the smallest that isolate writes; a negative one means no limit. The reason states the same.
func TestMinimumLimit(t *testing.T) {
	for _, tt := range []struct {
		limit             int64
		bytes, operations int64
		text              string
	}{
		{-1, -1, -1, ` on "sda"`},
		{0, minBytes, minOperations, `0.00 MiB/s read, 0 writes/s on "sda"`},
		{1, minBytes, minOperations, `0.00 MiB/s read, 1 writes/s on "sda"`},
		{1 << 20, 1 << 19, 1 << 19, `1.00 MiB/s read, 1048576 writes/s on "sda"`},
	} {
		limit := tick.DiskLimit{Disk: "sda", ReadBytesPerSecond: &tt.limit, WritesPerSecond: &tt.limit}
		want := tick.DiskLimit{
			Disk: "sda", ReadBytesPerSecond: &tt.bytes, WritesPerSecond: &tt.operations,
			WriteBytesPerSecond: new(int64(-1)), ReadsPerSecond: new(int64(-1)),
		}
		if d := cmp.Diff(want, dividedLimit(&limit, 2)); d != "" {
			t.Errorf("half of %d (-want +got):\n%s", tt.limit, d)
		}
		if got := Text(&limit); got != tt.text {
			t.Errorf("%d: %s; want %s", tt.limit, got, tt.text)
		}
	}
}

// Neither the root nor an invalid path gets a value, nor a tier of kubelet's other than that of the BestEffort pods, even if it contains
// only batch now.
func TestOnlyBatchsCgroupsGetValues(t *testing.T) {
	r := newRun(2)
	r.settings.Share = Idle
	r.sample.BatchCgroups = nil
	r.sample.Pods = []tick.Pod{pod("j", tick.QoSReclaimed, "/kubepods/burstable/j", true), pod("r", tick.QoSReclaimed, "/", true)}
	r.sample.Tiers = []tick.Tier{{Name: tick.TierBurstable, Cgroup: "/kubepods/burstable"}, {Name: tick.TierBestEffort, Cgroup: "x"}}
	expect(t, "batch alone in kubelet's Burstable tier", r.tickAfter(1), "/kubepods/burstable/j weight 1")
}

// Without batch and without costs nothing is advised.
func TestNothingIsAdvisedForUnknownCgroups(t *testing.T) {
	for version := 1; version <= 2; version++ {
		r := newRun(version)
		r.settings.Share, r.sample.Pods, r.sample.BatchCgroups = Idle, nil, nil
		expect(t, "without batch", r.tickAfter(1), "")
		if len(r.advice.Reasons) > 0 {
			t.Errorf("version %d: reasons %q", version, r.advice.Reasons)
		}
	}
}

// The maximum number of disks is undone when their limits are removed, also after two settings in succession.
func TestAllDisksAreUndone(t *testing.T) {
	named := func(prefix string) (list []tick.DiskLimit, costs []tick.DiskCost) {
		for i := range maxDisks {
			disk := fmt.Sprintf("%s%d", prefix, i)
			list = append(list, tick.DiskLimit{Disk: disk, ReadBytesPerSecond: new(int64(1 << 20))})
			costs = append(costs, tick.DiskCost{Disk: disk, Enabled: new(true)})
		}
		return list, costs
	}
	undone := func(r *run) (limits, costs int) {
		for _, c := range r.advice.Cgroups {
			for _, d := range c.IOMax {
				if *d.ReadBytesPerSecond == tick.Unlimited {
					limits++
				}
			}
			for _, d := range c.IOCost {
				if d.Enabled == nil {
					costs++
				}
			}
		}
		return limits, costs
	}
	r := newRun(2)
	for step, want := range []int{0, maxDisks, 2 * maxDisks, 2 * maxDisks} {
		switch step {
		case 0, 1:
			r.settings.Limits, r.settings.Costs = named([]string{"sd", "vd"}[step])
		case 2:
			r.settings.Limits, r.settings.Costs = nil, nil
		}
		r.tickAfter(1)
		if limits, costs := undone(r); limits != want || costs != want {
			t.Errorf("step %d: limits of %d disks and costs of %d are undone; want %d", step, limits, costs, want)
		}
	}
}

// A state file with more than that is discarded, whichever list is too long.
func TestTooLongStateIsDiscarded(t *testing.T) {
	many := make([]string, 2*maxDisks+1)
	for i := range many {
		many[i] = fmt.Sprint("sd", i)
	}
	for name, st := range map[string]*State{
		"costs":        {Costs: many},
		"undone costs": {UndoCosts: many, UndoCostsAt: begin},
		"disks":        {Set: map[string]*cgroupState{"/batch": {values: values{Disks: many}}}},
		"undone disks": {Set: map[string]*cgroupState{"/batch": {Undo: values{Disks: many}, UndoAt: begin}}},
	} {
		r := newRun(2)
		r.st = st
		if got := r.tickAfter(1); got != "" || len(r.advice.Cgroups) > 0 {
			t.Errorf("%s: %.100s, of %d cgroups", name, got, len(r.advice.Cgroups))
		}
	}
}
