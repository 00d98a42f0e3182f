package policy

import (
	"strings"
	"time"
)

// Base is what all deciders have alike: the settings S, and a state N for each node.
type Base[S, N any, P Remembered[N]] struct {
	Settings S
	Nodes    map[string]*N
}

// Remembered is what a decider remembers of a node, in the form of the state file.
type Remembered[N any] interface {
	*N
	// LastUsed is when the state was of use last: of too many nodes the one that is longest ago is forgotten.
	LastUsed() time.Time
	// Reboot forgets what was advised of cgroups that another run of the kernel had: those that have the same names now are others', and
	// nothing in them is to be undone.
	Reboot()
}

// NewBase has settings, and remembers nothing.
func NewBase[S, N any, P Remembered[N]](s S) Base[S, N, P] {
	return Base[S, N, P]{Settings: s, Nodes: map[string]*N{}}
}

// Configure replaces the settings, from the next tick on; what is remembered stays.
func (b *Base[S, N, P]) Configure(s S) { b.Settings = s }

// State returns a pointer to what is remembered, by node.
func (b *Base[S, N, P]) State() any { return &b.Nodes }

// Reboot is [Remembered.Reboot] of all nodes.
func (b *Base[S, N, P]) Reboot() {
	for _, n := range b.Nodes {
		if n != nil { // a state file's null
			P(n).Reboot()
		}
	}
}

// Node is what is remembered of a node, an empty state for a new one.
func (b *Base[S, N, P]) Node(name string) *N {
	if b.Nodes == nil { // a state file's null
		b.Nodes = map[string]*N{}
	}
	n := b.Nodes[name]
	if n == nil {
		makeRoom(b.Nodes, func(n *N) time.Time { return P(n).LastUsed() })
		n = new(N)
		b.Nodes[strings.Clone(name)] = n
	}
	return n
}

// MaxNodes bounds the nodes that a policy remembers where a stream carries ever new names.
const MaxNodes = 20_000

// makeRoom makes room for one more node where there are [MaxNodes]: it drops the one whose time is longest ago, and of several the
// first by name.
func makeRoom[N any](nodes map[string]*N, timeOf func(*N) time.Time) {
	if len(nodes) < MaxNodes {
		return
	}
	oldest, least, found := "", time.Time{}, false
	for name, n := range nodes {
		at := time.Time{} // of a state file's null
		if n != nil {
			at = timeOf(n)
		}
		if !found || at.Before(least) || at.Equal(least) && name < oldest {
			oldest, least, found = name, at, true
		}
	}
	delete(nodes, oldest)
}
