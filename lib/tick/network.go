package tick

// Link is one of the machine's network links.
type Link struct {
	Name string `json:"name"`
	// DefaultRoute means that a default route leads out of it: it is an uplink.
	DefaultRoute bool `json:"defaultRoute,omitempty"`
	// SpeedBitsPerSecond is what the driver reports; nil where it reports nothing, as of many virtual links.
	SpeedBitsPerSecond *float64 `json:"speedBitsPerSecond,omitempty"`
	// The rates are nil where there is no earlier reading.
	ReceivedBytesPerSecond *float64 `json:"receivedBytesPerSecond,omitempty"`
	SentBytesPerSecond     *float64 `json:"sentBytesPerSecond,omitempty"`
}

// Network is the desired shaping of what leaves the machine. Links that are not named are left alone.
type Network struct {
	Links []NetworkLink `json:"links,omitempty"`
}

// NetworkLink is the desired shaping of one link.
type NetworkLink struct {
	Link string `json:"link"`
	// RateBitsPerSecond is what all classes have together.
	RateBitsPerSecond int64          `json:"rateBitsPerSecond"`
	Classes           []NetworkClass `json:"classes"`
}

// NetworkClass is one class of a link's packets.
type NetworkClass struct {
	Class string `json:"class"`
	// RateBitsPerSecond is guaranteed, CeilingBitsPerSecond is the most that the class may borrow up to.
	RateBitsPerSecond    int64 `json:"rateBitsPerSecond"`
	CeilingBitsPerSecond int64 `json:"ceilingBitsPerSecond"`
	// Priority is the order in which classes borrow idle bandwidth: 0 before 7.
	Priority int64 `json:"priority"`
	// Default is the class of all packets that belong to no other one.
	Default bool `json:"default,omitempty"`
	// Cgroups are those whose packets belong to the class, with those below them.
	Cgroups []string `json:"cgroups,omitempty"`
}

// NetworkIsolation is what isolate --only network did. Writes and errors name a link as "link/NAME" where others name a cgroup.
type NetworkIsolation struct {
	// Applied counts what was written this tick, Unchanged what was as desired already.
	Applied   int `json:"applied"`
	Unchanged int `json:"unchanged"`
	// Missing counts the cgroups of the advice that do not exist (any more).
	Missing int `json:"missing,omitempty"`
	// Unavailable is what is left alone: what the kernel lacks, and what is another program's. Errors has the reason for each, when it is
	// first met.
	Unavailable []string         `json:"unavailable,omitempty"`
	Writes      []Write          `json:"writes,omitempty"`
	Errors      []IsolationError `json:"errors,omitempty"`
	// Classes are the kernel's counters of the classes in force.
	Classes []NetworkCount `json:"classes,omitempty"`
	DryRun  bool           `json:"dryRun,omitempty"`
	// Refused is why nothing was done with this tick: too old, or of another node.
	Refused string `json:"refused,omitempty"`
	// DroppedTicks counts the ticks that were not passed on since the start because the next stage was slow.
	DroppedTicks int64 `json:"droppedTicks,omitempty"`
}

// NetworkCount is what the kernel counted of one class since the class was made.
type NetworkCount struct {
	Link  string `json:"link"`
	Class string `json:"class"`
	// SentBytes and SentPackets have left, DroppedPackets were dropped because the queue was full, and BacklogBytes wait.
	SentBytes      float64 `json:"sentBytes"`
	SentPackets    float64 `json:"sentPackets"`
	DroppedPackets float64 `json:"droppedPackets"`
	BacklogBytes   float64 `json:"backlogBytes"`
}
