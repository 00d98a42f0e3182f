package plan

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"polder/lib/clip"
	"polder/lib/tick"
)

// keyIOMax is the key whose files have a line for each disk.
const keyIOMax = "ioMax"

// fileIOMax is version 2's file with all four limits of a disk; throttleFiles are version 1's files, in the order of [limits].
const fileIOMax = "io.max"

var throttleFiles = [numLimits]string{
	"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device", "blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device",
}

// limitNames are the kernel's names of the limits in io.max.
var limitNames = [numLimits]string{"rbps", "wbps", "riops", "wiops"}

const numLimits = 4

// limits are the limits of one disk: bytes read and written, reads and writes per second. [tick.Unlimited] means no limit.
type limits [numLimits]int64

var unlimitedDisk = limits{tick.Unlimited, tick.Unlimited, tick.Unlimited, tick.Unlimited}

const (
	// minDiskBytes and minDiskOperations are the smallest limits per second: a process that waits for a disk cannot even be killed.
	minDiskBytes      = 64 << 10
	minDiskOperations = 4
	// maxDiskBytes and maxDiskOperations exceed what any disk can do. The kernel accepts 32 bits of operations.
	maxDiskBytes      = 1 << 50
	maxDiskOperations = 1 << 30
	// maxDiskLimits bounds the disks that one cgroup's advice may name.
	maxDiskLimits = 256
)

// Disk is a disk of the machine.
type Disk struct {
	Name   string
	Device string // its numbers, as in "254:0"
	// Mounts are the mount points of the disk or of its parts.
	Mounts []string
	// IsInAll reports whether [tick.AllDisks] includes the disk.
	IsInAll bool
}

// isPerDevice reports whether a file has a line for each disk: then [File.Device] names the disk.
func isPerDevice(name string) bool { return limitIndex(name) >= 0 || isCost(name) }

// limitIndex returns a file's index among the limits, 0 for the file with all four limits; negative for other files.
func limitIndex(name string) int {
	if name == fileIOMax {
		return 0
	}
	return slices.Index(throttleFiles[:], name)
}

