package kubernetes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"polder/lib/qos"
	"polder/lib/tick"
)

// decoded decodes an object from JSON.
func decoded(t testing.TB, data string) object {
	t.Helper()
	var o object
	if err := json.Unmarshal([]byte(data), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func amountsOf(milli, bytes, reclaimedMilli, reclaimedBytes float64) *tick.Resources {
	r := &tick.Resources{}
	for into, n := range map[**float64]float64{&r.MilliCPU: milli, &r.MemoryBytes: bytes, &r.ReclaimedMilliCPU: reclaimedMilli, &r.ReclaimedMemoryBytes: reclaimedBytes} {
		if n >= 0 {
			*into = new(n)
		}
	}
	return r
}

func TestPod(t *testing.T) {
	r := Reading{BestEffort: tick.QoSShared, Annotations: []string{"polder/evict"}}
	p := r.Pod(decoded(t, `{
		"metadata": {"name": "web-0", "namespace": "shop", "uid": "8f4e8a3a-1111-4000-8000-000000000001", "deletionTimestamp": "2026-01-01T00:00:00Z",
			"labels": {"app": "web", "koordinator.sh/qosClass": "LS", "koordinator.sh/priority": "5500"},
			"annotations": {"katalyst.kubewharf.io/qos_level": "shared_cores", "katalyst.kubewharf.io/cpu_enhancement": "{\"cpuset_pool\":\"batch\"}",
				"kubectl.kubernetes.io/last-applied-configuration": "{}", "polder/evict": "false"}},
		"spec": {"nodeName": "n1", "priority": 1000, "containers": [
			{"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 2, "memory": "2Gi"}}},
			{"name": "side", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]},
		"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "qosClass": "Burstable", "containerStatuses": [
			{"name": "main", "containerID": "containerd://aaaa", "state": {"running": {}}},
			{"name": "side", "containerID": "cri-o://bbbb", "state": {"terminated": {"exitCode": 1}}}]}}`))
	want := &Pod{
		CgroupUID: "8f4e8a3a-1111-4000-8000-000000000001", NodeName: "n1",
		Tick: tick.Pod{
			UID: "8f4e8a3a-1111-4000-8000-000000000001", Namespace: "shop", Name: "web-0", QoS: tick.QoSShared, QoSSource: tick.QoSFromKatalyst,
			KubernetesQOS: "Burstable", Priority: new(int64(1000)), KoordinatorPriority: new(int64(5500)), Terminating: true,
			Phase: "Running", StartTime: "2026-01-01T00:00:00Z",
			Labels:      map[string]string{"koordinator.sh/qosClass": "LS", "koordinator.sh/priority": "5500"},
			Annotations: map[string]string{"katalyst.kubewharf.io/qos_level": "shared_cores", "katalyst.kubewharf.io/cpu_enhancement": `{"cpuset_pool":"batch"}`, "polder/evict": "false"},
			Requests:    amountsOf(1500, 1<<30, -1, -1), Limits: amountsOf(3000, -1, -1, -1), // one container has no limit of memory
		},
		Containers: []Container{
			{Name: "main", ID: "aaaa", Awaited: true, Requests: amountsOf(500, 1<<30, -1, -1), Limits: amountsOf(2000, 2<<30, -1, -1)},
			{Name: "side", ID: "bbbb", Awaited: true, Requests: amountsOf(1000, -1, -1, -1), Limits: amountsOf(1000, -1, -1, -1)},
		},
	}
	if diff := cmp.Diff(want, p, cmpopts.IgnoreUnexported(Pod{})); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyPodsThatTheirNodeOwnsAreStatic(t *testing.T) {
	for name, c := range map[string]struct {
		metadata string
		static   bool
		uid      string
	}{
		"mirror": {
			`"uid":"api","annotations":{"kubernetes.io/config.mirror":"0123456789abcdef","kubernetes.io/config.hash":"0123456789abcdef","kubernetes.io/config.source":"file"},"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n1","controller":true}]`,
			true, "0123456789abcdef",
		},
		"owned by the node":              {`"uid":"api","ownerReferences":[{"kind":"Node","name":"n1"}]`, true, "api"},
		"owned by another node":          {`"uid":"api","annotations":{"kubernetes.io/config.hash":"x"},"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n2"}]`, false, "api"},
		"owned by a Node of another API": {`"uid":"api","annotations":{"kubernetes.io/config.hash":"x"},"ownerReferences":[{"apiVersion":"tenant.example/v1","kind":"Node","name":"n1"}]`, false, "api"},
		"a mirror's annotations alone":   {`"uid":"api","annotations":{"kubernetes.io/config.mirror":"x","kubernetes.io/config.hash":"x","kubernetes.io/config.source":"file"}`, false, "api"},
		"a file's annotations alone":     {`"uid":"api","annotations":{"kubernetes.io/config.source":"file","kubernetes.io/config.hash":"api"}`, false, "api"},
		"from http":                      {`"uid":"api","annotations":{"kubernetes.io/config.source":"http","kubernetes.io/config.hash":"x"}`, false, "api"},
		"from the API":                   {`"uid":"api","annotations":{"kubernetes.io/config.source":"api"}`, false, "api"},
		"pretends to a hash":             {`"uid":"api","annotations":{"kubernetes.io/config.hash":"somebody-elses"}`, false, "api"},
		"owned by a set":                 {`"uid":"api","ownerReferences":[{"kind":"ReplicaSet"}]`, false, "api"},
	} {
		p := (&Reading{}).Pod(decoded(t, `{"metadata":{`+c.metadata+`},"spec":{"nodeName":"n1"}}`))
		if p.Tick.Static != c.static || p.CgroupUID != c.uid {
			t.Errorf("%s: static %v, UID in the cgroup %s; want %v, %s", name, p.Tick.Static, p.CgroupUID, c.static, c.uid)
		}
	}
}

func TestTheSystemClassHoldsOnlyInTheAdministratorsNamespaces(t *testing.T) {
	for _, c := range []struct {
		namespace string
		allowed   []string
		metadata  string
		want      string
	}{
		{"shop", nil, `"annotations":{"katalyst.kubewharf.io/qos_level":"system_cores"}`, tick.QoSShared},
		{"kube-system", nil, `"annotations":{"katalyst.kubewharf.io/qos_level":"system_cores"}`, tick.QoSSystem},
		{"shop", nil, `"labels":{"koordinator.sh/qosClass":"SYSTEM"}`, tick.QoSShared},
		{"kube-system", nil, `"labels":{"koordinator.sh/qosClass":"SYSTEM"}`, tick.QoSSystem},
		{"kube-system-x", nil, `"labels":{"koordinator.sh/qosClass":"SYSTEM"}`, tick.QoSShared},
		{"", nil, `"labels":{"koordinator.sh/qosClass":"SYSTEM"}`, tick.QoSShared},
		{"", []string{""}, `"labels":{"koordinator.sh/qosClass":"SYSTEM"}`, tick.QoSShared},
		{"kube-system", []string{"agents"}, `"labels":{"koordinator.sh/qosClass":"SYSTEM"}`, tick.QoSShared},
		{"agents", []string{"kube-system", "agents"}, `"annotations":{"katalyst.kubewharf.io/qos_level":"system_cores"}`, tick.QoSSystem},
		{"shop", nil, `"labels":{"koordinator.sh/qosClass":"SYSTEM"},"ownerReferences":[{"kind":"Node"}]`, tick.QoSShared},
		{"shop", nil, `"labels":{"koordinator.sh/qosClass":"BE"},"annotations":{"katalyst.kubewharf.io/qos_level":"system_cores"}`, tick.QoSShared},
	} {
		p := (&Reading{SystemNamespaces: c.allowed}).Pod(decoded(t, fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"p",%s}}`, c.namespace, c.metadata)))
		refused := slices.ContainsFunc(p.Tick.Errors, func(e string) bool { return strings.Contains(e, "namespace that is not the system's") })
		if p.Tick.QoS != c.want || refused != (c.want != tick.QoSSystem) {
			t.Errorf("%s in %q, allowed %q: %s, errors %q; want %s", c.metadata, c.namespace, c.allowed, p.Tick.QoS, p.Tick.Errors, c.want)
		}
		if c.want != tick.QoSSystem && qos.Koordinator(&p.Tick) == qos.System {
			t.Errorf("%s in %q is of Koordinator's class SYSTEM", c.metadata, c.namespace)
		}
	}
}

// Requests are summed up as the scheduler does.
func TestResources(t *testing.T) {
	res := func(r string) string { return fmt.Sprintf(`"resources":{"requests":%s,"limits":%s}`, r, r) }
	for name, c := range map[string]struct {
		spec            string
		request, limits *tick.Resources
		problem         string
	}{
		"nothing": {`"containers":[{"name":"a"}]`, nil, nil, ""},
		"init larger than the containers": {
			`"initContainers":[{"name":"i",` + res(`{"cpu":"4"}`) + `}],"containers":[{"name":"a",` + res(`{"cpu":"1"}`) + `},{"name":"b",` + res(`{"cpu":"2"}`) + `}]`,
			amountsOf(4000, -1, -1, -1), amountsOf(4000, -1, -1, -1), "",
		},
		"a sidecar runs beside all that follow": {
			`"initContainers":[{"name":"s","restartPolicy":"Always",` + res(`{"cpu":"1"}`) + `},{"name":"i",` + res(`{"cpu":"3"}`) + `}],"containers":[{"name":"a",` + res(`{"cpu":"2"}`) + `}]`,
			amountsOf(4000, -1, -1, -1), amountsOf(4000, -1, -1, -1), "",
		},
		"an init before the sidecar runs without it": {
			`"initContainers":[{"name":"i",` + res(`{"cpu":"3"}`) + `},{"name":"s","restartPolicy":"Always",` + res(`{"cpu":"1"}`) + `}],"containers":[{"name":"a",` + res(`{"cpu":"1"}`) + `}]`,
			amountsOf(3000, -1, -1, -1), amountsOf(3000, -1, -1, -1), "",
		},
		"overhead on top, and on limits where there are some": {
			`"overhead":{"cpu":"250m","memory":"64Mi"},"containers":[{"name":"a",` + res(`{"cpu":"1"}`) + `}]`,
			amountsOf(1250, 64<<20, -1, -1), amountsOf(1250, -1, -1, -1), "",
		},
		"resources of the pod": {
			`"resources":{"requests":{"cpu":"5"},"limits":{"cpu":"6"}},"containers":[{"name":"a","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}]`,
			amountsOf(5000, 1<<30, -1, -1), amountsOf(6000, -1, -1, -1), "",
		},
		"katalyst": {
			`"containers":[{"name":"a",` + res(`{"resource.katalyst.kubewharf.io/reclaimed_millicpu":"2k","resource.katalyst.kubewharf.io/reclaimed_memory":"4Gi"}`) + `},{"name":"b"}]`,
			amountsOf(-1, -1, 2000, 4<<30), amountsOf(-1, -1, 2000, 4<<30), "",
		},
		"katalyst of the guide": {
			`"containers":[{"name":"a",` + res(`{"katalyst.kubewharf.io/reclaimed_millicpu":2000,"katalyst.kubewharf.io/reclaimed_memory":"1G"}`) + `}]`,
			amountsOf(-1, -1, 2000, 1e9), amountsOf(-1, -1, 2000, 1e9), "",
		},
		"koordinator": {
			`"containers":[{"name":"a",` + res(`{"kubernetes.io/batch-cpu":"1500","kubernetes.io/batch-memory":"1Gi"}`) + `}]`,
			amountsOf(-1, -1, 1500, 1<<30), amountsOf(-1, -1, 1500, 1<<30), "",
		},
		"koordinator's first names": {
			`"containers":[{"name":"a",` + res(`{"koordinator.sh/batch-cpu":"1500","koordinator.sh/batch-memory":"1Gi"}`) + `}]`,
			amountsOf(-1, -1, 1500, 1<<30), amountsOf(-1, -1, 1500, 1<<30), "",
		},
		"two names of one thing count once": {
			`"containers":[{"name":"a",` + res(`{"koordinator.sh/batch-cpu":"1500","kubernetes.io/batch-cpu":"1600"}`) + `}]`,
			amountsOf(-1, -1, 1600, -1), amountsOf(-1, -1, 1600, -1), "",
		},
		"a part that cannot be read": {
			`"containers":[{"name":"a",` + res(`{"cpu":"much","memory":"1Gi"}`) + `},{"name":"b",` + res(`{"cpu":"1","memory":"1Gi"}`) + `}]`,
			amountsOf(-1, 2<<30, -1, -1), amountsOf(-1, 2<<30, -1, -1), `container a: requests.cpu: "much" is not an amount`,
		},
		"less than nothing": {
			`"containers":[{"name":"a",` + res(`{"kubernetes.io/batch-cpu":"-5"}`) + `}]`, nil, nil, `"-5" is negative`,
		},
	} {
		p := (&Reading{}).Pod(decoded(t, `{"spec":{`+c.spec+`}}`))
		if diff := cmp.Diff(c.request, p.Tick.Requests); diff != "" {
			t.Errorf("%s: requests %s", name, diff)
		}
		if diff := cmp.Diff(c.limits, p.Tick.Limits); diff != "" {
			t.Errorf("%s: limits %s", name, diff)
		}
		var problems []string
		for _, problem := range p.Tick.Errors {
			if !strings.Contains(problem, "requests reclaimed resources") { // the error of all pods without a dialect's class
				problems = append(problems, problem)
			}
		}
		if all := strings.Join(problems, "\n"); !strings.Contains(all, c.problem) || (c.problem == "") != (all == "") {
			t.Errorf("%s: problems %q; want %q", name, all, c.problem)
		}
	}
}

func TestClassOfPods(t *testing.T) {
	for name, c := range map[string]struct{ pod, class, source string }{
		"batch":                 {`{"spec":{"containers":[{"resources":{"requests":{"kubernetes.io/batch-cpu":"1"}}}]}}`, tick.QoSReclaimed, tick.QoSFromKoordinator},
		"batch, first names":    {`{"spec":{"containers":[{"resources":{"requests":{"koordinator.sh/batch-memory":"1"}}}]}}`, tick.QoSReclaimed, tick.QoSFromKoordinator},
		"batch for init":        {`{"spec":{"initContainers":[{"resources":{"requests":{"kubernetes.io/batch-cpu":"1"}}}]}}`, tick.QoSReclaimed, tick.QoSFromKoordinator},
		"batch of nothing":      {`{"spec":{"containers":[{"resources":{"requests":{"cpu":"1","kubernetes.io/batch-cpu":"0","koordinator.sh/batch-memory":"lots"}}}]}}`, tick.QoSShared, tick.QoSFromKubernetes},
		"best effort by status": {`{"status":{"qosClass":"BestEffort"},"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}`, tick.QoSReclaimed, tick.QoSFromKubernetes},
		"best effort by itself": {`{"spec":{"containers":[{"name":"a"}]}}`, tick.QoSReclaimed, tick.QoSFromKubernetes},
		"burstable":             {`{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}`, tick.QoSShared, tick.QoSFromKubernetes},
		"odd resources":         {`{"spec":{"containers":[{"resources":{"requests":{"cpu":{}},"limits":{"cpu":{}}}}]}}`, tick.QoSShared, tick.QoSFromKubernetes},
	} {
		p := (&Reading{BestEffort: tick.QoSReclaimed}).Pod(decoded(t, c.pod))
		if p.Tick.QoS != c.class || p.Tick.QoSSource != c.source {
			t.Errorf("%s: %s by %s; want %s by %s", name, p.Tick.QoS, p.Tick.QoSSource, c.class, c.source)
		}
	}
}

// A pod's owner cannot make the line large.
func TestBounds(t *testing.T) {
	annotations := map[string]any{"katalyst.kubewharf.io/huge": strings.Repeat("x", maxValue), "katalyst.kubewharf.io/control": strings.Repeat("\x01", maxValue/5)}
	for i := range 100 {
		annotations[fmt.Sprintf("katalyst.kubewharf.io/many-%02d", i)] = strings.Repeat("y", 1000)
	}
	containers := make([]any, 1000)
	for i := range containers {
		containers[i] = object{"name": "c", "resources": object{"requests": object{"cpu": strings.Repeat("z", 1000)}}}
	}
	p := (&Reading{}).Pod(object{"metadata": object{"name": "p\x1b[2J", "annotations": annotations}, "spec": object{"containers": containers}, "status": object{"phase": strings.Repeat("p", 1e6)}})
	size := 0
	for k, v := range p.Tick.Annotations {
		size += len(k) + len(v)
	}
	for _, e := range p.Tick.Errors {
		size += len(e)
	}
	if size > maxValues+(maxProblems+1)*400 || len(p.Tick.Phase) > 200 {
		t.Errorf("%d bytes of annotations and errors", size)
	}
	if _, ok := p.Tick.Annotations["katalyst.kubewharf.io/control"]; ok {
		t.Error("an annotation that is six times as long in JSON is passed on")
	}
	if len(p.Tick.Annotations) == 0 || p.Tick.Annotations["katalyst.kubewharf.io/huge"] != "" {
		t.Errorf("%d annotations; want those that fit, and none of the huge one", len(p.Tick.Annotations))
	}
	if len(p.Tick.Errors) != maxProblems+1 || p.Tick.Name != "" {
		t.Errorf("name %q, errors %q; want them bounded", p.Tick.Name, p.Tick.Errors)
	}
}

func TestNode(t *testing.T) {
	n := NodeOf(decoded(t, `{"metadata":{"name":"n1","labels":{"kubernetes.io/hostname":"n1","katalyst.kubewharf.io/pool":"a","team":"x"},
		"annotations":{"node.koordinator.sh/reservation":"{}","kubectl.kubernetes.io/last-applied-configuration":"{}","volumes.kubernetes.io/x":"1"}},
		"status":{"capacity":{"cpu":"48","memory":"195924424Ki","resource.katalyst.kubewharf.io/reclaimed_millicpu":"44k","pods":"250"},"allocatable":{"cpu":"47500m","memory":"x"}}}`))
	want := &Node{
		Name: "n1", Capacity: amountsOf(48000, 195924424*1024, -1, -1), Allocatable: amountsOf(47500, -1, -1, -1),
		Labels:      map[string]string{"kubernetes.io/hostname": "n1", "katalyst.kubewharf.io/pool": "a"},
		Annotations: map[string]string{"node.koordinator.sh/reservation": "{}"},
		AllLabels:   map[string]string{"kubernetes.io/hostname": "n1", "katalyst.kubewharf.io/pool": "a", "team": "x"},
		Problems:    []string{`status.allocatable.memory: "x" is not an amount: want one such as 500m, 2 or 1Gi`},
	}
	if diff := cmp.Diff(want, n); diff != "" {
		t.Error(diff)
	}
}

func FuzzPod(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a","uid":"u","labels":{"koordinator.sh/qosClass":"BE"},"annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{"nodeName":"n","containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]},"status":{"containerStatuses":[{"name":"c","containerID":"containerd://x"}]}}`))
	f.Add([]byte(`{"metadata":7,"spec":{"containers":{"a":1},"overhead":[],"priority":1e300}}`))
	f.Add([]byte(`{"spec":{"containers":[null,3,{"resources":{"requests":{"cpu":{},"memory":[]},"limits":{"cpu":{}}}}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var o object
		if json.Unmarshal(data, &o) != nil {
			return
		}
		p := (&Reading{BestEffort: tick.QoSReclaimed}).Pod(o)
		if len(p.Tick.Errors) > maxProblems+1 {
			t.Fatalf("%d errors", len(p.Tick.Errors))
		}
		if err := tick.CheckName(p.Tick.Name); err != nil {
			t.Fatal(err)
		}
		if _, err := tick.Marshal(&p.Tick); err != nil {
			t.Fatal(err)
		}
		NodeOf(o)
		for _, r := range []*tick.Resources{p.Tick.Requests, p.Tick.Limits} {
			if r != nil && r.MilliCPU != nil && !(*r.MilliCPU >= 0) {
				t.Fatalf("%v milli-CPU", *r.MilliCPU)
			}
		}
	})
}
