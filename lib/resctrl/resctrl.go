// Package resctrl reads and writes the kernel's file system that divides caches and memory bandwidth between groups of tasks
// (Documentation/filesystems/resctrl.rst): the machine's abilities, and the groups' files. It uses no library;
// docs/policy-koordinator.md names those that were considered.
package resctrl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"polder/lib/clip"
	"polder/lib/kernfile"
	"polder/lib/schemata"
	"polder/lib/tick"
)

// Dir is resctrl's mount point under the machine's root. Other mount points are not supported.
const Dir = "sys/fs/resctrl"

// Identity distinguishes mounts.
type Identity struct{ device, inode uint64 }

// Mounted reports whether resctrl is mounted: one system call if it is not.
func Mounted(root string) (Identity, bool) {
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(root, Dir, "info"), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return Identity{}, false
	}
	return Identity{device: st.Dev, inode: st.Ino}, true
}

// Read reads what the machine under root can divide: nil if resctrl is not mounted. A value that could not be read is absent,
// together with the domains that depend on it, and the error names it.
func Read(root string) (*tick.Resctrl, error) {
	if _, mounted := Mounted(root); !mounted {
		return nil, nil
	}
	dir := filepath.Join(root, Dir)
	m := &tick.Resctrl{Vendor: vendor(root)}
	text, err := kernfile.ReadText(filepath.Join(dir, "schemata"))
	switch {
	case errors.Is(err, fs.ErrNotExist): // it is mounted only for monitoring
		return m, nil
	case err != nil:
		return m, fmt.Errorf("list the resources of resctrl: %w", err)
	}
	lines := schemata.ParseFile(text)
	var errs []error
	if err := readCache(m, dir, lines); err != nil {
		errs = append(errs, fmt.Errorf("read how the L3 cache is divided: %w", err))
	}
	if err := readBandwidth(m, root, dir, lines); err != nil {
		errs = append(errs, fmt.Errorf("read how memory bandwidth is divided: %w", err))
	}
	if m.CLOSIDs, err = closids(dir); err != nil {
		errs = append(errs, fmt.Errorf("read how many groups resctrl has: %w", err))
	}
	return m, errors.Join(errs...)
}

func readCache(m *tick.Resctrl, dir string, lines []schemata.Line) error {
	line, found := schemata.Find(lines, schemata.L3)
	if !found {
		if line, found = schemata.Find(lines, schemata.L3Code); !found {
			return nil
		}
		m.CDP = true
	}
	info := filepath.Join(dir, "info", line.Resource)
	mask, err := kernfile.ReadText(filepath.Join(info, "cbm_mask"))
	if err != nil {
		return err
	}
	if _, err := schemata.Mask(mask); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(info, "cbm_mask"), err)
	}
	minimum, err := readNumber(filepath.Join(info, "min_cbm_bits"))
	if err != nil {
		return err
	}
	m.CBMMask, m.MinCBMBits, m.L3 = mask, minimum, line.IDs()
	return nil
}

func readBandwidth(m *tick.Resctrl, root, dir string, lines []schemata.Line) error {
	line, found := schemata.Find(lines, schemata.MB)
	if !found {
		return nil
	}
	info := filepath.Join(dir, "info", schemata.MB)
	minimum, err := readNumber(filepath.Join(info, "min_bandwidth"))
	if err != nil {
		return err
	}
	step, err := readNumber(filepath.Join(info, "bandwidth_gran"))
	if err != nil {
		return err
	}
	m.MBMin, m.MBGranularity, m.MB = minimum, step, line.IDs()
	m.MBps = isMBps(root) || m.Vendor == schemata.Intel &&
		slices.ContainsFunc(line.Values, func(v schemata.Value) bool { return v.Part > 100 })
	return nil
}

// isMBps reports whether resctrl is mounted with mba_MBps; there is one resctrl, however often it is mounted.
func isMBps(root string) bool {
	f, err := os.Open(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return false
	}
	defer f.Close()
	mounts, err := mountinfo.GetMountsFromReader(f, mountinfo.FSTypeFilter("resctrl"))
	return err == nil && slices.ContainsFunc(mounts, func(i *mountinfo.Info) bool {
		return slices.Contains(strings.Split(i.VFSOptions, ","), "mba_MBps")
	})
}

// closids returns the smallest number of groups that any of the machine's resources supports, as the kernel does.
func closids(dir string) (int64, error) {
	names, err := os.ReadDir(filepath.Join(dir, "info"))
	if err != nil {
		return 0, err
	}
	minimum := int64(0)
	for _, name := range names {
		n, err := readNumber(filepath.Join(dir, "info", name.Name(), "num_closids"))
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR): // a resource that is only monitored; last_cmd_status
		case err != nil:
			return 0, err
		case minimum == 0 || n < minimum:
			minimum = n
		}
	}
	return minimum, nil
}

// vendors are the processor vendors whose memory bandwidth is supported, by vendor_id in /proc/cpuinfo.
var vendors = map[string]string{"GenuineIntel": schemata.Intel, "AuthenticAMD": schemata.AMD}

// vendor reads only the first processor: to create all of /proc/cpuinfo the kernel asks every CPU for its frequency.
func vendor(root string) string {
	f, err := os.Open(filepath.Join(root, "proc/cpuinfo"))
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 1024)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return ""
	}
	for line := range bytes.SplitSeq(head[:n], []byte{'\n'}) {
		key, value, _ := bytes.Cut(line, []byte{':'})
		if string(bytes.TrimSpace(key)) == "vendor_id" {
			return vendors[string(bytes.TrimSpace(value))]
		}
	}
	return ""
}

func readNumber(path string) (int64, error) {
	text, err := kernfile.ReadText(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s: %q is not a number", path, clip.Text(text, 60))
	}
	return n, nil
}
