package policy

import "time"

// MaxNodes bounds the nodes that a policy remembers where a stream carries ever new names.
const MaxNodes = 20_000

// MakeRoom makes room for one more node where there are [MaxNodes]: it drops the one whose time is longest ago, and of several the
// first by name.
func MakeRoom[N any](nodes map[string]*N, timeOf func(*N) time.Time) {
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
