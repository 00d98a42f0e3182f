package apply

import (
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"polder/lib/cgroup"
	"polder/lib/cpus"
	"polder/lib/tick"
	"polder/tests/await"
	"polder/tests/need"
)

// p returns pointers for the contract's numbers.
func p(n int64) *int64 { return new(n) }

var trees atomic.Int64

// realTree is a subtree for the test in the machine's cgroup v1.
type realTree struct {
	t    testing.TB
	h    *cgroup.Hierarchy
	root string // "/polder-test-…"
}

var controllers = []string{"cpu", "cpuset", "memory"}

// newRealTree creates the cgroups of the subtree, with all CPUs and memory nodes.
func newRealTree(t testing.TB, cgroups ...string) *realTree {
	t.Helper()
	tree := &realTree{t: t, h: need.CgroupsV1(t, controllers...), root: fmt.Sprintf("/polder-test-%d-%d", os.Getpid(), trees.Add(1))}
	t.Cleanup(tree.remove)
	for _, name := range append([]string{""}, cgroups...) {
		if err := tree.make(name); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

func (r *realTree) make(name string) error {
	for _, c := range controllers {
		dir := r.dir(c, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if c != "cpuset" {
			continue
		}
		for _, list := range []string{"cpuset.mems", "cpuset.cpus"} {
			data, err := os.ReadFile(filepath.Join(filepath.Dir(dir), list))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, list), data, 0)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *realTree) dir(controller, name string) string {
	dir, _, err := r.h.Dir(controller, filepath.Join(r.root, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return dir
}

// remove kills the processes in the subtree and removes it, the deepest cgroups first.
func (r *realTree) remove() {
	for _, c := range controllers {
		if pids, err := r.h.PIDs(c, r.root); err == nil {
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		await.Until(r.t, time.Minute, "remove cgroup "+r.root, func() string { // the kernel counts ended processes for a moment
			var dirs []string
			_ = filepath.WalkDir(r.dir(c, ""), func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			left := ""
			for _, dir := range slices.Backward(dirs) {
				if err := os.Remove(dir); err != nil {
					left = err.Error()
				}
			}
			return left
		})
	}
}

func (r *realTree) path(name string) string { return filepath.Join(r.root, name) }

func (r *realTree) get(controller, name, file string) string {
	r.t.Helper()
	text, err := r.h.ReadFile(controller, r.path(name), file)
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

func (r *realTree) set(controller, name, file, value string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir(controller, name), file), []byte(value), 0); err != nil {
		r.t.Fatal(err)
	}
}

// snapshot returns every value that isolate may write, byte for byte.
func (r *realTree) snapshot(names ...string) map[string]string {
	r.t.Helper()
	out := map[string]string{}
	for _, name := range append([]string{""}, names...) {
		for file, controller := range map[string]string{
			"cpuset.cpus": "cpuset", "cpuset.mems": "cpuset", "cpu.cfs_quota_us": "cpu", "cpu.cfs_period_us": "cpu",
			"cpu.cfs_burst_us": "cpu", "cpu.shares": "cpu", "cpu.idle": "cpu", "memory.limit_in_bytes": "memory",
		} {
			data, err := os.ReadFile(filepath.Join(r.dir(controller, name), file))
			if err != nil {
				r.t.Fatal(err)
			}
			out[name+" "+file] = string(data)
		}
	}
	return out
}

// counted counts writes, and simulates a kill at one of them.
type counted struct {
	Writer
	writes int
	killAt int // the first write that is not executed; 0 for none
	after  func()
}

type killed struct{}

func (c *counted) WriteFile(controller, cgroup, name, value string) error {
	c.writes++
	if c.writes == c.killAt {
		panic(killed{})
	}
	err := c.Writer.WriteFile(controller, cgroup, name, value)
	if c.after != nil {
		c.after()
	}
	return err
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newApplier(t testing.TB, h *cgroup.Hierarchy, change func(*Options)) (*Applier, *counted) {
	t.Helper()
	w := &counted{Writer: h.WithAnyNames()}
	o := Options{Hierarchy: h, Writer: w, Contest: 5, Log: quiet()}
	if change != nil {
		change(&o)
	}
	a := New(o)
	t.Cleanup(a.Close)
	return a, w
}

func openJournal(t testing.TB, path string) *Journal {
	t.Helper()
	j, err := OpenJournal(path, "/", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func errorsOf(out tick.Isolation) string {
	var b strings.Builder
	for _, e := range out.Errors {
		fmt.Fprintf(&b, "%s %s: %s\n", filepath.Base(e.Cgroup), e.Key, e.Error)
	}
	return b.String()
}

func cpusOf(t *testing.T, text string) cpus.Set {
	t.Helper()
	set, err := cpus.Parse(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// quotaOf returns a quota as a number, the largest if there is none.
func quotaOf(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if n < 0 {
		return math.MaxInt64
	}
	return n
}
