package metrics

import (
	"slices"
	"strings"
	"testing"
)

// A rule whose value is below its threshold when met is drawn as the threshold against the value: free memory over a threshold of a
// thousandth of it would be 100,000 %.
func TestDashboardDrawsWhatIsLeftTheOtherWayRound(t *testing.T) {
	found := false
	for _, p := range readDashboard(t).Panels {
		if p.Title != "Values against thresholds" {
			continue
		}
		found = true
		for _, of := range []string{`rule="memory-pressure-eviction-plugin",part=~"free|numa.*"`, `rule="BECPUEvict"`} {
			want := `clamp_max(polder_pressure_threshold{node="$node",` + of + `} / polder_pressure_value{node="$node",` + of + `}, 10) or `
			if !strings.Contains(p.Targets[0].Expr, want) {
				t.Errorf("expr %s; want in it %s", p.Targets[0].Expr, want)
			}
		}
	}
	if !found {
		t.Error("the dashboard has no such panel")
	}
}

// How long batch was held back, and whether it starves now, are in one panel: the alert is about the second.
func TestDashboardShowsHowBatchIsHeldBack(t *testing.T) {
	var exprs []string
	for _, p := range readDashboard(t).Panels {
		if p.Title == "Batch held back, part of the time" {
			for _, target := range p.Targets {
				exprs = append(exprs, target.Expr)
			}
		}
	}
	for _, want := range []string{
		`polder_batch_starved{node="$node"}`, `rate(polder_batch_squeezed_seconds_total{node="$node"}[$__rate_interval])`,
	} {
		if !slices.Contains(exprs, want) {
			t.Errorf("the panel has %q; want also %s", exprs, want)
		}
	}
}
