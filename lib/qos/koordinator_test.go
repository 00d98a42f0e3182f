package qos_test

import (
	"testing"

	"polder/lib/qos"
	"polder/lib/tick"
)

func labeled(kv ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return m
}

// These are the two interpretations of a pod's class, as in Koordinator (apis/extension).
func TestKoordinatorClass(t *testing.T) {
	cpu := &tick.Resources{MilliCPU: new(100.0)}
	for name, c := range map[string]struct {
		pod            tick.Pod
		class, orElse  string
		priority       string
		priorityOrElse string
		number         int64
	}{
		"guaranteed without a label":                 {tick.Pod{KubernetesQOS: qos.Guaranteed, QoSSource: tick.QoSFromKubernetes, QoS: tick.QoSShared}, "", qos.LSR, "", qos.Prod, 9500},
		"burstable without a label":                  {tick.Pod{KubernetesQOS: qos.Burstable, QoSSource: tick.QoSFromKubernetes, QoS: tick.QoSShared}, "", qos.LS, "", qos.Prod, 9500},
		"best effort without a label":                {tick.Pod{KubernetesQOS: qos.BestEffort, QoSSource: tick.QoSFromKubernetes, QoS: tick.QoSShared}, "", qos.BE, "", qos.Batch, 5500},
		"the class is made of requests":              {tick.Pod{QoSSource: tick.QoSFromKubernetes, QoS: tick.QoSShared, Requests: cpu}, "", qos.LS, "", qos.Prod, 9500},
		"unknown to the cluster":                     {tick.Pod{Missing: tick.MissingCluster, QoSSource: tick.QoSFromKubernetes, QoS: tick.QoSShared}, "", qos.LS, "", qos.Prod, 9500},
		"LSE":                                        {tick.Pod{Labels: labeled(qos.KoordinatorClass, "LSE"), QoS: tick.QoSDedicated, QoSSource: tick.QoSFromKoordinator}, qos.LSE, qos.LSE, "", qos.Prod, 9500},
		"a label that is none":                       {tick.Pod{Labels: labeled(qos.KoordinatorClass, "be"), KubernetesQOS: qos.BestEffort, QoS: tick.QoSShared, QoSSource: tick.QoSFromKoordinator}, "", qos.BE, "", qos.Batch, 5500},
		"batch requests without a label":             {tick.Pod{QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromKoordinator, KubernetesQOS: qos.BestEffort}, qos.BE, qos.BE, "", qos.Batch, 5500},
		"Katalyst's mark":                            {tick.Pod{QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromKatalyst, KubernetesQOS: qos.Burstable}, qos.BE, qos.BE, "", qos.Batch, 5500},
		"a plain cgroup":                             {tick.Pod{QoS: tick.QoSDedicated, QoSSource: tick.QoSFromRule}, qos.LSR, qos.LSR, "", qos.Prod, 9500},
		"the band's lower end":                       {tick.Pod{Priority: new(int64(5000)), KubernetesQOS: qos.Burstable, QoSSource: tick.QoSFromKubernetes}, "", qos.LS, qos.Batch, qos.Batch, 5000},
		"the band's upper end":                       {tick.Pod{Priority: new(int64(5999)), KubernetesQOS: qos.Burstable, QoSSource: tick.QoSFromKubernetes}, "", qos.LS, qos.Batch, qos.Batch, 5999},
		"between two bands":                          {tick.Pod{Priority: new(int64(6000)), KubernetesQOS: qos.Burstable, QoSSource: tick.QoSFromKubernetes}, "", qos.LS, "", qos.Prod, 6000},
		"the label takes precedence over the number": {tick.Pod{Priority: new(int64(9000)), Labels: labeled(qos.KoordinatorPriorityClass, "koord-free"), KubernetesQOS: qos.Burstable, QoSSource: tick.QoSFromKubernetes}, "", qos.LS, qos.Free, qos.Free, 9000},
		"a label that names no priority":             {tick.Pod{Priority: new(int64(9000)), Labels: labeled(qos.KoordinatorPriorityClass, "gold"), KubernetesQOS: qos.BestEffort, QoSSource: tick.QoSFromKubernetes}, "", qos.BE, "", qos.Batch, 9000},
		"a priority of 0 counts as none":             {tick.Pod{Priority: new(int64(0)), Labels: labeled(qos.KoordinatorPriorityClass, "koord-mid"), KubernetesQOS: qos.Burstable, QoSSource: tick.QoSFromKubernetes}, "", qos.LS, qos.Mid, qos.Mid, 7500},
	} {
		p := &c.pod
		if got := qos.Koordinator(p); got != c.class {
			t.Errorf("%s: class %q, want %q", name, got, c.class)
		}
		if got := qos.KoordinatorOrDefault(p); got != c.orElse {
			t.Errorf("%s: class or default %q, want %q", name, got, c.orElse)
		}
		if got := qos.PriorityClass(p); got != c.priority {
			t.Errorf("%s: priority class %q, want %q", name, got, c.priority)
		}
		if got := qos.PriorityClassOrDefault(p); got != c.priorityOrElse {
			t.Errorf("%s: priority class or default %q, want %q", name, got, c.priorityOrElse)
		}
		if got := qos.PriorityNumber(p); got != c.number {
			t.Errorf("%s: priority %d, want %d", name, got, c.number)
		}
	}
}

