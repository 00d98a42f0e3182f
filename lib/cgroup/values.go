package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"

	"polder/lib/kernfile"
)

// Has is the set of a cgroup's values that could be read.
type Has uint16

// These are the values of [Values].
const (
	HasUsage Has = 1 << iota
	HasThrottling
	HasMemory     // MemoryBytes
	HasMemoryStat // RSSBytes, CacheBytes and InactiveFileBytes
	HasCPUSet
	HasThreads
	HasNUMA
	HasQuota  // QuotaMicroseconds
	HasPeriod // PeriodMicroseconds
	HasIdle
	HasRefaults // RefaultPages
)

// Values are the contents of a cgroup's files at one instant, including its descendants. Only those in Has are valid.
type Values struct {
	Has Has

	UsageNanoseconds uint64
	// Periods counts the CFS periods in which the cgroup ran under a quota, ThrottledPeriods those in which it
	// exhausted the quota.
	Periods, ThrottledPeriods uint64

	// QuotaMicroseconds is the CPU time that the cgroup may use in a period, negative if it is unlimited.
	QuotaMicroseconds  int64
	PeriodMicroseconds uint64
	// Idle is 1 if the kernel runs the cgroup only when no sibling has a task to run (SCHED_IDLE).
	Idle uint64

	MemoryBytes, RSSBytes, CacheBytes, InactiveFileBytes uint64
	// RefaultPages counts the pages that were refaulted shortly after they had been reclaimed.
	RefaultPages uint64

	// CPUSetCPUs is the effective CPU list.
	CPUSetCPUs string
	Threads    uint64
	NUMA       []NodeBytes
}

// NodeBytes is the memory on one NUMA node.
type NodeBytes struct {
	ID    int
	Bytes uint64
}

// WorkingSetBytes returns the memory in use without the file pages that would be reclaimed first, never below 0.
func (v *Values) WorkingSetBytes() uint64 {
	if v.InactiveFileBytes >= v.MemoryBytes {
		return 0
	}
	return v.MemoryBytes - v.InactiveFileBytes
}

// errNumber means that a file does not contain exactly one number.
var errNumber = errors.New("not one number")

// ParseUsage parses v1's cpuacct.usage, nanoseconds.
func (v *Values) ParseUsage(data []byte) error { return v.number(data, &v.UsageNanoseconds, HasUsage) }

// ParseMemory parses v1's memory.usage_in_bytes and v2's memory.current.
func (v *Values) ParseMemory(data []byte) error { return v.number(data, &v.MemoryBytes, HasMemory) }

// ParseThreads parses pids.current.
func (v *Values) ParseThreads(data []byte) error { return v.number(data, &v.Threads, HasThreads) }

func (v *Values) number(data []byte, into *uint64, has Has) error {
	n, ok := kernfile.UintLine(data)
	if !ok {
		return fmt.Errorf("%w: %q", errNumber, kernfile.Clip(data))
	}
	*into = n
	v.Has |= has
	return nil
}

// ParseQuota parses v1's cpu.cfs_quota_us, where -1 means no quota.
func (v *Values) ParseQuota(data []byte) error {
	if text := kernfile.Text(data); len(text) > 1 && text[0] == '-' {
		if _, ok := kernfile.Uint(text[1:]); !ok {
			return fmt.Errorf("%w: %q", errNumber, kernfile.Clip(data))
		}
		v.QuotaMicroseconds = -1
		v.Has |= HasQuota
		return nil
	}
	var n uint64
	if err := v.number(data, &n, HasQuota); err != nil {
		return err
	}
	v.QuotaMicroseconds = int64(min(n, math.MaxInt64))
	return nil
}

// ParsePeriod parses v1's cpu.cfs_period_us.
func (v *Values) ParsePeriod(data []byte) error {
	return v.number(data, &v.PeriodMicroseconds, HasPeriod)
}

// ParseIdle parses cpu.idle, which kernels have since Linux 5.15.
func (v *Values) ParseIdle(data []byte) error { return v.number(data, &v.Idle, HasIdle) }

