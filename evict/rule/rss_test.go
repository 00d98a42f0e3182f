package rule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// resident is a pod of one container that requests 1000 MiB.
func resident(name, class string, mebi float64) tick.Pod {
	p := podWithMemory(name, class, 2000)
	p.Memory.RSSBytes = new(mebi * (1 << 20))
	return p
}

func TestRSSOveruse(t *testing.T) {
	noRequest := resident("none", tick.QoSShared, 9000)
	noRequest.Containers = append(noRequest.Containers, tick.Container{})
	zero := resident("zero", tick.QoSShared, 9000)
	zero.Containers = append(zero.Containers, tick.Container{Requests: &tick.Resources{MemoryBytes: new(0.0)}})
	own := func(name, threshold string, mebi float64) tick.Pod {
		p := resident(name, tick.QoSShared, mebi)
		p.Annotations = map[string]string{annotationMemory: `{"rss_overuse_threshold": "` + threshold + `"}`}
		return p
	}
	ended := resident("ended", tick.QoSShared, 9000)
	ended.Phase = "Failed"
	unknown := resident("unknown", tick.QoSShared, 9000)
	unknown.Memory = nil
	unknown.Containers[0].Memory = nil
	// Only the containers that have a cgroup are in a tick: another one of these pods, with a request of 500 MiB, starts again.
	restarting := func(name string, mebi float64) tick.Pod {
		p := resident(name, tick.QoSShared, mebi)
		p.Requests = &tick.Resources{MemoryBytes: new(1500.0 * (1 << 20))}
		return p
	}
	// A reclaimed pod's memory is requested as reclaimed memory, and a service's is not.
	requests := func(name, class string, ordinary, reclaimed float64) tick.Pod {
		p := resident(name, class, 1051)
		p.Containers[0].Requests = &tick.Resources{MemoryBytes: new(ordinary * (1 << 20)), ReclaimedMemoryBytes: new(reclaimed * (1 << 20))}
		return p
	}
	for _, tt := range []struct {
		name string
		pods []tick.Pod
		want []string
		err  string
	}{
		{"under", []tick.Pod{resident("a", tick.QoSShared, 1049)}, nil, ""},
		{"at", []tick.Pod{resident("a", tick.QoSShared, 1050)}, nil, ""},
		{"over", []tick.Pod{resident("a", tick.QoSShared, 1051)}, []string{"a"}, ""},
		{"reclaimed", []tick.Pod{resident("a", tick.QoSReclaimed, 1051)}, []string{"a"}, ""},
		{
			"the class's own request",
			[]tick.Pod{
				requests("a", tick.QoSReclaimed, 9000, 1000), requests("b", tick.QoSShared, 1000, 9000),
				requests("c", tick.QoSReclaimed, 1000, 9000), requests("d", tick.QoSShared, 9000, 1000),
			},
			[]string{"a", "b"},
			"",
		},
		{"dedicated", []tick.Pod{resident("a", tick.QoSDedicated, 9000)}, nil, ""},
		{"a container without a request", []tick.Pod{noRequest, zero}, nil, ""},
		{"ended", []tick.Pod{ended}, nil, ""},
		{"a container starts again", []tick.Pod{restarting("a", 1575), restarting("b", 1576)}, []string{"b"}, ""},
		{"an own threshold", []tick.Pod{own("a", "1.5", 1500), own("b", "1.5", 1501), own("c", "0.5", 501)}, []string{"c", "b"}, ""},
		{"an invalid threshold", []tick.Pod{own("a", "0", 9000), own("b", "1e300", 1050)}, []string{"a"}, `pod a: annotation katalyst.kubewharf.io/memory_enhancement: rss_overuse_threshold "0" is not a number over 0: --rss-overuse-threshold applies`},
		{"unknown", []tick.Pod{unknown, resident("a", tick.QoSShared, 1051)}, []string{"a"}, "memory.rss: no resident memory of 1 of the pods, they are not evicted: unknown"},
		{"the worst first", []tick.Pod{resident("b", tick.QoSShared, 1200), resident("worst", tick.QoSShared, 1300), resident("a", tick.QoSShared, 1200)}, []string{"worst", "a", "b"}, ""},
		{"nobody", nil, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Defaults()
			s.RSSOveruseEnabled = true
			m := rssOveruse.New().Measure(&s, tickAt(0, tt.pods...))
			if text := fmt.Sprint(m.Errors); !strings.Contains(text, tt.err) || (tt.err == "") != (len(m.Errors) == 0) {
				t.Errorf("reported errors %s; want %q", text, tt.err)
			}
			f := m.Findings[0]
			if f.Value != float64(len(tt.want)) || f.Met != (len(tt.want) > 0) || f.Hard || f.Threshold != 0 || f.GracePeriodSeconds != nil {
				t.Errorf("finding %+v; want %d pods, soft", f, len(tt.want))
			}
			if d := cmp.Diff(tt.want, ranked(f)); d != "" {
				t.Errorf("candidates (-want +got):\n%s", d)
			}
		})
	}
}

