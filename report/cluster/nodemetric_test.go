package cluster

import (
	"errors"
	"testing"
	"time"

	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/reconcile"
)

// used is a tick of a node that uses so much; a negative number is an unknown use.
func used(seconds int, milli float64) stage.Incoming {
	t := &tick.Tick{V: 1, Node: "n", Time: noon.Add(time.Duration(seconds) * time.Second), Sample: &tick.Sample{}}
	if milli >= 0 {
		t.Sample.CPU = &tick.NodeCPU{UsageMilliCPU: &milli}
		t.Sample.Memory = &tick.NodeMemory{TotalBytes: new(1e9), AvailableBytes: new(4e8)}
	}
	return stage.Incoming{Tick: t}
}

// While a write waits, because the server does not answer, the status has the newest known figures with their time. When they become
// unknown it keeps that time.
func TestNodeMetricWaits(t *testing.T) {
	r := &measurer{session: session(nil), client: new(kube.Client)}
	var m *measured
	target := r.target()
	target.Ready = func(waits *measured) error {
		m = waits
		return errors.New("the server does not answer")
	}
	r.queue = reconcile.Start(queueOf(t.Context(), r.session, NodeMetric), target)
	for _, step := range []struct {
		name    string
		seconds int
		milli   float64
		updated int // seconds; under zero nothing waits
		cpu     string
	}{
		{"the first sample", 0, 1000, -1, ""},
		{"the second one", 5, 1000, 5, "1"},
		{"newer figures", 10, 4000, 10, "2"},
		{"unknown, a moment later", 60, -1, 60, "2"},
		{"no longer known", 75, -1, 60, "2"},
		{"for the time of the averages", 400, -1, 60, "2"},
		{"for hours", 7200, -1, 60, "2"},
		{"known again", 7205, 3000, 7205, "3"},
		{"and again", 7210, 5000, 7210, "4"},
	} {
		result := put(t, r, used(step.seconds, step.milli))
		if step.updated < 0 {
			if m != nil || result.State != tick.TargetUnchanged {
				t.Errorf("%s: %v waits, it reports %+v", step.name, m, result)
			}
			continue
		}
		if result.State != tick.TargetPending {
			t.Errorf("%s: it reports %+v", step.name, result)
		}
		at := noon.Add(time.Duration(step.updated) * time.Second)
		if got := m.due["updateTime"]; got != at.Format(time.RFC3339) || !m.at.Equal(at) {
			t.Errorf("%s: of %v, noted as of %s; want %s", step.name, got, m.at, at)
		}
		node, _ := m.due["nodeMetric"].(map[string]any)
		usage, _ := node["nodeUsage"].(map[string]any)
		list, _ := usage["resources"].(map[string]any)
		if list["cpu"] != step.cpu || list["memory"] != "600000000" {
			t.Errorf("%s: %v; want CPU %s", step.name, list, step.cpu)
		}
	}
}
