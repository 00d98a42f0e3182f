package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// maxMilliCPU is the largest quota that is accepted: the CPUs of the largest machine for which the kernel can be built.
const maxMilliCPU = (cpus.MaxID + 1) * 1000

// key describes how one key of [tick.Cgroup] is applied.
type key struct {
	name       string
	controller string
	v1, v2     []string // the file's names, the preferred one first; a kernel may lack the file
	// fill sets the setting's value; it returns false if the key is not desired.
	fill func(m *Machine, c *tick.Cgroup, s *Setting) (desired bool, err error)
}

// keys contains all keys, in the order in which one cgroup's values are written: cpu.idle before cpu.weight, because an
// idle cgroup accepts no weight.
var keys = []key{
	{"cpusetMems", "cpuset", []string{fileMems}, []string{fileMems}, fillMems},
	{"cpusetCPUs", "cpuset", []string{fileCPUs}, []string{fileCPUs}, fillCPUs},
	{"cpuIdle", "cpu", []string{fileIdle}, []string{fileIdle}, fillIdle},
	{"cpuWeight", "cpu", []string{"cpu.shares"}, []string{"cpu.weight"}, fillWeight},
	{"cpuMaxMilliCPU", "cpu", []string{fileQuota}, []string{fileMax}, fillQuota},
	{"cpuBurstMilliCPU", "cpu", []string{fileBurst}, []string{fileMaxBurst}, fillBurst},
	{"memoryMinBytes", "memory", []string{fileMin}, []string{fileMin}, bytesOfKey(func(c *tick.Cgroup) *int64 { return c.MemoryMinBytes }, false)},
	{"memoryLowBytes", "memory", []string{fileLow}, []string{fileLow}, bytesOfKey(func(c *tick.Cgroup) *int64 { return c.MemoryLowBytes }, false)},
	{"memoryHighBytes", "memory", []string{"memory.high", fileSoft}, []string{"memory.high"}, bytesOfKey(func(c *tick.Cgroup) *int64 { return c.MemoryHighBytes }, true)},
	{"memoryMaxBytes", "memory", []string{"memory.limit_in_bytes"}, []string{"memory.max"}, bytesOfKey(func(c *tick.Cgroup) *int64 { return c.MemoryMaxBytes }, true)},
	{"memoryOOMGroup", "memory", []string{"memory.oom.group"}, []string{"memory.oom.group"}, switchOfKey(func(c *tick.Cgroup) *bool { return c.MemoryOOMGroup })},
	{"memoryWmarkRatioPercent", "memory", []string{"memory.wmark_ratio"}, []string{"memory.wmark_ratio"}, numberOfKey(func(c *tick.Cgroup) *int64 { return c.MemoryWmarkRatioPercent }, 0, 100)},
	{"memoryWmarkScalePermille", "memory", []string{"memory.wmark_scale_factor"}, []string{"memory.wmark_scale_factor"}, numberOfKey(func(c *tick.Cgroup) *int64 { return c.MemoryWmarkScalePermille }, 1, 1000)},
	{"memoryWmarkMinAdjPercent", "memory", []string{"memory.wmark_min_adj"}, []string{"memory.wmark_min_adj"}, numberOfKey(func(c *tick.Cgroup) *int64 { return c.MemoryWmarkMinAdjPercent }, -25, 50)},
	{"memoryUsePriorityOOM", "memory", []string{"memory.use_priority_oom"}, []string{"memory.use_priority_oom"}, switchOfKey(func(c *tick.Cgroup) *bool { return c.MemoryUsePriorityOOM })},
	{"memoryPriority", "memory", []string{"memory.priority"}, []string{"memory.priority"}, numberOfKey(func(c *tick.Cgroup) *int64 { return c.MemoryPriority }, 0, 12)},
	{"ioWeight", "io", []string{"blkio.weight", "blkio.bfq.weight"}, []string{"io.weight", "io.bfq.weight"}, fillIO},
}

// unavailable is the prefix of the problem of a value for which the machine has no file.
const unavailable = "unavailable: "

// Unavailable reports whether the machine lacks the file or the mount, so that a retry in the next round cannot succeed.
func Unavailable(e tick.IsolationError) bool { return strings.HasPrefix(e.Error, unavailable) }

// NoFile is the problem of a setting whose file the kernel does not have.
func (s *Setting) NoFile() string {
	name := s.Name
	if s.Other != "" {
		name += " or " + s.Other
	}
	return unavailable + "this kernel has no " + name + "; left alone"
}

// Known reports whether a file is one that a plan may write: a journal must not name others.
func Known(f File) bool {
	if PerDevice(f.Name) {
		return f.Controller == "io" && isDevice(f.Device)
	}
	if f.Device != "" {
		return false
	}
	controller, name := f.Controller, f.Name
	return slices.ContainsFunc(keys, func(k key) bool {
		return k.controller == controller && (slices.Contains(k.v1, name) || slices.Contains(k.v2, name))
	})
}