// ParseCPUMax parses v2's cpu.max: "max 100000" or "50000 100000".
func (v *Values) ParseCPUMax(data []byte) error {
	quota, rest := kernfile.Field(kernfile.Text(data))
	n, ok := kernfile.Uint(quota)
	unlimited := string(quota) == "max"
	period, okPeriod := kernfile.Uint(kernfile.Text(rest))
	if !ok && !unlimited || !okPeriod {
		return fmt.Errorf("%q: want a quota or max, and a period", kernfile.Clip(data))
	}
	v.QuotaMicroseconds, v.PeriodMicroseconds = int64(min(n, math.MaxInt64)), period
	if unlimited {
		v.QuotaMicroseconds = -1
	}
	v.Has |= HasQuota | HasPeriod
	return nil
}

// QuotaMilliCPU returns the quota in thousandths of a CPU, -1 if there is none. known is false if it is unknown.
func (v *Values) QuotaMilliCPU() (milli int64, known bool) {
	const both = HasQuota | HasPeriod
	switch {
	case v.Has&HasQuota != 0 && v.QuotaMicroseconds < 0:
		return -1, true
	case v.Has&both != both || v.PeriodMicroseconds == 0:
		return 0, false
	}
	f := math.Round(float64(v.QuotaMicroseconds) * 1000 / float64(v.PeriodMicroseconds))
	return int64(f), f < 1<<53
}

// ParseCPUSet parses a CPU list; text that is the same as last time needs no allocation.
func (v *Values) ParseCPUSet(data []byte) error {
	data = kernfile.Text(data)
	if !isList(data) {
		return fmt.Errorf("not a CPU list: %q", kernfile.Clip(data))
	}
	if string(data) != v.CPUSetCPUs {
		v.CPUSetCPUs = string(data)
	}
	v.Has |= HasCPUSet
	return nil
}

// isList reports whether text is empty or a list of numbers and ranges, "0-3,8": a truncated or wrong file must not become
// a list that the stream does not allow.
func isList(text []byte) bool {
	number, ranged := 0, false // the number's digits so far; whether it is the end of a range
	for _, c := range text {
		switch {
		case c >= '0' && c <= '9':
			number++
		case number == 0 || c != ',' && (c != '-' || ranged):
			return false
		default:
			number, ranged = 0, c == '-'
		}
	}
	return number > 0 || len(text) == 0
}

// ParseCPUStat parses cpu.stat of either version: nr_periods and nr_throttled, and in v2 usage_usec (in v2 the first
// two exist only if the controller is enabled).
func (v *Values) ParseCPUStat(data []byte) error {
	var periods, throttled, micros uint64
	var has Has
	for len(data) > 0 {
		var line []byte
		line, data = kernfile.Line(data)
		var into *uint64
		switch name, rest := kernfile.Field(line); string(name) {
		case "usage_usec":
			into, line, has = &micros, rest, has|HasUsage
		case "nr_periods":
			into, line = &periods, rest
		case "nr_throttled":
			into, line, has = &throttled, rest, has|HasThrottling
		default:
			continue
		}
		n, ok := kernfile.UintLine(line)
		if !ok {
			return fmt.Errorf("%w: %q", errNumber, kernfile.Clip(line))
		}
		*into = n
	}
	if has&HasUsage != 0 {
		v.UsageNanoseconds = micros * 1000
	}
	v.Periods, v.ThrottledPeriods = periods, throttled
	v.Has |= has
	return nil
}

// ParseMemoryStatV1 parses v1's memory.stat. Its total_ lines include the descendants.
func (v *Values) ParseMemoryStatV1(data []byte) error {
	if i := bytes.Index(data, []byte("\ntotal_")); i >= 0 {
		return v.memoryStat(data[i+1:], "total_rss", "total_cache", "total_inactive_file")
	}
	return v.memoryStat(data, "rss", "cache", "inactive_file")
}

// ParseMemoryStatV2 parses v2's memory.stat.
func (v *Values) ParseMemoryStatV2(data []byte) error {
	if err := v.memoryStat(data, "anon", "file", "inactive_file"); err != nil {
		return err
	}
	return v.refaults(data)
}

