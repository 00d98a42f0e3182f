package memory

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/advise/koordinator/annotation"
	"polder/advise/koordinator/revert"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

const (
	mi = 1 << 20
	gi = 1 << 30
)

var start = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func n(v int64) *int64 { return new(v) }

func f(v float64) *float64 { return new(v) }

// with returns strategies with memory QoS enabled for one class.
func with(of func(*sloconfig.ResourceQOS) *sloconfig.ClassQOS, m sloconfig.MemoryQOS) *sloconfig.Strategies {
	s := sloconfig.Defaults()
	m.Enable = new(true)
	of(&s.QOS).Memory = &m
	return &s
}

func ls(q *sloconfig.ResourceQOS) *sloconfig.ClassQOS  { return q.LS }
func lsr(q *sloconfig.ResourceQOS) *sloconfig.ClassQOS { return q.LSR }
func be(q *sloconfig.ResourceQOS) *sloconfig.ClassQOS  { return q.BE }
func sys(q *sloconfig.ResourceQOS) *sloconfig.ClassQOS { return q.System }

// pod returns a pod with one container "c" with native memory.
func pod(request, limit float64) tick.Pod {
	p := tick.Pod{
		UID: "u", Namespace: "ns", Name: "p", QoSSource: tick.QoSFromKubernetes, KubernetesQOS: "Burstable", Phase: "Running",
		Cgroup: "/kubepods/burstable/podu", Labels: map[string]string{}, Annotations: map[string]string{},
	}
	p.Containers = []tick.Container{{Name: "c", Cgroup: p.Cgroup + "/c", Requests: memoryAmount(request), Limits: memoryAmount(limit)}}
	return p
}

func memoryAmount(bytes float64) *tick.Resources {
	if bytes == 0 {
		return nil
	}
	return &tick.Resources{MemoryBytes: &bytes}
}

func sampleOf(pods ...tick.Pod) *tick.Sample {
	return &tick.Sample{
		CgroupVersion: 2, Pods: pods, Allocatable: &tick.Resources{MemoryBytes: f(16 * gi)},
		Tiers: []tick.Tier{{Name: tick.TierPods, Cgroup: "/kubepods"}, {Name: tick.TierBurstable, Cgroup: "/kubepods/burstable"}, {Name: tick.TierBestEffort, Cgroup: "/kubepods/besteffort"}},
	}
}

// advise decides one tick at start.
func advise(st *State, s *sloconfig.Strategies, sample *tick.Sample, after time.Duration) *tick.Advice {
	a := new(tick.Advice)
	st.Advise(&tick.Tick{Node: "n", Time: start.Add(after), Sample: sample}, s, a)
	return a
}

func entry(t *testing.T, a *tick.Advice, cgroup string) tick.Cgroup {
	t.Helper()
	var found []tick.Cgroup
	for _, c := range a.Cgroups {
		if c.Cgroup == cgroup {
			found = append(found, c)
		}
	}
	if len(found) > 1 {
		t.Fatalf("%s is named %d times", cgroup, len(found))
	}
	if len(found) == 0 {
		return tick.Cgroup{}
	}
	found[0].Cgroup = ""
	return found[0]
}