// Controllers returns the controllers that the keys need.
func Controllers() []string {
	var out []string
	for _, k := range keys {
		if !slices.Contains(out, k.controller) {
			out = append(out, k.controller)
		}
	}
	return out
}

// Translate turns the desired state into settings, those of one cgroup next to each other, and refuses what must
// not be written. The caller must check the cgroups' paths.
func Translate(m Machine, desired []tick.Cgroup) ([]Setting, []tick.IsolationError) {
	t := translator{machine: &m, reported: map[string]bool{}}
	times := make(map[string]int, len(desired))
	for i := range desired {
		times[desired[i].Cgroup]++
	}
	for i := range desired {
		c := &desired[i]
		switch {
		case c.Cgroup == "/" && len(c.IOCost) > 0 && Equal(c, &tick.Cgroup{Cgroup: "/", IOCost: c.IOCost}):
			t.costs(c)
		case c.Cgroup == "/":
			t.once(c, "", "the root of the hierarchy is not to be changed")
		case times[c.Cgroup] > 1:
			t.once(c, "", "named "+strconv.Itoa(times[c.Cgroup])+" times: left alone, for it is not clear what is wanted")
		default:
			t.cgroup(c)
		}
	}
	return t.settings, t.problems
}

type translator struct {
	machine  *Machine
	settings []Setting
	problems []tick.IsolationError
	reported map[string]bool
}

func (t *translator) problem(c *tick.Cgroup, key, text string) {
	t.problems = append(t.problems, tick.IsolationError{Cgroup: c.Cgroup, Key: key, Error: text})
}

// once removes a problem that was already reported for the same cgroup, or, with a key, for the same key of any cgroup.
func (t *translator) once(c *tick.Cgroup, key, text string) {
	id := key + "\x00" + text
	if key == "" {
		id += c.Cgroup
	}
	if !t.reported[id] {
		t.reported[id] = true
		t.problem(c, key, text)
	}
}

func (t *translator) cgroup(c *tick.Cgroup) {
	for i := range keys {
		k := &keys[i]
		version := t.machine.Versions[k.controller]
		s := Setting{File: File{Controller: k.controller, Cgroup: c.Cgroup}, Key: k.name, Version: version}
		names := k.v2
		if version == 1 {
			names = k.v1
		}
		s.Name = names[0]
		if len(names) > 1 {
			s.Other = names[1]
		}
		desired, err := k.fill(t.machine, c, &s)
		if !desired {
			if err != nil {
				t.problem(c, k.name, err.Error())
			}
			continue
		}
		switch {
		case version == 0:
			t.once(c, k.name, unavailable+"the controller "+k.controller+" is not mounted in any cgroup hierarchy")
			continue
		case err != nil:
			t.problem(c, k.name, err.Error())
		}
		if k.controller == "cpuset" && !t.beside(c, &s) {
			continue
		}
		t.settings = append(t.settings, s)
		if k.name == "ioWeight" { // the disk's scheduler decides which of the two has effect
			s.UseOther()
			s.optional = true
			t.settings = append(t.settings, s)
		}
	}
	t.disks(c)
	t.costs(c)
}

// beside restricts a list to CPUs that neither kubelet nor a partition reserves. It returns false if the list must not be written.
func (t *translator) beside(c *tick.Cgroup, s *Setting) bool {
	write, err := t.machine.withoutPartitions(s)
	if err != nil {
		t.once(c, s.Key, err.Error())
	}
	return write && t.besideKubelet(c, s)
}

func (t *translator) besideKubelet(c *tick.Cgroup, s *Setting) bool {
	k := t.machine.Kubelet
	if k == nil {
		return true
	}
	if err := k.refuse(c.Cgroup, s.Version); err != nil {
		t.once(c, s.Key, err.Error())
		return false
	}
	if at, uid := k.place(c.Cgroup); at >= container {
		s.given = k.given(c.Cgroup, uid)
	}
	write, err := k.restrict(s)
	if err != nil {
		t.once(c, s.Key, err.Error())
	}
	return write
}

// list limits a desired list to the machine's CPUs or memory nodes. An error beside true names what was left out.
func list(s *Setting, desired string, have cpus.Set, what string) (bool, error) {
	if desired == "" {
		return false, nil
	}
	set, err := cpus.Parse(desired)
	if err != nil {
		return false, err
	}
	if have.IsEmpty() {
		return false, fmt.Errorf("not written: which %s the machine has could not be read", what)
	}
	s.set = set.Intersection(have)
	if s.set.IsEmpty() {
		return false, fmt.Errorf("not written: of %s %s the machine has none (it has %s)", what, clip.Text(desired, shownBytes), clip.Text(have.String(), shownBytes))
	}
	if gone := set.Difference(have); !gone.IsEmpty() {
		return true, fmt.Errorf("%s %s are not online and were left out", what, clip.Text(gone.String(), shownBytes))
	}
	return true, nil
}

