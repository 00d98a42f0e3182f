package policy

import (
	"strings"
	"time"

	"polder/lib/tick"
)

// Base is the common part of all deciders: the settings S, and a state N for each node.
type Base[S, N any, P NodeState[N]] struct {
	Settings S
	Nodes    map[string]*N
}

// NodeState is a decider's state of a node, in the format of the state file.
type NodeState[N any] interface {
	*N
	// LastUsed returns when the state was last used: if there are too many nodes the one with the oldest time is dropped.
	LastUsed() time.Time
	// Reboot discards what was advised for cgroups before a reboot: cgroups with the same names are different ones now, and nothing in them
	// must be undone.
	Reboot()
}

// NewBase returns a Base with settings and without state.
func NewBase[S, N any, P NodeState[N]](s S) Base[S, N, P] {
	return Base[S, N, P]{Settings: s, Nodes: map[string]*N{}}
}

// Configure replaces the settings, from the next tick on; the state stays.
func (b *Base[S, N, P]) Configure(s S) { b.Settings = s }

// State returns a pointer to the state, by node.
func (b *Base[S, N, P]) State() any { return &b.Nodes }

// Reboot calls [NodeState.Reboot] of all nodes.
func (b *Base[S, N, P]) Reboot() {
	for _, n := range b.Nodes {
		if n != nil { // null in a state file
			P(n).Reboot()
		}
	}
}

// Node returns the state of a node, an empty one for a new node.
func (b *Base[S, N, P]) Node(name string) *N {
	if b.Nodes == nil { // null in a state file
		b.Nodes = map[string]*N{}
	}
	n := b.Nodes[name]
	if n == nil {
		tick.DropOldest(b.Nodes, func(n *N) time.Time { return P(n).LastUsed() })
		n = new(N)
		b.Nodes[strings.Clone(name)] = n
	}
	return n
}