func TestRSSOveruseMessage(t *testing.T) {
	s := Defaults()
	s.RSSOveruseEnabled = true
	f := rssOveruse.New().Measure(&s, tickAt(0, resident("a", tick.QoSShared, 1200))).Findings[0]
	if want := "pod a uses 1200Mi of resident memory, over the threshold of 1050Mi (1.05 x its request of 1000Mi)"; f.Candidates[0].Message != want {
		t.Errorf("message %q; want %q", f.Candidates[0].Message, want)
	}
}

func TestRSSOveruseTolerance(t *testing.T) {
	s := Defaults()
	s.RSSOveruseEnabled, s.RSSOveruseTolerance, s.RSSOveruseHysteresis, s.RSSOveruseGracePeriod = true, 20*time.Second, 0.1, time.Minute
	w := rssOveruse.New()
	for i, tt := range []struct {
		mebi float64
		met  bool
	}{{1051, false}, {1000, false}, {1000, true}, {945, false}, {1000, false}, {1051, false}, {1051, false}, {1051, true}} {
		f := w.Measure(&s, tickAt(10*i, resident("a", tick.QoSShared, tt.mebi))).Findings[0]
		if f.Met != tt.met || *f.GracePeriodSeconds != 60 {
			t.Errorf("at %d s, %v MiB: %+v; want met %t", 10*i, tt.mebi, f, tt.met)
		}
	}
	// A pod that disappears is dropped, and starts over.
	w.Measure(&s, tickAt(80))
	if f := w.Measure(&s, tickAt(90, resident("a", tick.QoSShared, 1051))).Findings[0]; f.Met {
		t.Errorf("back after it had ended: %+v", f)
	}
	s.RSSOveruseEnabled = false
	if m := w.Measure(&s, tickAt(100, resident("a", tick.QoSShared, 9000))); len(m.Findings)+len(m.Errors) != 0 {
		t.Errorf("switched off: %+v", m)
	}
	if d := Defaults(); d.RSSOveruseEnabled {
		t.Error("on by default")
	}
}

// Where tenants may not protect their pods, an annotation only lowers the threshold.
func TestRSSOveruseWithoutOptOut(t *testing.T) {
	for name, tt := range map[string]struct {
		optOut []string
		want   []string
	}{
		"tenants may protect pods":     {[]string{"polder/evict=false"}, []string{"low"}},
		"tenants may not protect pods": {nil, []string{"low", "high"}},
	} {
		s := Defaults()
		s.RSSOveruseEnabled, s.OptOut = true, tt.optOut
		low, high := resident("low", tick.QoSShared, 1500), resident("high", tick.QoSShared, 2000)
		low.Annotations = map[string]string{annotationMemory: `{"rss_overuse_threshold": "0.5"}`}
		high.Annotations = map[string]string{annotationMemory: `{"rss_overuse_threshold": "1000000"}`}
		m := rssOveruse.New().Measure(&s, tickAt(0, low, high))
		if d := cmp.Diff(tt.want, ranked(m.Findings[0])); d != "" {
			t.Errorf("%s: candidates (-want +got):\n%s", name, d)
		}
	}
}
