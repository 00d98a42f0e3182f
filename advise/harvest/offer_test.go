package harvest

import (
	"math"
	"testing"
	"time"
)

// The bound of an offer, each step from the one before. It falls by a step per minute while the services have headroom, at once if they
// have none, and not for half a percent; it rises by a step after it was too small for five minutes.
func TestReasonOfABoundedOffer(t *testing.T) {
	s := Defaults()
	o := offer{}
	for _, step := range []struct {
		seconds        int
		can, use, want float64
		bound          string
	}{
		{0, 0.8, 0.1, 0.8, ""},
		{10, 0.6, 0.1, 0.75, "; it falls by steps of 5 % while the services have headroom"},
		{69, 0.6, 0.1, 0.75, "; it falls by a step a minute while the services have headroom"},
		{70, 0.7, 0.1, 0.7, ""},      // one step is enough
		{200, 0.6951, 0.1, 0.7, ""},  // within the dead band
		{200, 0.694, 0.1, 0.694, ""}, // beyond the dead band
		{210, 0.5, 0.2959, 0.694, "; it falls by a step a minute while the services have headroom"}, // just over a hundredth is left
		{210, 0.5, 0.2961, 0.5, ""}, // just less
		{220, 0.504, 0.1, 0.5, ""},  // within the dead band
		{509, 0.9, 0.1, 0.5, "; it may rise by 5 % in 1s"},
		{510, 0.9, 0.1, 0.5, "; it may rise by 5 % in 300s"}, // at most 0.504 was possible in that time
		{809, 0.53, 0.1, 0.5, "; it may rise by 3 % in 1s"},
		{810, 0.9, 0.1, 0.53, "; it may rise by 5 % in 300s"},
		{1110, 0.9, 0.1, 0.58, "; it may rise by 5 % in 300s"},
		{1000, 0.9, 0.1, 0.58, "; it may rise by 5 % in 300s"}, // the clock was set back
		{1300, 0.584, 0.1, 0.58, ""},
	} {
		bound := o.follow(start.Add(time.Duration(step.seconds)*time.Second), step.can, step.use, s)
		if math.Abs(o.Part-step.want) > 1e-9 || bound != step.bound {
			t.Errorf("after %d s: %.4f%s; want %.4f%s", step.seconds, o.Part, bound, step.want, step.bound)
		}
	}
	for _, part := range []float64{-3, 7} { // invalid in a state file
		o = offer{Part: part, Known: true, Since: start, MinPossible: 1}
		if o.follow(start, 0.5, 0.9, s); o.Part < 0 || o.Part > 1 {
			t.Errorf("of a part of %v comes %v", part, o.Part)
		}
	}
}

// If the capacity changes, the same amount is offered, and the same amount was not possible to offer.
func TestOfferOfAnotherCapacity(t *testing.T) {
	for factor, want := range map[float64]offer{
		0.5: {Part: 0.25, MinPossible: 0.8}, 1: {Part: 0.5, MinPossible: 0.6}, 2: {Part: 1, MinPossible: 0.2}, 4: {Part: 1, MinPossible: 0},
	} {
		o := offer{Part: 0.5, MinPossible: 0.6}
		if o.convert(factor); math.Abs(o.Part-want.Part) > 1e-9 || math.Abs(o.MinPossible-want.MinPossible) > 1e-9 {
			t.Errorf("x %v: %+v; want %+v", factor, o, want)
		}
	}
}
