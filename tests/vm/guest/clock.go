package main

import "time"

// guestClock waits by the guest's own clock, so that the host can compare it with its own.
var guestClock = suite{
	name:  "clock",
	doc:   "a sleep takes its time by the guest's clock",
	mount: mountV2,
	tests: []test{{"sleep", func(t *T) {
		const span = 2 * time.Second
		at := uptime()
		time.Sleep(span)
		if took := uptime() - at; took < span {
			t.Errorf("a sleep of %s took %s", span, took)
		}
	}}},
}