func TestEvictionMarks(t *testing.T) {
	for text, want := range map[string]bool{`["BEMemoryEvict"]`: true, `["CPUEvict","BEMemoryEvict"]`: true, `["bememoryevict"]`: false, `[]`: false, ``: false, `BEMemoryEvict`: false, `{"a":1}`: false, `null`: false, `["*"]`: false} {
		if got := qos.MayEvict(&tick.Pod{Annotations: labeled(qos.EvictionPolicy, text)}, "BEMemoryEvict"); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if !qos.MayEvict(&tick.Pod{}, "BEMemoryEvict") {
		t.Error("a pod without the annotation may not be evicted")
	}
	for text, want := range map[string]int64{"7": 7, "-3": -3, "x": 0, "": 0, "99999999999": 0, "1.5": 0} {
		if got := qos.EvictionPriorityOf(&tick.Pod{Annotations: labeled(qos.EvictionPriority, text)}); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
}

// A pod without requests or limits of CPU or memory is BestEffort; a request of 0 counts as none.
func TestBestEffort(t *testing.T) {
	for _, tt := range []struct {
		requests, limits *tick.Resources
		want             bool
	}{
		{nil, nil, true},
		{&tick.Resources{}, &tick.Resources{MilliCPU: new(0.0), MemoryBytes: new(0.0)}, true},
		{&tick.Resources{ReclaimedMilliCPU: new(1000.0)}, nil, true},
		{&tick.Resources{MilliCPU: new(1.0)}, nil, false},
		{nil, &tick.Resources{MemoryBytes: new(1.0)}, false},
		{nil, &tick.Resources{MilliCPU: new(0.0), MemoryBytes: new(1.0)}, false},
	} {
		if got := qos.KubernetesOf(&tick.Pod{Requests: tt.requests, Limits: tt.limits}) == qos.BestEffort; got != tt.want {
			t.Errorf("%+v, %+v: %v", tt.requests, tt.limits, got)
		}
	}
}

// These are the bands of spec.priority: a pod is of a class from its first number to its last. A class by its label alone has its number.
func TestPriorityBands(t *testing.T) {
	of := func(n int64) string { return qos.PriorityClass(&tick.Pod{Priority: &n}) }
	for _, b := range []struct {
		class          string
		from, to, mean int64
	}{{qos.Prod, 9000, 9999, 9500}, {qos.Mid, 7000, 7999, 7500}, {qos.Batch, 5000, 5999, 5500}, {qos.Free, 3000, 3999, 3500}} {
		for n, want := range map[int64]string{b.from - 1: "", b.from: b.class, b.to: b.class, b.to + 1: ""} {
			if got := of(n); got != want {
				t.Errorf("priority %d: class %q; want %q", n, got, want)
			}
		}
		if got := qos.PriorityNumber(&tick.Pod{Labels: labeled(qos.KoordinatorPriorityClass, b.class)}); got != b.mean {
			t.Errorf("class %s: priority %d; want %d", b.class, got, b.mean)
		}
	}
}
