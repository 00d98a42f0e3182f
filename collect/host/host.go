// Package host reads the machine under a root directory: /proc and /sys. Reading is split from parsing; the parsers
// take any bytes. It is the only importer of prometheus/procfs, which reads what is small and simple there (loadavg,
// meminfo); the files that have a line or more a CPU or a zone are parsed here, because procfs parses them
// with Sscanf and regular expressions.
package host

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/prometheus/procfs"

	"polder/lib/kernfile"
)

// Host is a machine under a root directory. It is not safe for concurrent use.
type Host struct {
	root string
	proc procfs.FS
	buf  []byte
}

// New returns the machine under root, "/" for this one.
func New(root string) (*Host, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("open the machine under %s: %w", root, err)
	}
	proc, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return nil, fmt.Errorf("open the machine under %s: %w", root, err)
	}
	return &Host{root: root, proc: proc, buf: make([]byte, 16<<10)}, nil
}

// Root is the root directory.
func (h *Host) Root() string { return h.root }

// Path is a path under the root.
func (h *Host) Path(path string) string { return filepath.Join(h.root, path) }

// read reads a file under the root into memory that the next read reuses.
func (h *Host) read(path string) ([]byte, error) {
	data, err := kernfile.Read(filepath.Join(h.root, path), h.buf)
	if cap(data) > cap(h.buf) {
		h.buf = data
	}
	return data, err
}

// Name is the host's name.
func (h *Host) Name() (string, error) {
	data, err := h.read("proc/sys/kernel/hostname")
	if err != nil {
		return "", fmt.Errorf("read the host's name: %w", err)
	}
	name := string(kernfile.Text(data))
	if name == "" {
		return "", fmt.Errorf("read the host's name: %s is empty", h.Path("proc/sys/kernel/hostname"))
	}
	return name, nil
}

// BootID identifies the boot; it is empty where it cannot be read.
func (h *Host) BootID() string {
	return kernfile.BootID(h.Path("/"))
}

// UptimeSeconds is the time since the start, in steps of 10 ms.
func (h *Host) UptimeSeconds() (float64, error) {
	data, err := h.read("proc/uptime")
	if err != nil {
		return 0, fmt.Errorf("read uptime: %w", err)
	}
	up, err := ParseUptime(data)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", h.Path("proc/uptime"), err)
	}
	return up, nil
}

// ParseUptime parses /proc/uptime: "350735.47 234388.90", seconds since the start and seconds idle.
func ParseUptime(data []byte) (float64, error) {
	line, _ := kernfile.Line(data)
	field, _ := kernfile.Field(line)
	up, err := strconv.ParseFloat(string(field), 64)
	if err != nil || !(up >= 0 && up < 1e12) {
		return 0, fmt.Errorf("uptime %q is not a number of seconds", kernfile.Clip(field))
	}
	return up, nil
}

// LoadAverage is the kernel's own load over 1, 5 and 15 minutes.
func (h *Host) LoadAverage() (load1, load5, load15 float64, err error) {
	l, err := h.proc.LoadAvg()
	if err != nil {
		return 0, 0, 0, fmt.Errorf("read loadavg: %w", err)
	}
	if !(finite(l.Load1) && finite(l.Load5) && finite(l.Load15)) {
		return 0, 0, 0, errors.New("read loadavg: a load is not a number")
	}
	return l.Load1, l.Load5, l.Load15, nil
}

// finite guards against "NaN", which procfs accepts.
func finite(f float64) bool { return f >= 0 && f < 1e15 }

// WatermarkScaleFactor is vm.watermark_scale_factor: the distance between the watermarks, in ten-thousandths of the
// memory.
func (h *Host) WatermarkScaleFactor() (uint64, error) {
	const path = "proc/sys/vm/watermark_scale_factor"
	data, err := h.read(path)
	if err != nil {
		return 0, fmt.Errorf("read vm.watermark_scale_factor: %w", err)
	}
	n, ok := kernfile.UintLine(data)
	if !ok {
		return 0, fmt.Errorf("read %s: %q is not a number", h.Path(path), kernfile.Clip(data))
	}
	return n, nil
}

// list reads a file that is one line: a list, a mask or a number.
func (h *Host) list(path string) (string, error) {
	data, err := h.read(path)
	return string(kernfile.Text(data)), err
}
