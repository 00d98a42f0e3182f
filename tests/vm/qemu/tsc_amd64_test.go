package qemu

import "testing"

// Two measurements agree to a thousandth, whatever else the host does.
func TestFrequency(t *testing.T) {
	a, b := timeStampKHz(), timeStampKHz()
	if a < 500_000 || (a-b)*1000 > a || (b-a)*1000 > a {
		t.Errorf("the time stamp counter has %d kHz, and then %d", a, b)
	}
	t.Logf("%s", frequency(1))
}
