package annotation

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// An invalid part of a reservation reserves nothing and is reported; the other parts apply.
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
		`{`:                                                                 {"", 0, 0, []string{" is invalid: it is not a JSON object: "}},
		`{"reservedCPUs":"0-1"` + strings.Repeat(" ", MaxBytes) + "}":       {"", 0, 0, []string{" is invalid: it has 65558 bytes, the maximum is 65536"}},
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

// A CPU is worth 1 to 5 of the cluster's standard CPUs; without a value it is 1, and with an invalid one it is 1 with an error.
func TestRatioOf(t *testing.T) {
	for text, want := range map[string]struct {
		ratio   float64
		isWrong bool
	}{
		"": {1, false}, "1": {1, false}, "1.5": {1.5, false}, "5": {5, false},
		"0.99": {1, true}, "5.01": {1, true}, "-2": {1, true}, "NaN": {1, true}, "Inf": {1, true}, "x": {1, true}, "2x": {1, true}, "1e400": {1, true},
	} {
		ratio, err := RatioOf(map[string]string{Ratio: text})
		if ratio != want.ratio || (err != nil) != want.isWrong {
			t.Errorf("%q: %v, %v; want %v", text, ratio, err, want.ratio)
		}
	}
}

// A number at its bounds is valid; one beyond them is removed and reported, and one that is not set is ignored.
func TestDropInvalid(t *testing.T) {
	for _, tt := range []struct {
		v     *int64
		holds bool
	}{{nil, true}, {new(int64(10)), true}, {new(int64(20)), true}, {new(int64(9)), false}, {new(int64(21)), false}} {
		v, other := tt.v, new(int64(15))
		err := DropInvalid([]sloconfig.Number{{Name: "n", Value: &v, Minimum: 10, Maximum: 20}, {Name: "other", Value: &other, Minimum: 10, Maximum: 20}})
		if (err == nil) != tt.holds || tt.v != nil && (v != nil) != tt.holds || other == nil {
			t.Errorf("%v: became %v, %v", tt.v, v, err)
		}
		if err != nil && err.Error() != fmt.Sprintf("n %d is not between 10 and 20", *tt.v) {
			t.Errorf("%v", err)
		}
	}
}

// The valid ones of a pod's settings apply; the error for the others names the pod.
func TestSettings(t *testing.T) {
	type settings struct{ N int }
	for text, want := range map[string]struct {
		n     int // -1 means none
		wrong string
	}{
		"": {-1, ""}, `{"n":1}`: {1, ""},
		`{"n":2}`: {0, `annotation a of pod "ns/p": a part of it is ignored: 2 is invalid`},
		`{`:       {-1, `annotation a of pod "ns/p": it is ignored: it is not a JSON object: `},
	} {
		p := &tick.Pod{Namespace: "ns", Name: "p", Annotations: map[string]string{"a": text}}
		v, err := Settings(p, "a", func(s *settings) error {
			if s.N == 2 {
				s.N = 0
				return errors.New("2 is invalid")
			}
			return nil
		})
		n, message := -1, ""
		if v != nil {
			n = v.N
		}
		if err != nil {
			message = err.Error()
		}
		if n != want.n || !strings.HasPrefix(message, want.wrong) || (message == "") != (want.wrong == "") {
			t.Errorf("%q: %d, %q; want %d, %q", text, n, message, want.n, want.wrong)
		}
	}
}
