package view

import (
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

// The screen has a row for the disk that is used most, if its use is known, and a name cannot draw on the screen.
func TestDiskRow(t *testing.T) {
	p := tick.Ptr[float64]
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	screen := func(disks ...tick.Disk) string {
		var m Model
		m.Add(&tick.Tick{V: 1, Node: "n", Time: at, Sample: &tick.Sample{
			CPU: &tick.NodeCPU{UsageMilliCPU: p(1000)}, Disks: disks,
			IO: &tick.NodeIO{Pressure: &tick.Pressure{Some: &tick.PressureLine{Avg10: 12.5}}},
		}})
		return strings.Join(Frame(&m, Look{Width: 130, Height: 40}, at), "\n")
	}
	got := screen(tick.Disk{Name: "sda", UsePercent: p(3)}, tick.Disk{Name: "sd\x1b[2J", UsePercent: p(40), Queue: p(2.5)}, tick.Disk{Name: "sdc"})
	for _, want := range []string{"sd?[2J, of 3", "40%", "queue 2.50  psi 12.5%"} {
		if !strings.Contains(got, want) {
			t.Errorf("the screen lacks %q:\n%s", want, got)
		}
	}
	if got := screen(tick.Disk{Name: "sda"}); strings.Contains(got, "sda") {
		t.Errorf("a disk of unknown use has a row:\n%s", got)
	}
}
