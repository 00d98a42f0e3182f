package guard

import (
	"fmt"
	"testing"

	"polder/advise/policy"
	"polder/lib/tick"
)

// waitsForDisk returns a service that waits for disks for avg10 hundredths of the time.
func waitsForDisk(avg10 float64) tick.Pod {
	p := web(0, 1000)
	p.IOPressure = &tick.Pressure{Some: &tick.PressureLine{Avg10: avg10}}
	return p
}

// writes returns a batch pod that writes some bytes per second; -1 is unknown.
func writes(bytes float64) tick.Pod {
	p := job("job", 3000)
	if bytes >= 0 {
		p.IO = &tick.IO{WriteBytesPerSecond: &bytes, WritesPerSecond: new(bytes / (1 << 20))}
	}
	return p
}

func diskLimits(list []tick.Cgroup) string {
	text := ""
	for _, c := range list {
		for _, d := range c.IOMax {
			text += fmt.Sprintf("%s %s %d,%d,%d,%d;", c.Cgroup, d.Disk, *d.ReadBytesPerSecond>>20, *d.WriteBytesPerSecond>>20, *d.ReadsPerSecond, *d.WritesPerSecond)
		}
	}
	return text
}

// Batch is throttled in steps while a service waits for the disk, before its CPUs are taken, and the steps are reverted slowly.
func TestDiskSteps(t *testing.T) {
	r := &fixture{version: 2, set: Settings{Disk: On}}
	r.times(60, waitsForDisk(0), job("job", 0)) // alone
	var got []string
	seen := func(a *tick.Advice) {
		if text := diskLimits(a.Cgroups); len(got) == 0 || got[len(got)-1] != text {
			got = append(got, text)
		}
		if diskLimits(a.Fallback) != diskLimits(a.Cgroups) {
			t.Fatalf("in the fallback %q, else %q", diskLimits(a.Fallback), diskLimits(a.Cgroups))
		}
	}
	for range 18 {
		seen(r.tick(waitsForDisk(40), writes(301<<20)))
	}
	if got := r.kinds(); got != "disk disk disk" {
		t.Errorf("steps %s; want those of the disk first", got)
	}
	if a := r.tick(waitsForDisk(40), writes(301<<20)); !hasReason(a, `guard: step 1: disk taken from batch (1 of 3)`) ||
		!hasReason(a, `waited for I/O for 400 ms per second`) {
		t.Errorf("reasons %q", a.Reasons)
	}
	seen(r.tick(waitsForDisk(0), writes(-1))) // batch's current rates are unknown: the steps stay
	for range 120 {
		seen(r.tick(waitsForDisk(0), writes(1<<20)))
	}
	want := []string{
		"", "/job all 1,201,32,211;", "/job all 1,101,32,121;", "/job all 1,1,32,32;",
		"/job all 1,101,32,121;", "/job all 1,201,32,211;", "/job all -1,-1,-1,-1;",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("limits:\n%q\nwant\n%q", got, want)
	}
}

// On version 1, by default, and with a batch pod without disk I/O there are no steps of disk: CPUs are taken instead.
func TestDiskStepsElsewhere(t *testing.T) {
	for _, tt := range []struct {
		version int
		bytes   float64
		set     string
	}{{1, 301 << 20, On}, {2, 1000, On}, {2, -1, On}, {2, 301 << 20, Off}, {2, 301 << 20, ""}} {
		r := &fixture{version: tt.version, set: Settings{Disk: tt.set}, policy: tick.Advice{Cgroups: []tick.Cgroup{{Cgroup: "/job", CPUSetCPUs: "0-7"}}}}
		r.times(60, waitsForDisk(0), job("job", 0))
		a := r.times(8, waitsForDisk(40), writes(tt.bytes))
		if r.kinds() != "CPUs" || diskLimits(a.Cgroups) != "" {
			t.Errorf("version %d, %v bytes a second: steps %q, limits %q", tt.version, tt.bytes, r.kinds(), diskLimits(a.Cgroups))
		}
	}
}

