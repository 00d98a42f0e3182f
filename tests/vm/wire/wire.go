// Package wire is the guest's protocol: JSON, a line at a time, on its second serial port. The first one is the
// kernel's console.
package wire

// States of a [Line].
const (
	Run   = "run"  // a test begins
	Log   = "log"  // an observation
	Pass  = "pass" // the end of a test
	Fail  = "fail"
	File  = "file"  // Data under the name Text
	Alive = "alive" // every few seconds, whatever the tests do: the guest does not hang
	End   = "end"   // all tests have ended; without this line the guest crashed or hung
)

// Line is one line.
type Line struct {
	State string `json:"state"`
	// Test is empty for lines of the guest itself.
	Test string `json:"test,omitempty"`
	Text string `json:"text,omitempty"`
	// UptimeSeconds is the guest's clock.
	UptimeSeconds float64 `json:"uptimeSeconds"`
	Data          []byte  `json:"data,omitempty"`
}

// Kernel parameters of the guest.
const (
	SuiteParameter = "polder.suite" // which suites to run, with commas between them
	HostParameter  = "polder.host"  // the guest's name
	DataParameter  = "polder.data"  // how ext4 treats data in the suite "redis": ordered or writeback
)
