package explain

import (
	"strings"
	"testing"

	"polder/lib/tick"
)

// The answers about a node and a batch pod, not those about a service, have batch's share of the uplink, and whether it is in force.
func TestNetwork(t *testing.T) {
	x := made(noon, 4000, 1000)
	x.Advice.Network = &tick.Network{Links: []tick.NetworkLink{{Link: "eth0", RateBitsPerSecond: 950e6, Classes: []tick.NetworkClass{
		{Class: "services", RateBitsPerSecond: 855e6, CeilingBitsPerSecond: 950e6, Default: true}, {Class: "batch", RateBitsPerSecond: 95e6, CeilingBitsPerSecond: 500e6},
	}}}}
	at := moment(t, "12:00")
	const sentence = "On eth0 batch is guaranteed 95 of 950 Mbit/s, and has up to 500 of what the default class leaves idle."
	for _, about := range []string{"", "batch/job"} {
		if text := spaces(ask(t, Question{Pod: about, At: at}, x)); !strings.Contains(text, sentence+" Whether that is in force is not recorded") {
			t.Errorf("about %q: %s", about, text)
		}
	}
	if text := spaces(ask(t, Question{Pod: "shop/web", At: at}, x)); strings.Contains(text, "eth0") {
		t.Errorf("about a service: %s", text)
	}
	x.Network = &tick.NetworkIsolation{Classes: []tick.NetworkCount{{Link: "eth0", Class: "batch", DroppedPackets: 3, BacklogBytes: 2048}}, Errors: []tick.IsolationError{{Cgroup: "link/eth1", Error: "left alone"}}}
	if text := spaces(ask(t, Question{At: at}, x)); !strings.Contains(text, sentence+" Its full queue has dropped 3 packets since it was created, and 2 KiB wait. Not all of it is in force: left alone.") {
		t.Errorf("in force: %s", text)
	}
}

// spaces joins the lines of a text that was broken into lines.
func spaces(text string) string { return strings.Join(strings.Fields(text), " ") }
