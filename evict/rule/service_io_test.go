package rule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// stalls is a pod that waits for disks in so many hundredths of the time, and reads so many bytes in so many operations a second; -1 is what
// is not known.
func stalls(name, class string, avg10, bytes, operations float64) tick.Pod {
	p := tick.Pod{UID: "uid-" + name, Name: name, QoS: class}
	if avg10 >= 0 {
		p.IOPressure = &tick.Pressure{Some: &tick.PressureLine{Avg10: avg10}}
	}
	if bytes >= 0 || operations >= 0 {
		p.IO = &tick.IO{}
	}
	if bytes >= 0 {
		p.IO.ReadBytesPerSecond = &bytes
	}
	if operations >= 0 {
		p.IO.WritesPerSecond = &operations
	}
	return p
}

func TestServiceIO(t *testing.T) {
	const shared, batch = tick.QoSShared, tick.QoSReclaimed
	ended := stalls("ended", shared, 90, 0, 0)
	ended.Phase = "Succeeded"
	for _, tt := range []struct {
		name  string
		pods  []tick.Pod
		value float64 // -1 where there is no finding
		want  []string
		err   string
	}{
		{"at the threshold", []tick.Pod{stalls("a", shared, 20, 1, 1), stalls("b", batch, -1, 900, 1)}, 200, nil, ""},
		{"the worst counts, and who reads and writes most goes first", []tick.Pod{
			stalls("a", shared, 1, 1, 1), stalls("d", tick.QoSDedicated, 20.5, 1, 1), stalls("small", batch, -1, 1e6, 10), stalls("large", batch, -1, 9e6, 10),
			stalls("many", batch, -1, 1000, 10_000),
		}, 205, []string{"many", "large", "small"}, ""},
		{"who does nothing, or nobody knows what, stays", []tick.Pod{stalls("a", shared, 50, 1, 1), stalls("b", batch, -1, 0, 0), stalls("c", batch, -1, -1, -1)}, 500, nil, ""},
		{
			"not known, as on version 1",
			[]tick.Pod{stalls("a", shared, -1, 1, 1), stalls("b", batch, -1, 900, 1)},
			-1, nil,
			"io.pressure.services: how long any of the 1 services waits is not known: not measured",
		},
		{
			"no share of a time",
			[]tick.Pod{stalls("a", shared, 101, 1, 1)},
			-1, nil,
			"io.pressure.services: how long any of the 1 services waits is not known: not measured",
		},
		{"batch waits", []tick.Pod{stalls("b", batch, 90, 900, 1), stalls("a", shared, 0, 1, 1)}, 0, nil, ""},
		{"ended", []tick.Pod{ended}, -1, nil, ""},
	} {
		s := Defaults()
		s.ServiceIOEnabled = true
		m := serviceIO.New().Measure(&s, tickAt(0, tt.pods...))
		if text := strings.Join(m.Errors, "; "); text != tt.err {
			t.Errorf("%s: errors %q; want %q", tt.name, text, tt.err)
		}
		if tt.value < 0 {
			if len(m.Findings) > 0 {
				t.Errorf("%s: findings %+v; want none", tt.name, m.Findings)
			}
			continue
		}
		if len(m.Findings) != 1 {
			t.Errorf("%s: findings %+v; want one", tt.name, m.Findings)
			continue
		}
		f := m.Findings[0]
		if f.Value != tt.value || f.Threshold != 200 || f.Met != (tt.value > 200) || !f.Hard || f.Tolerance != s.ServiceIODuration || f.Cooldown != s.ServiceIOCooldown {
			t.Errorf("%s: finding %+v; want %v over 200, hard, with tolerance and cooldown", tt.name, f, tt.value)
		}
		if d := cmp.Diff(tt.want, ranked(f)); d != "" {
			t.Errorf("%s: candidates (-want +got):\n%s", tt.name, d)
		}
	}
}

// It is off by default, and what it has seen before it was switched off is forgotten.
func TestServiceIOOffAndHysteresis(t *testing.T) {
	s := Defaults()
	w := serviceIO.New()
	x := func(seconds int, avg10 float64) string {
		m := w.Measure(&s, tickAt(seconds, stalls("a", tick.QoSShared, avg10, 1, 1), stalls("b", tick.QoSReclaimed, -1, 500, 1)))
		if len(m.Findings) == 0 {
			return "none"
		}
		f := m.Findings[0]
		return fmt.Sprintf("%v of %v %v %s", f.Value, f.Threshold, f.Met, f.Message)
	}
	if got := x(0, 90); got != "none" {
		t.Errorf("off: %s; want nothing", got)
	}
	s.ServiceIOEnabled, s.ServiceIOHysteresis = true, 0.5
	for i, step := range []struct {
		avg10 float64
		want  string
	}{
		{30, "300 of 200 true service a waits for the disk for 300 permille of the time, over the threshold of 200, for 0s"},
		{11, "110 of 100 true service a waits for the disk for 110 permille of the time, over the threshold of 100, for 5s"},
		{10, "100 of 100 false "},
		{11, "110 of 200 false "},
	} {
		if got := x(5*i, step.avg10); got != step.want {
			t.Errorf("step %d: %s; want %s", i, got, step.want)
		}
	}
}
