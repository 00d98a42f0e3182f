package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/kubepods"
	"polder/lib/tick"
)

// maxMilliCPU is the largest quota that is accepted: the CPUs of the largest machine for which the kernel can be built.
const maxMilliCPU = (cpus.MaxID + 1) * 1000

// The largest weights that the kernel accepts: cpu.weight, and cpu.shares of version 1.
const (
	maxWeight = 10000
	maxShares = 262144
)

// key describes how one key of [tick.Cgroup] is applied.
type key struct {
	name       string
	controller string
	v1, v2     []string // the file's names, the preferred one first; a kernel may lack the file
	// set sets the setting's value; it returns false if the key is not desired.
	set func(m *Machine, c *tick.Cgroup, s *Setting) (desired bool, err error)
}

// keys contains all keys, in the order in which one cgroup's values are written: cpu.idle before cpu.weight, because an
// idle cgroup accepts no weight.
var keys = []key{
	{"cpusetMems", "cpuset", []string{fileMems}, []string{fileMems}, setMems},
	{"cpusetCPUs", "cpuset", []string{fileCPUs}, []string{fileCPUs}, setCPUs},
	{"cpuIdle", "cpu", []string{fileIdle}, []string{fileIdle}, setIdle},
	{"cpuWeight", "cpu", []string{"cpu.shares"}, []string{"cpu.weight"}, setWeight},
	{"cpuMaxMilliCPU", "cpu", []string{fileQuota}, []string{fileMax}, setQuota},
	{"cpuBurstMilliCPU", "cpu", []string{fileBurst}, []string{fileMaxBurst}, setBurst},
	{"memoryMinBytes", "memory", []string{fileMin}, []string{fileMin}, setBytes(func(c *tick.Cgroup) *int64 { return c.MemoryMinBytes }, false)},
	{"memoryLowBytes", "memory", []string{fileLow}, []string{fileLow}, setBytes(func(c *tick.Cgroup) *int64 { return c.MemoryLowBytes }, false)},
	{"memoryHighBytes", "memory", []string{"memory.high", fileSoft}, []string{"memory.high"}, setBytes(func(c *tick.Cgroup) *int64 { return c.MemoryHighBytes }, true)},
	{"memoryMaxBytes", "memory", []string{"memory.limit_in_bytes"}, []string{"memory.max"}, setBytes(func(c *tick.Cgroup) *int64 { return c.MemoryMaxBytes }, true)},
	{"memoryOOMGroup", "memory", []string{"memory.oom.group"}, []string{"memory.oom.group"}, setSwitch(func(c *tick.Cgroup) *bool { return c.MemoryOOMGroup })},
	{"memoryWmarkRatioPercent", "memory", []string{"memory.wmark_ratio"}, []string{"memory.wmark_ratio"}, setNumber(func(c *tick.Cgroup) *int64 { return c.MemoryWmarkRatioPercent }, 0, 100)},
	{"memoryWmarkScalePermille", "memory", []string{"memory.wmark_scale_factor"}, []string{"memory.wmark_scale_factor"}, setNumber(func(c *tick.Cgroup) *int64 { return c.MemoryWmarkScalePermille }, 1, 1000)},
	{"memoryWmarkMinAdjPercent", "memory", []string{"memory.wmark_min_adj"}, []string{"memory.wmark_min_adj"}, setNumber(func(c *tick.Cgroup) *int64 { return c.MemoryWmarkMinAdjPercent }, -25, 50)},
	{"memoryUsePriorityOOM", "memory", []string{"memory.use_priority_oom"}, []string{"memory.use_priority_oom"}, setSwitch(func(c *tick.Cgroup) *bool { return c.MemoryUsePriorityOOM })},
	{"memoryPriority", "memory", []string{"memory.priority"}, []string{"memory.priority"}, setNumber(func(c *tick.Cgroup) *int64 { return c.MemoryPriority }, 0, 12)},
	{"ioWeight", "io", []string{"blkio.weight", "blkio.bfq.weight"}, []string{"io.weight", "io.bfq.weight"}, setIOWeight},
}

// unavailable is the prefix of the problem of a value for which the machine has no file.
const unavailable = "unavailable: "

