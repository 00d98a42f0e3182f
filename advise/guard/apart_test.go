package guard

import (
	"testing"

	"polder/lib/tick"
)

// on gives a pod one container with a CPU list.
func on(p tick.Pod, list string) tick.Pod {
	p.Containers = []tick.Container{{Cgroup: p.Cgroup + "/c", CPUSetCPUs: list, UsageMilliCPU: p.UsageMilliCPU}}
	return p
}

// A service with CPUs of its own does not wait for batch, which may not run there.
func TestServiceWithCPUsOfItsOwn(t *testing.T) {
	busy, service := job("job", 4000), web(900, 2000)
	deleted := on(job("deleted", 1000), "2-7")
	deleted.Missing = tick.MissingCluster
	unlisted := service
	unlisted.Containers = []tick.Container{{Cgroup: "/web/c"}}
	for name, tt := range map[string]struct {
		advised string // batch's list by the policy
		at      string // the cgroup that has it
		pods    []tick.Pod
		steps   string
	}{
		"apart":                       {"2-7", "/job/c", []tick.Pod{on(service, "0-1"), on(busy, "2-7")}, ""},
		"the list of a cgroup above":  {"2-7", "/job", []tick.Pod{on(service, "0-1"), on(busy, "2-7")}, ""},
		"one CPU of both":             {"2-7", "/job/c", []tick.Pod{on(service, "0-2"), on(busy, "2-7")}, kindCPUs},
		"batch runs elsewhere":        {"2-7", "/job/c", []tick.Pod{on(service, "0-1"), on(busy, "0-7")}, kindCPUs},
		"batch may run there":         {"0-7", "/job/c", []tick.Pod{on(service, "0-1"), on(busy, "2-7")}, kindCPUs},
		"batch's list is unknown":     {"2-7", "/job", []tick.Pod{on(service, "0-1"), busy}, kindCPUs},
		"no list for batch":           {"2-7", "/other", []tick.Pod{on(service, "0-1"), on(busy, "2-7")}, kindQuota},
		"the service's is unknown":    {"2-7", "/job/c", []tick.Pod{unlisted, on(busy, "2-7")}, kindCPUs},
		"a service without container": {"2-7", "/job/c", []tick.Pod{service, on(busy, "2-7")}, kindCPUs},
		"deleted batch still runs":    {"2-7", "/job/c", []tick.Pod{on(service, "0-1"), on(busy, "2-7"), deleted}, kindCPUs},
		"another service is not apart": {"2-7", "/job/c", []tick.Pod{
			on(service, "0-1"), on(busy, "2-7"), {UID: "other", Name: "other", CPUWaitPermille: new(900.0), UsageMilliCPU: new(1.0)},
		}, kindCPUs},
	} {
		r := &fixture{policy: tick.Advice{Cgroups: []tick.Cgroup{{Cgroup: tt.at, CPUSetCPUs: tt.advised}}}}
		r.times(7, tt.pods...)
		if r.kinds() != tt.steps {
			t.Errorf("%s: steps %q; want %q", name, r.kinds(), tt.steps)
		}
	}
}
