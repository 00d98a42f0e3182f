package limits

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"polder/advise/policy"
	"polder/lib/tick"
)

// FuzzAdvise decides on arbitrary samples, with arbitrary advice and after an arbitrary state.
func FuzzAdvise(f *testing.F) {
	const sample = `{"cgroupVersion":2,"memory":{"totalBytes":1e308,"availableBytes":-1},"batchCgroups":["/b","x","/",""],"tiers":[{"name":"besteffort","cgroup":"/k"}],"pods":[
		{"uid":"w","name":"w","qos":"shared","cgroup":"/w/../x","memory":{"usageBytes":1e308,"workingSetBytes":1e308}},
		{"uid":"v","name":"v","qos":"dedicated","cgroup":"/v/v","memory":{"workingSetBytes":5e9}},
		{"uid":"j","name":"j","qos":"reclaimed","cgroup":"/b/j","memory":{"usageBytes":1e308,"rssBytes":-5},"limits":{"reclaimedMilliCPU":1e308,"reclaimedMemoryBytes":-1}},
		{"uid":"l","name":"l","qos":"reclaimed","cgroup":"/k/l","memory":{"usageBytes":3e9},"limits":{"reclaimedMilliCPU":0.1,"reclaimedMemoryBytes":1}},
		{"uid":"k","name":"k","qos":"reclaimed","cgroup":"/b/k","memory":{"usageBytes":0},"containers":[{"cgroup":"/b/k/c","memory":{"usageBytes":7e9},"limits":{"reclaimedMilliCPU":500,"reclaimedMemoryBytes":1e9,"memoryBytes":1e8}},{"cgroup":"x"},{"cgroup":"/"}]}]}`
	const advice = `{"policy":"x","reclaimed":{"memoryBytes":9223372036854775807},"cgroups":[{"cgroup":"/b","memoryMaxBytes":5000},{"cgroup":"/b/j","memoryHighBytes":-1}],"fallback":[{"cgroup":"/b","cpuMaxMilliCPU":-1}]}`
	const state = `{"capBytes":-9223372036854775808,"leastBytes":9223372036854775807,"riseSince":"9999-01-01T00:00:00Z","known":"9999-01-01T00:00:00Z",
		"set":{"/b":{"cap":{"high":-5,"max":9223372036854775807},"above":true},"":{},"/b/j":null,"/gone":{"own":{"cpu":9223372036854775807},"undo":{"cpu":true},"undoAt":"9999-01-01T00:00:00Z"}}}`
	f.Add(`{}`, `{}`, `{}`)
	f.Add(sample, advice, `{}`)
	f.Add(sample, advice, state)
	f.Add(`{"cgroupVersion":1,"memory":{"totalBytes":64e9,"availableBytes":1e9},"pods":[{"uid":"j","qos":"reclaimed","cgroup":"/j","memory":{"usageBytes":9e9}}]}`, `{"reclaimed":{"memoryBytes":-1}}`, `{}`)
	f.Fuzz(func(t *testing.T, sample, advice, state string) {
		x := &tick.Tick{V: 1, Node: "n", Sample: new(tick.Sample)}
		var policyCgroups tick.Advice
		var st *State
		if tick.Unmarshal([]byte(sample), x.Sample) != nil || tick.Unmarshal([]byte(advice), &policyCgroups) != nil || x.Sample == nil {
			return
		}
		if tick.Unmarshal([]byte(state), &st) != nil {
			st = nil
		}
		for i := range 12 {
			x.Time = begin.Add(time.Duration(i) * 17 * time.Second)
			a := policyCgroups
			s := all
			if i >= 8 {
				s.Batch, s.Services = None, None
			}
			st = st.Advise(x, &a, s)
			checkBounds(t, x.Sample, policyCgroups.Cgroups, a.Cgroups)
			checkBounds(t, x.Sample, policyCgroups.Fallback, a.Fallback)
			if _, err := tick.Marshal(st); err != nil {
				t.Fatalf("what is remembered cannot be written: %v", err)
			}
		}
	})
}

// checkBounds compares the desired values with the policy's: never a wider limit, and no new one so small that it kills a pod immediately.
func checkBounds(t *testing.T, s *tick.Sample, before, after []tick.Cgroup) {
	t.Helper()
	for i := range after {
		previous, current := tick.Cgroup{}, &after[i]
		if i < len(before) {
			previous = before[i]
		} else if !policy.IsCgroup(current.Cgroup) {
			t.Fatalf("%q is no cgroup", current.Cgroup)
		}
		for _, limit := range []struct {
			name              string
			previous, current *int64
			minimum           int64
		}{
			{"quota", previous.CPUMaxMilliCPU, current.CPUMaxMilliCPU, policy.MinQuotaMilliCPU},
			{"memory.high", previous.MemoryHighBytes, current.MemoryHighBytes, 1},
			{"memory.max", previous.MemoryMaxBytes, current.MemoryMaxBytes, 1},
		} {
			switch {
			case limit.previous == limit.current || limit.previous != nil && limit.current != nil && *limit.previous == *limit.current:
			case limit.current == nil:
				t.Fatalf("cgroup %q: %s %d was removed", current.Cgroup, limit.name, *limit.previous)
			case limit.previous != nil && *limit.previous >= 0 && (*limit.current < 0 || *limit.current > *limit.previous):
				t.Fatalf("cgroup %q: %s %d became %d", current.Cgroup, limit.name, *limit.previous, *limit.current)
			case *limit.current != tick.Unlimited && *limit.current < limit.minimum:
				t.Fatalf("cgroup %q: %s %d", current.Cgroup, limit.name, *limit.current)
			case limit.name == "memory.max" && isNative(s, current.Cgroup, *limit.current): // an undo restores kubelet's
			case limit.name == "memory.max" && *limit.current >= 0 && float64(*limit.current) < usedIn(s, current.Cgroup):
				t.Fatalf("cgroup %q: memory.max %d under the use of %v", current.Cgroup, *limit.current, usedIn(s, current.Cgroup))
			case limit.name == "memory.high" && *limit.current >= 0 && float64(*limit.current) < usedIn(s, current.Cgroup)*(1-stepPart)-mebibyte:
				t.Fatalf("cgroup %q: memory.high %d is more than a step under the use of %v", current.Cgroup, *limit.current, usedIn(s, current.Cgroup))
			}
		}
	}
}

