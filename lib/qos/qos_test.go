package qos

import (
	"strings"
	"testing"

	"polder/lib/tick"
)

func TestClass(t *testing.T) {
	level := func(v string) map[string]string { return map[string]string{KatalystLevel: v} }
	label := func(v string) map[string]string { return map[string]string{KoordinatorClass: v} }
	for name, c := range map[string]struct {
		pod                    Pod
		bestEffort             string
		class, source, problem string
	}{
		"katalyst dedicated": {Pod{Annotations: level("dedicated_cores")}, "", tick.QoSDedicated, tick.QoSFromKatalyst, ""},
		"katalyst shared":    {Pod{Annotations: level("shared_cores")}, "", tick.QoSShared, tick.QoSFromKatalyst, ""},
		"katalyst reclaimed": {Pod{Annotations: level("reclaimed_cores")}, "", tick.QoSReclaimed, tick.QoSFromKatalyst, ""},
		"katalyst system":    {Pod{Annotations: level("system_cores")}, "", tick.QoSSystem, tick.QoSFromKatalyst, ""},
		"LSE":                {Pod{Labels: label("LSE")}, "", tick.QoSDedicated, tick.QoSFromKoordinator, ""},
		"LSR":                {Pod{Labels: label("LSR")}, "", tick.QoSDedicated, tick.QoSFromKoordinator, ""},
		"LS":                 {Pod{Labels: label("LS")}, "", tick.QoSShared, tick.QoSFromKoordinator, ""},
		"BE":                 {Pod{Labels: label("BE")}, "", tick.QoSReclaimed, tick.QoSFromKoordinator, ""},
		"SYSTEM":             {Pod{Labels: label("SYSTEM")}, "", tick.QoSSystem, tick.QoSFromKoordinator, ""},
		"guaranteed":         {Pod{Kubernetes: Guaranteed}, tick.QoSReclaimed, tick.QoSShared, tick.QoSFromKubernetes, ""},
		"burstable":          {Pod{Kubernetes: Burstable}, tick.QoSReclaimed, tick.QoSShared, tick.QoSFromKubernetes, ""},
		"best effort":        {Pod{Kubernetes: BestEffort}, tick.QoSShared, tick.QoSShared, tick.QoSFromKubernetes, ""},
		"koordinator's best effort": {
			Pod{Kubernetes: BestEffort}, tick.QoSReclaimed, tick.QoSReclaimed, tick.QoSFromKubernetes, "",
		},
		"nothing known":     {Pod{}, tick.QoSReclaimed, tick.QoSShared, tick.QoSFromKubernetes, ""},
		"batch":             {Pod{Batch: true, Kubernetes: BestEffort}, "", tick.QoSReclaimed, tick.QoSFromKoordinator, ""},
		"batch, labeled":    {Pod{Batch: true, Labels: label("LS")}, "", tick.QoSShared, tick.QoSFromKoordinator, ""},
		"batch, mislabeled": {Pod{Batch: true, Labels: label("Be")}, "", tick.QoSShared, tick.QoSFromKoordinator, `"Be": want LSE`},
		"batch, annotated":  {Pod{Batch: true, Annotations: level("shared_cores")}, "", tick.QoSShared, tick.QoSFromKatalyst, ""},
		"reclaimed resources alone": {
			Pod{Reclaimed: true, Kubernetes: BestEffort}, tick.QoSReclaimed, tick.QoSShared, tick.QoSFromKubernetes, "without annotation",
		},
		"both agree": {
			Pod{Annotations: level("reclaimed_cores"), Labels: label("BE")}, "", tick.QoSReclaimed, tick.QoSFromKatalyst, "",
		},
		"both differ": {
			Pod{Annotations: level("shared_cores"), Labels: label("BE")}, "", tick.QoSShared, tick.QoSFromKatalyst, "the annotation applies",
		},
		"a wrong annotation beside a label that would do": {
			Pod{Annotations: level("reclaimed"), Labels: label("BE")}, "", tick.QoSShared, tick.QoSFromKatalyst, `"reclaimed": want dedicated_cores`,
		},
		"a wrong label beside an annotation": {
			Pod{Annotations: level("reclaimed_cores"), Labels: label("be")}, "", tick.QoSReclaimed, tick.QoSFromKatalyst, `"be": want LSE`,
		},
		"an empty annotation": {Pod{Annotations: level("")}, "", tick.QoSShared, tick.QoSFromKatalyst, "treated as shared_cores"},
		"not in the other's place": {
			Pod{Labels: level("reclaimed_cores"), Annotations: label("BE")}, "", tick.QoSShared, tick.QoSFromKubernetes, "",
		},
	} {
		c.pod.System = true
		class, source, problems := c.pod.Class(c.bestEffort)
		if class != c.class || source != c.source {
			t.Errorf("%s: %s by %s; want %s by %s", name, class, source, c.class, c.source)
		}
		if all := strings.Join(problems, "\n"); !strings.Contains(all, c.problem) || (c.problem == "") != (all == "") {
			t.Errorf("%s: problems %q; want %q", name, all, c.problem)
		}
	}
}

