package source

import (
	"fmt"

	"polder/lib/cgroup"
	"polder/lib/host"
	"polder/lib/tick"
)

// stalls is a pod's memory.pressure, held open, and the memory that its part of a sample points into. It is nil for a pod
// that has none.
type stalls struct {
	file *cgroup.File // nil once there is none any more
	at   float64      // when it was read last, in seconds
	last cgroup.Pressure
	out  pressure
	buf  [256]byte // the file has some 130 bytes
}

// openStalls opens a pod's file. One that cannot be opened is no reason to go without the pod.
func (t *tree) openStalls(n *node) {
	file, err := t.h.OpenMemoryPressure(n.path)
	if err != nil {
		t.errs = append(t.errs, fmt.Errorf("open memory pressure of cgroup %s: %w", n.path, err))
	}
	if file != nil {
		n.pressure = &stalls{file: file}
		t.changed = true
	}
}

// closed reports whether there was no file when it was looked for last: the pressure of a cgroup can be switched off and on.
func (s *stalls) closed() bool { return s == nil || s.file == nil }

// stallsEvery is how often the file is read, in seconds, half a second early rather than late: the kernel makes its averages
// every 2 s, and to read them costs more than most files.
const stallsEvery = 2 - 0.5

// read reads the file anew, if the kernel may have another value.
func (s *stalls) read(seconds float64) error {
	if s == nil || s.file == nil {
		return nil
	}
	if elapsed := seconds - s.at; elapsed > 0 && elapsed < stallsEvery { // a copy's clock may stand still
		return nil
	}
	s.at, s.last = seconds, cgroup.Pressure{}
	data, err := s.file.Read(s.buf[:])
	switch {
	case cgroup.NoPressure(err):
		s.close() // the pod is going, or it was switched off
		return nil
	case err != nil:
		return err
	}
	if err := s.last.Parse(data); err != nil {
		return fmt.Errorf("read %s: %w", s.file.Path(), err)
	}
	return nil
}

// value is what was read, nil where nothing was.
func (s *stalls) value() *tick.Pressure {
	if s == nil || !s.last.HasSome && !s.last.HasFull {
		return nil
	}
	s.out.Some, s.out.Full = nil, nil
	if s.last.HasSome {
		s.out.Some = pressureLine((*host.PressureLine)(&s.last.Some), &s.out.some)
	}
	if s.last.HasFull {
		s.out.Full = pressureLine((*host.PressureLine)(&s.last.Full), &s.out.full)
	}
	return &s.out.Pressure
}

func (s *stalls) close() {
	if s != nil && s.file != nil {
		s.file.Close()
		s.file, s.last = nil, cgroup.Pressure{}
	}
}
