package view

import (
	"strings"
	"testing"

	"polder/lib/tick"
)

// The screen has a row for each class, with the kernel's counters, or shows that the advice is not applied.
func TestNetworkSection(t *testing.T) {
	m := &Model{}
	if s := (&Model{Tick: &tick.Tick{}}).networkSection(); len(s.rows) > 0 || s.heading != nil {
		t.Errorf("without advice: %+v", s)
	}
	m.Tick = &tick.Tick{Advice: &tick.Advice{Network: &tick.Network{Links: []tick.NetworkLink{{Link: "eth0\x1b[2J", Classes: []tick.NetworkClass{{Class: "batch", RateBitsPerSecond: 95e6, CeilingBitsPerSecond: 950e6}}}}}}}
	shown := func() string {
		s := m.networkSection()
		look := Look{Width: 120, Height: 40}
		text := s.heading.render(look)
		for _, row := range s.rows {
			text += "\n" + row.render(look)
		}
		return text
	}
	if text := shown(); !strings.Contains(text, "isolate --only network is not in the pipe") || !strings.Contains(text, "95 to 950 Mbit/s") || strings.Contains(text, "\x1b[2J") {
		t.Errorf("advised: %q", text)
	}
	m.Tick.Network = &tick.NetworkIsolation{Classes: []tick.NetworkCount{{Link: "eth0\x1b[2J", Class: "batch", SentBytes: 1 << 30, DroppedPackets: 7}}}
	if text := shown(); strings.Contains(text, "not in the pipe") || !strings.Contains(text, "dropped 7 packets") {
		t.Errorf("in force: %q", text)
	}
}
