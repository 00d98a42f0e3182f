package source

import (
	"errors"
	"log/slog"

	"polder/collect/host"
	"polder/lib/tick"
)

// PSI is the pressure on CPUs and memory. A kernel without it is no error of each tick: it is said once in the log.
var PSI = Source{
	Name: "psi",
	Doc:  "/proc/pressure/cpu and memory",
	New:  func(e *Env) Reader { return &psiReader{host: e.Host, log: e.Log} },
}

type psiReader struct {
	host        *host.Host
	log         *slog.Logger
	cpu, memory pressure
	said        bool
}

// pressure is the memory that a sample points into.
type pressure struct {
	tick.Pressure
	some, full tick.PressureLine
}

func (p *psiReader) Read(r *Round) error {
	cpu, cpuErr := p.read("cpu", &p.cpu)
	memory, memoryErr := p.read("memory", &p.memory)
	if r.Sample.CPU != nil {
		r.Sample.CPU.Pressure = cpu
	}
	if r.Sample.Memory != nil {
		r.Sample.Memory.Pressure = memory
	}
	return errors.Join(cpuErr, memoryErr)
}

func (p *psiReader) read(resource string, into *pressure) (*tick.Pressure, error) {
	h, err := p.host.Pressure(resource)
	if errors.Is(err, host.ErrNoPressure) {
		if !p.said {
			p.said = true
			p.log.Info("pressure is left out", "reason", err)
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	into.Some, into.Full = pressureLine(h.Some, &into.some), pressureLine(h.Full, &into.full)
	return &into.Pressure, nil
}

func pressureLine(h *host.PressureLine, into *tick.PressureLine) *tick.PressureLine {
	if h == nil {
		return nil
	}
	*into = tick.PressureLine{Avg10: h.Avg10, Avg60: h.Avg60, Avg300: h.Avg300, TotalMicroseconds: float64(h.TotalMicroseconds)}
	return into
}
