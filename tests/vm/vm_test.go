package vm

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"polder/tests/vm/wire"
)

// lab is what all guests are made of; nil where they cannot be had.
var (
	lab     *Lab
	whyNone error
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "polder-vm-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		required := os.Getenv("POLDER_VM") == "1"
		switch {
		case testing.Short() && !required:
			whyNone = fmt.Errorf("virtual machines take their time: not with -short")
		default:
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			lab, whyNone = Open(ctx, dir)
		}
		if whyNone != nil && required {
			fmt.Fprintln(os.Stderr, "POLDER_VM=1:", whyNone)
			return 1
		}
		return m.Run()
	}())
}

// need skips a test where there are no virtual machines; POLDER_VM=1 makes them a must.
func need(t *testing.T) {
	t.Helper()
	if lab == nil {
		t.Skipf("%v (POLDER_VM=1 makes it a must)", whyNone)
	}
}

// runSuite runs a suite in a guest, and each of its tests as one of ours.
func runSuite(t *testing.T, m Machine, suite string, limit time.Duration) *Report {
	t.Helper()
	need(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	r, err := lab.Run(ctx, m, suite)
	if r == nil {
		t.Fatal(err)
	}
	r.asTests(t)
	t.Logf("%.1f s in all, at attempt %d to boot", r.Seconds, r.Attempts)
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
			case wire.Skip:
				t.SkipNow()
			case wire.Fail:
				t.Fail()
			default:
				t.Errorf("it did not end")
			}
		})
	}
}

func TestGuide(t *testing.T)        { runSuite(t, Guide, "guide48", 6*time.Minute) }
func TestLoadEviction(t *testing.T) { runSuite(t, Guide, "load48", 6*time.Minute) }
func TestVersion2(t *testing.T)     { runSuite(t, Small, "v2basics", 5*time.Minute) }
func TestVersion1(t *testing.T)     { runSuite(t, Small, "v1", 3*time.Minute) }
func TestHybrid(t *testing.T)       { runSuite(t, Small, "hybrid", 3*time.Minute) }
func TestSystemdGuest(t *testing.T) { runSuite(t, Small, SystemdSuite, 10*time.Minute) }
func TestFaults(t *testing.T)       { runSuite(t, Small, "faults", 8*time.Minute) }
