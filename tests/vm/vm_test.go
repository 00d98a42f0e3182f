package vm

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"polder/tests/vm/qemu"
	"polder/tests/vm/wire"
)

// lab has the parts of all guests, once the first test has asked for it.
var (
	lab  *Lab
	open = sync.OnceValue(func() (err error) {
		dir, err := os.MkdirTemp("", "polder-vm-")
		if err != nil {
			return err
		}
		if lab, err = Open(context.Background(), dir); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		return nil
	})
)

func TestMain(m *testing.M) {
	code := m.Run()
	if lab != nil {
		_ = os.RemoveAll(lab.dir) // it disturbs nothing
	}
	os.Exit(code)
}

// need opens the lab, or skips the test if virtual machines were not asked for.
func need(t *testing.T) {
	t.Helper()
	qemu.Need(t)
	if err := open(); err != nil {
		t.Fatal(err)
	}
}

// runSuites runs suites in one guest, and each of their tests as a subtest.
func runSuites(t *testing.T, m Machine, suites ...string) *Report {
	t.Helper()
	need(t)
	t.Parallel() // a guest mostly waits for the next tick
	r, err := lab.Run(t.Context(), m, suites...)
	if r == nil {
		t.Fatal(err)
	}
	r.asTests(t)
	t.Logf("%.1f s in all, %.1f s by the guest's clock, %.1f s of CPU time, at attempt %d to boot",
		r.Seconds, r.UptimeSeconds, r.CPUSeconds, r.Attempts)
	for _, hung := range r.Hung {
		t.Logf("an earlier attempt: %v", hung)
	}
	if err != nil {
		t.Errorf("%v; the end of the console:\n%s", err, r.Tail())
	}
	return r
}

// asTests makes a subtest of each of the guest's tests.
func (r *Report) asTests(t *testing.T) {
	t.Helper()
	for i, first := range r.Lines {
		if first.State != wire.Run {
			continue
		}
		own := Report{}
		end := wire.Run
		for _, line := range r.Lines[i:] {
			if line.Test == first.Test {
				own.Lines = append(own.Lines, line)
				end = line.State
			}
		}
		t.Run(first.Test, func(t *testing.T) {
			t.Logf("by the guest's clock:\n%s", own.String())
			switch end {
			case wire.Pass:
			case wire.Fail:
				t.Fail()
			default:
				t.Errorf("it did not end")
			}
		})
	}
}

// A guest for each way to mount cgroups, and one for the guide's 48 CPUs.
func TestGuide(t *testing.T)        { runSuites(t, Guide, "guide48", "load48") }
func TestVersion2(t *testing.T)     { runSuites(t, Small, "v2basics", "faults") }
func TestColdMemory(t *testing.T)   { runSuites(t, Small, "cold") }
func TestSharedDisks(t *testing.T)  { runSuites(t, withDisk(Small), "disks") }
func TestVersion1(t *testing.T)     { runSuites(t, Small, "v1", "hybrid") }
func TestSystemdGuest(t *testing.T) { runSuites(t, Small, SystemdSuite) }

// A guest with a slower clock runs its suite, and takes so many times longer.
func TestDilatedGuest(t *testing.T) {
	const times = 3
	m := qemu.Tiny
	m.Dilation = times
	if r := runSuites(t, m, "clock"); r.Seconds < times*r.UptimeSeconds {
		t.Errorf("%.2f s by the guest's clock took %.2f s; want %d times as many at least", r.UptimeSeconds, r.Seconds, times)
	}
}

// withDisk is a machine with a slow disk.
func withDisk(m Machine) Machine {
	m.DiskBytesPerSecond = 8 << 20
	return m
}

// A downloaded package installs, works, and leaves nothing behind.
func TestPackageGuest(t *testing.T) { runSuites(t, Small, PackageSuite) }
