package engine

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/tick"
)

// plainTicks are those of a machine without a cluster, where the rules of collect name a reclaimed pod: it requests 4000 milli-CPU and
// has 2 CPUs, and 75 % of the memory are used.
func plainTicks(cgroup string) func(int) *tick.Tick {
	return func(at int) *tick.Tick {
		return &tick.Tick{V: 1, Node: "n", Time: noon.Add(time.Duration(at) * 5 * time.Second), Sample: &tick.Sample{
			IntervalSeconds: new(5.0),
			Memory:          &tick.NodeMemory{TotalBytes: new(1e9), AvailableBytes: new(250e6)},
			Capacity:        &tick.Resources{MilliCPU: new(8000.0), MemoryBytes: new(1e9)},
			Pods: []tick.Pod{{
				UID: "batch", Name: "batch", QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: cgroup, UsageMilliCPU: new(1990.0),
				Requests: &tick.Resources{ReclaimedMilliCPU: new(4000.0)}, Memory: &tick.Memory{RSSBytes: new(1e8)},
				Containers: []tick.Container{{Cgroup: cgroup, CPUSetCPUs: "2-3"}},
			}},
		}}
	}
}

const plainConfig = `apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  resource-threshold-config: |
    {"clusterStrategy": {"enable": true, "cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 80}}
`

// Without a cluster, Koordinator's rules freeze and kill according to the ConfigMap in a file.
func TestKoordinatorWithoutCluster(t *testing.T) {
	config := filepath.Join(t.TempDir(), "slo.yaml")
	if err := os.WriteFile(config, []byte(plainConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ rule, reason, message string }{
		{"BECPUEvict", "EvictPodByBECPUSatisfaction", "killAndEvictBEPodsRelease for node(n), need realase CPU : 1200"},
		{"BEMemoryEvict", "EvictPodByNodeMemoryUsage", "killAndEvictBEPods for node(n), need to release memory: 70000000"},
	} {
		t.Run("freeze-"+tt.rule, func(t *testing.T) {
			h, path := group(t)
			state := filepath.Join(t.TempDir(), "state.json")
			p := startEvict(t, "--action", "freeze", "--state", state, "--config", config, "--rules", tt.rule)
			at := 0
			e := p.until(&at, plainTicks(path), "batch", tick.StateSucceeded)
			if len(e.Evictions) != 1 || e.Evictions[0].Rule != tt.rule || e.Evictions[0].Reason != tt.reason || e.Evictions[0].Message != tt.message+" (frozen until evict --thaw)" {
				t.Errorf("evictions %+v", e.Evictions)
			}
			if status := p.close(); status != 0 {
				t.Fatalf("exit status %d:\n%s", status, p.log)
			}
			var out bytes.Buffer
			if status := command().Execute(t.Context(), stageEnv([]string{"evict", "--thaw", "--state", state}, nil, &out, io.Discard)); status != 0 || out.String() != "thawed "+path+"\n" {
				t.Errorf("evict --thaw = %d, %q", status, out.String())
			}
			if pids, err := h.PIDs("", path); err != nil || len(pids) == 0 {
				t.Errorf("processes %v, %v; want them to run", pids, err)
			}
		})
		t.Run("kill-"+tt.rule, func(t *testing.T) {
			h, path := group(t)
			p := startEvict(t, "--action", "kill", "--config", config, "--rules", tt.rule)
			at := 0
			e := p.until(&at, plainTicks(path), "batch", tick.StateCreated)
			if len(e.Evictions) != 1 || e.Evictions[0].Reason != tt.reason || e.Evictions[0].GracePeriodSeconds != nil {
				t.Errorf("evictions %+v; want the pod's own grace period", e.Evictions)
			}
			pids, err := h.PIDs("", path)
			if err != nil || len(pids) == 0 {
				t.Fatalf("processes %v, %v; want them within their grace period", pids, err)
			}
			for _, pid := range pids { // the test's own processes: they end within the grace period
				if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
					t.Fatal(err)
				}
			}
			p.until(&at, plainTicks(path), "batch", tick.StateSucceeded)
			if status := p.close(); status != 0 {
				t.Fatalf("exit status %d:\n%s", status, p.log)
			}
			if !strings.Contains(p.log.String(), `from="resource-threshold-config of `+config) {
				t.Errorf("the log does not have where the thresholds are from:\n%s", p.log)
			}
		})
	}
}
