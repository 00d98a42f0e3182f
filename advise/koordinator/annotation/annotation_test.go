package annotation

import (
	"strings"
	"testing"
)

// What is no good of a reservation reserves nothing and is named; the other parts hold.
func TestReservedOf(t *testing.T) {
	for text, want := range map[string]struct {
		cpus          string
		milli, memory float64
		wrong         []string
	}{
		"":   {},
		"{}": {},
		`{"resources":{"cpu":"3","memory":"1Gi"}}`:                          {"", 3000, 1 << 30, nil},
		`{"resources":{"cpu":"x","memory":"1Gi"},"reservedCPUs":"0-1,4"}`:   {"0-1,4", 3000, 1 << 30, nil},
		`{"resources":{"cpu":"3","memory":"much"},"reservedCPUs":"x"}`:      {"", 3000, 0, []string{": reservedCPUs: ", ": resources.memory: "}},
		`{"resources":{"cpu":-1,"memory":1e30}}`:                            {"", 0, 0, []string{": resources.cpu: ", ": resources.memory: "}},
		`{`:                                                                 {"", 0, 0, []string{" does not hold: want a JSON object: "}},
		`{"reservedCPUs":"0-1"` + strings.Repeat(" ", MaxBytes) + "}":       {"", 0, 0, []string{" does not hold: it has 65558 bytes: want 65536 at most"}},
		`{"reservedCPUs":"0-1"` + strings.Repeat(" ", MaxBytes-22) + "}":    {"0-1", 2000, 0, nil},
		`{"resources":{"memory":{"much":["more"]}},"reservedCPUs":"2-999"}`: {"2-999", 998_000, 0, []string{": resources.memory: "}},
	} {
		r, errs := ReservedOf(map[string]string{Reservation: text})
		if r.CPUs.String() != want.cpus || r.MilliCPU != want.milli || r.MemoryBytes != want.memory || len(errs) != len(want.wrong) {
			t.Errorf("%.80s: CPUs %s, %vm, %v bytes, %v", text, r.CPUs, r.MilliCPU, r.MemoryBytes, errs)
			continue
		}
		for i, err := range errs {
			if !strings.HasPrefix(err.Error(), "annotation "+Reservation+want.wrong[i]) || len(err.Error()) > 500 {
				t.Errorf("%.80s: %v; want %q", text, err, want.wrong[i])
			}
		}
	}
}
