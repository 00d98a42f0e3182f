package source

import (
	"fmt"

	"polder/lib/cgroup"
	"polder/lib/tick"
)

// events is one cgroup's memory.events between rounds, and the memory that its part of a sample points into.
type events struct {
	file  *cgroup.File // nil where there is none or it was removed
	at    float64      // when it was read last, in seconds
	known bool
	out   tick.MemoryEvents
}

// openEvents opens the file of a cgroup that has none open.
func (t *tree) openEvents(e *events, path string) {
	if e.file != nil {
		return
	}
	f, err := t.h.OpenMemoryEvents(path)
	if err != nil {
		t.errs = append(t.errs, fmt.Errorf("open memory.events of cgroup %s: %w", path, err))
	}
	e.file = f
}

// readEvents reads the file again if the last reading is old enough.
func (t *tree) readEvents(e *events, seconds, every float64) {
	elapsed := seconds - e.at
	if e.file == nil || elapsed > 0 && elapsed < every {
		return
	}
	e.at, e.known = seconds, false
	data, err := e.file.Read(t.stallsBuf[:])
	switch {
	case cgroup.IsGone(err):
		e.close()
		return
	case err != nil:
		t.errs = append(t.errs, err)
		return
	}
	var counts cgroup.MemoryEvents
	if err := counts.Parse(data); err != nil {
		t.errs = append(t.errs, fmt.Errorf("read %s: %w", e.file.Path(), err))
		return
	}
	e.known = true
	e.out = tick.MemoryEvents{High: float64(counts.High), Max: float64(counts.Max), OOM: float64(counts.OOM), OOMKill: float64(counts.OOMKill)}
}

// value is the last reading, nil where there is none.
func (e *events) value() *tick.MemoryEvents {
	if e == nil || !e.known {
		return nil
	}
	return &e.out
}

func (e *events) close() {
	if e == nil {
		return
	}
	if e.file != nil {
		e.file.Close()
	}
	*e = events{}
}
