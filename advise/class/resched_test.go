package class

import (
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

// reschedAdvice returns the interval that is advised after a tick, in seconds; 0 for none.
func reschedAdvice(st *State, at time.Time, s Settings, m Machine, batchUse, totalUse *float64) (*State, float64) {
	return reschedAdviceFor("/batch", st, at, s, m, batchUse, totalUse)
}

func reschedAdviceFor(cgroup string, st *State, at time.Time, s Settings, m Machine, batchUse, totalUse *float64) (*State, float64) {
	t := &tick.Tick{Time: at, Sample: &tick.Sample{CPU: &tick.NodeCPU{UsageMilliCPU: totalUse}, Pods: []tick.Pod{
		{QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: cgroup, UsageMilliCPU: batchUse},
	}}}
	a := &tick.Advice{}
	st = st.Advise(t, a, s, m)
	if a.ReschedIntervalSeconds == nil {
		return st, 0
	}
	return st, *a.ReschedIntervalSeconds
}

// On wait is for the idle class alone, whatever the size of the machine, and besides the interval.
func TestReschedOnWait(t *testing.T) {
	const waiting, asWell = "when a task waits behind batch", "every 1ms where the kernel does not permit that"
	for _, c := range []struct {
		isOn   bool
		class  string
		cpus   int64
		want   bool
		reason string
	}{
		{true, "", 2, true, waiting + ", or " + asWell},
		{true, Idle, 48, true, waiting + ": batch"},
		{false, Idle, 2, false, "every 1ms: batch"},
		{false, Idle, 48, false, ""},
		{true, Weight, 48, false, ""},
		{true, Weight, 2, false, "every 1ms: batch"},
	} {
		batch := tick.Pod{QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: "/batch", UsageMilliCPU: new(float64(c.cpus) * 500)}
		all := &tick.NodeCPU{UsageMilliCPU: new(float64(c.cpus) * 900)}
		tk := &tick.Tick{Time: time.Unix(1e9, 0), Sample: &tick.Sample{CPU: all, Pods: []tick.Pod{batch}}}
		a := &tick.Advice{}
		s := Settings{Class: c.class, ReschedOnWait: c.isOn, ReschedInterval: ReschedOnSmallMachines}
		(*State)(nil).Advise(tk, a, s, Machine{MilliCPU: c.cpus * 1000})
		text := strings.Join(a.Reasons, "\n")
		if a.ReschedOnWait != c.want || !strings.Contains(text, c.reason) || strings.Contains(text, "rescheduled") != (c.reason != "") {
			t.Errorf("%+v: %v, reasons %q", c, a.ReschedOnWait, a.Reasons)
		}
	}
}

// CPUs are rescheduled while both batch and other programs use CPU, and for 10 s after; an unknown use changes nothing.
func TestReschedWhileBothRun(t *testing.T) {
	start := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	m := Machine{MilliCPU: 2000}
	var st *State
	for _, c := range []struct {
		second       int
		batch, total *float64
		want         float64
	}{
		{0, nil, nil, 0}, // not known yet
		{1, new(1500.0), new(1510.0), 0},
		{2, new(1500.0), new(1520.0), 0.001},
		{3, nil, new(1520.0), 0.001},
		{4, new(1500.0), nil, 0.001},
		{5, new(0.0), new(500.0), 0.001},
		{11, new(0.0), new(500.0), 0.001},
		{12, new(0.0), new(500.0), 0},
		{13, new(1500.0), new(1900.0), 0.001},
		{-20, new(0.0), new(500.0), 0}, // the clock was set back
	} {
		var got float64
		if st, got = reschedAdvice(st, start.Add(time.Duration(c.second)*time.Second), Defaults(), m, c.batch, c.total); got != c.want {
			t.Errorf("second %d: %v s, want %v", c.second, got, c.want)
		}
	}
}

// The default depends on the size of the machine; a setting does not.
func TestReschedInterval(t *testing.T) {
	for _, c := range []struct {
		interval time.Duration
		class    string
		cpus     int64
		want     float64
	}{
		{ReschedOnSmallMachines, Idle, 2, 0.001},
		{ReschedOnSmallMachines, Weight, 7, 0.001},
		{ReschedOnSmallMachines, Idle, 8, 0},
		{ReschedOnSmallMachines, None, 2, 0},
		{0, Idle, 2, 0},
		{2 * time.Millisecond, Idle, 48, 0.002},
	} {
		s := Settings{Class: c.class, ReschedInterval: c.interval}
		m := Machine{MilliCPU: c.cpus * 1000}
		if _, got := reschedAdvice(nil, time.Unix(1e9, 0), s, m, new(float64(c.cpus)*500), new(float64(c.cpus)*900)); got != c.want {
			t.Errorf("%+v: %v s, want %v", c, got, c.want)
		}
	}
}

// Only batch at the top of the hierarchy makes CPUs be rescheduled: the kernel does not cope with it below another cgroup.
func TestReschedOnlyAtTop(t *testing.T) {
	for cgroup, want := range map[string]float64{
		"/batch": 0.001, "/batch.slice": 0.001, "/my-kubepods-jobs": 0.001, "/machine/batch": 0, "/kubepods/besteffort/pod1": 0,
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice": 0,
	} {
		if _, got := reschedAdviceFor(cgroup, nil, time.Unix(1e9, 0), Defaults(), Machine{MilliCPU: 2000}, new(900.0), new(1800.0)); got != want {
			t.Errorf("%s: %v s, want %v", cgroup, got, want)
		}
	}
}
