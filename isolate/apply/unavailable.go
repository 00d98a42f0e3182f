package apply

import (
	"errors"
	"slices"

	"polder/isolate/plan"
	"polder/lib/tick"
)

// missingRounds is the number of rounds before a file that this kernel does not have is looked for again.
const missingRounds = 100

// errNoFile means that a file is known not to exist.
var errNoFile = errors.New("this kernel has no such file")

// unavailable records the files that this machine does not have: each is reported once; after that only its keys are named.
type unavailable struct {
	missing   map[plan.File]int // rounds until a file is looked for again; without cgroup: a kernel has a file for all or for none
	reported  map[tick.IsolationError]bool
	available map[plan.File]bool // files that were read in some cgroup: this kernel has them, even if a later read fails
}

func newUnavailable() unavailable {
	return unavailable{missing: map[plan.File]int{}, reported: map[tick.IsolationError]bool{}, available: map[plan.File]bool{}}
}

// startRound starts a round.
func (u *unavailable) startRound() {
	for f := range u.missing {
		if u.missing[f]--; u.missing[f] <= 0 {
			delete(u.missing, f)
		}
	}
}

func withoutCgroup(it *item) plan.File { return plan.File{Controller: it.Controller, Name: it.Name} }

func (u *unavailable) isMissing(it *item) bool {
	return len(u.missing) > 0 && u.missing[withoutCgroup(it)] > 0
}

// markAvailable records that the machine has an item's file.
func (u *unavailable) markAvailable(it *item) {
	at := withoutCgroup(it)
	u.available[at] = true
	delete(u.missing, at)
}

// isAvailable reports whether the machine is known to have an item's file, or the alternative file of its key.
func (u *unavailable) isAvailable(it *item) bool {
	alternative := withoutCgroup(it)
	alternative.Name = it.Alternative
	return u.available[withoutCgroup(it)] || u.available[alternative]
}

func (u *unavailable) markMissing(it *item) { u.missing[withoutCgroup(it)] = missingRounds }

// report lists an error the first time that it occurs, for any cgroup, and names its key every time.
func (u *unavailable) report(r *round, e tick.IsolationError) {
	u.addKey(r, e.Key)
	anyCgroup := tick.IsolationError{Key: e.Key, Error: e.Error}
	if !u.reported[anyCgroup] {
		u.reported[anyCgroup] = true
		r.fail(e)
	}
}

// addKey names a key whose desired values have no file on this machine.
func (u *unavailable) addKey(r *round, key string) {
	if !slices.Contains(r.Unavailable, key) {
		r.Unavailable = append(r.Unavailable, key)
	}
}
