package burst

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/advise/koordinator/annotation"
	"polder/advise/koordinator/revert"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

var start = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func n(v int64) *int64 { return new(v) }

func f(v float64) *float64 { return new(v) }

// burstPolicy returns the defaults with a policy.
func burstPolicy(name string) *sloconfig.Strategies {
	s := sloconfig.Defaults()
	s.Burst.Policy = &name
	return &s
}

// pod has one container "c" with a limit in milli-CPU, 0 for none.
func pod(limit float64) tick.Pod {
	p := tick.Pod{
		UID: "u", Namespace: "ns", Name: "p", QoSSource: tick.QoSFromKubernetes, KubernetesQOS: "Burstable", Phase: "Running",
		Cgroup: "/kubepods/burstable/podu", Labels: map[string]string{}, Annotations: map[string]string{},
	}
	p.Containers = []tick.Container{{Name: "c", Cgroup: p.Cgroup + "/c", Limits: amount(limit), UsageMilliCPU: new(float64(100)), ThrottledPercent: new(float64(0))}}
	p.Limits = amount(limit)
	return p
}

func amount(milli float64) *tick.Resources {
	if milli == 0 {
		return nil
	}
	return &tick.Resources{MilliCPU: &milli}
}

// sampleOf returns a node of ten CPUs with a total use in milli-CPU.
func sampleOf(used float64, pods ...tick.Pod) *tick.Sample {
	return &tick.Sample{
		IntervalSeconds: new(float64(1)), Topology: &tick.Topology{CPUs: "0-9"}, CPU: &tick.NodeCPU{UsageMilliCPU: &used}, Pods: pods,
	}
}

func advise(st *State, s *sloconfig.Strategies, sample *tick.Sample, after time.Duration) *tick.Advice {
	a := new(tick.Advice)
	st.Advise(&tick.Tick{Node: "n", Time: start.Add(after), Sample: sample}, s, a)
	return a
}

func entryOf(t *testing.T, list []tick.Cgroup, cgroup string) (out tick.Cgroup) {
	t.Helper()
	found := 0
	for _, c := range list {
		if c.Cgroup == cgroup {
			out, found = c, found+1
		}
	}
	if found > 1 {
		t.Fatalf("%s is named %d times", cgroup, found)
	}
	out.Cgroup = ""
	return out
}

const (
	podPath       = "/kubepods/burstable/podu"
	containerPath = podPath + "/c"
)

