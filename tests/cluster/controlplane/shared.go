package controlplane

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
)

// toShare is the control plane of a package, once its first test has asked for it.
var toShare struct {
	options Options
	setUp   func(*ControlPlane)
	once    sync.Once
	plane   *Plane
	err     error
	isSetUp bool
}

// sideBySide is how many tests of a package run in parallel: they mostly wait, so it is not the number of CPUs.
const sideBySide = "8"

// Main is the TestMain of a package whose tests share a control plane. The first one that asks for it starts it and calls setUp. A test
// that stops or freezes the API server, or that needs objects of which a cluster has one, must not call t.Parallel: parallel tests
// run when all others have ended.
func Main(m *testing.M, options Options, setUp func(*ControlPlane)) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		_ = flag.Set("test.parallel", sideBySide) // the flag exists, and the value is a number
	}
	toShare.options, toShare.setUp = options, setUp
	status := m.Run()
	if toShare.plane != nil {
		if err := toShare.plane.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	os.Exit(status)
}

// Shared returns the package's control plane, or skips the test if no cluster was asked for.
func Shared(t testing.TB) *ControlPlane {
	t.Helper()
	Need(t, programs...)
	toShare.once.Do(func() {
		if toShare.plane, toShare.err = Open(toShare.options); toShare.err != nil {
			return
		}
		toShare.plane.shared = true
		if toShare.setUp != nil {
			toShare.setUp(toShare.plane.For(t))
		}
		toShare.isSetUp = true
	})
	if toShare.err != nil {
		t.Fatal(toShare.err)
	}
	if !toShare.isSetUp {
		t.Fatal("the control plane could not be set up: see the first test that failed")
	}
	return toShare.plane.For(t)
}

// atEndOfShared runs f at the end of the test, if other tests follow in the same control plane.
func (c *ControlPlane) atEndOfShared(f func()) {
	if c.shared {
		c.Cleanup(f)
	}
}
