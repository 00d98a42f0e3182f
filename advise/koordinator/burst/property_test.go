package burst

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"polder/advise/koordinator/annotation"
	"polder/lib/tick"
)

// For any pods and settings: a quota is between the limit and its maximum percentage and within the node, a burst within its quota, a pod's
// quota at least the sum of its containers', and each cgroup is named once.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st := new(State)
		at := time.Duration(0)
		quota, burst := map[string]int64{}, map[string]int64{}
		for range rapid.IntRange(1, 12).Draw(t, "ticks") {
			at += time.Duration(rapid.Int64Range(-5, 30).Draw(t, "seconds")) * time.Second
			s := burstPolicy(rapid.SampledFrom([]string{"none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto", "x"}).Draw(t, "policy"))
			s.Burst.CPUBurstPercent = rapid.Ptr(rapid.Int64Range(-1, 20000), true).Draw(t, "cpuBurstPercent")
			s.Burst.CFSQuotaBurstPercent = rapid.Ptr(rapid.Int64Range(-1, 1000), true).Draw(t, "cfsQuotaBurstPercent")
			s.Burst.CFSQuotaBurstPeriodSeconds = rapid.Ptr(rapid.Int64Range(-1, 100), true).Draw(t, "cfsQuotaBurstPeriodSeconds")
			percent := valueOf(s.Burst.CFSQuotaBurstPercent, 300)
			var pods []tick.Pod
			limits, others := map[string]int64{}, map[string]bool{}
			for i := range rapid.IntRange(0, 3).Draw(t, "pods") {
				p := pod(0)
				p.UID, p.Cgroup, p.Containers = fmt.Sprint(i), fmt.Sprint("/kubepods/pod", i), nil
				p.Labels["koordinator.sh/qosClass"] = rapid.SampledFrom([]string{"", "LS", "LS", "LSR", "BE"}).Draw(t, "class")
				batch := p.Labels["koordinator.sh/qosClass"] == "BE"
				others[p.Cgroup] = batch
				sum, unlimited := 0.0, false
				for j := range rapid.IntRange(0, 3).Draw(t, "containers") {
					limit := rapid.SampledFrom([]float64{0, 1, 10, 250, 1000, 4000}).Draw(t, "limit")
					sum, unlimited = sum+limit, unlimited || limit == 0
					p.Containers = append(p.Containers, tick.Container{
						Name: fmt.Sprint(j), Cgroup: fmt.Sprint(p.Cgroup, "/", j), Limits: amount(limit),
						UsageMilliCPU: rapid.Ptr(rapid.Float64Range(-1, 20000), true).Draw(t, "usage"), ThrottledPercent: rapid.Ptr(rapid.Float64Range(0, 2), true).Draw(t, "throttled"),
					})
					limits[fmt.Sprint(p.Cgroup, "/", j)], others[fmt.Sprint(p.Cgroup, "/", j)] = int64(limit), batch
				}
				if p.Limits = amount(sum); unlimited {
					p.Limits = nil
				}
				limits[p.Cgroup] = limitOf(p.Limits)
				pods = append(pods, p)
			}
			a := advise(st, s, sampleOf(rapid.Float64Range(0, 10000).Draw(t, "used"), pods...), at)
			for cgroup := range quota { // a cgroup that no longer exists, or another one's
				if batch, known := others[cgroup]; batch || !known {
					delete(quota, cgroup)
				}
			}
			seen := map[string]bool{}
			for _, c := range a.Cgroups {
				if seen[c.Cgroup] {
					t.Fatalf("%s is named twice", c.Cgroup)
				}
				seen[c.Cgroup] = true
				if q, limit := c.CPUMaxMilliCPU, limits[c.Cgroup]; q != nil {
					quota[c.Cgroup] = *q
					if maximum := max(float64(limit)*math.Max(float64(percent), 100)/100, float64(limit)); *q < limit || limit == 0 || float64(*q) > maximum && strings.Count(c.Cgroup, "/") == 3 {
						t.Fatalf("%s: quota %d of a limit of %d at %d %%", c.Cgroup, *q, limit, percent)
					}
				}
				if c.CPUBurstMilliCPU != nil {
					burst[c.Cgroup] = *c.CPUBurstMilliCPU
				}
			}
			for _, p := range pods {
				room := inForce(quota, limits, p.Cgroup)
				for _, c := range p.Containers {
					own := inForce(quota, limits, c.Cgroup)
					if burst[c.Cgroup] > own || burst[c.Cgroup] < 0 {
						t.Fatalf("%s: burst %d over the quota %d", c.Cgroup, burst[c.Cgroup], own)
					}
					if room -= own; p.Limits != nil && room < 0 {
						t.Fatalf("%s: its containers' quotas are over its own", p.Cgroup)
					}
				}
			}
		}
	})
}

// inForce returns a quota from the pod's spec or the advice.
func inForce(quota, limits map[string]int64, cgroup string) int64 {
	if limits[cgroup] == 0 {
		return math.MaxInt32
	}
	return max(quota[cgroup], limits[cgroup])
}

// FuzzAnnotation reads arbitrary annotations: the results are within the limit's bounds.
func FuzzAnnotation(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `{}`, `{"policy":"auto"}`, `{"policy":"auto","cfsQuotaBurstPercent":2147483648}`, `{"policy":"auto","cfsQuotaBurstPercent":2147483647,"cfsQuotaBurstPeriodSeconds":2147483647}`,
		`{"Policy":"none","policy":"auto"}`, `{"cpuBurstPercent":1e3}`, `{"policy":7}`, `[[[[`, "{\"policy\":\"\xff\n\"}", `{"policy":"cpuBurstOnly","cpuBurstPercent":-0}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		st := new(State)
		for i := range 3 {
			p := pod(1000)
			p.Containers[0].ThrottledPercent = new(1.0)
			p.Annotations[annotation.CPUBurst] = text
			a := advise(st, burstPolicy("none"), sampleOf(1000, p), time.Duration(i)*time.Second)
			for _, c := range a.Cgroups {
				if q := c.CPUMaxMilliCPU; q != nil && (*q < 1000 || *q > 10000) {
					t.Errorf("annotation %q: quota %d", text, *q)
				}
				if b := c.CPUBurstMilliCPU; b != nil && (*b < 0 || *b > 10000) {
					t.Errorf("annotation %q: burst %d", text, *b)
				}
			}
			for _, r := range a.Reasons {
				if len(r) > 1000 || strings.ContainsAny(r, "\n\x00") {
					t.Errorf("annotation %q: reason %q", text, r)
				}
			}
		}
		for _, b := range st.Buckets {
			if math.IsNaN(b.Tokens) || math.IsInf(b.Tokens, 0) {
				t.Errorf("annotation %q: %v tokens", text, b.Tokens)
			}
		}
	})
}
