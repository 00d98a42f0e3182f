package source

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// Kubelet's state is in each tick, absent without a kubelet, and absent with an error where it cannot be parsed.
func TestKubelet(t *testing.T) {
	m := newMachine(t)
	m.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory pids")
	h := m.host()
	rules := defaultRules(t)
	c := New(&Env{Host: h, Rules: rules, KubeletRoot: "/data/kubelet", Log: slog.New(slog.DiscardHandler), Now: time.Now})
	t.Cleanup(func() { _ = c.Close() })
	const file = "data/kubelet/cpu_manager_state"
	for _, round := range []struct {
		name, state string // "-" removes the file, "" leaves it as it is
		want        *tick.Kubelet
		failed      bool
	}{
		{name: "no kubelet"},
		{name: "none", state: `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`, want: &tick.Kubelet{CPUManagerPolicy: "none"}},
		{name: "the same", want: &tick.Kubelet{CPUManagerPolicy: "none"}},
		{name: "static", state: `{"policyName":"static","defaultCpuSet":"0,3","entries":{"a":{"c":"1","d":"2"}}}`, want: &tick.Kubelet{CPUManagerPolicy: "static", ExclusiveCPUs: "1-2"}},
		{name: "torn", state: `{"policyName":"static","defaultCpuSet":"0,3","ent`, failed: true},
		{name: "still torn", failed: true},
		{name: "whole", state: `{"policyName":"static","defaultCpuSet":"0-3"}`, want: &tick.Kubelet{CPUManagerPolicy: "static"}},
		{name: "gone", state: "-", failed: true},
	} {
		switch round.state {
		case "":
		case "-":
			if err := os.Remove(h.Path(file)); err != nil {
				t.Fatal(err)
			}
		default:
			m.write(file, round.state)
		}
		s := c.Read(false)
		if diff := cmp.Diff(round.want, s.Kubelet); diff != "" {
			t.Errorf("%s (-want +got):\n%s", round.name, diff)
		}
		if s.CgroupVersion != 2 {
			t.Errorf("%s: cgroup version %d, want 2", round.name, s.CgroupVersion)
		}
		failed := false
		for _, e := range s.Errors {
			failed = failed || e.Source == "kubelet"
		}
		if failed != round.failed {
			t.Errorf("%s: errors %v, want one of kubelet: %v", round.name, s.Errors, round.failed)
		}
	}
}