func TestContainer(t *testing.T) {
	for _, c := range []struct {
		name           string
		m              sloconfig.MemoryQOS
		request, limit float64
		want           tick.Cgroup
	}{
		{"nothing is set", sloconfig.MemoryQOS{}, 100 * mi, 200 * mi, tick.Cgroup{}},
		{"min", sloconfig.MemoryQOS{MinLimitPercent: n(50)}, 100 * mi, 0, tick.Cgroup{MemoryMinBytes: n(50 * mi), MemoryLowBytes: n(50 * mi)}},
		{"min is not rounded here", sloconfig.MemoryQOS{MinLimitPercent: n(33)}, 1000, 0, tick.Cgroup{MemoryMinBytes: n(330), MemoryLowBytes: n(330)}},
		{"low", sloconfig.MemoryQOS{LowLimitPercent: n(100)}, 100 * mi, 0, tick.Cgroup{MemoryLowBytes: n(100 * mi)}},
		{"low is raised to min", sloconfig.MemoryQOS{MinLimitPercent: n(80), LowLimitPercent: n(40)}, 100 * mi, 0, tick.Cgroup{MemoryMinBytes: n(80 * mi), MemoryLowBytes: n(80 * mi)}},
		{"nor is there less low than min where none is requested", sloconfig.MemoryQOS{MinLimitPercent: n(80), LowLimitPercent: n(0)}, 100 * mi, 0, tick.Cgroup{MemoryMinBytes: n(80 * mi), MemoryLowBytes: n(80 * mi)}},
		{"no request", sloconfig.MemoryQOS{MinLimitPercent: n(80), LowLimitPercent: n(90)}, 0, 0, tick.Cgroup{}},
		{"negative request", sloconfig.MemoryQOS{MinLimitPercent: n(80)}, -5, 0, tick.Cgroup{}},
		{"a request that is no number", sloconfig.MemoryQOS{MinLimitPercent: n(80)}, math.NaN(), 0, tick.Cgroup{}},
		{"an endless request", sloconfig.MemoryQOS{MinLimitPercent: n(100)}, math.Inf(1), 0, tick.Cgroup{MemoryMinBytes: n(maxBytes), MemoryLowBytes: n(maxBytes)}},
		{"a percentage over 100", sloconfig.MemoryQOS{MinLimitPercent: n(150)}, 100 * mi, 0, tick.Cgroup{MemoryMinBytes: n(100 * mi), MemoryLowBytes: n(100 * mi)}},
		{"a negative percentage", sloconfig.MemoryQOS{MinLimitPercent: n(-1)}, 100 * mi, 0, tick.Cgroup{}},
		{"high", sloconfig.MemoryQOS{ThrottlingPercent: n(80)}, 100 * mi, 200 * mi, tick.Cgroup{MemoryHighBytes: n(180 * mi)}},
		{"high is rounded to pages", sloconfig.MemoryQOS{ThrottlingPercent: n(50)}, 4096, 12391, tick.Cgroup{MemoryHighBytes: n(8192)}},
		{"high without a limit", sloconfig.MemoryQOS{ThrottlingPercent: n(50)}, 2 * gi, 0, tick.Cgroup{MemoryHighBytes: n(9 * gi)}},
		{"high without a request", sloconfig.MemoryQOS{ThrottlingPercent: n(50)}, 0, 200 * mi, tick.Cgroup{MemoryHighBytes: n(100 * mi)}},
		{"high is raised to min", sloconfig.MemoryQOS{MinLimitPercent: n(100), ThrottlingPercent: n(1)}, 4097, 4098, tick.Cgroup{MemoryMinBytes: n(4097), MemoryLowBytes: n(4097), MemoryHighBytes: n(4097)}},
		{"a limit under the request", sloconfig.MemoryQOS{ThrottlingPercent: n(50)}, 200 * mi, 100 * mi, tick.Cgroup{MemoryHighBytes: n(150 * mi)}},
		{"high of less than a page is none", sloconfig.MemoryQOS{ThrottlingPercent: n(50)}, 0, 8000, tick.Cgroup{}},
		{"throttling 0", sloconfig.MemoryQOS{ThrottlingPercent: n(0)}, 100 * mi, 200 * mi, tick.Cgroup{}},
		{"throttling 100", sloconfig.MemoryQOS{ThrottlingPercent: n(100)}, 100 * mi, 200 * mi, tick.Cgroup{MemoryHighBytes: n(200 * mi)}},
		{
			"watermarks",
			sloconfig.MemoryQOS{WmarkRatio: n(95), WmarkScalePermill: n(20), WmarkMinAdj: n(-25)},
			0, 0,
			tick.Cgroup{MemoryWmarkRatioPercent: n(95), MemoryWmarkScalePermille: n(20), MemoryWmarkMinAdjPercent: n(-25)},
		},
		{"the kernel's own watermarks", sloconfig.MemoryQOS{WmarkRatio: n(0), WmarkScalePermill: n(50), WmarkMinAdj: n(0)}, 0, 0, tick.Cgroup{}},
		{"watermarks out of range", sloconfig.MemoryQOS{WmarkRatio: n(101), WmarkScalePermill: n(0), WmarkMinAdj: n(-26), Priority: n(13)}, 0, 0, tick.Cgroup{}},
		{"priority", sloconfig.MemoryQOS{PriorityEnable: n(1), Priority: n(12)}, 0, 0, tick.Cgroup{MemoryPriority: n(12), MemoryUsePriorityOOM: new(true)}},
		{"an invalid priority switch", sloconfig.MemoryQOS{PriorityEnable: n(2), OOMKillGroup: n(2)}, 0, 0, tick.Cgroup{}},
		{"kill together", sloconfig.MemoryQOS{OOMKillGroup: n(1)}, 0, 0, tick.Cgroup{MemoryOOMGroup: new(true)}},
		{"kill alone", sloconfig.MemoryQOS{OOMKillGroup: n(0)}, 0, 0, tick.Cgroup{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := advise(new(State), with(ls, c.m), sampleOf(pod(c.request, c.limit)), 0)
			if diff := cmp.Diff(c.want, entry(t, a, "/kubepods/burstable/podu/c")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSums(t *testing.T) {
	one := pod(100*mi, 0)
	one.Containers = append(one.Containers, tick.Container{Name: "d", Cgroup: one.Cgroup + "/d", Requests: memoryAmount(50 * mi)}, tick.Container{Name: "gone", Requests: memoryAmount(gi)})
	two := pod(10*mi, 0)
	two.UID, two.Cgroup = "v", "/kubepods/podv" // Guaranteed
	two.KubernetesQOS = "Guaranteed"
	two.Containers[0].Cgroup = "/kubepods/podv/c"
	done := pod(gi, 0)
	done.Phase, done.Cgroup = "Succeeded", "/kubepods/burstable/podw"
	s := with(ls, sloconfig.MemoryQOS{MinLimitPercent: n(50), LowLimitPercent: n(100), ThrottlingPercent: n(50), OOMKillGroup: n(1), PriorityEnable: n(1), Priority: n(3)})
	of := *s.QOS.LS.Memory
	of.Priority = n(7)
	s.QOS.LSR.Memory = &of
	beside := pod(gi, 0)
	beside.Cgroup, beside.Containers = "/kubepods/burstable-too/podx", []tick.Container{{Cgroup: "/kubepods/burstable-too/podx/c", Requests: memoryAmount(10 * mi)}}
	a := advise(new(State), s, sampleOf(one, two, done, beside), 0)
	on, prio := new(true), n(3)
	for cgroup, want := range map[string]tick.Cgroup{
		"/kubepods":                  {MemoryMinBytes: n(85 * mi), MemoryLowBytes: n(170 * mi), MemoryUsePriorityOOM: on, MemoryPriority: n(7)},
		"/kubepods/burstable":        {MemoryMinBytes: n(75 * mi), MemoryLowBytes: n(150 * mi), MemoryUsePriorityOOM: on, MemoryPriority: prio},
		"/kubepods/besteffort":       {},
		"/kubepods/burstable/podu":   {MemoryMinBytes: n(75 * mi), MemoryLowBytes: n(150 * mi), MemoryUsePriorityOOM: on, MemoryPriority: prio, MemoryOOMGroup: on}, // without high
		"/kubepods/podv":             {MemoryMinBytes: n(5 * mi), MemoryLowBytes: n(10 * mi), MemoryUsePriorityOOM: on, MemoryPriority: n(7), MemoryOOMGroup: on},
		"/kubepods/burstable/podw":   {},
		"/kubepods/burstable/podw/c": {},
	} {
		if diff := cmp.Diff(want, entry(t, a, cgroup)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", cgroup, diff)
		}
	}
	if len(a.Reasons) != 1 || !strings.Contains(a.Reasons[0], "\"burstable\" has min 78643200 and low 157286400 bytes") {
		t.Errorf("reasons %q", a.Reasons)
	}
}

// Which class's settings apply to a pod: its label's, else those of its Kubernetes class.
func TestClasses(t *testing.T) {
	for _, c := range []struct {
		label, kubernetes string
		of                func(*sloconfig.ResourceQOS) *sloconfig.ClassQOS
	}{
		{"LSE", "Guaranteed", lsr},
		{"LSR", "Guaranteed", lsr},
		{"LS", "Guaranteed", ls},
		{"LS", "BestEffort", ls},
		{"BE", "Burstable", be},
		{"SYSTEM", "Burstable", sys},
		{"", "Guaranteed", lsr},
		{"", "Burstable", ls},
		{"", "BestEffort", be},
		{"rubbish", "Guaranteed", lsr},
		{"be", "Burstable", ls},
	} {
		for _, other := range []func(*sloconfig.ResourceQOS) *sloconfig.ClassQOS{lsr, ls, be, sys} {
			p := pod(gi, 0)
			p.KubernetesQOS = c.kubernetes
			if c.label != "" {
				p.Labels["koordinator.sh/qosClass"] = c.label
			}
			if c.label == qos.System {
				p.QoS = tick.QoSSystem
			}
			s := with(other, sloconfig.MemoryQOS{OOMKillGroup: n(1)})
			sample := sampleOf(p)
			sample.Tiers = nil
			got := len(advise(new(State), s, sample, 0).Cgroups) > 0
			if want := c.of(&s.QOS) == other(&s.QOS); got != want {
				t.Errorf("label %q, %s: under a class's settings %v, want %v", c.label, c.kubernetes, got, want)
			}
		}
	}
}

// Pods labelled BE count by their batch memory, others by their native one.
func TestBatchMemory(t *testing.T) {
	for _, label := range []string{"BE", "LS"} {
		p := pod(100*mi, 200*mi)
		p.Labels["koordinator.sh/qosClass"] = label
		p.Containers[0].Requests.ReclaimedMemoryBytes, p.Containers[0].Limits.ReclaimedMemoryBytes = f(10*mi), f(20*mi)
		s := with(be, sloconfig.MemoryQOS{MinLimitPercent: n(50), ThrottlingPercent: n(50)})
		s.QOS.LS = s.QOS.BE
		want := map[string]tick.Cgroup{
			"BE": {MemoryMinBytes: n(5 * mi), MemoryLowBytes: n(5 * mi), MemoryHighBytes: n(15 * mi)},
			"LS": {MemoryMinBytes: n(50 * mi), MemoryLowBytes: n(50 * mi), MemoryHighBytes: n(150 * mi)},
		}[label]
		if diff := cmp.Diff(want, entry(t, advise(new(State), s, sampleOf(p), 0), p.Cgroup+"/c")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", label, diff)
		}
	}
	p := pod(100*mi, 200*mi) // unlimited, and without batch memory
	p.Labels["koordinator.sh/qosClass"] = "BE"
	s := with(be, sloconfig.MemoryQOS{MinLimitPercent: n(50), ThrottlingPercent: n(50)})
	if diff := cmp.Diff(tick.Cgroup{MemoryHighBytes: n(8 * gi)}, entry(t, advise(new(State), s, sampleOf(p), 0), p.Cgroup+"/c")); diff != "" {
		t.Errorf("without batch memory (-want +got):\n%s", diff)
	}
}

func TestAnnotation(t *testing.T) {
	template := tick.Cgroup{MemoryWmarkRatioPercent: n(95), MemoryWmarkScalePermille: n(20), MemoryWmarkMinAdjPercent: n(-25)}
	half := tick.Cgroup{MemoryMinBytes: n(50 * mi), MemoryLowBytes: n(50 * mi)}
	for _, c := range []struct {
		name, text string
		enabled    bool // the class, with minLimitPercent 50
		want       tick.Cgroup
		reason     string
	}{
		{"none at all", "", true, half, ""},
		{"default", `{"policy":"default"}`, true, half, ""},
		{"default of a disabled class", `{"policy":"default"}`, false, tick.Cgroup{}, ""},
		{"empty policy", `{"policy":"","lowLimitPercent":60}`, true, tick.Cgroup{MemoryMinBytes: n(50 * mi), MemoryLowBytes: n(60 * mi)}, ""},
		{"a field alone", `{"minLimitPercent":10}`, true, tick.Cgroup{MemoryMinBytes: n(10 * mi), MemoryLowBytes: n(10 * mi)}, ""},
		{"a field alone, of a disabled class", `{"minLimitPercent":10}`, false, tick.Cgroup{MemoryMinBytes: n(10 * mi), MemoryLowBytes: n(10 * mi)}, ""},
		{"any case", `{"MINLIMITPERCENT":10,"Policy":"default"}`, true, tick.Cgroup{MemoryMinBytes: n(10 * mi), MemoryLowBytes: n(10 * mi)}, ""},
		{"none", `{"policy":"none","minLimitPercent":10}`, true, tick.Cgroup{}, ""},
		{"auto of a disabled class", `{"policy":"auto"}`, false, template, ""},
		{"auto takes the template's place", `{"policy":"auto"}`, true, template, ""},
		{"auto and a field", `{"policy":"auto","wmarkRatio":0,"wmarkScalePermill":50,"wmarkMinAdj":0,"minLimitPercent":100}`, false, tick.Cgroup{MemoryMinBytes: n(100 * mi), MemoryLowBytes: n(100 * mi)}, ""},
		{"null", `null`, true, half, ""},
		{"a null field", `{"minLimitPercent":null}`, true, half, ""},
		{"unknown fields", `{"x":[1,{}],"minLimitPercent":10}`, true, tick.Cgroup{MemoryMinBytes: n(10 * mi), MemoryLowBytes: n(10 * mi)}, ""},
		{"enable is not the pod's to decide", `{"enable":false}`, true, half, ""},
		{"unknown policy", `{"policy":"AUTO","minLimitPercent":10}`, true, tick.Cgroup{MemoryMinBytes: n(10 * mi), MemoryLowBytes: n(10 * mi)}, "policy"},
		{"no JSON", `policy=auto`, true, half, "it is ignored"},
		{"a list", `[]`, true, half, "it is ignored"},
		{"a text for a number", `{"policy":"none","minLimitPercent":"10"}`, true, half, "it is ignored"},
		{"a fraction", `{"minLimitPercent":10.5}`, true, half, "it is ignored"},
		{"more after it", `{"minLimitPercent":10} x`, true, half, "it is ignored"},
		{
			"out of range", `{"minLimitPercent":101,"lowLimitPercent":-1,"throttlingPercent":1000,"wmarkRatio":101,"wmarkScalePermill":0,"wmarkMinAdj":51,"priorityEnable":2,"priority":13,"oomKillGroup":-1}`, true, half,
			"wmarkScalePermill 0 is not between 1 and 1000",
		},
		{"an adjustment out of range", `{"wmarkMinAdj":51}`, true, half, "wmarkMinAdj 51 is not between -25 and 50"},
		{"the others hold", `{"minLimitPercent":101,"lowLimitPercent":70}`, true, tick.Cgroup{MemoryMinBytes: n(50 * mi), MemoryLowBytes: n(70 * mi)}, "minLimitPercent 101 is not between 0 and 100"},
		{"too long", `{"minLimitPercent":10,"x":"` + strings.Repeat("x", annotation.MaxBytes) + `"}`, true, half, "it is ignored"},
		{
			"the ends of the ranges", `{"wmarkRatio":100,"wmarkScalePermill":1000,"wmarkMinAdj":50,"priorityEnable":1,"priority":12,"oomKillGroup":1,"minLimitPercent":0}`, true,
			tick.Cgroup{MemoryWmarkRatioPercent: n(100), MemoryWmarkScalePermille: n(1000), MemoryWmarkMinAdjPercent: n(50), MemoryUsePriorityOOM: new(true), MemoryPriority: n(12), MemoryOOMGroup: new(true)},
			"",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			defaults := sloconfig.Defaults()
			s := &defaults
			if c.enabled {
				s = with(ls, sloconfig.MemoryQOS{MinLimitPercent: n(50)})
			}
			p := pod(100*mi, 0)
			if c.text != "" {
				p.Annotations[annotation.MemoryQOS] = c.text
			}
			a := advise(new(State), s, sampleOf(p), 0)
			if diff := cmp.Diff(c.want, entry(t, a, p.Cgroup+"/c")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			reasons := strings.Join(a.Reasons, "\n")
			if has := strings.Contains(reasons, "annotation"); has != (c.reason != "") || !strings.Contains(reasons, strings.ReplaceAll(c.reason, `"`, `\"`)) {
				t.Errorf("reasons %q, want one with %q", a.Reasons, c.reason)
			}
		})
	}
}

// A batch pod's memory is lent: its annotation may reduce its protection, but not raise it above the class's settings.
func TestBatchPodIsCappedByItsClass(t *testing.T) {
	for _, c := range []struct {
		name, text string
		class      sloconfig.MemoryQOS
		want       tick.Cgroup
	}{
		{
			"protection where the class has none", `{"minLimitPercent":100,"lowLimitPercent":100,"priority":12}`,
			sloconfig.MemoryQOS{OOMKillGroup: n(1)},
			tick.Cgroup{MemoryOOMGroup: new(true)},
		},
		{"the same by the template", `{"policy":"auto","minLimitPercent":100}`, sloconfig.MemoryQOS{}, tick.Cgroup{MemoryWmarkRatioPercent: n(95), MemoryWmarkScalePermille: n(20), MemoryWmarkMinAdjPercent: n(50)}},
		{"more than the class", `{"minLimitPercent":100}`, sloconfig.MemoryQOS{MinLimitPercent: n(50)}, tick.Cgroup{MemoryMinBytes: n(50 * mi), MemoryLowBytes: n(50 * mi)}},
		{"less than the class", `{"minLimitPercent":10}`, sloconfig.MemoryQOS{MinLimitPercent: n(50)}, tick.Cgroup{MemoryMinBytes: n(10 * mi), MemoryLowBytes: n(10 * mi)}},
		{"no throttling", `{"throttlingPercent":0}`, sloconfig.MemoryQOS{ThrottlingPercent: n(50)}, tick.Cgroup{MemoryHighBytes: n(150 * mi)}},
		{"less throttling", `{"throttlingPercent":100}`, sloconfig.MemoryQOS{ThrottlingPercent: n(50)}, tick.Cgroup{MemoryHighBytes: n(150 * mi)}},
		{"more throttling", `{"throttlingPercent":10}`, sloconfig.MemoryQOS{ThrottlingPercent: n(50)}, tick.Cgroup{MemoryHighBytes: n(110 * mi)}},
		{"reclaim later", `{"wmarkMinAdj":-25}`, sloconfig.MemoryQOS{WmarkMinAdj: n(40)}, tick.Cgroup{MemoryWmarkMinAdjPercent: n(40)}},
		{
			"reclaim after services, where the class has nothing", `{"wmarkMinAdj":-25,"oomKillGroup":1}`,
			sloconfig.MemoryQOS{},
			tick.Cgroup{MemoryOOMGroup: new(true)},
		},
		{"reclaim earlier", `{"wmarkMinAdj":50}`, sloconfig.MemoryQOS{WmarkMinAdj: n(40)}, tick.Cgroup{MemoryWmarkMinAdjPercent: n(50)}},
		{"out of it all", `{"policy":"none"}`, sloconfig.MemoryQOS{ThrottlingPercent: n(50)}, tick.Cgroup{MemoryHighBytes: n(150 * mi)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			be := func(q *sloconfig.ResourceQOS) *sloconfig.ClassQOS { return q.BE }
			p := pod(0, 0)
			p.Labels["koordinator.sh/qosClass"], p.Annotations[annotation.MemoryQOS] = "BE", c.text
			p.Containers[0].Requests = &tick.Resources{ReclaimedMemoryBytes: f(100 * mi)}
			p.Containers[0].Limits = &tick.Resources{ReclaimedMemoryBytes: f(200 * mi)}
			a := advise(new(State), with(be, c.class), sampleOf(p), 0)
			if diff := cmp.Diff(c.want, entry(t, a, p.Cgroup+"/c")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Values that are no longer desired are reverted for some time, and then nothing is advised for them.
func TestRevert(t *testing.T) {
	st := new(State)
	p := pod(100*mi, 200*mi)
	s := with(ls, sloconfig.MemoryQOS{MinLimitPercent: n(50), ThrottlingPercent: n(50), OOMKillGroup: n(1), WmarkRatio: n(95), WmarkScalePermill: n(20), WmarkMinAdj: n(50), PriorityEnable: n(1), Priority: n(2)})
	advise(st, s, sampleOf(p), 0)
	off := sloconfig.Defaults()
	no := new(false)
	back := tick.Cgroup{
		MemoryMinBytes: n(0), MemoryLowBytes: n(0), MemoryHighBytes: n(tick.Unlimited), MemoryOOMGroup: no, MemoryWmarkRatioPercent: n(0), MemoryWmarkScalePermille: n(50),
		MemoryWmarkMinAdjPercent: n(0), MemoryPriority: n(0), MemoryUsePriorityOOM: no,
	}
	for _, after := range []time.Duration{time.Second, revert.Duration} {
		a := advise(st, &off, sampleOf(p), after)
		if diff := cmp.Diff(back, entry(t, a, p.Cgroup+"/c")); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", after, diff)
		}
		if diff := cmp.Diff(tick.Cgroup{MemoryMinBytes: n(0), MemoryLowBytes: n(0), MemoryUsePriorityOOM: no, MemoryPriority: n(0)}, entry(t, a, "/kubepods/burstable")); diff != "" {
			t.Errorf("the tier after %s (-want +got):\n%s", after, diff)
		}
	}
	advise(st, &off, sampleOf(p), revert.Duration+2*time.Second) // the last time
	if a := advise(st, &off, sampleOf(p), revert.Duration+3*time.Second); len(a.Cgroups)+len(a.Reasons) > 0 || len(st.Cgroups) > 0 {
		t.Errorf("in the end: %+v, state %v; want nothing", a, st.Cgroups)
	}
}

// Unknown values change nothing.
func TestMissing(t *testing.T) {
	s := with(ls, sloconfig.MemoryQOS{MinLimitPercent: n(50), ThrottlingPercent: n(50)})
	st := new(State)
	known, other := pod(100*mi, 0), pod(100*mi, 200*mi)
	other.Cgroup, other.Containers[0].Cgroup = "/kubepods/burstable/podv", "/kubepods/burstable/podv/c"
	advise(st, s, sampleOf(known, other), 0)

	lost := other
	lost.Missing, lost.KubernetesQOS = tick.MissingCluster, ""
	sample := sampleOf(known, lost)
	sample.Allocatable = nil
	a := advise(st, s, sample, time.Second)
	for cgroup, want := range map[string]tick.Cgroup{
		known.Cgroup + "/c":   {MemoryMinBytes: n(50 * mi), MemoryLowBytes: n(50 * mi)}, // its memory.high is currently unknown
		lost.Cgroup + "/c":    {},
		lost.Cgroup:           {},
		"/kubepods/burstable": {},
		"/kubepods":           {},
	} {
		if diff := cmp.Diff(want, entry(t, a, cgroup)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", cgroup, diff)
		}
	}
	if a = advise(st, s, nil, 2*time.Second); len(a.Cgroups) > 0 || len(a.Reasons) != 1 {
		t.Errorf("without a sample: %+v", a)
	}
	failed := sampleOf()
	failed.Errors = []tick.SourceError{{Source: "pods", Error: "x"}}
	if a = advise(st, s, failed, 3*time.Second); len(a.Cgroups) > 0 {
		t.Errorf("without pods, and an error: %+v", a.Cgroups)
	}
	if a = advise(st, s, sampleOf(), 4*time.Second); cmp.Diff(tick.Cgroup{MemoryMinBytes: n(0), MemoryLowBytes: n(0)}, entry(t, a, "/kubepods")) != "" {
		t.Errorf("without pods: %+v", a.Cgroups)
	}
	// The clock is set back by a day: times in the future do not keep entries for ever.
	advise(st, s, sampleOf(), -24*time.Hour)
	if advise(st, s, sampleOf(), -24*time.Hour+revert.Duration+time.Second); len(st.Cgroups) > 0 {
		t.Errorf("after the clock was set back %d cgroups are remembered", len(st.Cgroups))
	}
}

// A cgroup that the classification rules name is pod and container at once.
func TestNoKubernetes(t *testing.T) {
	p := tick.Pod{Name: "serve", QoS: tick.QoSShared, QoSSource: tick.QoSFromRule, Cgroup: "/serve", Requests: memoryAmount(100 * mi), Containers: []tick.Container{{Cgroup: "/serve"}}}
	a := advise(new(State), with(ls, sloconfig.MemoryQOS{MinLimitPercent: n(50)}), &tick.Sample{Pods: []tick.Pod{p}}, 0)
	if diff := cmp.Diff([]tick.Cgroup{{Cgroup: "/serve", MemoryMinBytes: n(50 * mi), MemoryLowBytes: n(50 * mi)}}, a.Cgroups); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStateIsJSON(t *testing.T) {
	st := new(State)
	p := pod(100*mi, 0)
	s := with(ls, sloconfig.MemoryQOS{MinLimitPercent: n(50)})
	advise(st, s, sampleOf(p), 0)
	text, err := tick.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	var again State
	if err := tick.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	off := sloconfig.Defaults()
	if diff := cmp.Diff(advise(st, &off, sampleOf(p), time.Second), advise(&again, &off, sampleOf(p), time.Second)); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	hostile := State{Cgroups: map[string]*advised{"/kubepods": nil, "/x": nil}}
	advise(&hostile, s, sampleOf(p), 0)
}
