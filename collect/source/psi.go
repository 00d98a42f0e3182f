package source

import (
	"errors"

	"polder/collect/host"
	"polder/lib/tick"
)

// PSI is the pressure on CPUs, memory and disks. A kernel without it is not an error of each tick: it is logged once.
var PSI = Source{
	Name: "psi",
	Doc:  "/proc/pressure/cpu, memory and io",
	New:  func(e *Env) Reader { return &psiReader{env: e} },
}

type psiReader struct {
	env         *Env
	cpu, memory host.Pressure // the sample points into these
	io          host.Pressure
	nodeIO      tick.NodeIO
	logged      bool
}

func (p *psiReader) Read(r *Round) error {
	cpu, cpuErr := p.read("cpu", &p.cpu)
	memory, memoryErr := p.read("memory", &p.memory)
	io, ioErr := p.read("io", &p.io)
	if r.Sample.CPU != nil {
		r.Sample.CPU.Pressure = cpu
	}
	if r.Sample.Memory != nil {
		r.Sample.Memory.Pressure = memory
	}
	if p.nodeIO.Pressure = io; io != nil {
		r.Sample.IO = &p.nodeIO
	}
	return errors.Join(cpuErr, memoryErr, ioErr)
}

func (p *psiReader) read(resource string, into *host.Pressure) (*tick.Pressure, error) {
	err := p.env.Host.ReadPressure(resource, into)
	if errors.Is(err, host.ErrNoPressure) {
		if !p.logged {
			p.logged = true
			p.env.Log.Warn("this kernel has no PSI: services' waiting for a CPU is measured by run delay, "+
				"their waiting for memory and I/O and the node's pressure are unknown", "reason", err)
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &into.Pressure, nil
}
