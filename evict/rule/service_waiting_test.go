package rule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// waits is a pod that waits for a CPU for so many thousandths of the time, -1 where that is not known, and uses so many milli-CPU.
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

func TestServiceWaiting(t *testing.T) {
	const shared, batch = tick.QoSShared, tick.QoSReclaimed
	ended := waits("ended", shared, 900, 0)
	ended.Phase = "Succeeded"
	gone := waits("gone", shared, 900, 0)
	gone.Missing = tick.MissingCgroup
	notKnown := "cpu.wait.services: how long any of the 1 services waits is not known: not measured"
	for _, tt := range []struct {
		name  string
		pods  []tick.Pod
		value float64 // -1 where there is no finding
		want  []string
		err   string
	}{
		{"at the threshold", []tick.Pod{waits("a", shared, 200, 1), waits("b", batch, -1, 900)}, 200, nil, ""},
		{"the worst of them counts, and who uses most goes first", []tick.Pod{
			waits("a", shared, 1, 1), waits("d", tick.QoSDedicated, 201, 1), waits("small", batch, -1, 900), waits("large", batch, -1, 1900),
		}, 201, []string{"large", "small"}, ""},
		{"more than all of the time", []tick.Pod{waits("a", shared, 2500, 1), waits("b", batch, -1, 1)}, 2500, []string{"b"}, ""},
		{"who uses nothing, or nobody knows what, stays", []tick.Pod{waits("a", shared, 500, 1), waits("b", batch, -1, 0), waits("c", batch, -1, -1)}, 500, nil, ""},
		{"not known", []tick.Pod{waits("a", shared, -1, 1), waits("b", batch, -1, 900)}, -1, nil, notKnown},
		{"one is known", []tick.Pod{waits("a", shared, -1, 1), waits("c", shared, 3, 1)}, 3, nil, ""},
		{"batch waits", []tick.Pod{waits("b", batch, 900, 900), waits("a", shared, 0, 1)}, 0, nil, ""},
		{"ended, and without a cgroup", []tick.Pod{ended, gone}, -1, nil, ""},
		{"nobody", nil, -1, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Defaults()
			s.ServiceWaitingEnabled = true
			m := serviceWaiting.New().Measure(&s, tickAt(0, tt.pods...))
			if text := strings.Join(m.Errors, "; "); text != tt.err {
				t.Errorf("errors %q; want %q", text, tt.err)
			}
			if tt.value < 0 {
				if len(m.Findings) > 0 {
					t.Errorf("findings %+v; want none", m.Findings)
				}
				return
			}
			f := m.Findings[0]
			if f.Value != tt.value || f.Threshold != 200 || f.Met != (tt.value > 200) || !f.Hard || f.Tolerance != s.ServiceWaitingDuration || f.Cooldown != s.ServiceWaitingCooldown {
				t.Errorf("finding %+v; want %v over 200, hard, with tolerance and cooldown", f, tt.value)
			}
			if d := cmp.Diff(tt.want, ranked(f)); d != "" {
				t.Errorf("candidates (-want +got):\n%s", d)
			}
		})
	}
}

// It is off by default, and what it has seen before it was switched off is forgotten.
func TestServiceWaitingOffAndHysteresis(t *testing.T) {
	s := Defaults()
	w := serviceWaiting.New()
	x := func(seconds int, permille float64) string {
		m := w.Measure(&s, tickAt(seconds, waits("a", tick.QoSShared, permille, 1), waits("b", tick.QoSReclaimed, -1, 500)))
		if len(m.Findings) == 0 {
			return "none"
		}
		f := m.Findings[0]
		return fmt.Sprintf("%v of %v %v %s", f.Value, f.Threshold, f.Met, f.Message)
	}
	if got := x(0, 900); got != "none" {
		t.Errorf("off: %s; want nothing", got)
	}
	s.ServiceWaitingEnabled, s.ServiceWaitingHysteresis = true, 0.5
	for i, step := range []struct {
		permille float64
		want     string
	}{
		{300, "300 of 200 true service a waits for a CPU for 300 permille of the time, over the threshold of 200, for 0s"},
		{101, "101 of 100 true service a waits for a CPU for 101 permille of the time, over the threshold of 100, for 5s"},
		{100, "100 of 100 false "},
		{101, "101 of 200 false "},
	} {
		if got := x(5*i, step.permille); got != step.want {
			t.Errorf("step %d: %s; want %s", i, got, step.want)
		}
	}
}
