package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"polder/lib/kernfile"
)

// IO has a cgroup's reads and writes on disks since its creation, including its descendants.
type IO struct {
	ReadBytes, WriteBytes uint64
	Reads, Writes         uint64
	// HasBytes and HasOperations say which of them are known: version 1 has a file for each.
	HasBytes, HasOperations bool
}

// ioFile is a file with counts of a cgroup's input and output.
type ioFile struct {
	version int
	name    string
	parse   func(*IO, []byte, Skip) error
}

var ioFiles = []ioFile{
	{1, "blkio.throttle.io_service_bytes_recursive", (*IO).ParseServiceBytes},
	{1, "blkio.throttle.io_serviced_recursive", (*IO).ParseServiced},
	{2, "io.stat", (*IO).ParseStat},
}

// Skip reports whether a device, by its number as in "254:0", must not be counted, because another device counts its input and output.
type Skip func(device []byte) bool

// IOReader reads one cgroup's input and output from files that it keeps open.
type IOReader struct {
	IO    IO
	files []*File
	parse []func(*IO, []byte, Skip) error
}

// OpenIO opens a cgroup's files. It returns nil if there are none: without the controller, and on version 1 before Linux 4.17,
// which does not include the descendants.
func (h *Hierarchy) OpenIO(cgroup string) (*IOReader, error) {
	version := h.Version("io")
	r := &IOReader{}
	for _, f := range ioFiles {
		if f.version != version {
			continue
		}
		file, err := h.Open("io", cgroup, f.name)
		if IsGone(err) {
			continue
		}
		if err != nil {
			r.Close()
			return nil, err
		}
		r.files, r.parse = append(r.files, file), append(r.parse, f.parse)
	}
	if len(r.files) == 0 {
		return nil, nil
	}
	return r, nil
}

// Read reads the files again into buf, and returns buf, or a larger one if needed. If the cgroup is being removed, [IsGone] is true for the
// error.
func (r *IOReader) Read(buf []byte, skip Skip) ([]byte, error) {
	r.IO = IO{}
	for i, f := range r.files {
		data, err := f.Read(buf)
		if err != nil {
			r.IO = IO{}
			return buf, err
		}
		buf = data[:cap(data)]
		if err := r.parse[i](&r.IO, data, skip); err != nil {
			r.IO = IO{}
			return buf, fmt.Errorf("read %s: %w", f.Path(), err)
		}
	}
	return buf, nil
}

// Close closes the files.
func (r *IOReader) Close() {
	for _, f := range r.files {
		f.Close()
	}
	r.files = nil
}

var errIOStat = errors.New("not a line of a device")

// ParseStat parses version 2's io.stat: "254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0". Some kernels write the number of an
// unused device in the line of the next one, before that one's number.
func (v *IO) ParseStat(data []byte, skip Skip) error {
	for len(data) > 0 {
		var line []byte
		line, data = kernfile.Line(data)
		left := false
		for len(line) > 0 {
			var field []byte
			if field, line = kernfile.Field(line); len(field) == 0 {
				break
			}
			if bytes.IndexByte(field, '=') < 0 {
				left = skip != nil && skip(field)
				continue
			}
			if left {
				continue
			}
			if err := v.count(field); err != nil {
				return err
			}
		}
	}
	v.HasBytes, v.HasOperations = true, true
	return nil
}

// count adds one of the values of a device: "rbytes=1".
func (v *IO) count(field []byte) error {
	for _, known := range [...]struct {
		name string
		into *uint64
	}{{"rbytes=", &v.ReadBytes}, {"wbytes=", &v.WriteBytes}, {"rios=", &v.Reads}, {"wios=", &v.Writes}} {
		length := len(known.name)
		if len(field) <= length || string(field[:length]) != known.name {
			continue
		}
		n, ok := kernfile.Uint(field[length:])
		if !ok {
			return fmt.Errorf("%w: %q", errIOStat, kernfile.Clip(field))
		}
		addSaturating(known.into, n)
	}
	return nil // a value of discards, costs, or of a later kernel
}

// addSaturating adds without overflow: a sum that does not fit becomes the largest number, from which no rate follows.
func addSaturating(into *uint64, n uint64) {
	if *into > math.MaxUint64-n {
		*into = math.MaxUint64
		return
	}
	*into += n
}

// ParseServiceBytes parses version 1's blkio.throttle.io_service_bytes_recursive.
func (v *IO) ParseServiceBytes(data []byte, skip Skip) error {
	v.HasBytes = true
	return service(data, skip, &v.ReadBytes, &v.WriteBytes)
}

// ParseServiced parses version 1's blkio.throttle.io_serviced_recursive.
func (v *IO) ParseServiced(data []byte, skip Skip) error {
	v.HasOperations = true
	return service(data, skip, &v.Reads, &v.Writes)
}

// service adds up the lines "254:0 Read 1" and "254:0 Write 2"; the other lines divide the same sum differently, and the last one,
// "Total 3", is the sum of all devices.
func service(data []byte, skip Skip, read, write *uint64) error {
	for len(data) > 0 {
		var line, device, kind []byte
		line, data = kernfile.Line(data)
		if device, line = kernfile.Field(line); len(device) == 0 || string(device) == "Total" || skip != nil && skip(device) {
			continue
		}
		kind, line = kernfile.Field(line)
		var into *uint64
		switch string(kind) {
		case "Read":
			into = read
		case "Write":
			into = write
		default:
			continue
		}
		n, ok := kernfile.UintLine(line)
		if !ok {
			return fmt.Errorf("%w: %q", errIOStat, kernfile.Clip(line))
		}
		addSaturating(into, n)
	}
	return nil
}
