package podwait_test

import (
	"math"
	"testing"

	"polder/lib/podwait"
	"polder/lib/tick"
)

func pressure(avg10 float64) *tick.Pressure {
	return &tick.Pressure{Some: &tick.PressureLine{Avg10: avg10}}
}

// want fails the test if a waiting is not the expected one; a negative one is unknown.
func want(t *testing.T, what string, expected, permille float64, known bool) {
	t.Helper()
	if known != (expected >= 0) || known && permille != expected {
		t.Errorf("%s: %v, known %t; want %v", what, permille, known, expected)
	}
}

func TestCPU(t *testing.T) {
	limited := func(percent ...*float64) (list []tick.Container) {
		for _, x := range percent {
			list = append(list, tick.Container{ThrottledPercent: x})
		}
		return list
	}
	for name, tt := range map[string]struct {
		pod      tick.Pod
		expected float64
	}{
		"nothing is known":                {tick.Pod{}, -1},
		"none":                            {tick.Pod{CPUWaitPermille: new(0.0)}, 0},
		"its own figure":                  {tick.Pod{CPUWaitPermille: new(5.0), CPUPressure: pressure(30)}, 5},
		"more than all of the time":       {tick.Pod{CPUWaitPermille: new(2500.0)}, 2500},
		"without it, its pressure":        {tick.Pod{CPUPressure: pressure(30)}, 300},
		"invalid: its pressure":           {tick.Pod{CPUWaitPermille: new(-1.0), CPUPressure: pressure(30)}, 300},
		"too much: its pressure":          {tick.Pod{CPUWaitPermille: new(1e10), CPUPressure: pressure(30)}, 300},
		"no number":                       {tick.Pod{CPUWaitPermille: new(math.NaN())}, -1},
		"a limit that does not throttle":  {tick.Pod{CPUWaitPermille: new(5.0), Containers: limited(nil, new(0.0))}, 5},
		"its own limit throttles it":      {tick.Pod{CPUWaitPermille: new(5.0), Containers: limited(nil, new(0.1))}, -1},
		"throttled, and has its pressure": {tick.Pod{CPUPressure: pressure(30), Containers: limited(new(50.0))}, -1},
	} {
		permille, known := podwait.CPU(&tt.pod)
		want(t, name, tt.expected, permille, known)
	}
}

func TestMemory(t *testing.T) {
	use := func(bytes float64) *tick.Memory { return &tick.Memory{UsageBytes: &bytes} }
	limit := func(bytes float64) *tick.Resources { return &tick.Resources{MemoryBytes: &bytes} }
	for name, tt := range map[string]struct {
		pod      tick.Pod
		expected float64
	}{
		"no limit":            {tick.Pod{Memory: use(100)}, 20},
		"a limit of 0":        {tick.Pod{Memory: use(100), Limits: limit(0)}, 20},
		"under its limit":     {tick.Pod{Memory: use(94), Limits: limit(100)}, 20},
		"at its limit":        {tick.Pod{Memory: use(95), Limits: limit(100)}, -1},
		"use is unknown":      {tick.Pod{Memory: &tick.Memory{}, Limits: limit(100)}, 20},
		"a container's limit": {tick.Pod{Memory: use(100), Containers: []tick.Container{{}, {Memory: use(99), Limits: limit(100)}}}, -1},
	} {
		tt.pod.MemoryPressure = pressure(2)
		permille, known := podwait.Memory(&tt.pod)
		want(t, name, tt.expected, permille, known)
	}
}

// 100 % of the time is valid, more is an error.
func TestPressure(t *testing.T) {
	for avg10, expected := range map[float64]float64{0: 0, 20.5: 205, 100: 1000, 100.1: -1, -0.1: -1, math.Inf(1): -1} {
		permille, known := podwait.IO(&tick.Pod{IOPressure: pressure(avg10)})
		want(t, "disks", expected, permille, known)
		permille, known = podwait.Memory(&tick.Pod{MemoryPressure: pressure(avg10)})
		want(t, "memory", expected, permille, known)
	}
	for name, p := range map[string]*tick.Pressure{"none": nil, "no line": {}, "no number": pressure(math.NaN())} {
		percent, known := podwait.SomePercent(p)
		want(t, name, -1, percent, known)
	}
}
