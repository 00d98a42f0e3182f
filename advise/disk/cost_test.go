package disk

import (
	"strings"
	"testing"

	"polder/lib/tick"
)

// costs returns the root's advice as short text.
func (r *run) costs() string {
	var out []string
	for _, c := range r.advice.Cgroups {
		for _, d := range c.IOCost {
			one := c.Cgroup + " " + d.Disk
			switch {
			case d.Enabled == nil:
				one += " as before"
			case *d.Enabled:
				one += " on"
			}
			out = append(out, one)
		}
	}
	return strings.Join(out, ", ")
}

// Costs are the root's, with or without batch; costs that are no longer desired are restored for a minute. Version 1 has none.
func TestCosts(t *testing.T) {
	r := newRun(2)
	r.sample.Pods = nil
	vda, vdb := tick.DiskCost{Disk: "vda", Enabled: new(true)}, tick.DiskCost{Disk: "vdb", Enabled: new(true)}
	want := func(seconds int, want string) {
		t.Helper()
		if r.tickAfter(seconds); r.costs() != want {
			t.Errorf("after %d s: %q; want %q", r.second, r.costs(), want)
		}
	}
	want(1, "")
	r.settings.Costs = []tick.DiskCost{vda, vdb}
	want(1, "/ vda on, / vdb on")
	if !strings.Contains(strings.Join(r.advice.Reasons, ""), `disk costs: io.cost on 2 disks ("vda, vdb")`) {
		t.Errorf("reasons %q", r.advice.Reasons)
	}
	r.settings.Costs = []tick.DiskCost{vda}
	want(1, "/ vda on, / vdb as before")
	r.settings.Costs = nil
	want(30, "/ vda as before, / vdb as before")
	want(59, "/ vda as before, / vdb as before")
	r.settings.Costs = []tick.DiskCost{{Disk: tick.AllDisks, Enabled: new(true)}}
	want(0, "/ all on")
	r.settings.Costs = nil
	want(1, "/ all as before")
	want(60, "")
	if r.st != nil {
		t.Errorf("remembered: %+v", r.st)
	}
	r = newRun(1)
	r.settings.Costs = []tick.DiskCost{vda}
	want(1, "")
	if !strings.Contains(strings.Join(r.advice.Reasons, ""), "cgroup version 1 has no io.cost") {
		t.Errorf("reasons %q", r.advice.Reasons)
	}
}

// A policy's own costs apply to the disks that the settings do not name, and are undone like those of the settings.
func TestCostsOfAStrategy(t *testing.T) {
	r := newRun(2)
	r.strategy.Costs = []tick.DiskCost{{Disk: "vda", Enabled: new(true), ReadLatencyMicroseconds: new(3000.0)}, {Disk: "vdb", Enabled: new(true)}}
	r.settings.Costs = []tick.DiskCost{{Disk: "vda", Enabled: new(true), ReadLatencyMicroseconds: new(9000.0)}}
	r.tickAfter(1)
	if got := r.costs(); got != "/ vdb on, / vda on" {
		t.Errorf("both: %q", got)
	}
	if got := r.advice.Cgroups[0].IOCost[1]; *got.ReadLatencyMicroseconds != 9000 {
		t.Errorf("vda has a target of %v us; want the setting's 9000", *got.ReadLatencyMicroseconds)
	}
	if r.strategy.Costs[0].Disk != "vda" || *r.strategy.Costs[0].ReadLatencyMicroseconds != 3000 {
		t.Errorf("the strategy itself was changed: %+v", r.strategy.Costs)
	}
	r.settings.Costs, r.strategy.Costs = nil, r.strategy.Costs[:1]
	if r.tickAfter(1); r.costs() != "/ vda on, / vdb as before" {
		t.Errorf("the strategy's alone: %q", r.costs())
	}
}

// An invalid state file changes only values of disks.
func TestCostsOfAHostileState(t *testing.T) {
	r := newRun(2)
	names := strings.Repeat(`"x",`, 500)
	if err := tick.Unmarshal([]byte(`{"costs":[`+names+`"x"],"undoCosts":["y"],"undoCostsAt":"9999-01-01T00:00:00Z"}`), &r.st); err != nil {
		t.Fatal(err)
	}
	if r.tickAfter(1); r.costs() != "" {
		t.Errorf("advised: %q", r.costs())
	}
}
