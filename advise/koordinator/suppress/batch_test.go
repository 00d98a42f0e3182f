package suppress

import (
	"fmt"
	"strings"
	"testing"

	"polder/advise/koordinator/annotation"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// batchPod returns a BE pod with one container for each of the amounts, and the sums that collect calculates.
func batchPod(of ...amounts) tick.Pod {
	pod := labelled("BE", "b", 0)
	pod.Containers = nil
	some := func(v float64) *float64 {
		if v == 0 {
			return nil
		}
		return &v
	}
	pod.Requests, pod.Limits = &tick.Resources{ReclaimedMilliCPU: new(0.0)}, &tick.Resources{ReclaimedMilliCPU: new(0.0), ReclaimedMemoryBytes: new(0.0)}
	for i, a := range of {
		pod.Containers = append(pod.Containers, tick.Container{
			Name: fmt.Sprint("c", i), Cgroup: fmt.Sprint(tier, "/podb/", i),
			Requests: &tick.Resources{ReclaimedMilliCPU: some(a.request)},
			Limits:   &tick.Resources{ReclaimedMilliCPU: some(a.limit), ReclaimedMemoryBytes: some(a.memory)},
		})
		*pod.Requests.ReclaimedMilliCPU += max(a.request, 0)
		*pod.Limits.ReclaimedMilliCPU += max(a.limit, 0)
		*pod.Limits.ReclaimedMemoryBytes += max(a.memory, 0)
	}
	return pod
}

// values formats what is desired of a cgroup, as "weight quota memory".
func values(c tick.Cgroup) string {
	show := func(v *int64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	}
	return strings.Join([]string{show(c.CPUWeight), show(c.CPUMaxMilliCPU), show(c.MemoryMaxBytes)}, " ")
}

func TestBatchValues(t *testing.T) {
	for _, c := range []struct {
		name string
		pod  tick.Pod
		// of the pod, and of its containers: on version 2 weight 1 + (shares - 2) * 9999 / 262142
		want string
		main []string
	}{
		{"one container", batchPod(amounts{1000, 2000, 1 << 30}), "39 2000 1073741824", []string{"39 2000 1073741824"}},
		{"no limits", batchPod(amounts{1000, 0, 0}), "39 - -", []string{"39 - -"}},
		{"no request", batchPod(amounts{0, 2000, 4096}), "1 2000 4096", []string{"1 2000 4096"}},
		{"a negative request and limits", batchPod(amounts{-5, -5, -5}, amounts{1000, 1000, 4096}), "39 - -", []string{"1 - -", "39 1000 4096"}},
		{"under 1 ms of quota is 1 ms", batchPod(amounts{1, 1, 4096}), "1 10 4096", []string{"1 10 4096"}},
		{"9 milli-CPU are under 1 ms", batchPod(amounts{9, 9, 0}), "1 10 -", []string{"1 10 -"}},
		{"10 are not", batchPod(amounts{10, 10, 0}), "1 10 -", []string{"1 10 -"}},
		{"11 are more", batchPod(amounts{11, 11, 0}), "1 11 -", []string{"1 11 -"}},
		{"parts of a milli-CPU are rounded up", batchPod(amounts{1000, 1000.2, 0}), "39 1001 -", []string{"39 1001 -"}},
		{"sums of two", batchPod(amounts{1000, 1000, 1 << 20}, amounts{3000, 3000, 1 << 21}), "157 4000 3145728", []string{"39 1000 1048576", "118 3000 2097152"}},
		{"one without a CPU limit: the pod has none", batchPod(amounts{1000, 1000, 1 << 20}, amounts{1000, 0, 1 << 20}), "79 - 2097152", []string{"39 1000 1048576", "39 - 1048576"}},
		{"one without a memory limit: the pod has none", batchPod(amounts{1000, 1000, 1 << 20}, amounts{1000, 1000, 0}), "79 2000 -", []string{"39 1000 1048576", "39 1000 -"}},
		{"more than any machine", batchPod(amounts{1e300, 1e300, 1e300}), "10000 8192000 -", []string{"10000 8192000 -"}},
		{"over the most shares", batchPod(amounts{400_000, 0, 0}), "10000 - -", []string{"10000 - -"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := new(State).step(machine(service(1000), c.pod), disabled())
			if got := values(of(t, a.Cgroups, tier+"/podb")); got != c.want {
				t.Errorf("the pod: %s; want %s", got, c.want)
			}
			for i, want := range c.main {
				if got := values(of(t, a.Cgroups, fmt.Sprint(tier, "/podb/", i))); got != want {
					t.Errorf("container %d: %s; want %s", i, got, want)
				}
			}
			if len(a.Cgroups) != 1+len(c.main) {
				t.Errorf("desired %s", text(a.Cgroups))
			}
		})
	}
}

func TestBatchPods(t *testing.T) {
	full := amounts{1000, 2000, 1 << 30}
	annotated := func(text string) tick.Pod { // the containers' own resources are unknown, those of the pod are known
		pod := batchPod(full)
		pod.Containers[0].Requests, pod.Containers[0].Limits = nil, nil
		pod.Annotations[annotation.Extended] = text
		return pod
	}
	change := func(pod tick.Pod, change func(*tick.Pod)) tick.Pod { change(&pod); return pod }
	const spec = `{"containers":{"c0":{"requests":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":"1Gi"},"limits":{"kubernetes.io/batch-cpu":2000,"kubernetes.io/batch-memory":"1Gi"}}}}`
	for _, c := range []struct {
		name           string
		pod            tick.Pod
		own, container string
	}{
		{"the annotation, where the containers have none", annotated(spec), "39 2000 1073741824", "39 2000 1073741824"},
		{"the first version's names", annotated(strings.ReplaceAll(spec, "kubernetes.io/", "koordinator.sh/")), "39 2000 1073741824", "39 2000 1073741824"},
		{"the containers' own before the annotation", change(batchPod(full), func(pod *tick.Pod) { pod.Annotations[annotation.Extended] = strings.ReplaceAll(spec, "2000", "7000") }), "39 2000 1073741824", "39 2000 1073741824"},
		{"another container in the annotation", annotated(strings.ReplaceAll(spec, `"c0"`, `"other"`)), "39 2000 1073741824", "- - -"},
		{"an annotation that requests more than the pod: it does not count", annotated(strings.Replace(spec, `{"c0"`, `{"x":{"requests":{"kubernetes.io/batch-cpu":1000}},"c0"`, 1)), "39 2000 1073741824", "- - -"},
		{"invalid amounts", annotated(`{"containers":{"c0":{"requests":{"kubernetes.io/batch-cpu":"x"},"limits":{"kubernetes.io/batch-cpu":-1,"kubernetes.io/batch-memory":"1Mi"}}}}`), "39 2000 1073741824", "1 - 1048576"},
		{"an annotation without batch resources", annotated(`{"containers":{"c0":{"requests":{"cpu":"1"}}}}`), "39 2000 1073741824", "1 - -"},
		{"an empty annotation", annotated(`{}`), "39 2000 1073741824", "- - -"},
		{"an annotation that is no JSON", annotated(`containers`), "39 2000 1073741824", "- - -"},
		{"an annotation that is too long", annotated(`{"containers":{` + strings.Repeat(" ", annotation.MaxBytes) + `}}`), "39 2000 1073741824", "- - -"},
		{"an annotation of a pod without batch resources alone: it does not count", change(annotated(spec), func(pod *tick.Pod) { pod.Requests, pod.Limits = nil, nil }), "- - -", "- - -"},
		{"no batch resources at all", change(batchPod(amounts{}), func(*tick.Pod) {}), "- - -", "- - -"},
		{"not labelled BE", change(batchPod(full), func(pod *tick.Pod) { pod.Labels["koordinator.sh/qosClass"] = "LS" }), "- - -", "- - -"},
		{"without a label", change(batchPod(full), func(pod *tick.Pod) { pod.Labels, pod.QoSSource = nil, tick.QoSFromKubernetes }), "- - -", "- - -"},
		{"unknown to the cluster", change(batchPod(full), func(pod *tick.Pod) { pod.Missing = tick.MissingCluster }), "- - -", "- - -"},
		{"not there yet", change(batchPod(full), func(pod *tick.Pod) { pod.Missing = tick.MissingCgroup }), "- - -", "- - -"},
		{"finished", change(batchPod(full), func(pod *tick.Pod) { pod.Phase = "Succeeded" }), "- - -", "- - -"},
		{"terminating: it runs still", change(batchPod(full), func(pod *tick.Pod) { pod.Terminating = true }), "39 2000 1073741824", "39 2000 1073741824"},
		{"only its sandbox is there: the sums of the pod", change(batchPod(full), func(pod *tick.Pod) { pod.Containers = nil }), "39 2000 1073741824", "- - -"},
		{"one container that is unknown by name yet", change(batchPod(full), func(pod *tick.Pod) {
			pod.Containers[0] = tick.Container{Name: "0", Cgroup: tier + "/podb/0"}
		}), "39 2000 1073741824", "- - -"},
		{"one that runs no more, or not yet, counts in the pod's sums", change(batchPod(full, full), func(pod *tick.Pod) { pod.Containers = pod.Containers[:1] }), "79 4000 2147483648", "39 2000 1073741824"},
		{"the overhead counts in the pod's", change(batchPod(full), func(pod *tick.Pod) {
			*pod.Requests.ReclaimedMilliCPU, *pod.Limits.ReclaimedMilliCPU = 2000, 3000
		}), "79 3000 1073741824", "39 2000 1073741824"},
		{"more requested than limited: some container that does not run has no limit", change(batchPod(full), func(pod *tick.Pod) { *pod.Requests.ReclaimedMilliCPU = 5000 }), "196 - 1073741824", "39 2000 1073741824"},
		{"a memory limit under the request: some container that does not run has none", change(batchPod(full), func(pod *tick.Pod) {
			pod.Requests.ReclaimedMemoryBytes = new(1<<30 + 1.0)
		}), "39 2000 -", "39 2000 1073741824"},
		{"a memory limit that is the request", change(batchPod(full), func(pod *tick.Pod) { pod.Requests.ReclaimedMemoryBytes = new(float64(1 << 30)) }), "39 2000 1073741824", "39 2000 1073741824"},
		{"containers in the annotation that are limited to more than the pod, together: it does not count", annotated(`{"containers":{` +
			`"c0":{"limits":{"kubernetes.io/batch-cpu":1500}},"c1":{"limits":{"kubernetes.io/batch-cpu":1500}}}}`), "39 2000 1073741824", "- - -"},
		{"or to more memory: it does not count", annotated(`{"containers":{` +
			`"c0":{"limits":{"kubernetes.io/batch-memory":"600Mi"}},"c1":{"limits":{"kubernetes.io/batch-memory":"600Mi"}}}}`), "39 2000 1073741824", "- - -"},
		{"the weight of a native request where that is less", change(batchPod(full), func(pod *tick.Pod) {
			pod.KubernetesQOS, pod.Requests.MilliCPU, pod.Containers[0].Requests.MilliCPU = "Burstable", new(500.0), new(500.0)
		}), "20 2000 1073741824", "20 2000 1073741824"},
		{"or of the batch request, where that is", change(batchPod(full), func(pod *tick.Pod) {
			pod.KubernetesQOS, pod.Requests.MilliCPU, pod.Containers[0].Requests.MilliCPU = "Burstable", new(5000.0), new(5000.0)
		}), "39 2000 1073741824", "39 2000 1073741824"},
		{"or of the native one, where there is no other", change(batchPod(amounts{0, 2000, 4096}), func(pod *tick.Pod) {
			pod.KubernetesQOS, pod.Requests.MilliCPU, pod.Containers[0].Requests.MilliCPU = "Burstable", new(500.0), new(500.0)
		}), "20 2000 4096", "20 2000 4096"},
		{"without any request the least", change(batchPod(amounts{0, 2000, 4096}), func(pod *tick.Pod) {
			pod.KubernetesQOS, pod.Requests, pod.Containers[0].Requests = "Burstable", nil, nil
		}), "1 2000 4096", "1 2000 4096"},
		{"an amount of the pod that could not be read", change(batchPod(full), func(pod *tick.Pod) { pod.Limits, pod.Requests = nil, nil }), "39 - -", "39 2000 1073741824"},
		{"a container without any limits", change(batchPod(full, amounts{}), func(pod *tick.Pod) { pod.Containers[1].Requests, pod.Containers[1].Limits = nil, nil }), "39 - -", "39 2000 1073741824"},
		{"a container of Kubernetes' own resources beside", change(batchPod(full, amounts{}), func(pod *tick.Pod) {
			pod.Containers[0], pod.Containers[1] = pod.Containers[1], pod.Containers[0]
			pod.Containers[0].Cgroup, pod.Containers[1].Cgroup = tier+"/podb/0", tier+"/podb/1"
			pod.Containers[0].Requests = &tick.Resources{MilliCPU: new(500.0)}
			pod.Containers[0].Limits = &tick.Resources{MilliCPU: new(500.0), MemoryBytes: new(8192.0)}
		}), "39 - -", "20 500 8192"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := new(State).step(machine(service(1000), c.pod), disabled())
			if got := values(of(t, a.Cgroups, tier+"/podb")); got != c.own {
				t.Errorf("the pod: %s; want %s", got, c.own)
			}
			if got := values(of(t, a.Cgroups, tier+"/podb/0")); got != c.container {
				t.Errorf("the container: %s; want %s", got, c.container)
			}
			if (strings.Contains(c.name, "annotation that is") || strings.Contains(c.name, "does not count")) != (len(a.Reasons) > 0) {
				t.Errorf("reasons %q", a.Reasons)
			}
		})
	}
}

