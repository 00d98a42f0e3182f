package wire

// SharesSuite is the name of the suite that measures shares of CPUs, and SharesFile that of the file that it sends: a list of [ShareRow]
// as JSON.
const (
	SharesSuite = "shares"
	SharesFile  = "shares"
)

// ShareRow is what was measured in one way to protect a service from a batch job, once in each round.
type ShareRow struct {
	Way    string
	Rounds []Share
}

// Share is the CPU of a service and of a batch job over a span of the guest's clock.
type Share struct {
	ServiceCPUs, BatchCPUs float64
	// WaitedPercent is the part of the span in which a thread of the service waited for a CPU (cpu.pressure), in percent.
	WaitedPercent float64
	// BusyPercent is the machine's use, in percent of its CPUs.
	BusyPercent float64
}
