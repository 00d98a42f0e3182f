package host

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"polder/lib/kernfile"
)

// Memory has the fields of /proc/meminfo that Polder needs; a field that the kernel does not have is nil.
type Memory struct {
	TotalBytes, FreeBytes, AvailableBytes, CachedBytes *uint64
}

// Memory reads /proc/meminfo.
func (h *Host) Memory() (Memory, error) {
	m, err := h.proc.Meminfo()
	if err != nil {
		return Memory{}, fmt.Errorf("read meminfo: %w", err)
	}
	return Memory{TotalBytes: m.MemTotalBytes, FreeBytes: m.MemFreeBytes, AvailableBytes: m.MemAvailableBytes, CachedBytes: m.CachedBytes}, nil
}

// KswapdStealPages is the number of pages that kswapd has reclaimed since the start.
func (h *Host) KswapdStealPages() (uint64, error) {
	data, err := h.read("proc/vmstat")
	if err != nil {
		return 0, fmt.Errorf("read vmstat: %w", err)
	}
	n, err := ParseKswapdSteal(data)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", h.Path("proc/vmstat"), err)
	}
	return n, nil
}

var pgstealKswapd = []byte("pgsteal_kswapd")

// ParseKswapdSteal finds pgsteal_kswapd in /proc/vmstat. Kernels before 4.8 have one line a zone (pgsteal_kswapd_normal):
// then it returns their sum.
func ParseKswapdSteal(data []byte) (uint64, error) {
	var sum uint64
	var found bool
	for len(data) > 0 {
		var line []byte
		line, data = kernfile.Line(data)
		if !bytes.HasPrefix(line, pgstealKswapd) {
			continue
		}
		name, rest := kernfile.Field(line)
		value, _ := kernfile.Field(rest)
		n, ok := kernfile.Uint(value)
		if !ok {
			return 0, fmt.Errorf("line %q: %q is not a number", kernfile.Clip(line), kernfile.Clip(value))
		}
		if len(name) == len(pgstealKswapd) {
			return n, nil
		}
		if name[len(pgstealKswapd)] == '_' {
			sum += n
			found = true
		}
	}
	if !found {
		return 0, errors.New("no line pgsteal_kswapd")
	}
	return sum, nil
}

// LowWatermarkBytes is the sum of all zones' low watermarks: free memory below it wakes kswapd.
func (h *Host) LowWatermarkBytes() (uint64, error) {
	data, err := h.read("proc/zoneinfo")
	if err != nil {
		return 0, fmt.Errorf("read zoneinfo: %w", err)
	}
	pages, err := ParseLowWatermark(data)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", h.Path("proc/zoneinfo"), err)
	}
	return pages * uint64(os.Getpagesize()), nil
}

// ParseLowWatermark sums up the lines "        low      1234" of /proc/zoneinfo, in pages.
func ParseLowWatermark(data []byte) (pages uint64, err error) {
	var found bool
	for len(data) > 0 {
		var line []byte
		line, data = kernfile.Line(data)
		name, rest := kernfile.Field(line)
		if string(name) != "low" {
			continue
		}
		value, _ := kernfile.Field(rest)
		n, ok := kernfile.Uint(value)
		if !ok || n > math.MaxUint32*16 {
			return 0, fmt.Errorf("line %q: %q is not a number of pages", kernfile.Clip(line), kernfile.Clip(value))
		}
		pages += n
		found = true
	}
	if !found || pages > 1<<44 {
		return 0, errors.New("no low watermark")
	}
	return pages, nil
}

// NodeMemory is one NUMA node's memory.
type NodeMemory struct {
	TotalBytes, FreeBytes *uint64
}

// NodeMemory reads /sys/devices/system/node/nodeID/meminfo.
func (h *Host) NodeMemory(id int) (NodeMemory, error) {
	path := "sys/devices/system/node/node" + strconv.Itoa(id) + "/meminfo"
	data, err := h.read(path)
	if err != nil {
		return NodeMemory{}, fmt.Errorf("read memory of NUMA node %d: %w", id, err)
	}
	m, err := ParseNodeMeminfo(data)
	if err != nil {
		return NodeMemory{}, fmt.Errorf("read %s: %w", h.Path(path), err)
	}
	return m, nil
}

// ParseNodeMeminfo parses a NUMA node's meminfo: "Node 0 MemTotal:  4024540 kB".
func ParseNodeMeminfo(data []byte) (NodeMemory, error) {
	var m NodeMemory
	for len(data) > 0 && (m.TotalBytes == nil || m.FreeBytes == nil) {
		var line []byte
		line, data = kernfile.Line(data)
		_, rest := kernfile.Field(line) // "Node"
		_, rest = kernfile.Field(rest)  // its id
		name, rest := kernfile.Field(rest)
		var into **uint64
		switch string(name) {
		case "MemTotal:":
			into = &m.TotalBytes
		case "MemFree:":
			into = &m.FreeBytes
		default:
			continue
		}
		value, _ := kernfile.Field(rest)
		n, ok := kernfile.Uint(value)
		if !ok || n > math.MaxUint64>>10 {
			return NodeMemory{}, fmt.Errorf("line %q: %q is not a number of kB", kernfile.Clip(line), kernfile.Clip(value))
		}
		n <<= 10
		*into = &n
	}
	if m.TotalBytes == nil {
		return NodeMemory{}, errors.New("no line MemTotal")
	}
	return m, nil
}
