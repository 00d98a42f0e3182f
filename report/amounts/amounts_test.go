package amounts

import (
	"fmt"
	"strings"
	"testing"

	"polder/lib/tick"
)

// pod is one of a class with a known use in milli-CPU.
func pod(class string, milliCPU float64) tick.Pod {
	return tick.Pod{Name: class, QoS: class, QoSSource: tick.QoSFromKubernetes, UsageMilliCPU: &milliCPU, Load1: new(milliCPU/1000 + 1)}
}

// changed is a pod after a change.
func changed(p tick.Pod, change func(*tick.Pod)) tick.Pod {
	change(&p)
	return p
}

// text is an amount, "-" where it is unknown.
func text(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3g", *v)
}

func TestOf(t *testing.T) {
	deleted := func(p *tick.Pod) { p.Missing = tick.MissingCluster }
	unclassed := func(milliCPU float64) tick.Pod {
		return changed(pod(tick.QoSShared, milliCPU), func(p *tick.Pod) { p.QoSSource, p.Missing = tick.QoSFromRule, tick.MissingCluster })
	}
	unused := func(p *tick.Pod) { p.UsageMilliCPU, p.Load1 = nil, nil }
	requests := func(p *tick.Pod) { p.Requests = &tick.Resources{ReclaimedMilliCPU: new(2000.0)} }
	for _, tt := range []struct {
		name string
		pods []tick.Pod
		want string // services, batch, the rest, free, requested, services' waiting threads
	}{
		{"no pods", nil, "0 0 3 1 0 0"},
		{"every class", []tick.Pod{
			pod(tick.QoSDedicated, 500), pod(tick.QoSShared, 1000), pod(tick.QoSSystem, 250), pod(tick.QoSReclaimed, 1000),
		}, "1.75 1 0.25 2 0 3"},
		{"the use of batch is unknown", []tick.Pod{
			pod(tick.QoSShared, 1000), changed(pod(tick.QoSReclaimed, 0), unused),
		}, "1 - - - 0 1"},
		{"the use of a service is unknown", []tick.Pod{
			changed(pod(tick.QoSShared, 0), unused), pod(tick.QoSReclaimed, 1000),
		}, "- 1 - 2 0 -"},
		{"the class of a pod is unknown", []tick.Pod{pod(tick.QoSShared, 1000), unclassed(1500)}, "- - 0.5 - - -"},
		{"nothing is known of a pod", []tick.Pod{pod(tick.QoSShared, 1000), changed(unclassed(0), unused)}, "- - - - - -"},
		{"a pod of unknown class uses nothing", []tick.Pod{pod(tick.QoSShared, 1000), unclassed(0)}, "1 0 2 1 0 1"},
		{"a deleted pod, whose class is known", []tick.Pod{changed(pod(tick.QoSReclaimed, 1000), deleted)}, "0 1 2 2 0 0"},
		{"a pod that has not started", []tick.Pod{
			changed(pod(tick.QoSShared, 0), func(p *tick.Pod) { unused(p); p.Missing = tick.MissingCgroup }), pod(tick.QoSReclaimed, 1000),
		}, "0 1 2 2 0 0"},
		{"requests", []tick.Pod{
			changed(pod(tick.QoSReclaimed, 1000), requests), changed(pod(tick.QoSReclaimed, 500), requests),
		}, "0 1.5 1.5 2.5 4 0"},
		{"requests of a pod that has ended", []tick.Pod{
			changed(pod(tick.QoSReclaimed, 1000), requests),
			changed(pod(tick.QoSReclaimed, 0), func(p *tick.Pod) { requests(p); p.Phase = "Succeeded" }),
		}, "0 1 2 2 2 0"},
	} {
		a := Of(&tick.Tick{Sample: &tick.Sample{
			Topology: &tick.Topology{CPUs: "0-3"}, CPU: &tick.NodeCPU{UsageMilliCPU: new(3000.0)}, Pods: tt.pods,
		}})
		var all []string
		for _, v := range []*float64{a.Services, a.Batch, a.Rest, a.Free, a.Requested, a.ServicesWaiting} {
			all = append(all, text(v))
		}
		if got := strings.Join(all, " "); got != tt.want {
			t.Errorf("%s: services, batch, rest, free, requested, waiting: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// What the hypervisor took from this virtual machine's CPUs was not free.
func TestStealTimeIsNotFree(t *testing.T) {
	a := Of(&tick.Tick{Sample: &tick.Sample{
		Topology: &tick.Topology{CPUs: "0-3"}, CPU: &tick.NodeCPU{UsageMilliCPU: new(3000.0), StealMilliCPU: new(750.0)},
		Pods: []tick.Pod{pod(tick.QoSReclaimed, 1000)},
	}})
	if got := text(a.Free); got != "1.25" {
		t.Errorf("free %s, want 1.25", got)
	}
}
