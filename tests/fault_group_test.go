package tests

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// sleeper is a process in the cgroup that nothing may touch.
func (g *group) sleeper(t *testing.T) int {
	t.Helper()
	p := startSleep(t)
	for _, dir := range g.dirs {
		put(t, filepath.Join(dir, "cgroup.procs"), strconv.Itoa(p))
	}
	return p
}

// pids are the processes in the cgroup.
func (g *group) pids(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(g.dirs[0], "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// read is one file of the cgroup, in whatever hierarchy it is; empty where there is none.
func (g *group) read(name string) string {
	for _, dir := range g.dirs {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	return ""
}
