package source

import (
	"fmt"
	"math"

	"polder/collect/host"
	"polder/lib/cgroup"
	"polder/lib/tick"
)

// stalls are a pod's pressure files. Those of CPUs and of I/O are read of services only: nothing uses batch's waiting, and each file
// costs as much as the use, the memory and the CPU list together.
type stalls struct {
	cpu, memory, io stall
	all             [len(resources)]*stall // the same, by resource
	memoryOnly      bool                   // the pod is batch
}

func newStalls() *stalls {
	s := &stalls{}
	s.all = [...]*stall{&s.memory, &s.cpu, &s.io}
	return s
}

// stall is one pressure file, held open, and its last reading, into which a sample points.
type stall struct {
	file *cgroup.File // nil where there is none or it was removed
	at   float64      // when it was read last, in seconds
	last host.Pressure

	// share is the part of the time between the last two readings in which some task waited, in thousandths; NaN where it is not known.
	share float64
}

// resources are the resources that have a pressure file, in the order of [stalls.files].
var resources = [...]string{"memory", "cpu", "io"}

// files are the pressure files that are read.
func (s *stalls) files() []*stall {
	if s.memoryOnly {
		return s.all[:1]
	}
	return s.all[:]
}

// openStalls opens those of a pod's files that are closed: the pressure of a cgroup can be switched off and on. A pod whose file cannot be
// opened stays in the sample.
func (t *tree) openStalls(n *node) {
	for i, s := range n.stalls.files() {
		if s.file != nil {
			continue
		}
		file, err := t.h.OpenPressure(resources[i], n.path)
		if err != nil {
			t.errs = append(t.errs, fmt.Errorf("open %s pressure of cgroup %s: %w", resources[i], n.path, err))
		}
		*s = stall{file: file, share: math.NaN()}
	}
}

// readStalls reads those of a pod's files that may have a new value.
func (t *tree) readStalls(n *node, seconds float64) {
	for _, s := range n.stalls.files() {
		if err := s.read(seconds, t.stallsBuf[:]); err != nil {
			t.errs = append(t.errs, err)
		}
	}
}

// setService sets whether the pod is a service. The files that only services need are closed for a batch pod.
func (s *stalls) setService(isService bool) {
	if s.memoryOnly = !isService; !isService {
		s.cpu.close()
		s.io.close()
	}
}

// stallsEvery is how often a file is read, in seconds, half a second early rather than late: the kernel updates its averages
// every 2 s, and reading them costs more than most files.
const stallsEvery = 2 - 0.5

// read reads the file again if the kernel may have a new value.
func (s *stall) read(seconds float64, buf []byte) error {
	if s.file == nil {
		return nil
	}
	elapsed := seconds - s.at
	if elapsed > 0 && elapsed < stallsEvery { // a copy's clock may stand still
		return nil
	}
	before := totalOf(&s.last)
	s.at, s.share = seconds, math.NaN()
	s.last.Forget()
	data, err := s.file.Read(buf)
	switch {
	case cgroup.IsPressureMissing(err):
		s.close() // the pod is being removed, or its pressure was switched off
		return nil
	case err != nil:
		return err
	}
	if err := s.last.Parse(data); err != nil {
		return fmt.Errorf("read %s: %w", s.file.Path(), err)
	}
	s.share = shareOf(before, totalOf(&s.last), elapsed)
	return nil
}

// totalOf is the time in which some task waited, in microseconds; NaN where it is not known.
func totalOf(p *host.Pressure) float64 {
	if p.Some == nil {
		return math.NaN()
	}
	return p.Some.TotalMicroseconds
}

// shareOf is the part of the time between two readings in which some task waited, in thousandths.
func shareOf(before, now, seconds float64) float64 {
	if !(now >= before) || !(seconds > 0) {
		return math.NaN()
	}
	return min((now-before)/1e6/seconds*1000, 1000)
}

// value is the last reading, nil where there is none.
func (s *stall) value() *tick.Pressure {
	if !s.last.IsKnown() {
		return nil
	}
	return &s.last.Pressure
}

func (s *stall) close() {
	if s.file != nil {
		s.file.Close()
	}
	*s = stall{share: math.NaN()}
}

func (s *stalls) close() {
	if s == nil {
		return
	}
	for _, one := range s.all {
		one.close()
	}
}
