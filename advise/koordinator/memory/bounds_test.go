package memory

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/sloconfig"
)

// A class without memory settings has none enabled, without a panic.
func TestIsAnyEnabled(t *testing.T) {
	for name, tt := range map[string]struct {
		class *sloconfig.ClassQOS
		want  bool
	}{
		"no class":    {nil, false},
		"no memory":   {&sloconfig.ClassQOS{}, false},
		"not set":     {&sloconfig.ClassQOS{Memory: &sloconfig.MemoryQOS{}}, false},
		"switched on": {&sloconfig.ClassQOS{Memory: &sloconfig.MemoryQOS{Enable: new(true)}}, true},
	} {
		if got := isEnabled(tt.class); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A batch pod's throttling stays if its class has none, and is the class's if that starts earlier.
func TestABatchPodsThrottling(t *testing.T) {
	for _, tt := range []struct{ own, class, want int64 }{{50, 0, 50}, {0, 0, 0}, {50, 50, 50}, {51, 50, 50}, {0, 50, 50}, {40, 50, 40}} {
		own := &sloconfig.MemoryQOS{ThrottlingPercent: &tt.own}
		if capByClass(own, &sloconfig.MemoryQOS{ThrottlingPercent: &tt.class}); *own.ThrottlingPercent != tt.want {
			t.Errorf("%+v: %d", tt, *own.ThrottlingPercent)
		}
	}
	own := &sloconfig.MemoryQOS{ThrottlingPercent: new(int64(50))}
	if capByClass(own, nil); own.ThrottlingPercent == nil || *own.ThrottlingPercent != 50 {
		t.Errorf("of a class without settings: %v", own.ThrottlingPercent)
	}
}

// A container of Kubernetes without requests has none, whatever its pod requests; on a plain host the pod's cgroup is its only container's,
// and has the pod's requests unless the container has its own.
func TestMemoryOf(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		isHost               bool
		own, ownLimit, whole float64
		want                 *int64
	}{
		{"a container that requests nothing", false, 0, 0, 400 * mi, nil},
		{"one that requests something", false, 100 * mi, 0, 400 * mi, n(100 * mi)},
		{"a plain host's", true, 0, 0, 400 * mi, n(400 * mi)},
		{"a plain host's with a request", true, 100 * mi, 0, 400 * mi, n(100 * mi)},
		{"a plain host's with a limit", true, 0, 100 * mi, 400 * mi, nil},
	} {
		p := pod(tt.own, tt.ownLimit)
		p.Requests = memoryAmount(tt.whole)
		if tt.isHost {
			p.Containers[0].Cgroup = p.Cgroup
		}
		a := advise(&State{}, with(ls, sloconfig.MemoryQOS{MinLimitPercent: n(100)}), sampleOf(p), 0)
		if d := cmp.Diff(tt.want, entry(t, a, p.Containers[0].Cgroup).MemoryMinBytes); d != "" {
			t.Errorf("%s: memory.min (-want +got):\n%s", tt.name, d)
		}
	}
}
