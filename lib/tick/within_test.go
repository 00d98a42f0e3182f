package tick

import "testing"

func TestIsWithin(t *testing.T) {
	for _, tt := range []struct {
		cgroup, parent  string
		isWithin, below bool
	}{
		{"/batch", "/batch", true, false},
		{"/batch/a", "/batch", true, true},
		{"/batch/a/b", "/batch", true, true},
		{"/batch/a", "/batch/", true, true},
		{"/batch2", "/batch", false, false},
		{"/batch2/a", "/batch", false, false},
		{"/", "/batch", false, false},
		{"/batch", "/", true, true},
		{"/", "/", true, false},
		{"", "/batch", false, false},
		{"", "/", false, false},
		{"batch/a", "/batch", false, false},
	} {
		if got := IsWithin(tt.cgroup, tt.parent); got != tt.isWithin {
			t.Errorf("%q is within %q: %v", tt.cgroup, tt.parent, got)
		}
		if got := IsBelow(tt.cgroup, tt.parent); got != tt.below {
			t.Errorf("%q is below %q: %v", tt.cgroup, tt.parent, got)
		}
	}
}
