package view

import (
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

// The bar of the CPUs never draws use that is not known as that of a class: 0 of batch is another statement than that nothing is known.
func TestUnknownUseIsDrawnAsUnknown(t *testing.T) {
	pod := func(class string, milliCPU *float64) tick.Pod {
		return tick.Pod{Name: class, QoS: class, QoSSource: tick.QoSFromKubernetes, UsageMilliCPU: milliCPU}
	}
	unclassed := pod(tick.QoSShared, new(2000.0))
	unclassed.QoSSource, unclassed.Missing = tick.QoSFromRule, tick.MissingCluster
	for _, tt := range []struct {
		name string
		pods []tick.Pod
		bar  string
	}{
		{"all is known", []tick.Pod{pod(tick.QoSShared, new(1000.0)), pod(tick.QoSReclaimed, new(2000.0))}, "██▓▓▓▓▒▒"},
		{"a system pod is a service", []tick.Pod{pod(tick.QoSSystem, new(1000.0)), pod(tick.QoSReclaimed, new(2000.0))}, "██▓▓▓▓▒▒"},
		{"batch's use is unknown", []tick.Pod{pod(tick.QoSShared, new(1000.0)), pod(tick.QoSReclaimed, nil)}, "██??????"},
		{"a service's use is unknown", []tick.Pod{pod(tick.QoSShared, nil), pod(tick.QoSReclaimed, new(2000.0))}, "▓▓▓▓????"},
		{"a pod's class is unknown", []tick.Pod{pod(tick.QoSReclaimed, new(1000.0)), unclassed}, "▒▒??????"},
	} {
		x := &tick.Tick{Node: "n", Time: time.Unix(1e9, 0), Sample: &tick.Sample{
			Topology: &tick.Topology{CPUs: "0-3"}, CPU: &tick.NodeCPU{UsageMilliCPU: new(4000.0)}, Pods: tt.pods,
		}}
		lines := Frame(&Model{Tick: x}, Look{Width: 66, Height: 40}, x.Time)
		if want := "cpu    " + tt.bar + "  4.00 of 4 cores"; !strings.HasPrefix(lines[1], want) {
			t.Errorf("%s: %q, want %q", tt.name, lines[1], want)
		}
		if legend := strings.Contains(lines[2], "? unknown"); legend != strings.Contains(tt.bar, "?") {
			t.Errorf("%s: the legend is %q", tt.name, lines[2])
		}
	}
}