// isNative reports whether a memory limit is the one that kubelet sets on the cgroup.
func isNative(s *tick.Sample, cgroup string, bytes int64) bool {
	w := round{tick: &tick.Tick{Sample: s}, pods: map[string]kubeletLimits{}}
	w.readPods()
	own, found := w.pods[cgroup]
	return found && own.bytes == bytes
}

// usedIn returns the known use in a cgroup according to the sample, as far as the values are valid: the largest of its own entries'.
func usedIn(s *tick.Sample, cgroup string) (use float64) {
	for i := range s.Pods {
		p := &s.Pods[i]
		if bytes, ok := useOf(p.Memory); ok && p.Cgroup == cgroup && bytes < maxBytes {
			use = max(use, bytes)
		}
		for j := range p.Containers {
			if bytes, ok := useOf(p.Containers[j].Memory); ok && p.Containers[j].Cgroup == cgroup && bytes < maxBytes {
				use = max(use, bytes)
			}
		}
	}
	return use
}

// For any changes of use, offer and free memory, a hard limit is never below the use, memory.high never more than a step below it, the
// protected memory fits, and a steady node's advice stays the same.
func TestLimitsStayAboveTheUse(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	node := newRun(t)
	node.sample.Pods = append(node.sample.Pods,
		tick.Pod{UID: "k", Name: "k", QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: "/lone", Memory: memoryUse(0), Limits: &tick.Resources{ReclaimedMemoryBytes: new(2.0 * gib)}},
		tick.Pod{UID: "d", Name: "d", QoS: tick.QoSDedicated, QoSSource: tick.QoSFromRule, Cgroup: "/db", Memory: memoryUse(0)})
	for i := range 20_000 {
		if r.IntN(4) > 0 {
			for _, p := range node.sample.Pods {
				*p.Memory.UsageBytes = math.Exp2(r.Float64()*18 + 18)
				*p.Memory.WorkingSetBytes, *p.Memory.RSSBytes = *p.Memory.UsageBytes*r.Float64(), *p.Memory.UsageBytes*r.Float64()
			}
			*node.sample.Memory.AvailableBytes = r.Float64() * 64 * gib
			node.offer = new(int64(r.Float64() * 64 * gib))
			node.sample.CgroupVersion = 1 + r.IntN(2)
		}
		before := node.advice
		if node.tickAfter(r.IntN(20)); i == 0 {
			continue
		}
		if before == nil {
			t.Fatal("no advice")
		}
		uses := map[string]float64{"/batch": *node.job().Memory.UsageBytes, "/lone": *node.sample.Pods[2].Memory.UsageBytes}
		low := int64(0)
		for _, c := range node.advice.Cgroups {
			use, isBatch := uses[c.Cgroup]
			if isBatch && c.MemoryMaxBytes != nil && *c.MemoryMaxBytes >= 0 && float64(*c.MemoryMaxBytes) < use {
				t.Fatalf("tick %d: %s holds %.0f bytes, and memory.max is %d", i, c.Cgroup, use, *c.MemoryMaxBytes)
			}
			if isBatch && c.MemoryHighBytes != nil && *c.MemoryHighBytes >= 0 && float64(*c.MemoryHighBytes) < use*(1-stepPart)-mebibyte {
				t.Fatalf("tick %d: %s holds %.0f bytes, and memory.high is %d", i, c.Cgroup, use, *c.MemoryHighBytes)
			}
			if c.MemoryLowBytes != nil && (c.Cgroup == "/db" || c.Cgroup == "/web.slice/web") {
				low += *c.MemoryLowBytes
			}
			if c.Cgroup == "/web.slice" && c.MemoryLowBytes == nil && node.sample.CgroupVersion == 2 && *node.sample.Pods[1].Memory.WorkingSetBytes > gib {
				t.Fatalf("tick %d: what is above the service is not protected", i)
			}
		}
		if float64(low) > 0.9*64*gib {
			t.Fatalf("tick %d: %d bytes are protected", i, low)
		}
	}
}

// A steady node's advice is the same in each tick.
func TestASteadyNodeWritesNothing(t *testing.T) {
	r := newRun(t)
	r.sample.Pods = append(r.sample.Pods, tick.Pod{UID: "g", Name: "grid", QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: "/grid/1", Memory: memoryUse(2 * gib)})
	r.tickAfter(1)
	first, _ := tick.Marshal(r.advice.Cgroups)
	for i := range 300 {
		for j := range r.sample.Pods { // by at most one percent
			*r.sample.Pods[j].Memory.UsageBytes *= 1 + 0.005*float64(1-2*(i%2))
			*r.sample.Pods[j].Memory.WorkingSetBytes = *r.sample.Pods[j].Memory.UsageBytes
		}
		*r.sample.Memory.AvailableBytes += float64(100*mebibyte) * float64(1-2*(i%2))
		r.tickAfter(1)
		if now, _ := tick.Marshal(r.advice.Cgroups); string(now) != string(first) {
			t.Fatalf("tick %d:\n%s\nat first:\n%s", i, now, first)
		}
	}
}