// refaults parses workingset_refault_anon and workingset_refault_file, which follow each other; before Linux 5.9 workingset_refault
// includes both.
func (v *Values) refaults(data []byte) error {
	const prefix = "workingset_refault"
	at := bytes.Index(data, []byte("\n"+prefix))
	if at < 0 {
		return nil
	}
	sum := uint64(0)
	for data = data[at+1:]; bytes.HasPrefix(data, []byte(prefix)); {
		var line []byte
		line, data = kernfile.Line(data)
		_, rest := kernfile.Field(line)
		n, ok := kernfile.UintLine(rest)
		if !ok {
			return fmt.Errorf("line %q: %w", kernfile.Clip(line), errNumber)
		}
		addSaturating(&sum, n)
	}
	v.RefaultPages = sum
	v.Has |= HasRefaults
	return nil
}

func (v *Values) memoryStat(data []byte, rss, cache, inactiveFile string) error {
	found := 0
	for len(data) > 0 && found < 3 {
		var line []byte
		line, data = kernfile.Line(data)
		space := bytes.IndexByte(line, ' ')
		if space < 0 {
			continue
		}
		var into *uint64
		switch string(line[:space]) {
		case rss:
			into = &v.RSSBytes
		case cache:
			into = &v.CacheBytes
		case inactiveFile:
			into = &v.InactiveFileBytes
		default:
			continue
		}
		n, ok := kernfile.Uint(line[space+1:])
		if !ok {
			return fmt.Errorf("line %q: %w", kernfile.Clip(line), errNumber)
		}
		*into = n
		found++
	}
	if found < 3 {
		return fmt.Errorf("no lines %s, %s and %s", rss, cache, inactiveFile)
	}
	v.Has |= HasMemoryStat
	return nil
}

// pageBytes is the unit of v1's memory.numa_stat; a test sets it.
var pageBytes = uint64(os.Getpagesize())

// ParseNUMAStatV1 parses v1's memory.numa_stat: "hierarchical_total=12 N0=8 N1=4", in pages.
func (v *Values) ParseNUMAStatV1(data []byte) error {
	v.NUMA = v.NUMA[:0]
	for _, name := range []string{"hierarchical_total=", "total="} {
		for rest := data; len(rest) > 0; {
			var line []byte
			line, rest = kernfile.Line(rest)
			if bytes.HasPrefix(line, []byte(name)) {
				return v.numaLine(line[len(name):], pageBytes)
			}
		}
	}
	return errors.New("no line total")
}

// ParseNUMAStatV2 parses v2's memory.numa_stat: "anon N0=1234 N1=0", in bytes. The memory of a node is its anonymous
// and file pages and the kernel's own, as far as the file contains them.
func (v *Values) ParseNUMAStatV2(data []byte) error {
	v.NUMA = v.NUMA[:0]
	for len(data) > 0 {
		var line []byte
		line, data = kernfile.Line(data)
		switch name, rest := kernfile.Field(line); string(name) {
		case "anon", "file", "kernel_stack", "pagetables", "slab_reclaimable", "slab_unreclaimable":
			if err := v.numaLine(rest, 1); err != nil {
				v.Has &^= HasNUMA
				return err
			}
		}
	}
	return nil
}

// maxNode bounds the accepted NUMA IDs (the kernel's MAX_NUMNODES is at most 1024).
const maxNode = 1024

func (v *Values) numaLine(line []byte, unit uint64) error {
	for {
		var field []byte
		if field, line = kernfile.Field(line); len(field) == 0 {
			break
		}
		equals := bytes.IndexByte(field, '=')
		if equals < 2 || field[0] != 'N' {
			continue // the total, in v1
		}
		id, ok := kernfile.Uint(field[1:equals])
		n, okN := kernfile.Uint(field[equals+1:])
		if !ok || !okN || id >= maxNode {
			return fmt.Errorf("%q: want N<node>=<number>", kernfile.Clip(field))
		}
		v.addNode(int(id), n*unit)
	}
	v.Has |= HasNUMA
	return nil
}

func (v *Values) addNode(id int, n uint64) {
	for i := range v.NUMA {
		if v.NUMA[i].ID == id {
			v.NUMA[i].Bytes += n
			return
		}
	}
	v.NUMA = append(v.NUMA, NodeBytes{ID: id, Bytes: n})
}
