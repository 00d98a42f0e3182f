package evictconfig

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSettingsCheck(t *testing.T) {
	for key, change := range map[string]func(*Settings){
		"reclaimed-threshold":               func(s *Settings) { s.ReclaimedThreshold = 0 },
		"reclaimed-cpu-threshold":           func(s *Settings) { s.ReclaimedCPUThreshold = -1 },
		"reclaimed-memory-threshold":        func(s *Settings) { s.ReclaimedMemoryThreshold = math.NaN() },
		"reclaimed-soft-cpu-threshold":      func(s *Settings) { s.ReclaimedSoftCPUThreshold = math.Inf(1) },
		"reclaimed-soft-memory-threshold":   func(s *Settings) { s.ReclaimedSoftMemoryThreshold = -0.1 },
		"reclaimed-tolerance":               func(s *Settings) { s.ReclaimedTolerance = 25 * time.Hour },
		"reclaimed-hysteresis":              func(s *Settings) { s.ReclaimedHysteresis = 1 },
		"memory-free-minimum":               func(s *Settings) { s.MemoryFreeMinimum = -1 },
		"memory-numa-victim-minimum":        func(s *Settings) { s.MemoryNUMAVictimMinimum = 1.1 },
		"memory-numa-below-times":           func(s *Settings) { s.MemoryNUMABelowTimes = 0 },
		"memory-numa-below-times-reclaimed": func(s *Settings) { s.MemoryNUMABelowTimesReclaimed = 0 },
		"memory-kswapd-rate":                func(s *Settings) { s.MemoryKswapdRate = -1 },
		"memory-kswapd-times":               func(s *Settings) { s.MemoryKswapdTimes = 0 },
		"memory-psi-threshold":              func(s *Settings) { s.MemoryPSIThreshold = 101 },
		"memory-psi-pods":                   func(s *Settings) { s.MemoryPSIPods = 0 },
		"memory-psi-pods-mean":              func(s *Settings) { s.MemoryPSIPodsMean = -1 },
		"memory-system-ranking":             func(s *Settings) { s.MemorySystemRanking = []string{RankNUMAMemory} },
		"memory-numa-ranking":               func(s *Settings) { s.MemoryNUMARanking = []string{RankQoS, RankQoS} },
		"memory-hysteresis":                 func(s *Settings) { s.MemoryHysteresis = -1 },
		"load-lower-bound-ratio":            func(s *Settings) { s.LoadLowerBoundRatio = -1 },
		"load-upper-bound-ratio":            func(s *Settings) { s.LoadUpperBoundRatio = 0.9 },
		"load-threshold-met-percentage":     func(s *Settings) { s.LoadThresholdMetPercentage = 80 },
		"load-metric-ring-size":             func(s *Settings) { s.LoadMetricRingSize = 0 },
		"load-cooldown":                     func(s *Settings) { s.LoadCooldown = -1 },
		"suppression-max-tolerance-rate":    func(s *Settings) { s.SuppressionMaxToleranceRate = 0 },
		"rss-overuse-threshold":             func(s *Settings) { s.RSSOveruseThreshold = 0 },
	} {
		s := Defaults()
		change(&s)
		var got []string
		s.Check(func(key string, _ error) { got = append(got, key) })
		if d := cmp.Diff([]string{key}, got); d != "" {
			t.Errorf("Check (-want +got):\n%s", d)
		}
	}
	s := Defaults()
	s.Check(func(key string, err error) { t.Errorf("defaults: %s: %v", key, err) })
	s.MemoryNUMARanking = nil
	var got []string
	s.Check(func(key string, _ error) { got = append(got, key) })
	if d := cmp.Diff([]string{"memory-numa-ranking"}, got); d != "" {
		t.Errorf("an empty ranking (-want +got):\n%s", d)
	}
}

// Each field of Settings has one row with its own name, and a row uses its own field.
func TestRows(t *testing.T) {
	s := Defaults()
	pointers, names := map[any]bool{}, map[string]bool{}
	for _, row := range s.Rows() {
		if row.Name == "" || row.Usage == "" || names[row.Name] || pointers[row.Into] {
			t.Errorf("setting %q: want a name, a usage and a field that no other setting has", row.Name)
		}
		names[row.Name], pointers[row.Into] = true, true
		for _, f := range row.Fields {
			if f.Read == nil || f.Expected == "" || f.Path == "" {
				t.Errorf("setting %s: field %q lacks what it may have", row.Name, f.Path)
			}
		}
	}
	f := FleetDefaults()
	apart := map[any]bool{}
	for _, row := range f.Rows() {
		apart[row.Into] = true
	}
	if n := hasRows(t, reflect.ValueOf(&f).Elem(), apart); n != 4 || n != len(apart) {
		t.Errorf("fleet: %d fields and %d rows; want 4", n, len(apart))
	}
	if fields := hasRows(t, reflect.ValueOf(&s).Elem(), pointers); fields < 67 || fields != len(names) {
		t.Errorf("%d fields and %d rows", fields, len(names))
	}
	for _, row := range s.Rows() {
		if row.ReplacedBy != "" && !names[row.ReplacedBy] {
			t.Errorf("setting %s stands in the place of %s, which there is not", row.Name, row.ReplacedBy)
		}
	}
}

// hasRows fails for each field that no row points to, and returns the number of fields, with those of the waiting rules' settings.
func hasRows(t *testing.T, of reflect.Value, pointers map[any]bool) (fields int) {
	t.Helper()
	for i := range of.NumField() {
		switch field := of.Field(i); {
		case field.Type() == reflect.TypeFor[Waiting]():
			fields += hasRows(t, field, pointers)
			continue
		case !pointers[field.Addr().Interface()]:
			t.Errorf("%s has no row", of.Type().Field(i).Name)
		}
		fields++
	}
	return fields
}

// A write to one Settings value does not change another one.
func TestSettingsAreIndependent(t *testing.T) {
	a, b := Defaults(), Defaults()
	for _, row := range a.Rows() {
		if !row.Set(row.get()) || row.Set(struct{}{}) {
			t.Errorf("setting %s is not set to its own value, or to one of another type", row.Name)
		}
	}
	a.MemorySystemRanking[0] = "x"
	if c := Defaults(); b.MemorySystemRanking[0] != RankQoS || c.MemorySystemRanking[0] != RankQoS {
		t.Error("the default ranking was changed")
	}
}
