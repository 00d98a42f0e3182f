package memory

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"polder/advise/koordinator/annotation"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

func drawQOS(t *rapid.T, label string) *sloconfig.MemoryQOS {
	number := func(name string, minimum, maximum int64) *int64 {
		return rapid.Ptr(rapid.Int64Range(minimum, maximum), true).Draw(t, label+name)
	}
	return &sloconfig.MemoryQOS{
		Enable: new(rapid.Bool().Draw(t, label+"enable")), MinLimitPercent: number("min", -5, 110), LowLimitPercent: number("low", -5, 110),
		ThrottlingPercent: number("throttling", -5, 110), WmarkRatio: number("ratio", -5, 110), WmarkScalePermill: number("scale", -5, 1100),
		WmarkMinAdj: number("adjust", -30, 60), PriorityEnable: number("enablePriority", 0, 2), Priority: number("priority", -1, 14), OOMKillGroup: number("kill", 0, 2),
	}
}

// For any pods and settings: isolate accepts every value, each cgroup protects as much as the sum of those below it, a cgroup is named
// once, and after everything is reverted all values are the kernel's defaults.
func TestProperties(t *testing.T) {
	tiers := []string{"/kubepods", "/kubepods/burstable", "/kubepods/besteffort"}
	rapid.Check(t, func(t *rapid.T) {
		st := new(State)
		kernel := map[string]values{}
		for round := range rapid.IntRange(1, 6).Draw(t, "ticks") + 1 {
			s := sloconfig.Defaults()
			for i, class := range []*sloconfig.ClassQOS{s.QOS.LSR, s.QOS.LS, s.QOS.BE, s.QOS.System} {
				class.Memory = drawQOS(t, fmt.Sprint(round, "class", i))
			}
			var pods []tick.Pod
			for i := range rapid.IntRange(0, 4).Draw(t, "pods") {
				p := pod(0, 0)
				p.UID = fmt.Sprint(i)
				p.Cgroup = rapid.SampledFrom(tiers).Draw(t, "tier") + "/pod" + p.UID
				p.KubernetesQOS = rapid.SampledFrom([]string{"Guaranteed", "Burstable", "BestEffort"}).Draw(t, "kubernetes")
				p.Labels["koordinator.sh/qosClass"] = rapid.SampledFrom([]string{"", "LSE", "LSR", "LS", "BE", "SYSTEM"}).Draw(t, "class")
				if rapid.Bool().Draw(t, "annotated") {
					own, _ := tick.Marshal(podSettings{Policy: rapid.SampledFrom([]string{"", "default", "none", "auto", "x"}).Draw(t, "policy"), MemoryQOS: *drawQOS(t, "own")})
					p.Annotations[annotation.MemoryQOS] = string(own)
				}
				p.Containers = nil
				for j := range rapid.IntRange(0, 3).Draw(t, "containers") {
					r := func(name string) *tick.Resources {
						v := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1e12)).Draw(t, name)
						return &tick.Resources{MemoryBytes: &v, ReclaimedMemoryBytes: &v}
					}
					p.Containers = append(p.Containers, tick.Container{Name: fmt.Sprint(j), Cgroup: fmt.Sprint(p.Cgroup, "/", j), Requests: r("request"), Limits: r("limit")})
				}
				pods = append(pods, p)
			}
			a := advise(st, &s, sampleOf(pods...), time.Duration(round)*time.Second)
			checkEntries(t, a.Cgroups, kernel)
			checkSums(t, pods, kernel)
		}
		off := sloconfig.Defaults()
		var pods []tick.Pod
		for name := range kernel { // all cgroups of the run, as pods without settings
			if !strings.HasSuffix(name, "kubepods") && !strings.HasSuffix(name, "burstable") && !strings.HasSuffix(name, "besteffort") {
				pods = append(pods, tick.Pod{Cgroup: name})
			}
		}
		checkEntries(t, advise(st, &off, sampleOf(pods...), 8*time.Second).Cgroups, kernel)
		for name, v := range kernel {
			if v != kernelDefaults {
				t.Fatalf("in the end %s has %+v", name, v)
			}
		}
	})
}

