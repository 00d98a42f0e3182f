package tick

// Link is one of the machine's network links.
type Link struct {
	Name string `json:"name"`
	// DefaultRoute means that a default route uses the link: it is an uplink.
	DefaultRoute bool `json:"defaultRoute,omitempty"`
	// SpeedBitsPerSecond is the speed that the driver reports; nil if it reports none, as for many virtual links.
	SpeedBitsPerSecond *float64 `json:"speedBitsPerSecond,omitempty"`
	// The rates are nil if there is no earlier reading.
	ReceivedBytesPerSecond *float64 `json:"receivedBytesPerSecond,omitempty"`
	SentBytesPerSecond     *float64 `json:"sentBytesPerSecond,omitempty"`
}

// Network is the desired shaping of packets that leave the machine. Other links are not changed.
type Network struct {
	Links []NetworkLink `json:"links,omitempty"`
}

// NetworkLink is the desired shaping of one link.
type NetworkLink struct {
	Link string `json:"link"`
	// RateBitsPerSecond is the rate of all classes together.
	RateBitsPerSecond int64          `json:"rateBitsPerSecond"`
	Classes           []NetworkClass `json:"classes"`
}

// NetworkClass is one class of a link's packets.
type NetworkClass struct {
	Class string `json:"class"`
	// RateBitsPerSecond is guaranteed; CeilingBitsPerSecond is the maximum with borrowed bandwidth.
	RateBitsPerSecond    int64 `json:"rateBitsPerSecond"`
	CeilingBitsPerSecond int64 `json:"ceilingBitsPerSecond"`
	// Priority is the order in which classes borrow idle bandwidth: 0 before 7.
	Priority int64 `json:"priority"`
	// Default marks the class of all packets that belong to no other class.
	Default bool `json:"default,omitempty"`
	// Cgroups are the cgroups whose packets, and those of their descendants, belong to the class.
	Cgroups []string `json:"cgroups,omitempty"`
}

// NetworkIsolation is the result of isolate --only network. Its writes and errors have "link/NAME" in the place of a cgroup.
type NetworkIsolation struct {
	// Applied counts the writes of this tick, Unchanged the values that were as desired already.
	Applied   int `json:"applied"`
	Unchanged int `json:"unchanged"`
	// Missing counts the cgroups of the advice that do not exist.
	Missing int `json:"missing,omitempty"`
	// Unavailable names what is left alone: what the kernel does not support, and what another program has set. Errors has the reason for
	// each, when it first occurs.
	Unavailable []string         `json:"unavailable,omitempty"`
	Writes      []Write          `json:"writes,omitempty"`
	Errors      []IsolationError `json:"errors,omitempty"`
	// Classes are the kernel's counters of the active classes.
	Classes []NetworkCount `json:"classes,omitempty"`
	DryRun  bool           `json:"dryRun,omitempty"`
	// Refused is why isolate did not act on this tick: too old, or of another node.
	Refused string `json:"refused,omitempty"`
	// DroppedTicks counts the ticks that were not forwarded since the start because the next stage was slow.
	DroppedTicks int64 `json:"droppedTicks,omitempty"`
}

// NetworkCount contains the kernel's counters of one class since its creation.
type NetworkCount struct {
	Link  string `json:"link"`
	Class string `json:"class"`
	// SentBytes and SentPackets were sent, DroppedPackets were dropped because the queue was full, and BacklogBytes wait in the queue.
	SentBytes      float64 `json:"sentBytes"`
	SentPackets    float64 `json:"sentPackets"`
	DroppedPackets float64 `json:"droppedPackets"`
	BacklogBytes   float64 `json:"backlogBytes"`
}
