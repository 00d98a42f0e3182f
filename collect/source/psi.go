package source

import (
	"errors"
	"log/slog"

	"polder/collect/host"
	"polder/collect/pressure"
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
	cpu, memory pressure.File
	said        bool
}

func (p *psiReader) Read(r *Round) error {
	cpuErr, memoryErr := p.read("cpu", &p.cpu), p.read("memory", &p.memory)
	if r.Sample.CPU != nil {
		r.Sample.CPU.Pressure = p.cpu.Value()
	}
	if r.Sample.Memory != nil {
		r.Sample.Memory.Pressure = p.memory.Value()
	}
	return errors.Join(cpuErr, memoryErr)
}

func (p *psiReader) read(resource string, into *pressure.File) error {
	err := p.host.Pressure(resource, into)
	if errors.Is(err, host.ErrNoPressure) {
		if !p.said {
			p.said = true
			p.log.Info("pressure is left out", "reason", err)
		}
		return nil
	}
	return err
}
