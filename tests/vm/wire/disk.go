package wire

// DiskFile is the name of the file that the suite "redis" sends: a list of [DiskRow] as JSON.
const DiskFile = "disk"

// DiskRow is the result of one way to protect a service's disk from a batch job.
type DiskRow struct {
	Way string
	// Requests had latencies of P50 to Most milliseconds; Errors of them failed.
	Requests, Errors     int
	P50, P99, P999, Most float64
	// JobBytesPerSecond is what the batch job wrote to the disk meanwhile.
	JobBytesPerSecond float64
	// InForce are the job's limits and weight and the disk's costs at the end.
	InForce string
}
