package memory

import (
	"testing"

	"polder/lib/sloconfig"
)

// A class without settings of memory has none on; it does not end with an error.
func TestWhatIsOn(t *testing.T) {
	for name, tt := range map[string]struct {
		class *sloconfig.ClassQOS
		want  bool
	}{
		"no class":    {nil, false},
		"no memory":   {&sloconfig.ClassQOS{}, false},
		"not set":     {&sloconfig.ClassQOS{Memory: &sloconfig.MemoryQOS{}}, false},
		"switched on": {&sloconfig.ClassQOS{Memory: &sloconfig.MemoryQOS{Enable: new(true)}}, true},
	} {
		if got := on(tt.class); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A batch pod's throttling stays where its class has none, and is the class's where that is sooner.
func TestABatchPodsThrottling(t *testing.T) {
	for _, tt := range []struct{ own, class, want int64 }{{50, 0, 50}, {0, 0, 0}, {50, 50, 50}, {51, 50, 50}, {0, 50, 50}, {40, 50, 40}} {
		own := &sloconfig.MemoryQOS{ThrottlingPercent: &tt.own}
		if confine(own, &sloconfig.MemoryQOS{ThrottlingPercent: &tt.class}); *own.ThrottlingPercent != tt.want {
			t.Errorf("%+v: %d", tt, *own.ThrottlingPercent)
		}
	}
	own := &sloconfig.MemoryQOS{ThrottlingPercent: new(int64(50))}
	if confine(own, nil); own.ThrottlingPercent == nil || *own.ThrottlingPercent != 50 {
		t.Errorf("of a class without settings: %v", own.ThrottlingPercent)
	}
}
