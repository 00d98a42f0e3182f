package policy

import (
	"strings"
	"testing"

	"polder/lib/tick"
)

// What the Node object reserves is not nothing while the object cannot be read: the last reservation counts, whatever the state file has.
func TestReservationWhileTheNodeObjectIsUnread(t *testing.T) {
	unread := []tick.SourceError{{Source: "node", Error: "no answer"}}
	known := &Reservation{MilliCPU: 2000, MemoryBytes: 8e9}
	for name, c := range map[string]struct {
		sample tick.Sample
		last   *Reservation
		want   *Reservation
		why    string
	}{
		"read":                    {tick.Sample{Allocatable: &tick.Resources{MilliCPU: new(14000.0), MemoryBytes: new(56e9)}}, nil, known, ""},
		"more than the machine":   {tick.Sample{Allocatable: &tick.Resources{MilliCPU: new(99000.0), MemoryBytes: new(99e9)}}, known, &Reservation{}, ""},
		"allocatable is negative": {tick.Sample{Allocatable: &tick.Resources{MilliCPU: new(-1.0)}}, known, &Reservation{}, ""},
		"there is no Node object": {tick.Sample{}, known, &Reservation{}, ""},
		"unread":                  {tick.Sample{Errors: unread}, known, known, "its last reservation of 2000m and 8000000000 bytes still counts"},
		"never read":              {tick.Sample{Errors: unread}, nil, nil, "could not be read yet"},
		"an error in a part":      {tick.Sample{Errors: unread, Allocatable: &tick.Resources{MilliCPU: new(14000.0)}}, nil, &Reservation{MilliCPU: 2000}, ""},
		"read, labels alone":      {tick.Sample{Errors: unread, Labels: map[string]string{"a": "b"}}, known, &Reservation{}, ""},
		"a spoilt state file":     {tick.Sample{Errors: unread}, &Reservation{MilliCPU: -5}, &Reservation{MilliCPU: -5}, "0m and 0 bytes"},
	} {
		got, why := ReservationOf(&c.sample, 16000, 64e9, c.last)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v; want %+v", name, got, c.want)
		}
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q; want %q", name, why, c.why)
		}
	}
}
