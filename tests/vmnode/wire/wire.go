// Package wire is the protocol between the host and the agent in the machine that is a node: HTTP over QEMU's user network.
//
// A request or its response may be lost there, and its sender then waits without a limit. So the host numbers its commands, asks
// again if no response comes, and the agent runs a command of one number once: [Client] and [Agent].
package wire

// Addresses on QEMU's user network.
const (
	Node    = "node-48"   // the machine's name, and the node's
	Address = "10.0.2.15" // the machine's
	Host    = "10.0.2.2"  // stands for the host's loopback
)

// Ports in the guest.
const (
	AgentPort   = 5000
	KubeletPort = 10250
)

// RunPath accepts a [Command] and returns a [Result].
const RunPath = "/run"

// Command is a script for the guest's shell.
type Command struct {
	Number int64  `json:"number"` // its own; the same if the host asks again
	Script string `json:"script"`
	Input  []byte `json:"input,omitempty"` // its standard input
}

// Result is the outcome of a command.
type Result struct {
	Status int    `json:"status"` // -1: it could not be started, or a signal ended it
	Output []byte `json:"output,omitempty"`
	Stderr string `json:"said,omitempty"` // its standard error
}
