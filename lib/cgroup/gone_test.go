package cgroup_test

import (
	"errors"
	"os"
	"testing"

	"polder/lib/cgroup"
	"polder/tests/group"
)

// The next reading detects that a cgroup was removed, although some of its files are not due yet.
func TestARemovedCgroupIsGoneAtOnce(t *testing.T) {
	own := group.New(t, nil, "gone")
	g, err := reader(t).Open(own.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for i := range 3 {
		if err := g.Read(1000 + float64(i)/10); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range own.Dirs {
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Read(1000.3); !errors.Is(err, cgroup.ErrGone) {
		t.Errorf("after its removal: %v; want that it is gone", err)
	}
}
