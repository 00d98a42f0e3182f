// Package disks lists the machine's disks, from /sys/block, and their mount points, from /proc/self/mountinfo.
package disks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"polder/lib/kernfile"
)

// Disk is a whole disk; partitions belong to their disk.
type Disk struct {
	Name   string // as in "nvme0n1"
	Device string // its numbers, as in "259:0"
	// Empty means that it has no medium: a loop device without a file, a drive without a disk.
	Empty bool
	// Real means that a device of the machine or its hypervisor provides it.
	Real bool
	// Stacked means that its reads and writes are also done on other disks, and counted and limited there: device mapper, software
	// RAID, loop devices.
	Stacked bool
}

// List lists the disks of the machine under root, sorted by name. It omits a disk that disappears during the reading.
func List(root string) ([]Disk, error) {
	dir := filepath.Join(root, "sys/block")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a machine without disks, or a copy of another
	}
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	var list []Disk
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		device, err := kernfile.ReadText(filepath.Join(at, "dev"))
		if err != nil && !isGone(err) {
			return nil, fmt.Errorf("list disks: %w", err)
		}
		if err != nil || !IsDevice(device) {
			continue // hidden, as the paths of a multipath disk
		}
		stacked, err := isStacked(at)
		if err != nil {
			return nil, fmt.Errorf("list disks: %w", err)
		}
		size, err := kernfile.ReadText(filepath.Join(at, "size"))
		list = append(list, Disk{
			Name: e.Name(), Device: device, Empty: err == nil && size == "0",
			Real: exists(filepath.Join(at, "device")), Stacked: stacked,
		})
	}
	return list, nil
}

// isStacked reports whether a disk is built on other ones: it names them, or a file.
func isStacked(at string) (bool, error) {
	parents, err := os.ReadDir(filepath.Join(at, "slaves"))
	if err != nil && !isGone(err) {
		return false, err
	}
	return len(parents) > 0 || exists(filepath.Join(at, "loop")) || strings.HasPrefix(filepath.Base(at), "loop"), nil
}

// isGone reports whether a disk has just disappeared, or does not have such a file.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// IsDevice reports whether text is a device number, as the kernel prints it.
func IsDevice(text string) bool {
	major, minor, ok := strings.Cut(text, ":")
	return ok && isNumber(major) && isNumber(minor)
}

func isNumber(text string) bool {
	if len(text) == 0 || len(text) > 7 || len(text) > 1 && text[0] == '0' {
		return false
	}
	return strings.Trim(text, "0123456789") == ""
}

// Mounts returns the device number of the disk at each mount point that has one. Of several mounts at one point the last one is visible.
func Mounts(root string) (map[string]string, error) {
	path := filepath.Join(root, "proc/self/mountinfo")
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	mounts, err := mountinfo.GetMountsFromReader(f, nil)
	if err != nil {
		return nil, fmt.Errorf("list mounts of %s: %w", path, err)
	}
	out := map[string]string{}
	known := map[string]string{} // by a partition's device number
	for _, m := range mounts {
		device := fmt.Sprintf("%d:%d", m.Major, m.Minor)
		if m.Major == 0 { // a file system with its own device numbers, such as btrfs
			device = numbersOf(filepath.Join(root, m.Source), m.Source)
		}
		if device == "" {
			delete(out, m.Mountpoint)
			continue
		}
		whole, seen := known[device]
		if !seen {
			whole = wholeDisk(root, device)
			known[device] = whole
		}
		if out[m.Mountpoint] = whole; whole == "" {
			delete(out, m.Mountpoint)
		}
	}
	return out, nil
}

// numbersOf returns the device number of a device file; empty if it is not one.
func numbersOf(path, source string) string {
	if !strings.HasPrefix(source, "/dev/") {
		return ""
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ""
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
}

// wholeDisk returns the device number of the disk that a device is, or is a partition of; empty if it is neither.
func wholeDisk(root, device string) string {
	at := filepath.Join(root, "sys/dev/block", device)
	if !exists(at) {
		return ""
	}
	if !exists(filepath.Join(at, "partition")) {
		return device
	}
	link, err := os.Readlink(at)
	if err != nil {
		return ""
	}
	wholeDisk, err := kernfile.ReadText(filepath.Join(filepath.Dir(at), filepath.Dir(link), "dev"))
	if err != nil || !IsDevice(wholeDisk) {
		return ""
	}
	return wholeDisk
}
