package resctrl

import (
	"math/bits"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/advise/koordinator/annotation"
	"polder/lib/qos"
	"polder/lib/schemata"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// with returns a class's settings.
func with(start, end, mba *int64) *sloconfig.ClassQOS {
	return &sloconfig.ClassQOS{Resctrl: &sloconfig.ResctrlQOS{Enable: new(true), CATRangeStartPercent: start, CATRangeEndPercent: end, MBAPercent: mba}}
}

// Machines: an Intel one of two sockets (min_cbm_bits as on Haswell), and an AMD one of two CCDs.
func intel() *tick.Resctrl {
	return &tick.Resctrl{Vendor: "intel", CBMMask: "fffff", MinCBMBits: 2, CLOSIDs: 8, L3: []int64{0, 1}, MB: []int64{0, 1}, MBMin: 10, MBGranularity: 10}
}

func amd() *tick.Resctrl {
	return &tick.Resctrl{Vendor: "amd", CBMMask: "ffff", MinCBMBits: 1, CLOSIDs: 16, L3: []int64{8, 0}, MB: []int64{8, 0}, MBGranularity: 1}
}

// advise decides one tick with strategies of class BE only.
func advise(st *State, m *tick.Resctrl, be *sloconfig.ClassQOS, pods ...tick.Pod) *tick.Advice {
	s := sloconfig.Defaults()
	if be != nil {
		s.QOS.BE = be
	}
	a := &tick.Advice{}
	st.Advise(&tick.Tick{Sample: &tick.Sample{Resctrl: m, Pods: pods}}, &s, a)
	return a
}

func lines(a *tick.Advice) string {
	var out []string
	for _, g := range a.Resctrl {
		out = append(out, g.Schemata...)
	}
	return strings.Join(out, " ")
}

// The masks and the bandwidth, by the formulas: start and end rounded up to ways, percent to steps.
func TestGroupParts(t *testing.T) {
	change := func(m *tick.Resctrl, f func(*tick.Resctrl)) *tick.Resctrl { f(m); return m }
	for name, c := range map[string]struct {
		machine         *tick.Resctrl
		start, end, mba *int64
		want            string
		reason          string // in one of the reasons
	}{
		"defaults":             {intel(), new(int64(0)), new(int64(30)), new(int64(100)), "L3:0=3f;1=3f MB:0=100;1=100", "resctrl BE: L3 0-30 % of 20 ways = 0 to 5 = 3f, MB 100 % = 100; pods: 0"},
		"all":                  {intel(), new(int64(0)), new(int64(100)), new(int64(100)), "L3:0=fffff;1=fffff MB:0=100;1=100", "= 0 to 19 = fffff"},
		"upper part":           {intel(), new(int64(50)), new(int64(100)), new(int64(50)), "L3:0=ffc00;1=ffc00 MB:0=50;1=50", "= 10 to 19 = ffc00"},
		"rounded up":           {intel(), new(int64(1)), new(int64(31)), new(int64(11)), "L3:0=7e;1=7e MB:0=20;1=20", "1-31 % of 20 ways = 1 to 6 = 7e, MB 11 % = 20"},
		"steps of 1":           {change(intel(), func(m *tick.Resctrl) { m.MBGranularity = 1 }), new(int64(0)), new(int64(30)), new(int64(11)), "L3:0=3f;1=3f MB:0=11;1=11", ""},
		"one step":             {change(intel(), func(m *tick.Resctrl) { m.MBGranularity = 100 }), new(int64(0)), new(int64(30)), new(int64(11)), "L3:0=3f;1=3f MB:0=100;1=100", ""},
		"an invalid step":      {change(intel(), func(m *tick.Resctrl) { m.MBGranularity = 101 }), new(int64(0)), new(int64(30)), new(int64(11)), "L3:0=3f;1=3f MB:0=20;1=20", ""},
		"least step":           {intel(), new(int64(0)), new(int64(30)), new(int64(1)), "L3:0=3f;1=3f MB:0=10;1=10", "MB 1 % = 10"},
		"top step":             {intel(), new(int64(0)), new(int64(30)), new(int64(91)), "L3:0=3f;1=3f MB:0=100;1=100", "MB 91 % = 100"},
		"fewest ways":          {intel(), new(int64(0)), new(int64(1)), new(int64(100)), "L3:0=3;1=3 MB:0=100;1=100", "at least 2 = 0 to 1 = 3"},
		"fewest at the top":    {intel(), new(int64(99)), new(int64(100)), new(int64(100)), "L3:0=c0000;1=c0000 MB:0=100;1=100", "at least 2 = 18 to 19"},
		"no way at all":        {change(intel(), func(m *tick.Resctrl) { m.CBMMask = "f" }), new(int64(10)), new(int64(20)), new(int64(100)), "L3:0=6;1=6 MB:0=100;1=100", "10-20 % of 4 ways, at least 2 = 1 to 2 = 6"},
		"fewest over all":      {change(intel(), func(m *tick.Resctrl) { m.CBMMask, m.MinCBMBits = "3", 9 }), new(int64(0)), new(int64(10)), new(int64(100)), "L3:0=3;1=3 MB:0=100;1=100", "at least 2"},
		"least unknown":        {change(intel(), func(m *tick.Resctrl) { m.MinCBMBits = 0 }), new(int64(99)), new(int64(100)), new(int64(100)), "L3:0=80000;1=80000 MB:0=100;1=100", ""},
		"eleven ways":          {change(intel(), func(m *tick.Resctrl) { m.CBMMask = "7ff" }), new(int64(0)), new(int64(30)), new(int64(100)), "L3:0=f;1=f MB:0=100;1=100", "of 11 ways = 0 to 3"},
		"padded mask":          {change(intel(), func(m *tick.Resctrl) { m.CBMMask = "007ff" }), new(int64(0)), new(int64(30)), new(int64(100)), "L3:0=f;1=f MB:0=100;1=100", ""},
		"64 ways":              {change(intel(), func(m *tick.Resctrl) { m.CBMMask = "ffffffffffffffff" }), new(int64(50)), new(int64(100)), new(int64(100)), "L3:0=ffffffff00000000;1=ffffffff00000000 MB:0=100;1=100", ""},
		"one way":              {change(intel(), func(m *tick.Resctrl) { m.CBMMask, m.MinCBMBits = "1", 1 }), new(int64(0)), new(int64(30)), new(int64(100)), "L3:0=1;1=1 MB:0=100;1=100", ""},
		"amd":                  {amd(), new(int64(0)), new(int64(30)), new(int64(50)), "L3:0=1f;8=1f MB:0=80;8=80", "L3 0-30 % of 16 ways = 0 to 4 = 1f, MB 50 % = 80"},
		"amd, unlimited":       {amd(), new(int64(0)), new(int64(100)), new(int64(100)), "L3:0=ffff;8=ffff MB:0=2048;8=2048", "MB 100 % = 2048"},
		"amd, not rounded":     {amd(), new(int64(0)), new(int64(100)), new(int64(99)), "L3:0=ffff;8=ffff MB:0=158;8=158", ""},
		"amd, least":           {amd(), new(int64(0)), new(int64(100)), new(int64(1)), "L3:0=ffff;8=ffff MB:0=1;8=1", ""},
		"step of 7":            {change(intel(), func(m *tick.Resctrl) { m.MBGranularity = 7 }), new(int64(0)), new(int64(30)), new(int64(99)), "L3:0=3f;1=3f MB:0=100;1=100", ""},
		"hostile steps":        {change(intel(), func(m *tick.Resctrl) { m.MBGranularity, m.MBMin = 1<<62, 1<<62 }), new(int64(0)), new(int64(30)), new(int64(50)), "L3:0=3f;1=3f MB:0=100;1=100", ""},
		"code and data":        {change(intel(), func(m *tick.Resctrl) { m.CDP, m.MB = true, nil }), new(int64(0)), new(int64(30)), new(int64(50)), "L3CODE:0=3f;1=3f L3DATA:0=3f;1=3f", ""},
		"no bandwidth":         {change(intel(), func(m *tick.Resctrl) { m.MB = nil }), new(int64(0)), new(int64(30)), nil, "L3:0=3f;1=3f", "resctrl BE: L3 0-30 % of 20 ways = 0 to 5 = 3f; pods: 0"},
		"no cache":             {change(intel(), func(m *tick.Resctrl) { m.L3 = nil }), nil, nil, new(int64(30)), "MB:0=30;1=30", "resctrl BE: MB 30 % = 30; pods: 0"},
		"start under 0":        {intel(), new(int64(-1)), new(int64(30)), new(int64(50)), "MB:0=50;1=50", "catRangeStartPercent -1 and catRangeEndPercent 30: want 0 to 100, the end above the start: unchanged"},
		"end over 100":         {intel(), new(int64(0)), new(int64(101)), new(int64(50)), "MB:0=50;1=50", "unchanged"},
		"end at the start":     {intel(), new(int64(30)), new(int64(30)), new(int64(50)), "MB:0=50;1=50", "unchanged"},
		"huge":                 {intel(), new(int64(0)), new(int64(1<<63 - 1)), new(int64(50)), "MB:0=50;1=50", "unchanged"},
		"range not set":        {intel(), new(int64(0)), nil, new(int64(50)), "MB:0=50;1=50", "is not set: unchanged"},
		"mba 0":                {intel(), new(int64(0)), new(int64(30)), new(int64(0)), "L3:0=3f;1=3f", "mbaPercent 0: want 1 to 100: unchanged"},
		"mba over 100":         {amd(), new(int64(0)), new(int64(30)), new(int64(101)), "L3:0=1f;8=1f", "mbaPercent 101: want 1 to 100: unchanged"},
		"mba not set":          {intel(), new(int64(0)), new(int64(30)), nil, "L3:0=3f;1=3f", "mbaPercent is not set: unchanged"},
		"nothing sound":        {intel(), new(int64(9)), new(int64(3)), new(int64(-9)), "", "mbaPercent -9"},
		"in MiB/s":             {change(intel(), func(m *tick.Resctrl) { m.MBps = true }), new(int64(0)), new(int64(30)), new(int64(50)), "L3:0=3f;1=3f", "MiB/s here (mounted with mba_MBps): unchanged"},
		"another vendor":       {change(intel(), func(m *tick.Resctrl) { m.Vendor = "" }), new(int64(0)), new(int64(30)), new(int64(50)), "L3:0=3f;1=3f", "this processor's unit of memory bandwidth is unknown: unchanged"},
		"mask with a hole":     {change(intel(), func(m *tick.Resctrl) { m.CBMMask = "f0f" }), new(int64(0)), new(int64(30)), new(int64(50)), "MB:0=50;1=50", `mask "f0f" is not one block`},
		"mask not from 0":      {change(intel(), func(m *tick.Resctrl) { m.CBMMask = "ff0" }), new(int64(0)), new(int64(30)), new(int64(50)), "MB:0=50;1=50", "unchanged"},
		"no mask":              {change(intel(), func(m *tick.Resctrl) { m.CBMMask = "" }), new(int64(0)), new(int64(30)), new(int64(50)), "MB:0=50;1=50", "unchanged"},
		"hostile mask":         {change(intel(), func(m *tick.Resctrl) { m.CBMMask = strings.Repeat("f", 9999) }), new(int64(0)), new(int64(30)), new(int64(50)), "MB:0=50;1=50", "unchanged"},
		"nothing to divide":    {&tick.Resctrl{Vendor: "intel", CLOSIDs: 8}, new(int64(0)), new(int64(30)), new(int64(50)), "", "neither its L3 cache nor its memory bandwidth: cache and memory bandwidth of BE stay unchanged"},
		"domains named twice":  {change(amd(), func(m *tick.Resctrl) { m.L3 = []int64{3, 3, 0} }), new(int64(0)), new(int64(30)), new(int64(50)), "L3:0=1f;3=1f MB:0=80;8=80", ""},
		"the root's alone":     {change(intel(), func(m *tick.Resctrl) { m.CLOSIDs = 1 }), new(int64(0)), new(int64(30)), new(int64(50)), "", "resctrl BE: unchanged: the machine has 1 groups in all"},
		"number unknown":       {change(intel(), func(m *tick.Resctrl) { m.CLOSIDs = 0 }), new(int64(0)), new(int64(30)), new(int64(50)), "L3:0=3f;1=3f MB:0=50;1=50", ""},
		"unmounted, and so on": {nil, new(int64(0)), new(int64(30)), new(int64(50)), "", "not mounted at /sys/fs/resctrl"},
	} {
		a := advise(&State{}, c.machine, with(c.start, c.end, c.mba))
		if got := lines(a); got != c.want {
			t.Errorf("%s: %s; want %s (%q)", name, got, c.want, a.Reasons)
		}
		if len(a.Reasons) > 3 || !strings.Contains(strings.Join(a.Reasons, "\n"), c.reason) {
			t.Errorf("%s: reasons %q; want %q", name, a.Reasons, c.reason)
		}
	}
}

// Which pods belong to which group: every pod by its class, by Kubernetes' own if it has no label; LSE's to LSR.
func TestMembers(t *testing.T) {
	pods := []tick.Pod{
		{Name: "be", Cgroup: "/b/1", Labels: map[string]string{qos.KoordinatorClass: "BE"}},
		{Name: "ls", Cgroup: "/l/1", Labels: map[string]string{qos.KoordinatorClass: "LS"}},
		{Name: "lsr", Cgroup: "/r/1", Labels: map[string]string{qos.KoordinatorClass: "LSR"}},
		{Name: "lse", Cgroup: "/r/2", Labels: map[string]string{qos.KoordinatorClass: "LSE"}},
		{Name: "system", Cgroup: "/s/1", QoS: tick.QoSSystem, Labels: map[string]string{qos.KoordinatorClass: "SYSTEM"}},
		{Name: "guaranteed", Cgroup: "/r/3", QoSSource: tick.QoSFromKubernetes, QoS: tick.QoSShared, KubernetesQOS: "Guaranteed"},
		{Name: "burstable", Cgroup: "/l/2", QoSSource: tick.QoSFromKubernetes, QoS: tick.QoSShared, KubernetesQOS: "Burstable"},
		{Name: "best effort", Cgroup: "/b/2", QoSSource: tick.QoSFromKubernetes, QoS: tick.QoSShared, KubernetesQOS: "BestEffort"},
		{Name: "batch", Cgroup: "/b/3", QoSSource: tick.QoSFromKoordinator, QoS: tick.QoSReclaimed, KubernetesQOS: "Burstable"},
		{Name: "reclaimed by a rule", Cgroup: "/b/4", QoSSource: tick.QoSFromRule, QoS: tick.QoSReclaimed},
		{Name: "terminating", Cgroup: "/b/5", Labels: map[string]string{qos.KoordinatorClass: "BE"}, Terminating: true, Phase: "Running"},
		{Name: "pending", Cgroup: "/b/6", Labels: map[string]string{qos.KoordinatorClass: "BE"}, Phase: "Pending"},
		{Name: "no cgroup", Labels: map[string]string{qos.KoordinatorClass: "BE"}},
		{Name: "not there", Cgroup: "/b/7", Labels: map[string]string{qos.KoordinatorClass: "BE"}, Missing: tick.MissingCgroup},
		{Name: "unknown", Cgroup: "/b/8", Missing: tick.MissingCluster},
		{Name: "done", Cgroup: "/b/9", Labels: map[string]string{qos.KoordinatorClass: "BE"}, Phase: "Succeeded"},
		{Name: "failed", Cgroup: "/b/10", Labels: map[string]string{qos.KoordinatorClass: "BE"}, Phase: "Failed"},
		{Name: "root", Cgroup: "/", Labels: map[string]string{qos.KoordinatorClass: "BE"}},
		{Name: "own", Cgroup: "/l/11", Labels: map[string]string{qos.KoordinatorClass: "LS"}, Annotations: map[string]string{annotation.Resctrl: "{}"}},
		{Name: "a batch pod stays in its group", Cgroup: "/b/12", Labels: map[string]string{qos.KoordinatorClass: "BE"}, Annotations: map[string]string{annotation.Resctrl: "{}"}},
	}
	s := sloconfig.Defaults()
	s.QOS.LSR, s.QOS.LS, s.QOS.BE = with(new(int64(0)), new(int64(100)), new(int64(100))), with(new(int64(0)), new(int64(100)), new(int64(100))), with(new(int64(0)), new(int64(30)), new(int64(100)))
	a := &tick.Advice{}
	(&State{}).Advise(&tick.Tick{Sample: &tick.Sample{Resctrl: intel(), Pods: pods}}, &s, a)
	got := map[string]string{}
	for _, g := range a.Resctrl {
		got[g.Group] = strings.Join(g.Cgroups, " ")
	}
	want := map[string]string{"BE": "/b/1 /b/2 /b/3 /b/4 /b/5 /b/6 /b/12", "LS": "/l/1 /l/2", "LSR": "/r/1 /r/2 /r/3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}

	// Three groups besides the root's do not fit into three: the services get none.
	few := intel()
	few.CLOSIDs = 3
	a = &tick.Advice{}
	(&State{}).Advise(&tick.Tick{Sample: &tick.Sample{Resctrl: few, Pods: pods}}, &s, a)
	if len(a.Resctrl) != 2 || a.Resctrl[0].Group != "BE" || a.Resctrl[1].Group != "LS" ||
		!strings.Contains(strings.Join(a.Reasons, "\n"), "resctrl LSR: unchanged: the machine has 3 groups in all (num_closids), the root's and BE's and LS's") {
		t.Errorf("with 3 CLOSIDs: %+v, %q", a.Resctrl, a.Reasons)
	}
}

// A group that was used gets the whole when its class is disabled, and is not created for that; one that was never used is left alone.
func TestDisabled(t *testing.T) {
	st := &State{}
	if a := advise(st, intel(), nil); len(a.Resctrl)+len(a.Reasons) > 0 || st.Used != nil {
		t.Fatalf("never enabled: %+v", a)
	}
	pod := tick.Pod{Cgroup: "/b/1", Labels: map[string]string{qos.KoordinatorClass: "BE"}}
	if a := advise(st, intel(), with(new(int64(0)), new(int64(30)), new(int64(20))), pod); lines(a) != "L3:0=3f;1=3f MB:0=20;1=20" || len(a.Resctrl[0].Cgroups) != 1 || a.Resctrl[0].IfExists {
		t.Fatalf("enabled: %+v", a)
	}
	for range 2 {
		a := advise(st, intel(), nil, pod)
		want := []tick.ResctrlGroup{{Group: "BE", Schemata: []string{"L3:0=fffff;1=fffff", "MB:0=100;1=100"}, IfExists: true}}
		if diff := cmp.Diff(want, a.Resctrl); diff != "" {
			t.Fatalf("disabled (-want +got):\n%s", diff)
		}
	}
	// Without a sample, and while it cannot be read, nothing is desired and the state stays.
	s := sloconfig.Defaults()
	for _, sample := range []*tick.Sample{nil, {Errors: []tick.SourceError{{Source: "resctrl", Error: "torn"}}}} {
		a := &tick.Advice{}
		st.Advise(&tick.Tick{Sample: sample}, &s, a)
		if len(a.Resctrl)+len(a.Reasons) > 0 || len(st.Used) != 1 {
			t.Fatalf("sample %+v: %+v, used %v", sample, a, st.Used)
		}
	}
	// Unmounting removes all groups.
	if a := advise(st, nil, nil); len(a.Resctrl)+len(a.Reasons) > 0 || st.Used != nil {
		t.Fatalf("unmounted: %+v, used %v", a, st.Used)
	}
	if a := advise(st, intel(), nil); len(a.Resctrl) > 0 {
		t.Fatalf("mounted again: %+v", a)
	}

	// A machine that is now unknown gets nothing.
	if a := advise(&State{Used: []string{"BE"}}, &tick.Resctrl{Vendor: "intel", L3: []int64{0}}, nil); len(a.Resctrl) > 0 {
		t.Errorf("disabled, and the machine's mask is unknown: %+v", a.Resctrl)
	}

	// Settings that can no longer be applied stay in force.
	advise(st, intel(), with(new(int64(0)), new(int64(30)), new(int64(20))))
	if a := advise(st, intel(), with(new(int64(30)), new(int64(3)), new(int64(0)))); len(a.Resctrl) > 0 || len(a.Reasons) != 2 {
		t.Errorf("unsound: %+v", a)
	}
}

// Each kind of missing input is one reason, and only if a class is enabled.
func TestUnknown(t *testing.T) {
	s := sloconfig.Defaults()
	s.QOS.BE, s.QOS.LS = with(new(int64(0)), new(int64(30)), new(int64(100))), with(new(int64(0)), new(int64(100)), new(int64(100)))
	for want, sample := range map[string]*tick.Sample{
		"resctrl: there is no sample: cache and memory bandwidth of BE, LS stay unchanged":                                                                                            nil,
		"resctrl: it could not be read (sample.errors): cache and memory bandwidth of BE, LS stay unchanged":                                                                          {Errors: []tick.SourceError{{Source: "resctrl"}}},
		"resctrl: what the machine can divide could not be read (sample.errors): cache and memory bandwidth of BE, LS stay unchanged":                                                 {Resctrl: &tick.Resctrl{}, Errors: []tick.SourceError{{Source: "resctrl"}}},
		"resctrl: it is not mounted at /sys/fs/resctrl (mount -t resctrl resctrl /sys/fs/resctrl, if the processor supports it): cache and memory bandwidth of BE, LS stay unchanged": {Errors: []tick.SourceError{{Source: "psi"}}},
	} {
		a := &tick.Advice{}
		(&State{}).Advise(&tick.Tick{Sample: sample}, &s, a)
		for _, g := range a.Resctrl {
			if !strings.Contains(want, "not mounted") || len(g.Schemata) > 0 || !g.IfExists {
				t.Errorf("%s: desired %+v", want, g)
			}
		}
		if diff := cmp.Diff([]string{want}, a.Reasons); diff != "" {
			t.Errorf("(-want +got):\n%s%+v", diff, a.Resctrl)
		}
	}
	s.QOS = sloconfig.ResourceQOS{} // another policy's tick
	a := &tick.Advice{}
	(&State{Used: []string{"BE", "mine"}}).Advise(&tick.Tick{Sample: &tick.Sample{Resctrl: intel()}}, &s, a)
	if len(a.Resctrl) != 1 || a.Resctrl[0].Group != "BE" {
		t.Errorf("no strategies: %+v", a.Resctrl)
	}
}

// If nothing is mounted the groups are named, for isolate to report, without lines and not to be created; the reason is reported once, and
// again if it was mounted, or not requested, in between.
func TestNotMounted(t *testing.T) {
	st, be := &State{}, with(new(int64(0)), new(int64(30)), new(int64(20)))
	pod := tick.Pod{Cgroup: "/b/1", Labels: map[string]string{qos.KoordinatorClass: "BE"}}
	want := []tick.ResctrlGroup{{Group: "BE", Cgroups: []string{"/b/1"}, IfExists: true}}
	for i, step := range []struct {
		machine   *tick.Resctrl
		class     *sloconfig.ClassQOS
		hasReason bool
		groups    []tick.ResctrlGroup
	}{
		{nil, be, true, want},
		{nil, be, false, want},
		{nil, be, false, want},
		{nil, nil, false, nil},
		{nil, be, true, want},
		{nil, be, false, want},
		{intel(), be, true, []tick.ResctrlGroup{{Group: "BE", Schemata: []string{"L3:0=3f;1=3f", "MB:0=20;1=20"}, Cgroups: []string{"/b/1"}}}},
		{nil, be, true, want},
		{nil, be, false, want},
		{intel(), be, true, []tick.ResctrlGroup{{Group: "BE", Schemata: []string{"L3:0=3f;1=3f", "MB:0=20;1=20"}, Cgroups: []string{"/b/1"}}}},
		{nil, nil, false, nil},
		{nil, be, true, want},
	} {
		text, err := tick.Marshal(st)
		if err != nil {
			t.Fatal(err)
		}
		st = &State{}
		if err := tick.Unmarshal(text, st); err != nil { // through the state file
			t.Fatal(err)
		}
		a := advise(st, step.machine, step.class, pod)
		if diff := cmp.Diff(step.groups, a.Resctrl); diff != "" || (len(a.Reasons) > 0) != step.hasReason {
			t.Errorf("step %d: reasons %q (-want +got):\n%s", i, a.Reasons, diff)
		}
	}
	unread, s := &tick.Sample{Errors: []tick.SourceError{{Source: "resctrl", Error: "torn"}}}, sloconfig.Defaults()
	s.QOS.BE = be
	for range 2 { // that may end with the next tick, and does not mean that it is not mounted
		a := &tick.Advice{}
		if st.Advise(&tick.Tick{Sample: unread}, &s, a); len(a.Resctrl) > 0 || len(a.Reasons) != 1 {
			t.Errorf("not to be read: %+v", a)
		}
	}
}

// For any machine and ConfigMap, the lines are valid on that machine.
func FuzzAdvise(f *testing.F) {
	f.Add("fffff", int64(2), int64(10), int64(10), int64(0), int64(30), int64(50), uint8(0))
	f.Add("ffffffffffffffff", int64(-1), int64(1<<62), int64(0), int64(99), int64(100), int64(1), uint8(1))
	f.Add("7ff", int64(99), int64(0), int64(-3), int64(1), int64(2), int64(100), uint8(7))
	f.Fuzz(func(t *testing.T, mask string, minimum, step, bottom, start, end, mba int64, flags uint8) {
		m := &tick.Resctrl{Vendor: []string{"intel", "amd", ""}[flags%3], CBMMask: mask, MinCBMBits: minimum, L3: []int64{0, 1}, MB: []int64{0}, MBMin: bottom, MBGranularity: step, CDP: flags&64 != 0}
		a := advise(&State{}, m, with(&start, &end, &mba))
		for _, g := range a.Resctrl {
			for _, text := range g.Schemata {
				l, err := schemata.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				if bottom > 100 || bottom < 0 || minimum > int64(bits.Len64(maskOf(mask))) {
					continue // an impossible machine
				}
				if sound, err := schemata.Check(m, l); err != nil || step > 0 && step <= 100 && sound.String() != l.String() {
					t.Fatalf("%s is advised, and would be %s: %v (machine %+v)", text, sound, err, m)
				}
			}
		}
	})
}

func maskOf(text string) uint64 {
	m, _ := schemata.Mask(text)
	return m
}

// Those resources of a machine that could be read are divided, even if others could not be read.
func TestDivisible(t *testing.T) {
	s := sloconfig.Defaults()
	s.QOS.BE = with(new(int64(0)), new(int64(30)), nil)
	m := intel()
	m.MB = nil
	a := &tick.Advice{}
	(&State{}).Advise(&tick.Tick{Sample: &tick.Sample{Resctrl: m, Errors: []tick.SourceError{{Source: "resctrl"}}}}, &s, a)
	if got := lines(a); !strings.Contains(got, "L3:0=3f;1=3f") {
		t.Errorf("lines %q, reasons %q", got, a.Reasons)
	}
}