// IsUnavailable reports whether the machine lacks the file or the mount, so that a retry in the next round cannot succeed.
func IsUnavailable(e tick.IsolationError) bool { return strings.HasPrefix(e.Error, unavailable) }

// MissingFile is the problem of a setting whose file the kernel does not have.
func (s *Setting) MissingFile() string {
	name := s.Name
	if s.Alternative != "" {
		name += " or " + s.Alternative
	}
	return unavailable + "this kernel has no " + name + "; not written"
}

// IsKnown reports whether a file is one that a plan may write: a journal must not name others.
func IsKnown(f File) bool {
	if isPerDevice(f.Name) {
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
	count := make(map[string]int, len(desired))
	for i := range desired {
		count[desired[i].Cgroup]++
	}
	for i := range desired {
		c := &desired[i]
		switch {
		case c.Cgroup == "/" && len(c.IOCost) > 0 && Equal(c, &tick.Cgroup{Cgroup: "/", IOCost: c.IOCost}):
			t.costs(c)
		case c.Cgroup == "/":
			t.problemOnce(c, "", "the root of the hierarchy must not be changed")
		case count[c.Cgroup] > 1:
			t.problemOnce(c, "", "named "+strconv.Itoa(count[c.Cgroup])+" times: not written, because the desired values are ambiguous")
		default:
			t.translate(c)
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

// problemOnce omits a problem that was already reported for the same cgroup, or, with a key, for the same key of any cgroup.
func (t *translator) problemOnce(c *tick.Cgroup, key, text string) {
	id := key + "\x00" + text
	if key == "" {
		id += c.Cgroup
	}
	if !t.reported[id] {
		t.reported[id] = true
		t.problem(c, key, text)
	}
}

func (t *translator) translate(c *tick.Cgroup) {
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
			s.Alternative = names[1]
		}
		desired, err := k.set(t.machine, c, &s)
		if !desired {
			if err != nil {
				t.problem(c, s.Key, err.Error())
			}
			continue
		}
		switch {
		case version == 0:
			t.problemOnce(c, s.Key, unavailable+"the controller "+k.controller+" is not mounted in any cgroup hierarchy")
			continue
		case err != nil:
			t.problem(c, s.Key, err.Error())
		}
		if k.controller == "cpuset" && !t.restrict(c, &s) {
			continue
		}
		t.settings = append(t.settings, s)
		if k.name == "ioWeight" { // the disk's scheduler decides which of the two has effect
			s.UseAlternative()
			s.isOptional = true
			t.settings = append(t.settings, s)
		}
	}
	t.disks(c)
	t.costs(c)
}

// restrict restricts a list to CPUs that neither kubelet nor a partition reserves. It returns false if the list must not be written.
func (t *translator) restrict(c *tick.Cgroup, s *Setting) bool {
	isWritten, err := t.machine.withoutPartitions(s)
	if err != nil {
		t.problemOnce(c, s.Key, err.Error())
	}
	return isWritten && t.restrictByKubelet(c, s)
}

func (t *translator) restrictByKubelet(c *tick.Cgroup, s *Setting) bool {
	k := t.machine.Kubelet
	if k == nil {
		return true
	}
	if err := k.refusal(c.Cgroup, s.Version); err != nil {
		t.problemOnce(c, s.Key, err.Error())
		return false
	}
	if p := k.placeOf(c.Cgroup); p.Level >= kubepods.Container {
		s.exclusive = k.exclusiveOf(c.Cgroup, p)
	}
	isWritten, err := k.restrict(s)
	if err != nil {
		t.problemOnce(c, s.Key, err.Error())
	}
	return isWritten
}

// setList limits a desired list to the machine's CPUs or memory nodes. An error beside true names what was left out.
func setList(s *Setting, desired string, available cpus.Set, what string) (bool, error) {
	if desired == "" {
		return false, nil
	}
	set, err := cpus.Parse(desired)
	if err != nil {
		return false, err
	}
	if available.IsEmpty() {
		return false, fmt.Errorf("not written: the machine's %s could not be read", what)
	}
	s.set = set.Intersection(available)
	if s.set.IsEmpty() {
		return false, fmt.Errorf("not written: of %s %s the machine has none (it has %s)", what, clip.Text(desired, maxShownBytes), clip.Text(available.String(), maxShownBytes))
	}
	if offline := set.Difference(available); !offline.IsEmpty() {
		return true, fmt.Errorf("%s %s are not online and were left out", what, clip.Text(offline.String(), maxShownBytes))
	}
	return true, nil
}

func setCPUs(m *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
	return setList(s, c.CPUSetCPUs, m.CPUs, "CPUs")
}

func setMems(m *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
	return setList(s, c.CPUSetMems, m.Mems, "memory nodes")
}

// setIdle keeps kubelet's cgroups above pods at 0, whatever the advice says: kubelet writes their weights when it starts, the
// kernel accepts no weight for an idle cgroup, and so kubelet would not start.
func setIdle(_ *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
	if c.CPUIdle == nil {
		return false, nil
	}
	s.text = "0"
	if !*c.CPUIdle {
		return true, nil
	}
	if isAbovePods(c.Cgroup) {
		return true, fmt.Errorf("refused, and kept at 0: kubelet writes this cgroup's weight when it starts, " +
			"which the kernel refuses while it is idle; advise the pods' cgroups")
	}
	s.text = "1"
	return true, nil
}

func setWeight(_ *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
	switch {
	case c.CPUWeight == nil && c.CPUWeightFactor != nil:
		s.Key, s.factor = "cpuWeightFactor", *c.CPUWeightFactor
		if s.factor < 1 || s.factor > maxWeight {
			return false, fmt.Errorf("a factor of %d refused: want 1 to %d", s.factor, maxWeight)
		}
		return true, nil
	case c.CPUWeight == nil:
		return false, nil
	case *c.CPUWeight < 1 || *c.CPUWeight > maxWeight:
		return false, fmt.Errorf("%d refused: a weight is from 1 to %d", *c.CPUWeight, maxWeight)
	}
	s.replacesIdle = c.CPUIdle != nil && *c.CPUIdle
	n := *c.CPUWeight
	if s.Version == 1 {
		n = sharesOf(n)
	}
	s.text = strconv.FormatInt(n, 10)
	return true, nil
}

func setQuota(_ *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
	if c.CPUMaxMilliCPU == nil {
		return false, nil
	}
	s.milli, s.isTighterOnly = *c.CPUMaxMilliCPU, c.CPUMaxTighterOnly
	if s.milli < tick.Unlimited || s.milli > maxMilliCPU {
		return false, fmt.Errorf("%d refused: want 0 to %d milli-CPU, or %d for no limit", s.milli, maxMilliCPU, tick.Unlimited)
	}
	return true, nil
}

func setIOWeight(_ *Machine, c *tick.Cgroup, s *Setting) (bool, error) {
	if c.IOWeight == nil {
		return false, nil
	}
	n := *c.IOWeight
	if s.restoresOriginal = n == tick.Unlimited; s.restoresOriginal {
		return true, nil
	}
	if n < 1 || n > 10000 {
		return false, fmt.Errorf("%d refused: a weight is from 1 to 10000, or %d for the original value", n, tick.Unlimited)
	}
	s.text = strconv.FormatInt(blkioOf(n), 10)
	if s.Version != 1 {
		s.text = "default " + strconv.FormatInt(n, 10)
	}
	return true, nil
}

// UseAlternative changes the setting to the file's alternative name.
func (s *Setting) UseAlternative() {
	s.Name, s.Alternative = s.Alternative, ""
	if s.Name == "io.bfq.weight" && !s.isFileText { // BFQ uses version 1's range on any mount
		if n, err := strconv.ParseInt(defaultOf(s.text), 10, 64); err == nil {
			s.text = "default " + strconv.FormatInt(blkioOf(n), 10)
		}
	}
}

// Equal reports whether two desired states are equal.
func Equal(a, b *tick.Cgroup) bool {
	return a.Cgroup == b.Cgroup && a.CPUSetCPUs == b.CPUSetCPUs && a.CPUSetMems == b.CPUSetMems &&
		same(a.CPUMaxMilliCPU, b.CPUMaxMilliCPU) && a.CPUMaxTighterOnly == b.CPUMaxTighterOnly &&
		same(a.CPUBurstMilliCPU, b.CPUBurstMilliCPU) && same(a.CPUWeight, b.CPUWeight) &&
		same(a.CPUWeightFactor, b.CPUWeightFactor) && same(a.CPUIdle, b.CPUIdle) &&
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
