package cputime

import (
	"testing"
	"time"
)

// TestUsedPart: steal time counts as used, and equal readings tell nothing.
func TestUsedPart(t *testing.T) {
	first := Times{Busy: 15 * time.Second, Idle: 150 * time.Second}
	for _, tt := range []struct {
		last Times
		want float64
	}{
		{first, 0},
		{Times{Busy: 20 * time.Second, Idle: 156 * time.Second, Steal: time.Second}, 0.5},
		{Times{Busy: 18 * time.Second, Idle: 151 * time.Second}, 0.75},
	} {
		if got := UsedPart(first, tt.last); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.last, got, tt.want)
		}
	}
}

func TestRead(t *testing.T) {
	first, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	last, err := Read()
	if err != nil || first.Busy <= 0 || last.Busy < first.Busy || last.Idle < first.Idle {
		t.Errorf("%+v, then %+v, %v", first, last, err)
	}
}
