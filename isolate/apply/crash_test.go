package apply

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/tick"
	"polder/tests/await"
	"polder/tests/deep"
)

// failing stops isolate before a write, and refuses some of the others.
type failing struct {
	Writer
	killAt  int // the number of the write before which isolate is killed
	refuses func() bool
}

func (f *failing) WriteFile(controller, cgroup, name, value string) error {
	if f.killAt--; f.killAt == 0 {
		panic(killed{})
	}
	if f.refuses() {
		return unix.EIO
	}
	return f.Writer.WriteFile(controller, cgroup, name, value)
}

// crashTree is a tree of cgroups with random values, in which random advice is applied.
type crashTree struct {
	*realTree
	*rand.Rand
	names    []string
	original map[string]string
	log      []string
}

var crashFiles = [][2]string{
	{"cpuset", "cpuset.cpus"}, {"cpu", "cpu.shares"}, {"cpu", "cpu.idle"}, {"cpu", "cpu.cfs_quota_us"}, {"cpu", "cpu.cfs_burst_us"},
}

func (c *crashTree) coin() bool { return c.IntN(2) == 0 }

// values returns the texts of all files.
func (c *crashTree) values() map[string]string {
	out := map[string]string{}
	for _, name := range c.names {
		for _, f := range crashFiles {
			out[name+" "+f[1]] = c.get(f[0], name, f[1])
		}
	}
	return out
}

// fill sets random values, each within the parent's.
func (c *crashTree) fill() {
	quotas := map[string]int{}
	for _, name := range c.names {
		if c.coin() {
			c.set("cpu", name, "cpu.shares", strconv.Itoa(100+c.IntN(3000)))
		}
		above, isLimited := quotas[path.Dir(name)]
		if !isLimited && c.coin() {
			continue
		}
		quota := 20000 + c.IntN(200000)
		if isLimited {
			quota = min(quota, above)
		}
		quotas[name] = quota
		c.set("cpu", name, "cpu.cfs_quota_us", strconv.Itoa(quota))
		if c.coin() {
			c.set("cpu", name, "cpu.cfs_burst_us", strconv.Itoa(c.IntN(quota)))
		}
	}
	for _, name := range slices.Backward(c.names) { // children first: a parent narrower than one is refused
		list := []string{"0", "1", "0-1"}[c.IntN(3)]
		dir := c.dir("cpuset", name)
		if err := os.WriteFile(filepath.Join(dir, "cpuset.cpus"), []byte(list), 0); err != nil {
			c.log = append(c.log, "kept the list of "+name)
		}
	}
}

// recreate replaces a cgroup without children by a new one, with the values that the kernel and the machine's list give it. The new one
// would have had its parent's original list.
func (c *crashTree) recreate(name string) {
	for _, controller := range controllers {
		if err := os.Remove(c.dir(controller, name)); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := c.make(name); err != nil {
		c.t.Fatal(err)
	}
	maps.Copy(c.original, map[string]string{
		name + " cpuset.cpus": c.original[path.Dir(name)+" cpuset.cpus"], name + " cpu.shares": "1024", name + " cpu.idle": "0",
		name + " cpu.cfs_quota_us": "-1", name + " cpu.cfs_burst_us": "0",
	})
	c.log = append(c.log, "recreated "+name)
}

func (c *crashTree) advice() []tick.Cgroup {
	var out []tick.Cgroup
	for _, name := range c.names {
		a := tick.Cgroup{Cgroup: c.path(name)}
		if c.coin() {
			a.CPUSetCPUs = []string{"0", "1", "0-1"}[c.IntN(3)]
		}
		if c.coin() {
			a.CPUMaxMilliCPU = p([]int64{-1, 100, 300, 700, 1500, 3000}[c.IntN(6)])
			a.CPUMaxTighterOnly = c.coin()
		}
		if c.coin() {
			a.CPUBurstMilliCPU = p(c.Int64N(900))
		}
		if c.coin() {
			a.CPUIdle = new(c.coin())
		}
		switch c.IntN(3) {
		case 0:
			a.CPUWeight = p(1 + c.Int64N(500))
		case 1:
			a.CPUWeightFactor = p(1 + c.Int64N(10))
		}
		if c.IntN(3) > 0 {
			out = append(out, a)
			c.log = append(c.log, fmt.Sprintf("%s: %s, quota %v tighter only %v, burst %v, idle %v, weight %v factor %v", name, a.CPUSetCPUs,
				show(a.CPUMaxMilliCPU), a.CPUMaxTighterOnly, show(a.CPUBurstMilliCPU), show(a.CPUIdle), show(a.CPUWeight), show(a.CPUWeightFactor)))
		}
	}
	return out
}

func show[T any](v *T) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}

// run runs isolate on the journal until it is killed; 0 is never, and then no write is refused.
func (c *crashTree) run(journal string, killAt int, do func(*Applier)) {
	j := openJournal(c.t, journal)
	defer j.Close()
	a, _ := newApplier(c.t, c.h, func(o *Options) {
		o.Journal = j
		o.Writer = &failing{Writer: c.h.WithAnyNames(), killAt: killAt, refuses: func() bool { return killAt > 0 && c.IntN(8) == 0 }}
	})
	defer a.Close()
	done := true
	defer func() {
		c.log = append(c.log, fmt.Sprintf("ended by itself: %v", done))
	}()
	defer recoverKill(&done)
	do(a)
}

// TestCrashesAreUndone: whatever was advised, wherever isolate was killed, whichever writes were refused and whichever cgroups were
// recreated meanwhile, a restore gives back the original values, byte for byte.
func TestCrashesAreUndone(t *testing.T) {
	leaves := []string{"a/d", "e/f", "a/b/c"}
	for seed := range uint64(deep.Or(40, 1500)) {
		passed := t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			names := []string{"a", "a/b", "a/b/c", "a/d", "e", "e/f"}
			c := &crashTree{realTree: newRealTree(t, names...), Rand: rand.New(rand.NewPCG(seed, 0)), names: names}
			c.fill()
			c.original = c.values()
			journal := filepath.Join(t.TempDir(), "journal")
			for range 1 + c.IntN(3) {
				c.run(journal, 1+c.IntN(40), func(a *Applier) {
					for range 1 + c.IntN(3) {
						if c.IntN(3) == 0 {
							c.recreate(leaves[c.IntN(len(leaves))])
						}
						a.Apply(c.advice())
					}
				})
			}
			if c.coin() {
				c.run(journal, 1+c.IntN(15), func(a *Applier) { _, _ = a.Restore(false) })
			}
			// For a moment after a cgroup's end the kernel counts its quota among its parent's.
			await.Until(t, time.Minute, "the restore is complete", func() string {
				var out Restored
				c.run(journal, 0, func(a *Applier) { out, _ = a.Restore(false) })
				if out.IsComplete() {
					return ""
				}
				return out.String()
			})
			now := c.values()
			for file, original := range c.original {
				if now[file] != original {
					t.Errorf("%s is %q; want %q", file, now[file], original)
				}
			}
			if t.Failed() {
				for _, line := range c.log {
					t.Log(line)
				}
			}
		})
		if !passed { // the first one suffices, and waiting for each restore takes long
			return
		}
	}
}