// If several pods have an annotation that is ignored the first is named, and the others are counted.
func TestFaultsOfBatchPods(t *testing.T) {
	var pods []tick.Pod
	for i := range 3 {
		pod := labelled("BE", fmt.Sprint("b", i), 0)
		pod.Annotations[annotation.Extended] = "x"
		pods = append(pods, pod)
	}
	if a := new(State).step(machine(pods[:1]...), disabled()); !hasReason(a, "batch pods' cgroups: pod ns/b0: ") || hasReason(a, "more)") {
		t.Errorf("of one: %q", a.Reasons)
	}
	if a := new(State).step(machine(pods...), disabled()); !hasReason(a, "batch pods' cgroups: pod ns/b0: ") || !hasReason(a, "(and 2 more pods)") {
		t.Errorf("of three: %q", a.Reasons)
	}
}

func TestNormalization(t *testing.T) {
	for _, c := range []struct {
		ratio    string
		want     int64
		reported bool
	}{
		{"", 2000, false},
		{"1", 2000, false},
		{"1.00", 2000, false},
		{"1.20", 1667, false},
		{"2", 1000, false},
		{"5.0", 400, false},
		{"0.5", 2000, true},
		{"5.01", 2000, true},
		{"-2", 2000, true},
		{"NaN", 2000, true},
		{"Inf", 2000, true},
		{"x", 2000, true},
		{"1e400", 2000, true},
	} {
		s := machine(service(1000), batchPod(amounts{1000, 2000, 0}))
		s.Annotations = map[string]string{annotation.Ratio: c.ratio}
		a := new(State).step(s, disabled())
		for _, path := range []string{tier + "/podb", tier + "/podb/0"} {
			if got := of(t, a.Cgroups, path); *got.CPUMaxMilliCPU != c.want || *got.CPUWeight != 39 {
				t.Errorf("ratio %q: %s: desired %s; want %d", c.ratio, path, text(got), c.want)
			}
		}
		if c.reported != hasReason(a, annotation.Ratio) {
			t.Errorf("ratio %q: reasons %q", c.ratio, a.Reasons)
		}
	}
}

