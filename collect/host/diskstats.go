package host

import (
	"errors"
	"fmt"

	"polder/lib/kernfile"
)

// SectorBytes is the unit of /proc/diskstats, whatever the disk's own sectors are.
const SectorBytes = 512

// DiskCount is a line of /proc/diskstats: what a disk or a partition has done since the start.
type DiskCount struct {
	Name                 string
	Major, Minor         uint32
	Reads, ReadSectors   uint64
	ReadMilliseconds     uint64 // added up over all reads
	Writes, WriteSectors uint64
	WriteMilliseconds    uint64
	BusyMilliseconds     uint64 // in which any request was in progress
	QueueMilliseconds    uint64 // the same, weighted with the number of requests
}

// DiskCounts reads /proc/diskstats into into, which it empties first and returns. A kernel without block devices has no such file.
func (h *Host) DiskCounts(into []DiskCount) ([]DiskCount, error) {
	data, err := h.read("proc/diskstats")
	if err != nil {
		return into[:0], fmt.Errorf("read disks: %w", err)
	}
	if into, err = ParseDiskstats(data, into); err != nil {
		return into[:0], fmt.Errorf("read %s: %w", h.Path("proc/diskstats"), err)
	}
	return into, nil
}

// maxDiskLines bounds the lines of /proc/diskstats, which include partitions and loop devices.
const maxDiskLines = 4096

var errTooManyDisks = errors.New("more lines than a machine has disks and partitions")

// ParseDiskstats parses /proc/diskstats (Documentation/admin-guide/iostats.rst). A name that into already has at its place is not allocated
// again.
func ParseDiskstats(data []byte, into []DiskCount) ([]DiskCount, error) {
	before := into[:cap(into)]
	into = into[:0]
	for len(data) > 0 {
		var line []byte
		if line, data = kernfile.Line(data); len(line) == 0 {
			continue
		}
		if len(into) == maxDiskLines {
			return into[:0], errTooManyDisks
		}
		var d DiskCount
		var name []byte
		if name = d.parse(line); name == nil {
			return into[:0], fmt.Errorf("line %q: want numbers of a device, its name and 11 counts", kernfile.Clip(line))
		}
		if i := len(into); i < len(before) && before[i].Name == string(name) {
			d.Name = before[i].Name
		} else {
			d.Name = string(name)
		}
		into = append(into, d)
	}
	return into, nil
}

// parse returns the name, or nil where the line is not a disk's.
func (d *DiskCount) parse(line []byte) (name []byte) {
	var field []byte
	var major, minor uint64
	for _, n := range []*uint64{&major, &minor} {
		var ok bool
		field, line = kernfile.Field(line)
		if *n, ok = kernfile.Uint(field); !ok || *n >= 1<<32 {
			return nil
		}
	}
	d.Major, d.Minor = uint32(major), uint32(minor)
	if name, line = kernfile.Field(line); len(name) == 0 {
		return nil
	}
	var merged, inFlight uint64
	for _, n := range [...]*uint64{
		&d.Reads, &merged, &d.ReadSectors, &d.ReadMilliseconds, &d.Writes, &merged, &d.WriteSectors, &d.WriteMilliseconds,
		&inFlight, &d.BusyMilliseconds, &d.QueueMilliseconds,
	} {
		var ok bool
		field, line = kernfile.Field(line)
		if *n, ok = kernfile.Uint(field); !ok {
			return nil
		}
	}
	return name
}