// The policy's limits stay if they are tighter.
func TestDiskStepsAreTighter(t *testing.T) {
	limit := int64(50 << 20)
	r := &fixture{version: 2, set: Settings{Disk: On}, policy: tick.Advice{Cgroups: []tick.Cgroup{{Cgroup: "/job", IOMax: []tick.DiskLimit{{Disk: "sda", WriteBytesPerSecond: &limit}}}}}}
	r.times(60, waitsForDisk(0), job("job", 0))
	r.times(7, waitsForDisk(40), writes(301<<20))
	if got, want := diskLimits(r.tick(waitsForDisk(40), writes(301<<20)).Cgroups), "/job sda 1,50,32,211;/job all 1,201,32,211;"; got != want {
		t.Errorf("limits %q, want %q", got, want)
	}
	if limit != 50<<20 || r.policy.Cgroups[0].IOMax[0].ReadBytesPerSecond != nil {
		t.Errorf("the policy's own advice was changed: %+v", r.policy.Cgroups[0].IOMax)
	}
}

// A step of disk has an effect while its base is more than the least: batch's rates at the first step, else the current ones.
func TestCanThrottle(t *testing.T) {
	much, little := rates{1: 301 << 20}, rates{1: 1000}
	for _, tt := range []struct {
		name     string
		now      rates
		previous *applied
		want     bool
	}{
		{"batch does much", much, nil, true},
		{"batch does little", little, nil, false},
		{"it did much, and does little since it is limited", little, &applied{Disk: true, Rates: much}, true},
		{"it did little", much, &applied{Disk: true, Rates: little}, false},
		{"something else was taken from it", much, &applied{Quota: true}, true},
	} {
		st := &State{Batch: map[string]*applied{"/job": tt.previous}}
		if got := st.canThrottle(&view{disks: map[string]rates{"/job": tt.now}}); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// A batch pod with unknown disk I/O is not limited, whatever else was taken from it, unless it was limited before.
func TestDisksOfAnUnknownPodAreNotLimited(t *testing.T) {
	for _, tt := range []struct {
		name     string
		previous *applied
		want     string
	}{
		{"it was never limited", nil, ""},
		{"nor was its disk", &applied{Quota: true}, ""},
		{"its disk was", &applied{Disk: true, Rates: rates{301 << 20, 301 << 20, 332, 332}}, "/job all 201,201,232,232;"},
	} {
		st := &State{Batch: map[string]*applied{}}
		if tt.previous != nil {
			st.Batch["/job"] = tt.previous
		}
		d := draft{policy.NewDraft(&tick.Advice{})}
		done := st.applyDisk(d, &view{podCgroups: map[string]bool{"/job": true}}, 1)
		if got := diskLimits(d.Cgroups); got != tt.want || done["/job"] != (tt.want != "") {
			t.Errorf("%s: limits %q, done %t; want %q", tt.name, got, done["/job"], tt.want)
		}
	}
}

// A limit of all disks is reverted beside limits of single disks, but not if the policy has a limit of all disks of its own.
func TestDiskLimitsAreReverted(t *testing.T) {
	limit := func(disk string) tick.DiskLimit {
		bytes, operations := new(int64(50<<20)), new(int64(40))
		return tick.DiskLimit{
			Disk: disk, ReadBytesPerSecond: bytes, WriteBytesPerSecond: bytes, ReadsPerSecond: operations, WritesPerSecond: operations,
		}
	}
	const undone = "/job all -1,-1,-1,-1;"
	for want, list := range map[string][]tick.DiskLimit{
		undone:                           nil,
		"/job sda 50,50,40,40;" + undone: {limit("sda")},
		"/job all 50,50,40,40;":          {limit(tick.AllDisks)},
	} {
		d := draft{policy.NewDraft(&tick.Advice{Cgroups: []tick.Cgroup{{Cgroup: "/job", IOMax: list}}})}
		d.removeDiskLimits("/job")
		if got := diskLimits(d.Cgroups); got != want {
			t.Errorf("limits %q; want %q", got, want)
		}
	}
}
