package guard

import (
	"slices"
	"testing"

	"polder/lib/tick"
)

// The advice has the kinds of the steps in force, oldest first, and none once the guard is off or batch is gone.
func TestStepsAreInTheAdvice(t *testing.T) {
	r := &fixture{policy: tick.Advice{
		Cgroups:  []tick.Cgroup{{Cgroup: "/job", CPUSetCPUs: "0-7"}},
		Fallback: []tick.Cgroup{{Cgroup: "/job", CPUSetCPUs: "3,7"}},
	}}
	if a := r.times(60, web(0, 1000), job("job", 0)); len(a.GuardSteps) != 0 {
		t.Errorf("while the service does not wait: %q", a.GuardSteps)
	}
	var longest []string
	for range 36 {
		a := r.tick(web(300, 1000), job("job", 6000))
		if len(a.GuardSteps) > len(longest) {
			longest = a.GuardSteps
		}
	}
	if want := []string{"CPUs", "CPUs", "CPUs", "quota"}; len(longest) < 4 || !slices.Equal(longest[:4], want) {
		t.Errorf("steps %q; want first %q", longest, want)
	}
	if len(r.st.Steps) == 0 {
		t.Fatal("no step is in force")
	}
	r.set.Mode = Off
	if a := r.tick(web(300, 1000), job("job", 6000)); len(a.GuardSteps) != 0 {
		t.Errorf("switched off: %q", a.GuardSteps)
	}
}