// System pods are neither confined nor evicted: where anybody may ask for that, such a pod is shared. All other classes are the same there.
func TestSystemClassNeedsItsNamespace(t *testing.T) {
	for _, tt := range []struct {
		name          string
		pod           Pod
		class, source string
		problem       string
	}{
		{
			"annotated",
			Pod{Annotations: map[string]string{KatalystLevel: "system_cores"}},
			tick.QoSShared, tick.QoSFromKatalyst,
			"annotation " + KatalystLevel + " is system_cores in a namespace that is not the system's",
		},
		{
			"labeled",
			Pod{Labels: map[string]string{KoordinatorClass: "SYSTEM"}},
			tick.QoSShared, tick.QoSFromKoordinator,
			"label " + KoordinatorClass + " is SYSTEM in a namespace that is not the system's",
		},
		{"another class", Pod{Labels: map[string]string{KoordinatorClass: "BE"}}, tick.QoSReclaimed, tick.QoSFromKoordinator, ""},
		{"no mark", Pod{}, tick.QoSShared, tick.QoSFromKubernetes, ""},
	} {
		class, source, problems := tt.pod.Class("")
		all := strings.Join(problems, "\n")
		if class != tt.class || source != tt.source || !strings.HasPrefix(all, tt.problem) || (tt.problem == "") != (all == "") {
			t.Errorf("%s: %s by %s, problems %q; want %s by %s, %q", tt.name, class, source, all, tt.class, tt.source, tt.problem)
		}
	}
}

func TestPriority(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "-7": -7, "5500": 5500} {
		p := Pod{Labels: map[string]string{KoordinatorPriority: text}}
		if got, err := p.Priority(); err != nil || got == nil || *got != want {
			t.Errorf("priority %s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "high", "1.5", "99999999999", "0x10"} {
		p := Pod{Labels: map[string]string{KoordinatorPriority: text}}
		if got, err := p.Priority(); err == nil || got != nil {
			t.Errorf("priority %q: %v, %v; want an error", text, got, err)
		}
	}
	if got, err := (&Pod{}).Priority(); got != nil || err != nil {
		t.Errorf("no priority: %v, %v; want neither", got, err)
	}
}

func TestDialect(t *testing.T) {
	for key, want := range map[string]bool{
		KatalystLevel: true, KoordinatorClass: true, "node.koordinator.sh/reservation": true,
		"resource.katalyst.kubewharf.io/x": true, "koordinator.sh": false, "app": false, "": false, "/": false,
		"notkoordinator.sh/qosClass": false, "koordinator.sh.example.org/x": false, "kubernetes.io/hostname": false,
	} {
		if got := Dialect(key); got != want {
			t.Errorf("Dialect(%q) = %v; want %v", key, got, want)
		}
	}
}

func FuzzClass(f *testing.F) {
	for level := range katalyst {
		f.Add(level, "BE", true)
	}
	f.Add("", "", false)
	f.Fuzz(func(t *testing.T, level, label string, batch bool) {
		p := Pod{Annotations: map[string]string{KatalystLevel: level}, Labels: map[string]string{KoordinatorClass: label, KoordinatorPriority: label}, Batch: batch}
		class, _, problems := p.Class(tick.QoSReclaimed)
		if class == tick.QoSReclaimed && level != "reclaimed_cores" {
			t.Fatalf("%q is taken for reclaimed", level)
		}
		if katalyst[level] == "" && len(problems) == 0 {
			t.Fatalf("%q is taken without a word", level)
		}
		_, _ = p.Priority()
	})
}
