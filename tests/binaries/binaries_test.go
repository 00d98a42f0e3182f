package binaries

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The tools print the version of the tests, and a second build leaves the files of the first alone.
func TestBuild(t *testing.T) {
	dir, err := Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range Tools {
		path := filepath.Join(dir, tool)
		out, err := exec.Command(path, "--version").Output()
		if err != nil || !strings.Contains(string(out), Version) {
			t.Errorf("%s --version: %q, %v; want %s", tool, out, err, Version)
		}
	}
	before, err := os.Stat(filepath.Join(dir, "collect"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Build(); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(filepath.Join(dir, "collect"))
	if err != nil || !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Errorf("a second build replaced collect: %v, %v, %v", before, after, err)
	}
}

// Linked tools run from their links' directory.
func TestLink(t *testing.T) {
	dir := t.TempDir()
	if err := Link(dir); err != nil {
		t.Fatal(err)
	}
	for _, tool := range Tools {
		if out, err := exec.Command(filepath.Join(dir, tool), "--version").Output(); err != nil || !strings.Contains(string(out), Version) {
			t.Errorf("the linked %s --version: %q, %v", tool, out, err)
		}
	}
}
