package tick

// NodeIO is the whole node's input and output on disks.
type NodeIO struct {
	Pressure *Pressure `json:"pressure,omitempty"`
}

// Disk contains the activity of one whole disk.
type Disk struct {
	Name string `json:"name"`
	// Device is its device number, as in "254:0".
	Device string `json:"device"`
	// UsePercent is the part of the time in which any request was in progress, and Queue their average number. A disk that handles several
	// requests at once, as most do, is not saturated at 100 %.
	UsePercent *float64 `json:"usePercent,omitempty"`
	Queue      *float64 `json:"queue,omitempty"`

	ReadBytesPerSecond  *float64 `json:"readBytesPerSecond,omitempty"`
	WriteBytesPerSecond *float64 `json:"writeBytesPerSecond,omitempty"`
	ReadsPerSecond      *float64 `json:"readsPerSecond,omitempty"`
	WritesPerSecond     *float64 `json:"writesPerSecond,omitempty"`
	// ReadLatencyMicroseconds and WriteLatencyMicroseconds are the mean time of a read and a write, in the queue and in the disk; nil if
	// there was none.
	ReadLatencyMicroseconds  *float64 `json:"readLatencyMicroseconds,omitempty"`
	WriteLatencyMicroseconds *float64 `json:"writeLatencyMicroseconds,omitempty"`
}

// IO is a cgroup's reads and writes on disks. Writes through the page cache are included on version 2; on version 1 the
// kernel's own threads write them, and no cgroup includes them.
type IO struct {
	ReadBytesPerSecond  *float64 `json:"readBytesPerSecond,omitempty"`
	WriteBytesPerSecond *float64 `json:"writeBytesPerSecond,omitempty"`
	ReadsPerSecond      *float64 `json:"readsPerSecond,omitempty"`
	WritesPerSecond     *float64 `json:"writesPerSecond,omitempty"`
}
