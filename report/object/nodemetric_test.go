package object

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// measuredTick is a tick so long after noon, of a node that uses so much.
func measuredTick(after time.Duration, milli, bytes float64, pods ...tick.Pod) *tick.Tick {
	total := 32611012.0 * 1024
	return &tick.Tick{V: 1, Node: "node-1", Time: noon.Add(after), Sample: &tick.Sample{
		CPU:    &tick.NodeCPU{UsageMilliCPU: &milli},
		Memory: &tick.NodeMemory{TotalBytes: &total, AvailableBytes: new(total - bytes), FreeBytes: new(total - bytes - 1000)},
		Pods:   pods,
	}}
}

// measuredPod is a pod of one container.
func measuredPod(namespace, name string, milli, rss float64) tick.Pod {
	memory := &tick.Memory{RSSBytes: &rss, CacheBytes: new(100.0)}
	return tick.Pod{
		UID: name, Namespace: namespace, Name: name, QoS: tick.QoSShared, KubernetesQOS: "Burstable", UsageMilliCPU: &milli, Memory: memory,
		Containers: []tick.Container{{Cgroup: "/c", UsageMilliCPU: &milli, Memory: memory}},
	}
}

func defaults() sloconfig.Colocation { return sloconfig.Defaults().Colocation }

// The guide's object, with the use of the node and of a pod.
func TestGuidesNodeMetric(t *testing.T) {
	var u Usage
	for i := range 2 {
		u.Take(measuredTick(time.Duration(i)*time.Second, 138, 1815637738, measuredPod("default", "storage-service-6c7c59f868-k72r5", 300.9, 17828*1024)), defaults())
	}
	got, err := json.MarshalIndent(u.Status(noon.Add(time.Second)), "", " ")
	want := `{
 "nodeMetric": {
  "aggregatedNodeUsages": [
   {
    "duration": "5m0s",
    "usage": {}
   },
   {
    "duration": "10m0s",
    "usage": {}
   },
   {
    "duration": "30m0s",
    "usage": {}
   }
  ],
  "aggregatedSystemUsages": [
   {
    "duration": "5m0s",
    "usage": {}
   },
   {
    "duration": "10m0s",
    "usage": {}
   },
   {
    "duration": "30m0s",
    "usage": {}
   }
  ],
  "nodeUsage": {
   "resources": {
    "cpu": "138m",
    "memory": "1815637738"
   }
  },
  "systemUsage": {
   "resources": {
    "cpu": "0",
    "memory": "1797381866"
   }
  }
 },
 "podsMetric": [
  {
   "name": "storage-service-6c7c59f868-k72r5",
   "namespace": "default",
   "podUsage": {
    "resources": {
     "cpu": "300m",
     "memory": "17828Ki"
    }
   },
   "priority": "koord-prod",
   "qos": "LS"
  }
 ],
 "updateTime": "2026-11-21T12:00:01Z"
}`
	if err != nil || string(got) != want {
		t.Errorf("%v (-want +got):\n%s", err, cmp.Diff(want, string(got)))
	}
}

