package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// file is a file of the group, by the first of the names that there is.
func (g *group) file(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		for _, dir := range g.dirs {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				return strings.TrimSpace(string(data))
			}
		}
	}
	t.Fatalf("%s has none of %v", g.name, names)
	return ""
}

// quota is the group's, in milli-CPU; -1 is none.
func (g *group) quota(t *testing.T) int64 {
	t.Helper()
	text, _, _ := strings.Cut(g.file(t, "cpu.cfs_quota_us", "cpu.max"), " ")
	if text == "max" || text == "-1" {
		return tick.Unlimited
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n / 100
}

// TestSuppression lets advise and isolate hold batch pods of a kubelet's layout on this machine's kernel: by lists and by quota,
// down and up again, from one to the other, and back to what was.
func TestSuppression(t *testing.T) {
	skipShort(t)
	needRoot(t)
	t.Parallel()
	top := newGroup(t, nil, fmt.Sprintf("polder-test-%d-suppress", os.Getpid()))
	pods := newGroup(t, top, "kubepods")
	tier := newGroup(t, pods, "besteffort")
	spark, other, service := newGroup(t, tier, "podspark"), newGroup(t, tier, "podother"), newGroup(t, pods, "podservice")
	main := newGroup(t, spark, "c")
	groups := []*group{top, pods, tier, spark, other, service, main}
	first := isolated(t, groups...)
	all := top.file(t, "cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
	cpus := len(cpuList(t, all))
	lowest := all[:strings.IndexAny(all+",", ",-")]
	version := 1
	if exists("/sys/fs/cgroup/cgroup.controllers") {
		version = 2
	}
	dir := t.TempDir()
	state, journal := filepath.Join(dir, "state"), filepath.Join(dir, "journal")
	kubelet := func(policy string) {
		put(t, filepath.Join(dir, "cpu_manager_state"), fmt.Sprintf(`{"policyName":%q,"defaultCpuSet":"","checksum":0}`, policy))
	}
	kubelet("none")
	manager := "none"

	amounts := &tick.Resources{ReclaimedMilliCPU: tick.Ptr(1000.0), ReclaimedMemoryBytes: tick.Ptr(float64(1 << 28))}
	member := func(g *group, class, kubernetes string) tick.Pod {
		return tick.Pod{UID: g.name, Namespace: "ns", Name: filepath.Base(g.name), QoS: tick.QoSShared, QoSSource: tick.QoSFromKoordinator, KubernetesQOS: kubernetes,
			Labels: map[string]string{"koordinator.sh/qosClass": class}, Cgroup: g.name, UsageMilliCPU: tick.Ptr(0.0)}
	}
	// step is one tick: services use so many thousandths of the machine, an LSE pod has the list.
	step := func(mode, lse string, use int64, idle bool) (written int) {
		t.Helper()
		capacity := float64(cpus * 1000)
		sample := &tick.Sample{
			IntervalSeconds: tick.Ptr(1.0), Topology: &tick.Topology{CPUs: all}, CgroupVersion: version,
			CPU: &tick.NodeCPU{UsageMilliCPU: tick.Ptr(0.0)}, Kubelet: &tick.Kubelet{CPUManagerPolicy: manager},
			Capacity: &tick.Resources{MilliCPU: &capacity, MemoryBytes: tick.Ptr(1e10)}, Allocatable: &tick.Resources{MilliCPU: &capacity, MemoryBytes: tick.Ptr(1e10)},
			Tiers: []tick.Tier{{Name: tick.TierBestEffort, Cgroup: tier.name, CPUSetCPUs: tier.file(t, "cpuset.cpus.effective", "cpuset.cpus"), CPUMaxMilliCPU: tick.Ptr(tier.quota(t))}},
			Pods:  []tick.Pod{member(spark, "BE", "BestEffort"), member(other, "BE", "BestEffort"), member(service, "LSE", "Guaranteed")},
		}
		sample.Pods[0].Requests, sample.Pods[0].Limits = amounts, amounts
		sample.Pods[0].Containers = []tick.Container{{Name: "main", Cgroup: main.name, Requests: amounts, Limits: amounts}}
		sample.Pods[2].UsageMilliCPU = tick.Ptr(float64(use * int64(cpus)))
		sample.Pods[2].Annotations = map[string]string{"scheduling.koordinator.sh/resource-status": fmt.Sprintf(`{"cpuset":%q}`, lse)}
		strategies := map[string]any{"from": "test", "resourceThreshold": map[string]any{"enable": mode != "", "cpuSuppressPolicy": mode}}
		if mode == "" {
			strategies["resourceThreshold"] = map[string]any{"enable": false}
		}
		if idle {
			strategies["resourceQOS"] = map[string]any{"beClass": map[string]any{"cpuQOS": map[string]any{"enable": true, "schedIdle": 1}}}
		}
		var err error
		if sample.Config, err = json.Marshal(map[string]any{"koordinator": strategies}); err != nil {
			t.Fatal(err)
		}
		line, err := tick.Marshal(tick.Tick{V: 1, Node: "n", Time: time.Now().UTC(), Sample: sample})
		if err != nil {
			t.Fatal(err)
		}
		advised, _ := runTool(t, 0, append(line, '\n'), "advise", "--policy", "koordinator", "--state", state)
		out, log := runTool(t, 0, append(advised, '\n'), "isolate", "--node", "n", "--max-age", "1h", "--journal", journal, "--kubelet-root", dir)
		done := decodeAll(t, out, tick.SectionIsolation)[0]
		if done.Isolation == nil || len(done.Isolation.Errors) > 0 || done.Isolation.Refused != "" {
			t.Fatalf("isolate: %s\n%s", out, log)
		}
		return done.Isolation.Applied
	}
	holds := func(what string, list string, quota, below int64) {
		t.Helper()
		for _, g := range []*group{tier, spark, main, other} {
			if got := cpuList(t, g.file(t, "cpuset.cpus.effective", "cpuset.cpus")); cmp.Diff(got, cpuList(t, list)) != "" {
				t.Errorf("%s: %s runs on %v, want %s", what, g.name, got, list)
			}
		}
		if got := tier.quota(t); got != quota {
			t.Errorf("%s: quota %d, want %d", what, got, quota)
		}
		for _, g := range []*group{spark, main} {
			if got := g.quota(t); got != below {
				t.Errorf("%s: quota of %s %d, want %d", what, g.name, got, below)
			}
		}
	}
	whole, tenth := int64(cpus*1000), int64(cpus*100)

	step("cpuset", lowest, 0, false)
	rest := cpuList(t, tier.file(t, "cpuset.cpus.effective", "cpuset.cpus"))
	if n, err := strconv.Atoi(lowest); err != nil || rest[n] || len(rest) == 0 {
		t.Fatalf("batch pods run on %v, and CPU %s is an LSE pod's", rest, lowest)
	}
	if again := step("cpuset", lowest, 0, false); again != 0 {
		t.Errorf("the same again writes %d values", again)
	}
	for _, g := range []*group{spark, main} {
		if got := g.file(t, "memory.limit_in_bytes", "memory.max"); got != "268435456" {
			t.Errorf("memory limit of %s: %s", g.name, got)
		}
		if shares := g.file(t, "cpu.shares", "cpu.weight"); shares != "1024" && shares != "1021" && shares != "1025" && shares != "39" {
			t.Errorf("shares of %s for 1000 milli-CPU: %s", g.name, shares)
		}
	}
	step("cpuset", all, 0, false)
	if got := len(cpuList(t, tier.file(t, "cpuset.cpus.effective", "cpuset.cpus"))); got != 1 || tier.quota(t) != 20 || main.quota(t) != tick.Unlimited {
		t.Errorf("where none is left batch pods have %d CPUs, a quota of %d, and of %d below", got, tier.quota(t), main.quota(t))
	}
	step("cpuset", "", 0, false)
	step("cfsQuota", "", 450, false)
	holds("under a quota", all, whole*65/100-450*int64(cpus), tick.Unlimited)
	step("cfsQuota", "", 0, false)
	holds("services rest: a tenth more", all, whole*65/100-450*int64(cpus)+tenth, tick.Unlimited)
	step("cfsQuota", "", 990, false)
	holds("services use all: the floor at once", all, 20, tick.Unlimited)
	step("cfsQuota", "", 0, false)
	holds("up again", all, 20+tenth, tick.Unlimited)
	step("", "", 0, false)
	holds("disabled", all, tick.Unlimited, 1000)
	step("", "", 0, true)
	if got := tier.file(t, "cpu.idle"); got != "1" {
		t.Errorf("cpu.idle = %s", got)
	}
	step("", "", 0, false)
	if got, weight := tier.file(t, "cpu.idle"), tier.file(t, "cpu.shares", "cpu.weight"); got != "0" || weight != "2" && weight != "1" {
		t.Errorf("after idle: cpu.idle = %s, shares or weight %s", got, weight)
	}

	step("cpuset", lowest, 0, false) // and then kubelet begins to manage CPUs: its next container must find the tier as wide as it was
	manager = "static"
	kubelet(manager)
	step("cpuset", lowest, 0, false)
	for _, g := range []*group{tier, spark} {
		if got := g.file(t, "cpuset.cpus.effective", "cpuset.cpus"); got != all {
			t.Errorf("beside a static CPU manager %s has %s, want %s", g.name, got, all)
		}
	}
	if got := cpuList(t, main.file(t, "cpuset.cpus.effective", "cpuset.cpus")); cmp.Diff(got, rest) != "" {
		t.Errorf("beside a static CPU manager a container has %v, want %v", got, rest)
	}
	runTool(t, 0, nil, "isolate", "--restore", "--journal", journal, "--kubelet-root", dir)
	if diff := cmp.Diff(first, isolated(t, groups...)); diff != "" {
		t.Errorf("not restored:\n%s", diff)
	}
}
