package loadavg

import (
	"testing"
	"time"
)

// After a long gap one sample is not the load: the averages begin again.
func TestLoadAfterAGap(t *testing.T) {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	var l Average
	for second := range 600 {
		l.Add(start.Add(time.Duration(second)*time.Second), 0)
	}
	short, long := l, l
	at := l.At.Add(longestGap)
	if short.Add(at, 8); !short.Known(at) || short.Load1 == 0 {
		t.Errorf("after %s: %+v; want averages of old and new samples", longestGap, short)
	}
	at = l.At.Add(longestGap + time.Second)
	if long.Add(at, 8); long.Known(at) || !long.Due(at.Add(time.Second)) {
		t.Errorf("after a longer gap: %+v; want a new beginning", long)
	}
	for range 5 {
		at = at.Add(time.Second)
		long.Add(at, 0)
	}
	if !long.Known(at) || long.Load1 > 2 {
		t.Errorf("5 seconds later: %+v; want the mean of the new samples", long)
	}
}