// While a quota is in force above, there is none below; afterwards there is again.
func TestBatchQuotasWhileSuppressed(t *testing.T) {
	st, s := &State{}, withBudget(5000)
	s.Pods[1] = batchPod(amounts{1000, 2000, 1 << 30})
	for _, step := range []struct {
		strategies *sloconfig.Strategies
		want       string
	}{
		{byPolicy(sloconfig.SuppressCFSQuota), "39 -1 1073741824"},
		{byPolicy(sloconfig.SuppressCFSQuota), "39 -1 1073741824"},
		{byPolicy(sloconfig.SuppressCPUSet), "39 2000 1073741824"},
		{byPolicy(sloconfig.SuppressCFSQuota), "39 -1 1073741824"},
		{disabled(), "39 2000 1073741824"},
	} {
		a := st.step(s, step.strategies)
		for _, path := range []string{tier + "/podb", tier + "/podb/0"} {
			if got := values(of(t, a.Cgroups, path)); got != step.want {
				t.Errorf("%s: desired %s; want %s", path, got, step.want)
			}
		}
	}
}

// On a machine without Kubernetes a rule's limits apply, and nothing else is changed: weight and other limits are the administrator's.
func TestBatchOfRules(t *testing.T) {
	a, b := rulePod(tick.QoSReclaimed, "/a", 0), rulePod(tick.QoSReclaimed, "/b", 0)
	a.Requests = &tick.Resources{ReclaimedMilliCPU: new(8000.0)}
	b.Limits = &tick.Resources{ReclaimedMilliCPU: new(2000.0), ReclaimedMemoryBytes: new(1e9)}
	advice := new(State).step(plain(machine(a, b)), disabled())
	if got := text(advice.Cgroups); got != `[{"cgroup":"/b","cpuMaxMilliCPU":2000,"memoryMaxBytes":1000000000}]` {
		t.Errorf("desired %s", got)
	}
}