func fillCPUs(m *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
	return list(s, c.CPUSetCPUs, m.CPUs, "CPUs")
}

func fillMems(m *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
	return list(s, c.CPUSetMems, m.Mems, "memory nodes")
}

// fillIdle keeps kubelet's cgroups above pods at 0, whatever the advice says: kubelet writes their weights when it starts, the
// kernel accepts no weight for an idle cgroup, and so kubelet would not start.
func fillIdle(_ *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
	if c.CPUIdle == nil {
		return false, nil
	}
	s.text = "0"
	if !*c.CPUIdle {
		return true, nil
	}
	if at, _ := Place(c.Cgroup); at == root || at == tier {
		return true, fmt.Errorf("refused, and held at 0: kubelet writes this cgroup's weight when it starts, " +
			"which the kernel refuses while it is idle; advise the pods' cgroups")
	}
	s.text = "1"
	return true, nil
}

func fillWeight(_ *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
	switch {
	case c.CPUWeight == nil:
		return false, nil
	case *c.CPUWeight < 1 || *c.CPUWeight > 10000:
		return false, fmt.Errorf("%d refused: a weight is from 1 to 10000", *c.CPUWeight)
	}
	s.instead = c.CPUIdle != nil && *c.CPUIdle
	n := *c.CPUWeight
	if s.Version == 1 {
		n = sharesOf(n)
	}
	s.text = strconv.FormatInt(n, 10)
	return true, nil
}

func fillQuota(_ *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
	if c.CPUMaxMilliCPU == nil {
		return false, nil
	}
	s.milli = *c.CPUMaxMilliCPU
	if s.milli < tick.Unlimited || s.milli > maxMilliCPU {
		return false, fmt.Errorf("%d refused: want 0 to %d milli-CPU, or %d for no limit", s.milli, maxMilliCPU, tick.Unlimited)
	}
	return true, nil
}

func fillIO(_ *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
	if c.IOWeight == nil {
		return false, nil
	}
	n := *c.IOWeight
	if s.asFirst = n == tick.Unlimited; s.asFirst {
		return true, nil
	}
	if n < 1 || n > 10000 {
		return false, fmt.Errorf("%d refused: a weight is from 1 to 10000, or %d for what was there", n, tick.Unlimited)
	}
	s.text = strconv.FormatInt(blkioOf(n), 10)
	if s.Version != 1 {
		s.text = "default " + strconv.FormatInt(n, 10)
	}
	return true, nil
}

// UseOther changes the setting to the file's alternative name.
func (s *Setting) UseOther() {
	s.Name, s.Other = s.Other, ""
	if s.Name == "io.bfq.weight" && !s.raw { // BFQ uses version 1's range on any mount
		if n, err := strconv.ParseInt(defaultOf(s.text), 10, 64); err == nil {
			s.text = "default " + strconv.FormatInt(blkioOf(n), 10)
		}
	}
}

// Equal reports whether two desired states are equal.
func Equal(a, b *tick.Cgroup) bool {
	return a.Cgroup == b.Cgroup && a.CPUSetCPUs == b.CPUSetCPUs && a.CPUSetMems == b.CPUSetMems &&
		same(a.CPUMaxMilliCPU, b.CPUMaxMilliCPU) && same(a.CPUBurstMilliCPU, b.CPUBurstMilliCPU) && same(a.CPUWeight, b.CPUWeight) &&
		same(a.CPUIdle, b.CPUIdle) &&
		same(a.MemoryMinBytes, b.MemoryMinBytes) && same(a.MemoryLowBytes, b.MemoryLowBytes) &&
		same(a.MemoryHighBytes, b.MemoryHighBytes) && same(a.MemoryMaxBytes, b.MemoryMaxBytes) && a.MemoryTighterOnly == b.MemoryTighterOnly &&
		same(a.MemoryOOMGroup, b.MemoryOOMGroup) && same(a.MemoryWmarkRatioPercent, b.MemoryWmarkRatioPercent) &&
		same(a.MemoryWmarkScalePermille, b.MemoryWmarkScalePermille) && same(a.MemoryWmarkMinAdjPercent, b.MemoryWmarkMinAdjPercent) &&
		same(a.MemoryPriority, b.MemoryPriority) && same(a.MemoryUsePriorityOOM, b.MemoryUsePriorityOOM) && same(a.IOWeight, b.IOWeight) &&
		slices.EqualFunc(a.IOMax, b.IOMax, sameLimit) && slices.EqualFunc(a.IOCost, b.IOCost, sameDiskCost)
}

func same[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}
