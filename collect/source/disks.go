package source

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"

	"polder/collect/host"
	"polder/lib/disks"
	"polder/lib/tick"
)

// Disks is the use of the machine's disks.
var Disks = Source{
	Name: "disks",
	Doc:  "/proc/diskstats of the whole disks, which /sys/block lists",
	New:  func(e *Env) Reader { return &disksReader{env: e} },
}

// maxDisks bounds the disks of a sample: a line stays short on a machine with hundreds of loop devices.
const maxDisks = 64

type disksReader struct {
	env     *Env
	listed  []disks.Disk
	byName  map[string]int // place in listed
	now     []host.DiskCount
	before  map[string]host.DiskCount
	seconds float64 // of before; 0 where there is none

	out    []tick.Disk
	values [][8]float64
}

func (d *disksReader) Read(r *Round) error {
	if r.Rescan {
		if err := d.list(); err != nil {
			return err
		}
	}
	if len(d.listed) == 0 {
		return nil
	}
	return d.count(r)
}

// list reads the list of disks.
func (d *disksReader) list() error {
	all, err := disks.List(d.env.Host.Root())
	if err != nil {
		return err // the older list stays
	}
	d.listed, d.byName = d.listed[:0], map[string]int{}
	stacked := map[string]bool{}
	for _, one := range all {
		if one.Stacked {
			stacked[one.Device] = true
		}
		if !one.Empty {
			d.byName[one.Name] = len(d.listed)
			d.listed = append(d.listed, one)
		}
	}
	if !maps.Equal(stacked, d.env.stackedDisks) {
		d.env.stackedDisks = stacked
		d.env.stackedVersion++
	}
	return nil
}

func (d *disksReader) count(r *Round) error {
	var err error
	if d.now, err = d.env.Host.DiskCounts(d.now); err != nil {
		d.seconds = 0
		if errors.Is(err, fs.ErrNotExist) { // a copy of a machine, without the file
			return nil
		}
		return err
	}
	at := r.Clock.Seconds()
	elapsed := at - d.seconds
	rated := d.seconds > 0 && elapsed > 0
	if d.values == nil {
		d.values = make([][8]float64, maxDisks)
	}
	d.out = d.out[:0]
	omitted := 0
	for i := range d.now {
		c := &d.now[i]
		index, whole := d.byName[c.Name]
		switch {
		case !whole || c.Reads == 0 && c.Writes == 0: // a partition, or a disk that was never used
			continue
		case len(d.out) == maxDisks:
			omitted++
			continue
		}
		disk := tick.Disk{Name: c.Name, Device: d.listed[index].Device}
		if before, ok := d.before[c.Name]; ok && rated {
			fillDisk(&disk, &before, c, elapsed, &d.values[len(d.out)])
		}
		d.out = append(d.out, disk)
	}
	if elapsed > 0 || d.seconds == 0 { // a copy's clock may stand still: then the older reading is the one to compare with
		d.keep(at)
	}
	if r.Sample.Disks = d.out; omitted > 0 {
		return fmt.Errorf("%d of %d disks are left out", omitted, maxDisks+omitted)
	}
	return nil
}

func (d *disksReader) keep(seconds float64) {
	if d.before == nil {
		d.before = map[string]host.DiskCount{}
	}
	clear(d.before)
	for i := range d.now {
		if _, whole := d.byName[d.now[i].Name]; whole {
			d.before[d.now[i].Name] = d.now[i]
		}
	}
	d.seconds = seconds
}

// fillDisk writes a disk's use between two readings. Counters that decreased belong to another disk, or have wrapped around.
func fillDisk(into *tick.Disk, before, now *host.DiskCount, seconds float64, values *[8]float64) {
	next := 0
	put := func(value float64, ok bool, parts float64) *float64 {
		if !ok || math.IsNaN(value) {
			return nil
		}
		next++
		return known(&values[next-1], rounded(value, parts), true)
	}
	growth := func(was, is uint64) (float64, bool) { return float64(is - was), is >= was }
	per := func(was, is uint64, scale, parts float64) *float64 {
		n, ok := growth(was, is)
		return put(n*scale/seconds, ok, parts)
	}
	busy, ok := growth(before.BusyMilliseconds, now.BusyMilliseconds)
	into.UsePercent = put(min(busy/10/seconds, 100), ok, 10)
	into.Queue = per(before.QueueMilliseconds, now.QueueMilliseconds, 1e-3, 1000)
	into.ReadBytesPerSecond = per(before.ReadSectors, now.ReadSectors, host.SectorBytes, 1)
	into.WriteBytesPerSecond = per(before.WriteSectors, now.WriteSectors, host.SectorBytes, 1)
	into.ReadsPerSecond = per(before.Reads, now.Reads, 1, 10)
	into.WritesPerSecond = per(before.Writes, now.Writes, 1, 10)
	latency := func(opsBefore, ops, msBefore, ms uint64) *float64 {
		n, okN := growth(opsBefore, ops)
		duration, okDuration := growth(msBefore, ms)
		return put(duration*1000/n, okN && okDuration && n > 0, 1)
	}
	into.ReadLatencyMicroseconds = latency(before.Reads, now.Reads, before.ReadMilliseconds, now.ReadMilliseconds)
	into.WriteLatencyMicroseconds = latency(before.Writes, now.Writes, before.WriteMilliseconds, now.WriteMilliseconds)
}

func (d *disksReader) Save(s *State) {
	if d.seconds > 0 {
		s.Disks = &DisksState{Seconds: d.seconds, Disks: d.before}
	}
}

func (d *disksReader) Load(s *State) {
	if s.Disks != nil && s.Disks.Seconds > 0 {
		d.before, d.seconds = s.Disks.Disks, s.Disks.Seconds
	}
}