// When it is written: with the second sample, then in each interval; and only while the node's use is known.
func TestNodeMetricDue(t *testing.T) {
	type step struct {
		after time.Duration
		lacks string
		want  bool
	}
	for _, tt := range []struct {
		name  string
		c     sloconfig.Colocation
		steps []step
	}{
		{"two samples, and each minute", defaults(), []step{{0, "", false}, {5 * time.Second, "", true}, {64 * time.Second, "", false}, {65 * time.Second, "", true}, {66 * time.Second, "", false}}},
		{"the first sample has no rate yet", defaults(), []step{{0, "cpu", false}, {time.Second, "", true}}},
		{"no CPU", defaults(), []step{{0, "cpu", false}, {time.Second, "cpu", false}, {time.Hour, "cpu", false}}},
		{"no memory", defaults(), []step{{0, "memory", false}, {time.Second, "memory", false}}},
		{"no sample", defaults(), []step{{0, "sample", false}, {time.Second, "", false}, {2 * time.Second, "", true}}},
		{"CPU is read no longer", defaults(), []step{{0, "", false}, {time.Second, "", true}, {61 * time.Second, "cpu", true}, {121 * time.Second, "cpu", false}, {122 * time.Second, "", true}}},
		{"the interval's floor", sloconfig.Colocation{MetricReportIntervalSeconds: new(int64(1))}, []step{{0, "", false}, {time.Second, "", true}, {30 * time.Second, "", false}, {31 * time.Second, "", true}}},
		{"an interval of its own", sloconfig.Colocation{MetricReportIntervalSeconds: new(int64(90))}, []step{{0, "", false}, {time.Second, "", true}, {90 * time.Second, "", false}, {91 * time.Second, "", true}}},
		{"the clock is set back", defaults(), []step{{time.Hour, "", false}, {time.Hour + time.Second, "", true}, {0, "", true}, {time.Second, "", false}}},
	} {
		var u Usage
		for i, s := range tt.steps {
			in := measuredTick(s.after, 100, 1000)
			switch s.lacks {
			case "cpu":
				in.Sample.CPU.UsageMilliCPU = nil
			case "memory":
				in.Sample.Memory.AvailableBytes = nil
			case "sample":
				in.Sample = nil
			}
			u.Take(in, tt.c)
			if got := u.Due(in.Time); got != s.want {
				t.Errorf("%s, %d: %v", tt.name, i, got)
			}
			if unknown := strings.Contains(u.Note(in.Time), "not written"); s.want && unknown {
				t.Errorf("%s, %d: it is due with the note %q", tt.name, i, u.Note(in.Time))
			}
			if u.Due(in.Time) {
				u.Reported(in.Time)
			}
		}
	}
}

// of a status: a path's value.
func in(status map[string]any, path ...string) string {
	v := at(status, path...)
	if v == nil {
		return "-"
	}
	return fmt.Sprint(v)
}

func TestNodeMetricMemory(t *testing.T) {
	policy := func(p string) sloconfig.Colocation {
		c := defaults()
		c.MetricMemoryCollectPolicy = &p
		return c
	}
	for _, tt := range []struct{ policy, node, pod, note string }{
		{sloconfig.UsageWithoutPageCache, "5001", "501", ""},
		{sloconfig.UsageWithPageCache, "6001", "601", ""},
		{sloconfig.UsageWithHotPageCache, "5001", "501", "cold pages"},
		{"whatever", "5001", "501", ""},
	} {
		var u Usage
		now := noon.Add(time.Second)
		for i := range 2 {
			u.Take(measuredTick(time.Duration(i)*time.Second, 100, 5001, measuredPod("d", "p", 1, 501)), policy(tt.policy))
		}
		s := u.Status(now)
		pods, _ := s["podsMetric"].([]any)
		if got := in(s, "nodeMetric", "nodeUsage", "resources", "memory"); got != tt.node || len(pods) != 1 || fmt.Sprint(at(pods[0].(map[string]any), "podUsage", "resources", "memory")) != tt.pod {
			t.Errorf("%s: the node %s, pods %v; want %s and %s", tt.policy, got, pods, tt.node, tt.pod)
		}
		if note := u.Note(now); !strings.Contains(note, tt.note) || (note == "") != (tt.note == "") {
			t.Errorf("%s: %q", tt.policy, note)
		}
	}
	// With another policy the earlier measurements are a different figure.
	var u Usage
	u.Take(measuredTick(0, 100, 5001), policy(sloconfig.UsageWithoutPageCache))
	u.Take(measuredTick(time.Second, 100, 5001), policy(sloconfig.UsageWithPageCache))
	if got := in(u.Status(noon.Add(time.Second)), "nodeMetric", "nodeUsage", "resources", "memory"); got != "6001" {
		t.Errorf("after a change of the policy: %s; want that of the new one alone", got)
	}
}

