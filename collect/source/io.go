package source

import (
	"fmt"

	"polder/lib/cgroup"
	"polder/lib/tick"
)

// podIO is a pod's input and output between rounds, and the memory that its part of a sample points into.
type podIO struct {
	reader *cgroup.IOReader // nil where there are no such files or they were removed
	at     float64          // when it was read last, in seconds
	last   cgroup.IO
	// stackedVersion is that of the disks which were left out of the reading.
	stackedVersion int
	rates          ioRates
	out            tick.IO
	values         [4]float64
}

// ioRates are a cgroup's reads and writes in a second.
type ioRates struct {
	readBytes, writeBytes, reads, writes float64
	hasBytes, hasOperations              bool
}

// openIO opens the files of a pod that has none open.
func (t *tree) openIO(n *node) {
	if n.io.reader != nil {
		return
	}
	r, err := t.h.OpenIO(n.path)
	if err != nil {
		t.errs = append(t.errs, fmt.Errorf("open input and output of cgroup %s: %w", n.path, err))
	}
	n.io.reader = r
}

// ioEvery is how often they are read, in seconds, half a second early rather than late: they cost a third of the cost of all other files of
// a container.
const ioEvery = 5 - 0.5

// readIO reads a pod's files again if the last reading is old enough.
func (t *tree) readIO(n *node, seconds float64) {
	p := n.io
	elapsed := seconds - p.at
	if p.reader == nil || elapsed > 0 && elapsed < ioEvery {
		return
	}
	before, known := p.last, p.at > 0 && p.stackedVersion == t.env.stackedVersion
	p.stackedVersion = t.env.stackedVersion
	p.at, p.last, p.rates = seconds, cgroup.IO{}, ioRates{}
	var err error
	t.ioBuf, err = p.reader.Read(t.ioBuf, t.skipsDisk)
	switch {
	case cgroup.IsGone(err):
		p.close()
		return
	case err != nil:
		t.errs = append(t.errs, err)
		return
	}
	if p.last = p.reader.IO; known {
		p.rates = ioRatesOf(&before, &p.last, elapsed)
	}
}

// skipsDisk reports whether a device's input and output is counted on another disk.
func (t *tree) skipsDisk(device []byte) bool { return t.env.stackedDisks[string(device)] }

// ioRatesOf are the rates between two readings. Counters that decreased belong to another cgroup.
func ioRatesOf(before, now *cgroup.IO, seconds float64) ioRates {
	var r ioRates
	if !(seconds > 0) {
		return r
	}
	rate := func(was, is uint64) float64 { return rounded(float64(is-was)/seconds, 10) }
	if before.HasBytes && now.HasBytes && now.ReadBytes >= before.ReadBytes && now.WriteBytes >= before.WriteBytes {
		r.readBytes, r.writeBytes, r.hasBytes = rate(before.ReadBytes, now.ReadBytes), rate(before.WriteBytes, now.WriteBytes), true
	}
	if before.HasOperations && now.HasOperations && now.Reads >= before.Reads && now.Writes >= before.Writes {
		r.reads, r.writes, r.hasOperations = rate(before.Reads, now.Reads), rate(before.Writes, now.Writes), true
	}
	return r
}

// value is the last reading, nil where there is none.
func (p *podIO) value() *tick.IO {
	r := &p.rates
	if !r.hasBytes && !r.hasOperations {
		return nil
	}
	v := &p.values
	p.out = tick.IO{
		ReadBytesPerSecond: known(&v[0], r.readBytes, r.hasBytes), WriteBytesPerSecond: known(&v[1], r.writeBytes, r.hasBytes),
		ReadsPerSecond: known(&v[2], r.reads, r.hasOperations), WritesPerSecond: known(&v[3], r.writes, r.hasOperations),
	}
	return &p.out
}

func (p *podIO) close() {
	if p == nil {
		return
	}
	if p.reader != nil {
		p.reader.Close()
	}
	*p = podIO{}
}
