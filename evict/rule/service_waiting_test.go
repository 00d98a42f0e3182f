package rule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// waits is a pod that waits for a CPU for so many thousandths of the time, -1 if unknown, and uses so many milli-CPU.
func waits(name, class string, permille, milliCPU float64) tick.Pod {
	p := tick.Pod{UID: "uid-" + name, Name: name, QoS: class}
	if permille >= 0 {
		p.CPUWaitPermille = &permille
	}
	if milliCPU >= 0 {
		p.UsageMilliCPU = &milliCPU
	}
	return p
}

// stalls is a pod that waits for disks for so many hundredths of the time, and reads so many bytes in so many operations per second; -1
// means unknown.
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

// waitingRules are the rules of this file, with the setting that enables each, as tests need them.
var waitingRules = []struct {
	rule   *Rule
	enable func(s *Settings, hysteresis float64)
	// pod waits so many thousandths of the time and uses something, or nothing.
	pod      func(name, class string, permille, use float64) tick.Pod
	resource string
}{
	{
		serviceWaiting, func(s *Settings, hysteresis float64) {
			s.ServiceWaitingEnabled, s.ServiceWaitingHysteresis = true, hysteresis
		}, waits, "a CPU",
	},
	{
		serviceIO, func(s *Settings, hysteresis float64) { s.ServiceIOEnabled, s.ServiceIOHysteresis = true, hysteresis },
		func(name, class string, permille, use float64) tick.Pod {
			return stalls(name, class, permille/10, use, -1)
		}, "the disk",
	},
}

const (
	noCPUWaiting = "cpu.wait.services: how long any of the 1 services waits is not known: not measured"
	noIOWaiting  = "io.pressure.services: how long any of the 1 services waits is not known: not measured"
)