// The system's part is the node's use without the pods'.
func TestNodeMetricSystem(t *testing.T) {
	pod := func(change func(*tick.Pod)) tick.Pod {
		p := measuredPod("d", "p", 300, 300)
		change(&p)
		return p
	}
	for _, tt := range []struct {
		name        string
		pods        []tick.Pod
		cpu, memory string
	}{
		{"no pods", nil, "1", "1k"},
		{"a pod", []tick.Pod{measuredPod("d", "p", 300, 300)}, "700m", "700"},
		{"pods that use more than the node", []tick.Pod{measuredPod("d", "p", 1300, 1300)}, "0", "0"},
		{"a pod that is named twice", []tick.Pod{measuredPod("d", "p", 300, 300), measuredPod("d", "p", 300, 300)}, "700m", "700"},
		{"a pod that the cluster does not know", []tick.Pod{pod(func(p *tick.Pod) { p.Namespace, p.Missing = "", tick.MissingCluster })}, "700m", "700"},
		{"a pod without a cgroup", []tick.Pod{pod(func(p *tick.Pod) {
			p.Missing, p.Containers, p.UsageMilliCPU, p.Memory = tick.MissingCgroup, nil, nil, nil
		})}, "1", "1k"},
		{"a pod of which no container runs", []tick.Pod{pod(func(p *tick.Pod) { p.Containers[0].Cgroup, p.UsageMilliCPU, p.Memory = "", nil, nil })}, "1", "1k"},
		{"a container whose CPU is not known", []tick.Pod{pod(func(p *tick.Pod) { p.Containers[0].UsageMilliCPU = nil })}, "-", "700"},
		{"a container whose memory is not known", []tick.Pod{pod(func(p *tick.Pod) { p.Containers[0].Memory = nil })}, "700m", "-"},
		{"no number", []tick.Pod{pod(func(p *tick.Pod) {
			p.UsageMilliCPU, p.Containers[0].UsageMilliCPU = new(math.NaN()), new(math.NaN())
		})}, "-", "700"},
		{"less than nothing", []tick.Pod{pod(func(p *tick.Pod) { p.UsageMilliCPU = new(-1.0) })}, "-", "700"},
		{"a cgroup of no cluster", []tick.Pod{{Name: "batch", Cgroup: "/batch", UsageMilliCPU: new(300.0), Memory: &tick.Memory{RSSBytes: new(300.0)}}}, "700m", "700"},
		{"one of which nothing is known", []tick.Pod{{Name: "batch", Cgroup: "/batch"}}, "-", "-"},
	} {
		var u Usage
		u.Take(measuredTick(0, 1000, 1000, tt.pods...), defaults())
		s := u.Status(noon)
		cpu, memory := in(s, "nodeMetric", "systemUsage", "resources", "cpu"), in(s, "nodeMetric", "systemUsage", "resources", "memory")
		if cpu != tt.cpu || memory != tt.memory {
			t.Errorf("%s: %s %s; want %s %s", tt.name, cpu, memory, tt.cpu, tt.memory)
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), -1, 1e300} {
		var u Usage
		u.Take(measuredTick(0, bad, -1), defaults()) // more is available than there is
		if s := u.Status(noon); at(s, "nodeMetric", "nodeUsage") != nil || at(s, "nodeMetric", "systemUsage") != nil {
			t.Errorf("a node that uses %v: %v", bad, s)
		}
	}
}

// podNames are the pods of a status, with class and priority where these are asked for.
func podNames(s map[string]any) string {
	var all []string
	pods, _ := s["podsMetric"].([]any)
	for _, v := range pods {
		p, _ := v.(map[string]any)
		all = append(all, fmt.Sprint(p["namespace"], "/", p["name"], " ", p["qos"], " ", p["priority"], " ", at(p, "podUsage", "resources", "cpu")))
	}
	return strings.Join(all, ", ")
}

