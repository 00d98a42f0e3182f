package faults

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
	"polder/tests/group"
	"polder/tests/need"
)

// quota is the group's, in milli-CPU; -1 is no quota.
func quotaOf(t *testing.T, g *group.Group) int64 {
	t.Helper()
	text, _, _ := strings.Cut(g.Read("cpu.cfs_quota_us", "cpu.max"), " ")
	if text == "max" || text == "-1" {
		return tick.Unlimited
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n / 100
}

// TestSuppression runs advise and isolate on batch pods of a kubelet's layout on this machine's kernel: by lists and by quota,
// down and up again, from one to the other, and back to the first state.
func TestSuppression(t *testing.T) {
	need.Root(t)
	t.Parallel()
	top := group.New(t, nil, "suppress")
	pods := group.New(t, top, "kubepods")
	tier := group.New(t, pods, "besteffort")
	spark, other, service := group.New(t, tier, "podspark"), group.New(t, tier, "podother"), group.New(t, pods, "podservice")
	main := group.New(t, spark, "c")
	groups := []*group.Group{top, pods, tier, spark, other, service, main}
	tier.Write(t, "cpu.idle", "1") // as an older version left it
	first := isolated(t, groups...)
	all := top.Read("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
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

	amounts := &tick.Resources{ReclaimedMilliCPU: new(1000.0), ReclaimedMemoryBytes: new(float64(1 << 28))}
	member := func(g *group.Group, class, kubernetes string) tick.Pod {
		return tick.Pod{
			UID: g.Name, Namespace: "ns", Name: filepath.Base(g.Name), QoS: tick.QoSShared, QoSSource: tick.QoSFromKoordinator, KubernetesQOS: kubernetes,
			Labels: map[string]string{"koordinator.sh/qosClass": class}, Cgroup: g.Name, UsageMilliCPU: new(0.0),
		}
	}
	// A tick is a second after the one before, however long the tools take for it.
	at := time.Now()
	// step is one tick: services use so many thousandths of the machine, an LSE pod has the list.
	step := func(mode, lse string, use int64, idle bool) (written int) {
		t.Helper()
		capacity := float64(cpus * 1000)
		sample := &tick.Sample{
			IntervalSeconds: new(1.0), Topology: &tick.Topology{CPUs: all}, CgroupVersion: version,
			CPU: &tick.NodeCPU{UsageMilliCPU: new(0.0)}, Kubelet: &tick.Kubelet{CPUManagerPolicy: manager},
			Capacity: &tick.Resources{MilliCPU: &capacity, MemoryBytes: new(1e10)}, Allocatable: &tick.Resources{MilliCPU: &capacity, MemoryBytes: new(1e10)},
			Tiers: []tick.Tier{{
				Name: tick.TierBestEffort, Cgroup: tier.Name, CPUSetCPUs: tier.Read("cpuset.cpus.effective", "cpuset.cpus"),
				CPUMaxMilliCPU: new(quotaOf(t, tier)), CPUIdle: tier.Read("cpu.idle") == "1",
			}},
			Pods: []tick.Pod{member(spark, "BE", "BestEffort"), member(other, "BE", "BestEffort"), member(service, "LSE", "Guaranteed")},
		}
		sample.Pods[0].Requests, sample.Pods[0].Limits = amounts, amounts
		sample.Pods[0].Containers = []tick.Container{{Name: "main", Cgroup: main.Name, Requests: amounts, Limits: amounts}}
		if lse != "" { // a pod may claim as many CPUs as it requests
			request := &tick.Resources{MilliCPU: new(float64(1000 * len(cpuList(t, lse)))), MemoryBytes: new(float64(1 << 20))}
			sample.Pods[2].Requests, sample.Pods[2].Limits = request, request
		}
		sample.Pods[2].UsageMilliCPU = new(float64(use * int64(cpus)))
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
		at = at.Add(time.Second)
		line, err := tick.Marshal(tick.Tick{V: 1, Node: "n", Time: at.UTC(), Sample: sample})
		if err != nil {
			t.Fatal(err)
		}
		advised, _ := runTool(t, 0, append(line, '\n'), "advise", "--policy", "koordinator", "--state", state)
		out, log := runTool(t, 0, append(advised, '\n'), "isolate", "--at-end", "keep", "--node", "n", "--max-age", "1h", "--journal", journal, "--kubelet-root", dir)
		done := decodeAll(t, out, tick.SectionIsolation)[0]
		if done.Isolation == nil || len(done.Isolation.Errors) > 0 || done.Isolation.Refused != "" {
			t.Fatalf("isolate: %s\n%s", out, log)
		}
		return done.Isolation.Applied
	}
	holds := func(what string, list string, quota, below int64) {
		t.Helper()
		for _, g := range []*group.Group{tier, spark, main, other} {
			if got := cpuList(t, g.Read("cpuset.cpus.effective", "cpuset.cpus")); cmp.Diff(got, cpuList(t, list)) != "" {
				t.Errorf("%s: %s runs on %v, want %s", what, g.Name, got, list)
			}
		}
		if got := quotaOf(t, tier); got != quota {
			t.Errorf("%s: quota %d, want %d", what, got, quota)
		}
		for _, g := range []*group.Group{spark, main} {
			if got := quotaOf(t, g); got != below {
				t.Errorf("%s: quota of %s %d, want %d", what, g.Name, got, below)
			}
		}
	}
	whole, tenth := int64(cpus*1000), int64(cpus*100)

	awake := func() {
		t.Helper()
		if got, weight := tier.Read("cpu.idle"), tier.Read("cpu.shares", "cpu.weight"); got != "0" || weight != "2" && weight != "1" {
			t.Errorf("the tier's cpu.idle = %s, shares or weight %s", got, weight)
		}
	}

	step("cpuset", lowest, 0, false)
	awake()
	rest := cpuList(t, tier.Read("cpuset.cpus.effective", "cpuset.cpus"))
	if n, err := strconv.Atoi(lowest); err != nil || rest[n] || len(rest) == 0 {
		t.Fatalf("batch pods run on %v, and CPU %s is an LSE pod's", rest, lowest)
	}
	if again := step("cpuset", lowest, 0, false); again != 0 {
		t.Errorf("the same again writes %d values", again)
	}
	for _, g := range []*group.Group{spark, main} {
		if got := g.Read("memory.limit_in_bytes", "memory.max"); got != "268435456" {
			t.Errorf("memory limit of %s: %s", g.Name, got)
		}
		if shares := g.Read("cpu.shares", "cpu.weight"); shares != "1024" && shares != "1021" && shares != "1025" && shares != "39" {
			t.Errorf("shares of %s for 1000 milli-CPU: %s", g.Name, shares)
		}
	}
	step("cpuset", all, 0, false)
	if got := len(cpuList(t, tier.Read("cpuset.cpus.effective", "cpuset.cpus"))); got != 1 || quotaOf(t, tier) != 20 || quotaOf(t, main) != tick.Unlimited {
		t.Errorf("where none is left batch pods have %d CPUs, a quota of %d, and of %d below", got, quotaOf(t, tier), quotaOf(t, main))
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
	awake()
	for _, g := range []*group.Group{spark, other} {
		if got := g.Read("cpu.idle"); got != "1" {
			t.Errorf("cpu.idle of %s = %s", g.Name, got)
		}
	}
	step("", "", 0, false)
	for _, g := range []*group.Group{spark, other} {
		if got := g.Read("cpu.idle"); got != "0" {
			t.Errorf("after idle: cpu.idle of %s = %s", g.Name, got)
		}
	}
	if got := other.Read("cpu.shares", "cpu.weight"); got != "2" && got != "1" { // kubelet's value, for a pod without requests
		t.Errorf("after idle: shares or weight %s", got)
	}

	step("cpuset", lowest, 0, false) // then kubelet starts to manage CPUs: its next container must find the tier as wide as it was
	manager = "static"
	kubelet(manager)
	step("cpuset", lowest, 0, false)
	for _, g := range []*group.Group{tier, spark} {
		if got := g.Read("cpuset.cpus.effective", "cpuset.cpus"); got != all {
			t.Errorf("beside a static CPU manager %s has %s, want %s", g.Name, got, all)
		}
	}
	if got := cpuList(t, main.Read("cpuset.cpus.effective", "cpuset.cpus")); cmp.Diff(got, rest) != "" {
		t.Errorf("beside a static CPU manager a container has %v, want %v", got, rest)
	}
	runTool(t, 0, nil, "isolate", "--restore", "--if-exists", "--journal", journal, "--kubelet-root", dir)
	if diff := cmp.Diff(first, isolated(t, groups...)); diff != "" {
		t.Errorf("not restored:\n%s", diff)
	}
}