func TestServiceWaiting(t *testing.T) {
	const shared, batch = tick.QoSShared, tick.QoSReclaimed
	ended, endedIO := waits("ended", shared, 900, 0), stalls("ended", shared, 90, 0, 0)
	ended.Phase, endedIO.Phase = "Succeeded", "Succeeded"
	gone := waits("gone", shared, 900, 0)
	gone.Missing = tick.MissingCgroup
	for _, tt := range []struct {
		name  string
		rule  *Rule
		pods  []tick.Pod
		value float64 // -1 if there is no finding
		want  []string
		err   string
	}{
		{"at the threshold", serviceWaiting, []tick.Pod{waits("a", shared, 200, 1), waits("b", batch, -1, 900)}, 200, nil, ""},
		{"the worst of them counts, and who uses most goes first", serviceWaiting, []tick.Pod{
			waits("a", shared, 1, 1), waits("d", tick.QoSDedicated, 201, 1), waits("small", batch, -1, 900), waits("large", batch, -1, 1900),
		}, 201, []string{"large", "small"}, ""},
		{"more than all of the time", serviceWaiting, []tick.Pod{waits("a", shared, 2500, 1), waits("b", batch, -1, 1)}, 2500, []string{"b"}, ""},
		{"who uses nothing, or nobody knows what, stays", serviceWaiting, []tick.Pod{waits("a", shared, 500, 1), waits("b", batch, -1, 0), waits("c", batch, -1, -1)}, 500, nil, ""},
		{"not known", serviceWaiting, []tick.Pod{waits("a", shared, -1, 1), waits("b", batch, -1, 900)}, -1, nil, noCPUWaiting},
		{"one is known", serviceWaiting, []tick.Pod{waits("a", shared, -1, 1), waits("c", shared, 3, 1)}, 3, nil, ""},
		{"batch waits", serviceWaiting, []tick.Pod{waits("b", batch, 900, 900), waits("a", shared, 0, 1)}, 0, nil, ""},
		{"ended, and without a cgroup", serviceWaiting, []tick.Pod{ended, gone}, -1, nil, ""},
		{"nobody", serviceWaiting, nil, -1, nil, ""},

		{"disk: at the threshold", serviceIO, []tick.Pod{stalls("a", shared, 20, 1, 1), stalls("b", batch, -1, 900, 1)}, 200, nil, ""},
		{"disk: the worst counts, and who reads and writes most goes first", serviceIO, []tick.Pod{
			stalls("a", shared, 1, 1, 1), stalls("d", tick.QoSDedicated, 20.5, 1, 1), stalls("small", batch, -1, 1e6, 10), stalls("large", batch, -1, 9e6, 10),
			stalls("many", batch, -1, 1000, 10_000),
		}, 205, []string{"many", "large", "small"}, ""},
		{"disk: who does nothing, or nobody knows what, stays", serviceIO, []tick.Pod{stalls("a", shared, 50, 1, 1), stalls("b", batch, -1, 0, 0), stalls("c", batch, -1, -1, -1)}, 500, nil, ""},
		{"disk: not known, as on version 1", serviceIO, []tick.Pod{stalls("a", shared, -1, 1, 1), stalls("b", batch, -1, 900, 1)}, -1, nil, noIOWaiting},
		{"disk: no share of a time", serviceIO, []tick.Pod{stalls("a", shared, 101, 1, 1)}, -1, nil, noIOWaiting},
		{"disk: batch waits", serviceIO, []tick.Pod{stalls("b", batch, 90, 900, 1), stalls("a", shared, 0, 1, 1)}, 0, nil, ""},
		{"disk: ended", serviceIO, []tick.Pod{endedIO}, -1, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Defaults()
			s.ServiceWaitingEnabled, s.ServiceIOEnabled = tt.rule == serviceWaiting, tt.rule == serviceIO
			m := tt.rule.New().Measure(&s, tickAt(0, tt.pods...))
			if text := strings.Join(m.Errors, "; "); text != tt.err {
				t.Errorf("errors %q; want %q", text, tt.err)
			}
			if tt.value < 0 {
				if len(m.Findings) > 0 {
					t.Errorf("findings %+v; want none", m.Findings)
				}
				return
			}
			if len(m.Findings) != 1 {
				t.Fatalf("findings %+v; want one", m.Findings)
			}
			duration, cooldown := s.ServiceWaitingDuration, s.ServiceWaitingCooldown
			if tt.rule == serviceIO {
				duration, cooldown = s.ServiceIODuration, s.ServiceIOCooldown
			}
			f := m.Findings[0]
			if f.Value != tt.value || f.Threshold != 200 || f.Met != (tt.value > 200) || !f.Hard || f.Tolerance != duration || f.Cooldown != cooldown {
				t.Errorf("finding %+v; want %v over 200, hard, with tolerance and cooldown", f, tt.value)
			}
			if d := cmp.Diff(tt.want, ranked(f)); d != "" {
				t.Errorf("candidates (-want +got):\n%s", d)
			}
		})
	}
}

// Each is disabled by default, and its state from before it was disabled is dropped. The rules' settings are independent.
func TestServiceWaitingOffAndHysteresis(t *testing.T) {
	for i, tt := range waitingRules {
		t.Run(tt.rule.Name, func(t *testing.T) {
			s := Defaults()
			waitingRules[1-i].enable(&s, 0.9)
			w := tt.rule.New()
			x := func(seconds int, permille float64) string {
				m := w.Measure(&s, tickAt(seconds, tt.pod("a", tick.QoSShared, permille, 1), tt.pod("b", tick.QoSReclaimed, -1, 500)))
				if len(m.Findings) == 0 {
					return "none"
				}
				f := m.Findings[0]
				return fmt.Sprintf("%v of %v %v %s", f.Value, f.Threshold, f.Met, f.Message)
			}
			if got := x(0, 900); got != "none" {
				t.Errorf("off: %s; want nothing", got)
			}
			tt.enable(&s, 0.5)
			for i, step := range []struct {
				permille float64
				want     string
			}{
				{300, "300 of 200 true service a waits for %s for 300 permille of the time, over the threshold of 200, for 0s"},
				{110, "110 of 100 true service a waits for %s for 110 permille of the time, over the threshold of 100, for 5s"},
				{100, "100 of 100 false "},
				{110, "110 of 200 false "},
			} {
				if got, want := x(5*i, step.permille), strings.ReplaceAll(step.want, "%s", tt.resource); got != want {
					t.Errorf("step %d: %s; want %s", i, got, want)
				}
			}
		})
	}
}
