package source

import (
	"fmt"
	"testing"
)

// How often a quota was used up is read every 2 s while there is none, and in each round as soon as it counts periods; between two readings
// the last share stays, and it never covers a time in which the counts were not read.
func TestThrottlingIsOfTwoReadings(t *testing.T) {
	m := newV1(t)
	c := m.collector("rules: [{cgroup: /*, class: shared}]")
	counts := func(periods, throttled int) {
		m.write(cpuV1+"/web/cpuacct.usage", "1000")
		m.write(cpuV1+"/web/cpu.stat", fmt.Sprintf("nr_periods %d\nnr_throttled %d\n", periods, throttled))
	}
	counts(0, 0)
	late := 0
	for second, tt := range []struct{ periods, throttled int }{
		{0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {10, 5}, {20, 10}, {30, 15}, {40, 20}, {50, 25}, {60, 30}, {60, 30}, {60, 30}, {60, 30},
	} {
		counts(tt.periods, tt.throttled)
		m.at(1000 + float64(second))
		s := c.Read(false)
		got := s.Pods[0].Containers[0].ThrottledPercent
		switch {
		case second == 0:
			if got != nil {
				t.Errorf("second %d: %v; want none at the first reading", second, *got)
			}
		case got == nil:
			t.Errorf("second %d: none", second)
		case second < 5 && *got != 0, second > 5 && second <= 10 && *got != 50, second > 10 && *got != 0:
			t.Errorf("second %d: %v %%", second, *got)
		case second == 5 && *got != 50:
			late++
		}
	}
	if late > 1 {
		t.Errorf("%d", late)
	}
}