// checkEntries applies entries to the kernel's values.
func checkEntries(t *rapid.T, entries []tick.Cgroup, kernel map[string]values) {
	seen := map[string]bool{}
	for _, c := range entries {
		if seen[c.Cgroup] {
			t.Fatalf("%s is named twice", c.Cgroup)
		}
		seen[c.Cgroup] = true
		v, known := kernel[c.Cgroup]
		if !known {
			v = kernelDefaults
		}
		take := func(into *int64, from *int64, minimum, maximum int64) {
			if from == nil {
				return
			}
			if *from < minimum || *from > maximum {
				t.Fatalf("%s: %+v is out of range", c.Cgroup, c)
			}
			*into = *from
		}
		take(&v.min, c.MemoryMinBytes, 0, 1<<62)
		take(&v.low, c.MemoryLowBytes, 0, 1<<62)
		if h := c.MemoryHighBytes; h != nil && *h != tick.Unlimited {
			take(&v.high, h, PageBytes, 1<<62)
		} else if h != nil {
			v.high = *h
		}
		take(&v.ratio, c.MemoryWmarkRatioPercent, 0, 100)
		take(&v.scale, c.MemoryWmarkScalePermille, 1, 1000)
		take(&v.adjust, c.MemoryWmarkMinAdjPercent, -25, 50)
		take(&v.priority, c.MemoryPriority, 0, 12)
		if c.MemoryUsePriorityOOM != nil {
			v.usePriority = *c.MemoryUsePriorityOOM
		}
		if c.MemoryOOMGroup != nil {
			v.killTogether = *c.MemoryOOMGroup
		}
		if v.killTogether && strings.Count(c.Cgroup, "/") < 2 || strings.HasSuffix(c.Cgroup, "burstable") && v.killTogether {
			t.Fatalf("a whole tier would be killed: %+v", c)
		}
		if v.high != tick.Unlimited && v.high < v.min {
			t.Fatalf("%s has memory.high %d under its memory.min %d", c.Cgroup, v.high, v.min)
		}
		kernel[c.Cgroup] = v
	}
}

func checkSums(t *rapid.T, pods []tick.Pod, kernel map[string]values) {
	for _, of := range []func(values) int64{func(v values) int64 { return v.min }, func(v values) int64 { return v.low }} {
		sums := map[string]int64{}
		for _, p := range pods {
			var sum int64
			for _, c := range p.Containers {
				sum += of(kernel[c.Cgroup])
			}
			if have := of(kernel[p.Cgroup]); have != sum {
				t.Fatalf("%s has %d, its containers %d", p.Cgroup, have, sum)
			}
			for _, tier := range []string{"/kubepods", "/kubepods/burstable", "/kubepods/besteffort"} {
				if strings.HasPrefix(p.Cgroup, tier+"/") {
					sums[tier] += sum
				}
			}
		}
		for tier, sum := range sums {
			if have := of(kernel[tier]); have != sum {
				t.Fatalf("%s has %d, its pods %d", tier, have, sum)
			}
		}
	}
}

// FuzzAnnotation reads arbitrary annotations: the values in force are within their range.
func FuzzAnnotation(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `{}`, `{"policy":"auto"}`, `{"policy":"none","minLimitPercent":100}`, `{"minLimitPercent":-1,"MinLimitPercent":7}`,
		`{"wmarkMinAdj":-26,"wmarkScalePermill":1001,"priority":9223372036854775807}`, `{"policy":7}`, `[[[[`, "{\"policy\":\"\xff\"}", `{"oomKillGroup":1e0}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := pod(100*mi, 200*mi)
		p.Annotations[annotation.MemoryQOS] = text
		st := new(State)
		s := with(ls, sloconfig.MemoryQOS{MinLimitPercent: new(int64(50))})
		a := advise(st, s, sampleOf(p), 0)
		for _, c := range a.Cgroups {
			for _, k := range []struct {
				v                *int64
				minimum, maximum int64
			}{
				{c.MemoryMinBytes, 0, 100 * mi},
				{c.MemoryLowBytes, 0, 100 * mi},
				{c.MemoryHighBytes, -1, 200 * mi},
				{c.MemoryWmarkRatioPercent, 0, 100},
				{c.MemoryWmarkScalePermille, 1, 1000},
				{c.MemoryWmarkMinAdjPercent, -25, 50},
				{c.MemoryPriority, 0, 12},
			} {
				if k.v != nil && (*k.v < k.minimum || *k.v > k.maximum) {
					t.Errorf("annotation %q: %+v", text, c)
				}
			}
		}
		for _, r := range a.Reasons {
			if len(r) > 1000 || strings.ContainsAny(r, "\n\x00") {
				t.Errorf("annotation %q: reason %q", text, r)
			}
		}
	})
}