func TestBurst(t *testing.T) {
	for _, c := range []struct {
		name    string
		burst   sloconfig.CPUBurst
		limit   float64
		class   string
		want    tick.Cgroup // of the container
		podWant tick.Cgroup
	}{
		{"nothing is set", sloconfig.CPUBurst{}, 1000, "", tick.Cgroup{}, tick.Cgroup{}},
		{"none", sloconfig.CPUBurst{Policy: new("none")}, 1000, "", tick.Cgroup{}, tick.Cgroup{}},
		{"an invalid policy", sloconfig.CPUBurst{Policy: new("Auto")}, 1000, "", tick.Cgroup{}, tick.Cgroup{}},
		{"quota alone", sloconfig.CPUBurst{Policy: new("cfsQuotaBurstOnly")}, 1000, "", tick.Cgroup{}, tick.Cgroup{}},
		{"Koordinator's 1000 % are bounded by the quota", sloconfig.CPUBurst{Policy: new("auto")}, 1000, "", tick.Cgroup{CPUBurstMilliCPU: new(int64(1000))}, tick.Cgroup{CPUBurstMilliCPU: new(int64(1000))}},
		{"50 %", sloconfig.CPUBurst{Policy: new("cpuBurstOnly"), CPUBurstPercent: new(int64(50))}, 1000, "", tick.Cgroup{CPUBurstMilliCPU: new(int64(500))}, tick.Cgroup{CPUBurstMilliCPU: new(int64(500))}},
		{"1 % of little", sloconfig.CPUBurst{Policy: new("cpuBurstOnly"), CPUBurstPercent: new(int64(1))}, 150, "", tick.Cgroup{CPUBurstMilliCPU: new(int64(1))}, tick.Cgroup{CPUBurstMilliCPU: new(int64(1))}},
		{"less than one", sloconfig.CPUBurst{Policy: new("cpuBurstOnly"), CPUBurstPercent: new(int64(1))}, 50, "", tick.Cgroup{}, tick.Cgroup{}},
		{"negative percentage", sloconfig.CPUBurst{Policy: new("auto"), CPUBurstPercent: new(int64(-7))}, 1000, "", tick.Cgroup{}, tick.Cgroup{}},
		{"no limit", sloconfig.CPUBurst{Policy: new("auto")}, 0, "", tick.Cgroup{}, tick.Cgroup{}},
		{"negative limit", sloconfig.CPUBurst{Policy: new("auto")}, -1000, "", tick.Cgroup{}, tick.Cgroup{}},
		{"a limit that is no number", sloconfig.CPUBurst{Policy: new("auto")}, math.NaN(), "", tick.Cgroup{}, tick.Cgroup{}},
		{"an endless limit", sloconfig.CPUBurst{Policy: new("auto")}, math.Inf(1), "", tick.Cgroup{CPUBurstMilliCPU: new(int64(maxMilliCPU))}, tick.Cgroup{CPUBurstMilliCPU: new(int64(maxMilliCPU))}},
		{"LS", sloconfig.CPUBurst{Policy: new("auto")}, 1000, "LS", tick.Cgroup{CPUBurstMilliCPU: new(int64(1000))}, tick.Cgroup{CPUBurstMilliCPU: new(int64(1000))}},
		{"SYSTEM", sloconfig.CPUBurst{Policy: new("auto")}, 1000, "SYSTEM", tick.Cgroup{CPUBurstMilliCPU: new(int64(1000))}, tick.Cgroup{CPUBurstMilliCPU: new(int64(1000))}},
		{"an invalid label", sloconfig.CPUBurst{Policy: new("auto")}, 1000, "lsr", tick.Cgroup{CPUBurstMilliCPU: new(int64(1000))}, tick.Cgroup{CPUBurstMilliCPU: new(int64(1000))}},
		{"LSR", sloconfig.CPUBurst{Policy: new("auto")}, 1000, "LSR", tick.Cgroup{}, tick.Cgroup{}},
		{"LSE", sloconfig.CPUBurst{Policy: new("auto")}, 1000, "LSE", tick.Cgroup{}, tick.Cgroup{}},
		{"BE", sloconfig.CPUBurst{Policy: new("auto")}, 1000, "BE", tick.Cgroup{}, tick.Cgroup{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sloconfig.Defaults()
			s.Burst = c.burst
			p := pod(c.limit)
			if c.class != "" {
				p.Labels["koordinator.sh/qosClass"] = c.class
			}
			a := advise(new(State), &s, sampleOf(1000, p), 0)
			if diff := cmp.Diff(c.want, entryOf(t, a.Cgroups, containerPath)); diff != "" {
				t.Errorf("container (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.podWant, entryOf(t, a.Cgroups, podPath)); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}

// The pod's burst is the sum of its containers', but none if one of them has no limit: then it has no quota.
func TestPodBurst(t *testing.T) {
	p := pod(1000)
	p.Containers = append(p.Containers, tick.Container{Name: "d", Cgroup: podPath + "/d", Limits: amount(500)}, tick.Container{Name: "waits", Limits: amount(700)})
	p.Limits = amount(1500)
	s := burstPolicy("cpuBurstOnly")
	s.Burst.CPUBurstPercent = new(int64(40))
	if got := entryOf(t, advise(new(State), s, sampleOf(0, p), 0).Cgroups, podPath); cmp.Diff(tick.Cgroup{CPUBurstMilliCPU: new(int64(600))}, got) != "" {
		t.Errorf("pod %+v, want a burst of 600", got)
	}
	p.Limits = amount(550) // for the pod as a whole
	if got := entryOf(t, advise(new(State), s, sampleOf(0, p), 0).Cgroups, podPath); cmp.Diff(tick.Cgroup{CPUBurstMilliCPU: new(int64(550))}, got) != "" {
		t.Errorf("pod with less than its containers %+v, want a burst of 550", got)
	}
	p.Limits = nil
	a := advise(new(State), s, sampleOf(0, p), 0)
	if got := entryOf(t, a.Cgroups, podPath); cmp.Diff(tick.Cgroup{}, got) != "" {
		t.Errorf("pod without a limit %+v, want nothing", got)
	}
	if got := entryOf(t, a.Cgroups, containerPath); cmp.Diff(tick.Cgroup{CPUBurstMilliCPU: new(int64(400))}, got) != "" {
		t.Errorf("its container %+v, want a burst of 400", got)
	}
}

// Quotas of a container and of its pod, one step per tick.
func TestQuota(t *testing.T) {
	throttled := func(p *tick.Pod) { p.Containers[0].ThrottledPercent = new(float64(5)) }
	calm := func(*tick.Pod) {}
	type step struct {
		used      float64 // of the node's 10000
		change    func(*tick.Pod)
		container int64 // 0: nothing is advised
	}
	for _, c := range []struct {
		name   string
		change func(*sloconfig.CPUBurst)
		steps  []step
	}{
		{"grows by a fifth while idle, up to three times", nil, []step{
			{1000, throttled, 1200}, {1000, throttled, 1440}, {1000, throttled, 1728}, {1000, throttled, 2073}, {1000, throttled, 2487}, {1000, throttled, 2984}, {1000, throttled, 3000}, {1000, throttled, 3000},
		}},
		{"stays when it is not throttled any more", nil, []step{{1000, throttled, 1200}, {1000, calm, 1200}, {1000, calm, 1200}}},
		{"never where it is not throttled", nil, []step{{1000, calm, 0}, {1000, func(p *tick.Pod) { p.Containers[0].ThrottledPercent = nil }, 0}}},
		{"throttling that is unknown changes nothing", nil, []step{{1000, throttled, 1200}, {1000, func(p *tick.Pod) { p.Containers[0].ThrottledPercent = nil }, 1200}}},
		{"cooling keeps", nil, []step{{1000, throttled, 1200}, {4500, throttled, 1200}, {4999, throttled, 1200}}},
		{"overload shrinks, throttled or not, to the limit", nil, []step{{1000, throttled, 1200}, {1000, throttled, 1440}, {5000, throttled, 1152}, {9000, calm, 1000}, {9000, calm, 1000}}},
		{"overload at first", nil, []step{{5000, throttled, 0}}},
		{"just idle", nil, []step{{4499, throttled, 1200}}},
		{"the threshold is the node's", func(b *sloconfig.CPUBurst) { b.SharePoolThresholdPercent = new(int64(90)) }, []step{{8000, throttled, 1200}, {9000, throttled, 1000}}},
		{"a threshold of 0 is always met", func(b *sloconfig.CPUBurst) { b.SharePoolThresholdPercent = new(int64(0)) }, []step{{0, throttled, 0}}},
		{"the node's use is unknown", nil, []step{{1000, throttled, 1200}, {-1, throttled, 1200}}},
		{"100 %", func(b *sloconfig.CPUBurst) { b.CFSQuotaBurstPercent = new(int64(100)) }, []step{{1000, throttled, 0}}},
		{"less than 100 %", func(b *sloconfig.CPUBurst) { b.CFSQuotaBurstPercent = new(int64(99)) }, []step{{1000, throttled, 0}}},
		{"no more than the node has", func(b *sloconfig.CPUBurst) { b.CFSQuotaBurstPercent = new(int64(1 << 40)) }, []step{{1000, func(p *tick.Pod) { throttled(p); p.Limits, p.Containers[0].Limits = amount(9999), amount(9999) }, 10000}}},
		{"a limit over what the node has", nil, []step{{1000, func(p *tick.Pod) { throttled(p); p.Limits, p.Containers[0].Limits = amount(12000), amount(12000) }, 0}}},
		{"a tiny limit", nil, []step{{1000, func(p *tick.Pod) { throttled(p); p.Limits, p.Containers[0].Limits = amount(1), amount(1) }, 2}}},
		{"period 0 never", func(b *sloconfig.CPUBurst) { b.CFSQuotaBurstPeriodSeconds = new(int64(0)) }, []step{{1000, throttled, 0}, {1000, throttled, 0}}},
		{"cpuBurstOnly never", func(b *sloconfig.CPUBurst) { b.Policy = new("cpuBurstOnly"); b.CPUBurstPercent = new(int64(0)) }, []step{{1000, throttled, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := burstPolicy("cfsQuotaBurstOnly")
			if c.change != nil {
				c.change(&s.Burst)
			}
			st := new(State)
			for i, step := range c.steps {
				p := pod(1000)
				step.change(&p)
				sample := sampleOf(step.used, p)
				if step.used < 0 {
					sample.CPU = nil
				}
				a := advise(st, s, sample, time.Duration(i)*6*time.Second)
				if got := entryOf(t, a.Cgroups, containerPath).CPUMaxMilliCPU; cmp.Diff(step.container, orZero(got)) != "" {
					t.Errorf("step %d: quota %d, want %d; %q", i, orZero(got), step.container, a.Reasons)
				}
				if pod := entryOf(t, a.Cgroups, podPath).CPUMaxMilliCPU; orZero(pod) != step.container { // its limit is its container's
					t.Errorf("step %d: the pod's quota is %d, want %d", i, orZero(pod), step.container)
				}
				for _, b := range a.Fallback {
					if *b.CPUMaxMilliCPU != int64(*p.Limits.MilliCPU) {
						t.Errorf("step %d: fallback %d, want the limit", i, *b.CPUMaxMilliCPU)
					}
				}
				if (step.container > 0) != (len(a.Fallback) == 2) {
					t.Errorf("step %d: fallback %+v", i, a.Fallback)
				}
			}
		})
	}
}

func orZero(p *int64) int64 {
	if p == nil {
		return 0
	}
	return *p
}

// The pod's quota changes by the sum of its containers' changes; without a limit it has none.
func TestPodQuota(t *testing.T) {
	p := pod(1000)
	p.Containers[0].ThrottledPercent = new(float64(1))
	p.Containers = append(p.Containers, tick.Container{Name: "d", Cgroup: podPath + "/d", Limits: amount(500), ThrottledPercent: new(float64(2))}, tick.Container{Name: "e", Cgroup: podPath + "/e", Limits: amount(100)})
	p.Limits = amount(1600)
	a := advise(new(State), burstPolicy("auto"), sampleOf(0, p), 0)
	for cgroup, want := range map[string]tick.Cgroup{
		containerPath:  {CPUMaxMilliCPU: new(int64(1200)), CPUBurstMilliCPU: new(int64(1200))},
		podPath + "/d": {CPUMaxMilliCPU: new(int64(600)), CPUBurstMilliCPU: new(int64(600))},
		podPath + "/e": {CPUBurstMilliCPU: new(int64(100))},
		podPath:        {CPUMaxMilliCPU: new(int64(1900)), CPUBurstMilliCPU: new(int64(1900))},
	} {
		if diff := cmp.Diff(want, entryOf(t, a.Cgroups, cgroup)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", cgroup, diff)
		}
	}
	p.Limits, p.Containers[2].Limits = nil, nil
	a = advise(new(State), burstPolicy("auto"), sampleOf(0, p), 0)
	if got := entryOf(t, a.Cgroups, podPath); cmp.Diff(tick.Cgroup{}, got) != "" {
		t.Errorf("the pod without a limit: %+v, want nothing", got)
	}
	if got := entryOf(t, a.Cgroups, containerPath); orZero(got.CPUMaxMilliCPU) != 1200 {
		t.Errorf("its container: %+v, want 1200", got)
	}
}

func TestAnnotation(t *testing.T) {
	half := &tick.Cgroup{CPUBurstMilliCPU: new(int64(500))}
	for _, c := range []struct {
		name, text string
		node       string // the node's policy, with 50 %
		want       *tick.Cgroup
		reason     string
	}{
		{"none at all", "", "cpuBurstOnly", half, ""},
		{"empty", "{}", "cpuBurstOnly", half, ""},
		{"null", "null", "cpuBurstOnly", half, ""},
		{"off", `{"policy":"none"}`, "cpuBurstOnly", nil, ""},
		{"on where the node is off", `{"policy":"cpuBurstOnly"}`, "none", half, ""},
		{"one field", `{"cpuBurstPercent":20}`, "cpuBurstOnly", &tick.Cgroup{CPUBurstMilliCPU: new(int64(200))}, ""},
		{"any case", `{"CPUBURSTPERCENT":20}`, "cpuBurstOnly", &tick.Cgroup{CPUBurstMilliCPU: new(int64(200))}, ""},
		{"a null field", `{"cpuBurstPercent":null}`, "cpuBurstOnly", half, ""},
		{"quota too", `{"policy":"auto"}`, "none", &tick.Cgroup{CPUBurstMilliCPU: new(int64(500)), CPUMaxMilliCPU: new(int64(1200))}, ""},
		{"a quota up to 110 %", `{"policy":"cfsQuotaBurstOnly","cfsQuotaBurstPercent":110}`, "none", &tick.Cgroup{CPUMaxMilliCPU: new(int64(1100))}, ""},
		{"a quota of 50 % is the limit", `{"policy":"cfsQuotaBurstOnly","cfsQuotaBurstPercent":50}`, "none", nil, ""},
		{"a period of 0", `{"policy":"cfsQuotaBurstOnly","cfsQuotaBurstPeriodSeconds":0}`, "none", nil, ""},
		{"how busy the node may be is not the pod's", `{"policy":"cfsQuotaBurstOnly","sharePoolThresholdPercent":1}`, "none", &tick.Cgroup{CPUMaxMilliCPU: new(int64(1200))}, ""},
		{"unknown fields", `{"x":{},"cpuBurstPercent":20}`, "cpuBurstOnly", &tick.Cgroup{CPUBurstMilliCPU: new(int64(200))}, ""},
		{"an empty policy is not set", `{"policy":"","cpuBurstPercent":20}`, "cpuBurstOnly", &tick.Cgroup{CPUBurstMilliCPU: new(int64(200))}, ""},
		{"unknown policy", `{"policy":"AUTO","cpuBurstPercent":20}`, "cpuBurstOnly", &tick.Cgroup{CPUBurstMilliCPU: new(int64(200))}, "policy"},
		{"no JSON", `auto`, "cpuBurstOnly", half, "it is ignored"},
		{"a list", `[1]`, "cpuBurstOnly", half, "it is ignored"},
		{"a text for a number", `{"policy":"none","cpuBurstPercent":"20"}`, "cpuBurstOnly", half, "it is ignored"},
		{"a fraction", `{"cpuBurstPercent":20.5}`, "cpuBurstOnly", half, "it is ignored"},
		{"huge", `{"cpuBurstPercent":99999999999999999999}`, "cpuBurstOnly", half, "it is ignored"},
		{"out of range", `{"cpuBurstPercent":0,"cfsQuotaBurstPercent":-1,"cfsQuotaBurstPeriodSeconds":-2}`, "cpuBurstOnly", half, "cfsQuotaBurstPeriodSeconds -2 is not between -1 and"},
		{"over the range", `{"cpuBurstPercent":10001}`, "cpuBurstOnly", half, "cpuBurstPercent 10001 is not between 1 and 10000"},
		{"more than the node's", `{"cpuBurstPercent":10000}`, "cpuBurstOnly", half, ""},
		{"too long", `{"x":"` + strings.Repeat("x", annotation.MaxBytes) + `"}`, "cpuBurstOnly", half, "it is ignored"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := burstPolicy(c.node)
			s.Burst.CPUBurstPercent = new(int64(50))
			p := pod(1000)
			p.Containers[0].ThrottledPercent = new(float64(1))
			if c.text != "" {
				p.Annotations[annotation.CPUBurst] = c.text
			}
			a := advise(new(State), s, sampleOf(1000, p), 0)
			if c.want == nil {
				c.want = &tick.Cgroup{}
			}
			if diff := cmp.Diff(*c.want, entryOf(t, a.Cgroups, containerPath)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			reasons := strings.Join(a.Reasons, "\n")
			if has := strings.Contains(reasons, "annotation"); has != (c.reason != "") || !strings.Contains(reasons, c.reason) {
				t.Errorf("reasons %q, want one with %q", a.Reasons, c.reason)
			}
		})
	}
}

func TestPodSettingsAreCapped(t *testing.T) {
	for _, c := range []struct {
		name, text string
		node       sloconfig.CPUBurst
		maximum    int64 // the quota that a throttled container of 1000m reaches in 100 ticks
	}{
		{"the default", `{"policy":"auto","cfsQuotaBurstPercent":2147483647}`, sloconfig.CPUBurst{}, 3000},
		{"the node's percent", `{"cfsQuotaBurstPercent":2147483647}`, sloconfig.CPUBurst{Policy: new("auto"), CFSQuotaBurstPercent: new(int64(150))}, 1500},
		{"less than the node's", `{"cfsQuotaBurstPercent":120}`, sloconfig.CPUBurst{Policy: new("auto"), CFSQuotaBurstPercent: new(int64(150))}, 1200},
		{"for ever", `{"cfsQuotaBurstPeriodSeconds":-1}`, sloconfig.CPUBurst{Policy: new("auto"), CFSQuotaBurstPeriodSeconds: new(int64(0))}, 1000},
		{"longer than the node's", `{"cfsQuotaBurstPeriodSeconds":2147483647}`, sloconfig.CPUBurst{Policy: new("auto"), CFSQuotaBurstPeriodSeconds: new(int64(0))}, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := burstPolicy("none")
			s.Burst = c.node
			p := pod(1000)
			p.Containers[0].ThrottledPercent = new(float64(1))
			p.Annotations[annotation.CPUBurst] = c.text
			st, maximum := new(State), int64(1000)
			for i := range 100 {
				a := advise(st, s, sampleOf(1000, p), time.Duration(i)*time.Second)
				maximum = max(maximum, orZero(entryOf(t, a.Cgroups, containerPath).CPUMaxMilliCPU))
			}
			if maximum != c.maximum {
				t.Errorf("its quota came to %d, want %d", maximum, c.maximum)
			}
		})
	}
}

// A quota that is no longer desired is reverted to the limit for some time, and then nothing is advised for it.
func TestRevert(t *testing.T) {
	be := pod(1000)
	be.Labels["koordinator.sh/qosClass"] = "BE"
	lsr := pod(1000)
	lsr.Labels["koordinator.sh/qosClass"] = "LSR"
	smaller := pod(300)
	unlimited := pod(0)
	unlimited.Limits = nil
	for _, c := range []struct {
		name string
		s    *sloconfig.Strategies
		pod  tick.Pod
		want tick.Cgroup
	}{
		{"the policy is off", burstPolicy("none"), pod(1000), tick.Cgroup{CPUMaxMilliCPU: new(int64(1000)), CPUBurstMilliCPU: new(int64(0))}},
		{"no burst any more", burstPolicy("cfsQuotaBurstOnly"), pod(1000), tick.Cgroup{CPUMaxMilliCPU: new(int64(1200)), CPUBurstMilliCPU: new(int64(0))}},
		{"no scaling any more", burstPolicy("cpuBurstOnly"), pod(1000), tick.Cgroup{CPUMaxMilliCPU: new(int64(1000)), CPUBurstMilliCPU: new(int64(1000))}},
		{"it is LSR now", burstPolicy("auto"), lsr, tick.Cgroup{CPUMaxMilliCPU: new(int64(1000)), CPUBurstMilliCPU: new(int64(0))}},
		{"it is BE now: the quota is another's", burstPolicy("auto"), be, tick.Cgroup{CPUBurstMilliCPU: new(int64(0))}},
		{"a smaller limit", burstPolicy("none"), smaller, tick.Cgroup{CPUMaxMilliCPU: new(int64(300)), CPUBurstMilliCPU: new(int64(0))}},
		{"no limit any more", burstPolicy("auto"), unlimited, tick.Cgroup{CPUBurstMilliCPU: new(int64(0))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := new(State)
			p := pod(1000)
			p.Containers[0].ThrottledPercent = new(float64(1))
			advise(st, burstPolicy("auto"), sampleOf(1000, p), 0)
			for _, after := range []time.Duration{time.Second, revert.Duration} {
				a := advise(st, c.s, sampleOf(1000, c.pod), after)
				for _, cgroup := range []string{containerPath, podPath} {
					if diff := cmp.Diff(c.want, entryOf(t, a.Cgroups, cgroup)); diff != "" {
						t.Errorf("%s after %s (-want +got):\n%s", cgroup, after, diff)
					}
				}
			}
			off, gone := burstPolicy("none"), revert.Duration+revert.Duration+time.Second
			advise(st, off, sampleOf(1000, c.pod), gone)
			advise(st, off, sampleOf(1000, c.pod), gone+revert.Duration+time.Second) // the last time
			if a := advise(st, off, sampleOf(1000, c.pod), gone+revert.Duration+2*time.Second); len(a.Cgroups)+len(a.Reasons)+len(a.Fallback) > 0 || len(st.Cgroups)+len(st.Buckets)+len(st.Usage.Points) > 0 {
				t.Errorf("in the end: %+v, state %+v; want nothing", a, st)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	st := new(State)
	p := pod(1000)
	p.Containers[0].ThrottledPercent = new(float64(1))
	advise(st, burstPolicy("auto"), sampleOf(1000, p), 0)
	lost := p
	lost.Missing = tick.MissingCluster
	if a := advise(st, burstPolicy("auto"), sampleOf(1000, lost), revert.Duration+time.Second); len(a.Cgroups) > 0 || st.Cgroups[containerPath] == nil {
		t.Errorf("a pod unknown to the cluster: %+v", a.Cgroups)
	}
	p.Phase = "Succeeded"
	if a := advise(st, burstPolicy("auto"), sampleOf(1000, p), revert.Duration+2*time.Second); len(a.Cgroups) > 0 {
		t.Errorf("a finished pod: %+v", a.Cgroups)
	}
	if a := advise(st, burstPolicy("auto"), nil, revert.Duration+3*time.Second); len(a.Cgroups) > 0 || len(a.Reasons) != 1 {
		t.Errorf("no sample: %+v", a)
	}
	if a := advise(new(State), burstPolicy("none"), nil, 0); len(a.Reasons) > 0 {
		t.Errorf("no sample, and nothing is wanted: %q", a.Reasons)
	}
	// The clock is set back by a day: times in the future do not keep entries for ever.
	advise(st, burstPolicy("none"), sampleOf(0), -24*time.Hour)
	if advise(st, burstPolicy("none"), sampleOf(0), -24*time.Hour+revert.Duration+time.Second); len(st.Cgroups) > 0 {
		t.Errorf("after the clock was set back %d cgroups are remembered", len(st.Cgroups))
	}
	hostile := &State{Cgroups: map[string]*advised{podPath: nil, "/x": nil}, Buckets: map[string]*bucket{containerPath: nil, "/x": nil}}
	advise(hostile, burstPolicy("auto"), sampleOf(1000, pod(1000)), 0)
	advise(hostile, burstPolicy("none"), sampleOf(1000, pod(1000)), 0)
}

func TestNoKubernetes(t *testing.T) {
	p := tick.Pod{Name: "serve", QoS: tick.QoSShared, QoSSource: tick.QoSFromRule, Cgroup: "/serve", Limits: amount(1000), Containers: []tick.Container{{Cgroup: "/serve", ThrottledPercent: new(float64(3))}}}
	a := advise(new(State), burstPolicy("auto"), sampleOf(1000, p), 0)
	if diff := cmp.Diff([]tick.Cgroup{{Cgroup: "/serve", CPUMaxMilliCPU: new(int64(1200)), CPUBurstMilliCPU: new(int64(1200))}}, a.Cgroups); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