func TestNodeMetricPods(t *testing.T) {
	of := func(namespace, name string, change func(*tick.Pod)) tick.Pod {
		p := measuredPod(namespace, name, 100, 1)
		change(&p)
		return p
	}
	same := func(*tick.Pod) {}
	labels := func(l ...string) func(*tick.Pod) {
		return func(p *tick.Pod) {
			p.Labels, p.QoSSource = map[string]string{}, tick.QoSFromKoordinator
			for i := 0; i < len(l); i += 2 {
				p.Labels[l[i]] = l[i+1]
			}
		}
	}
	unread := []tick.SourceError{{Source: "pods", Error: "x"}}
	for _, tt := range []struct {
		name  string
		ticks [][]tick.Pod
		fails bool // the last list could not be read
		want  string
	}{
		{"none", [][]tick.Pod{nil}, false, ""},
		{
			"by namespace and name",
			[][]tick.Pod{{of("z", "a", same), of("a", "z", same), of("a", "b", same)}},
			false,
			"a/b LS koord-prod 100m, a/z LS koord-prod 100m, z/a LS koord-prod 100m",
		},
		{"classes", [][]tick.Pod{{
			of("d", "a", labels("koordinator.sh/qosClass", "BE")),
			of("d", "b", labels("koordinator.sh/qosClass", "LSE")),
			of("d", "c", labels("koordinator.sh/qosClass", "BE", "koordinator.sh/priority-class", "koord-mid")),
			of("d", "e", func(p *tick.Pod) { p.QoSSource, p.KubernetesQOS = tick.QoSFromKubernetes, "BestEffort" }),
			of("d", "f", func(p *tick.Pod) { p.QoSSource, p.KubernetesQOS = tick.QoSFromKubernetes, "Guaranteed" }),
			of("d", "g", func(p *tick.Pod) { p.Priority = new(int64(3500)) }),
		}}, false, "d/a BE koord-batch 100m, d/b LSE koord-prod 100m, d/c BE koord-mid 100m, d/e BE koord-batch 100m, d/f LSR koord-prod 100m, d/g LS koord-free 100m"},
		{"one that the cluster does not know", [][]tick.Pod{{of("", "pod123", func(p *tick.Pod) { p.Missing = tick.MissingCluster }), of("d", "a", func(p *tick.Pod) { p.Missing = tick.MissingCluster })}}, false, ""},
		{"one without figures", [][]tick.Pod{{of("d", "a", func(p *tick.Pod) { p.UsageMilliCPU = nil })}}, false, ""},
		{"one without a cgroup", [][]tick.Pod{{of("d", "a", func(p *tick.Pod) {
			p.Missing, p.Containers, p.UsageMilliCPU, p.Memory = tick.MissingCgroup, nil, nil, nil
		})}}, false, ""},
		{"one container of two is not known", [][]tick.Pod{{of("d", "a", func(p *tick.Pod) { p.Containers = append(p.Containers, tick.Container{Cgroup: "/d"}) })}}, false, ""},
		{"gone", [][]tick.Pod{{of("d", "a", same), of("d", "b", same)}, {of("d", "b", same)}}, false, "d/b LS koord-prod 100m"},
		{"gone, or the list could not be read", [][]tick.Pod{{of("d", "a", same), of("d", "b", same)}, {of("d", "b", same)}}, true, "d/a LS koord-prod 100m, d/b LS koord-prod 100m"},
		{"averaged", [][]tick.Pod{{of("d", "a", same)}, {of("d", "a", func(p *tick.Pod) { p.UsageMilliCPU = new(301.0) })}}, false, "d/a LS koord-prod 200m"},
		{"it has a new class", [][]tick.Pod{{of("d", "a", same)}, {of("d", "a", labels("koordinator.sh/qosClass", "BE"))}}, false, "d/a BE koord-batch 100m"},
		{"its successor of the same name", [][]tick.Pod{{of("d", "a", func(p *tick.Pod) { p.UID, p.Terminating = "1", true }), of("d", "a", func(p *tick.Pod) { p.UID, p.UsageMilliCPU = "2", new(7.0) })}}, false, "d/a LS koord-prod 7m"},
		{"a name that may not be written", [][]tick.Pod{{of("d", "a\x1b[2J", same), of("d", strings.Repeat("x", 300), same)}}, false, ""},
	} {
		var u Usage
		now := noon
		for i, pods := range tt.ticks {
			in := measuredTick(time.Duration(i)*time.Second, 1000, 1000, pods...)
			if tt.fails && i == len(tt.ticks)-1 {
				in.Sample.Errors = unread
			}
			u.Take(in, defaults())
			now = in.Time
		}
		if got := podNames(u.Status(now)); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
	var u Usage
	var many []tick.Pod
	for i := range maxMeasuredPods + 7 {
		many = append(many, measuredPod("d", fmt.Sprint("p", i), 1, 1))
	}
	u.Take(measuredTick(0, 1, 1, many...), defaults())
	u.Take(measuredTick(time.Second, 1, 1, many...), defaults())
	if pods, _ := u.Status(noon.Add(time.Second))["podsMetric"].([]any); len(pods) != maxMeasuredPods || !strings.Contains(u.Note(noon.Add(time.Second)), "7 pods are left out") {
		t.Errorf("%d pods, %q", len(pods), u.Note(noon.Add(time.Second)))
	}
}