// DeviceText returns the part of a file's text for one device, without its numbers; empty if there is none.
func DeviceText(text, device string) string {
	for line := range strings.Lines(text) {
		numbers, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if numbers == device {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// Line returns the text as it is written to the file: with the device's numbers in front if the file has a line for each disk.
func (f *File) Line(text string) string {
	if f.Device == "" {
		return text
	}
	return f.Device + " " + text
}

// MessageText returns a text of the file for messages.
func (f *File) MessageText(text string) string {
	if f.Device == "" {
		return text
	}
	l, err := limitsOf(f.Name, text)
	if err != nil {
		return f.Line(text)
	}
	if at := limitIndex(f.Name); f.Name != fileIOMax {
		return f.Line(limitNames[at] + "=" + limitText(l[at], "max"))
	}
	return f.Line(l.text(f.Name))
}

// isDevice reports whether text consists of a device's numbers.
func isDevice(text string) bool {
	major, minor, ok := strings.Cut(text, ":")
	digits := func(s string) bool { return s != "" && len(s) <= 7 && strings.Trim(s, "0123456789") == "" }
	return ok && digits(major) && digits(minor)
}

func sameLimit(a, b tick.DiskLimit) bool {
	return a.Disk == b.Disk && same(a.ReadBytesPerSecond, b.ReadBytesPerSecond) && same(a.WriteBytesPerSecond, b.WriteBytesPerSecond) &&
		same(a.ReadsPerSecond, b.ReadsPerSecond) && same(a.WritesPerSecond, b.WritesPerSecond)
}

var errLimits = errors.New("not the limits of a disk")

// limitsOf returns the limits in a device's part of a file. A file of version 1 contains one of them.
func limitsOf(name, text string) (limits, error) {
	out := unlimitedDisk
	at := limitIndex(name)
	switch {
	case at < 0:
		return out, fmt.Errorf("%s: %w", name, errLimits)
	case text == "":
		return out, nil
	case name != fileIOMax:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return out, fmt.Errorf("%q: %w", clip.Text(text, maxShownBytes), errLimits)
		}
		if n > 0 {
			out[at] = n
		}
		return out, nil
	}
	for field := range strings.FieldsSeq(text) {
		word, value, _ := strings.Cut(field, "=")
		i := slices.Index(limitNames[:], word)
		if i < 0 {
			return out, fmt.Errorf("%q: %w", clip.Text(text, maxShownBytes), errLimits)
		}
		if value == "max" {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil || n == 0 {
			return out, fmt.Errorf("%q: %w", clip.Text(text, maxShownBytes), errLimits)
		}
		if n < math.MaxInt64 {
			out[i] = int64(n)
		}
	}
	return out, nil
}

// text returns the limits in the file's format.
func (l *limits) text(name string) string {
	if name != fileIOMax {
		return limitText(l[limitIndex(name)], "0")
	}
	words := make([]string, numLimits)
	for i, word := range limitNames {
		words[i] = word + "=" + limitText(l[i], "max")
	}
	return strings.Join(words, " ")
}

func limitText(n int64, unlimited string) string {
	if n < 0 {
		return unlimited
	}
	return strconv.FormatInt(n, 10)
}

// desiredLimits returns the text of a device's limits: the desired ones as far as they are tighter than the original ones, and the present
// values of the others.
func (s *Setting) desiredLimits() (string, error) {
	if s.isFileText {
		l, err := limitsOf(s.Name, s.text)
		return l.text(s.Name), err
	}
	limits, err := limitsOf(s.Name, s.Observed)
	if err != nil {
		return "", err
	}
	original, err := limitsOf(s.Name, s.Original)
	if err != nil {
		return "", err
	}
	for i, n := range s.limits {
		switch {
		case n == 0: // not desired
		case n < 0 || original[i] >= 0 && original[i] < n:
			limits[i] = original[i]
		default:
			limits[i] = n
		}
	}
	return limits.text(s.Name), nil
}

// disks turns the desired limits of a cgroup into settings: one per disk on version 2, up to four on version 1.
func (t *translator) disks(c *tick.Cgroup) {
	if len(c.IOMax) == 0 {
		return
	}
	version := t.machine.Versions["io"]
	switch {
	case version == 0:
		t.problemOnce(c, keyIOMax, unavailable+"the controller io is not mounted in any cgroup hierarchy")
		return
	case len(c.IOMax) > maxDiskLimits:
		t.problem(c, keyIOMax, fmt.Sprintf("%d disks refused: want %d at most", len(c.IOMax), maxDiskLimits))
		return
	}
	desired := t.limitsByDevice(c)
	for i := range t.machine.Disks {
		l, ok := desired[t.machine.Disks[i].Device]
		if !ok {
			continue
		}
		f := File{Controller: "io", Cgroup: c.Cgroup, Name: fileIOMax, Device: t.machine.Disks[i].Device}
		s := Setting{File: f, Key: keyIOMax, Version: version, limits: l}
		if version == 2 {
			t.settings = append(t.settings, s)
			continue
		}
		for at, name := range throttleFiles {
			if l[at] == 0 {
				continue
			}
			s.Name, s.limits = name, limits{}
			s.limits[at] = l[at]
			t.settings = append(t.settings, s)
		}
	}
}

// limitsByDevice returns the limits of each device. Limits for a named disk replace those for all disks; if several names mean one disk,
// the tightest limits apply.
func (t *translator) limitsByDevice(c *tick.Cgroup) map[string]limits {
	ofAll, named := map[string]limits{}, map[string]limits{}
	for i := range c.IOMax {
		d := &c.IOMax[i]
		l, err := checkLimits(d)
		if err != nil {
			t.problem(c, keyIOMax, err.Error())
			continue
		}
		found := 0
		for j := range t.machine.Disks {
			disk := &t.machine.Disks[j]
			switch {
			case d.Disk == tick.AllDisks && disk.IsInAll:
				ofAll[disk.Device] = l.tightest(ofAll[disk.Device])
			case d.Disk == disk.Name || slices.Contains(disk.Mounts, d.Disk):
				named[disk.Device] = l.tightest(named[disk.Device])
			default:
				continue
			}
			found++
		}
		if found == 0 {
			const text = "no disk of this machine is %q: want a name of /sys/block, a mount point, or %q"
			t.problemOnce(c, keyIOMax, fmt.Sprintf(text, clip.Text(d.Disk, maxShownBytes), tick.AllDisks))
		}
	}
	for device, l := range ofAll {
		if _, ok := named[device]; !ok {
			named[device] = l
		}
	}
	return named
}

// checkLimits checks the desired limits of one disk.
func checkLimits(d *tick.DiskLimit) (limits, error) {
	var l limits
	for i, n := range [numLimits]*int64{d.ReadBytesPerSecond, d.WriteBytesPerSecond, d.ReadsPerSecond, d.WritesPerSecond} {
		minimum, maximum := int64(minDiskBytes), int64(maxDiskBytes)
		if i >= 2 {
			minimum, maximum = minDiskOperations, maxDiskOperations
		}
		switch {
		case n == nil:
		case *n != tick.Unlimited && (*n < minimum || *n > maximum):
			const text = "%d of %q refused: want %d to %d a second, or %d for the original value"
			return l, fmt.Errorf(text, *n, clip.Text(d.Disk, maxShownBytes), minimum, maximum, tick.Unlimited)
		default:
			l[i] = *n
		}
	}
	return l, nil
}

// tightest returns the tighter of two values for each limit; a limit that only one has stays.
func (l limits) tightest(other limits) limits {
	for i, n := range other {
		if n != 0 && (l[i] == 0 || n > 0 && (l[i] < 0 || n < l[i])) {
			l[i] = n
		}
	}
	return l
}
