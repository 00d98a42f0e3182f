package apply

import (
	"errors"
	"slices"

	"polder/isolate/plan"
	"polder/lib/tick"
)

// lookAgain is the number of rounds before a file that this kernel does not have is looked for again.
const lookAgain = 100

// errNoFile means that a file is known not to exist.
var errNoFile = errors.New("this kernel has no such file")

// unavailable records the files that this machine does not have: each is reported once; after that only its keys are named.
type unavailable struct {
	files    map[plan.File]int // rounds until a file is looked for again; without cgroup: a kernel has a file for all or for none
	reported map[tick.IsolationError]bool
	had      map[plan.File]bool // files that were read in some cgroup: this kernel has them, even if a later read fails
}

func newUnavailable() unavailable {
	return unavailable{files: map[plan.File]int{}, reported: map[tick.IsolationError]bool{}, had: map[plan.File]bool{}}
}

// next starts a round.
func (u *unavailable) next() {
	for f := range u.files {
		if u.files[f]--; u.files[f] <= 0 {
			delete(u.files, f)
		}
	}
}

func fileAnywhere(it *item) plan.File { return plan.File{Controller: it.Controller, Name: it.Name} }

func (u *unavailable) known(it *item) bool { return len(u.files) > 0 && u.files[fileAnywhere(it)] > 0 }

// saw records that the machine has an item's file.
func (u *unavailable) saw(it *item) {
	at := fileAnywhere(it)
	u.had[at] = true
	delete(u.files, at)
}

// has reports whether the machine is known to have an item's file, or the alternative file of its key.
func (u *unavailable) has(it *item) bool {
	other := fileAnywhere(it)
	other.Name = it.Other
	return u.had[fileAnywhere(it)] || u.had[other]
}

func (u *unavailable) note(it *item) { u.files[fileAnywhere(it)] = lookAgain }

// report lists an error the first time that it occurs, for any cgroup, and names its key every time.
func (u *unavailable) report(r *round, e tick.IsolationError) {
	u.without(r, e.Key)
	anywhere := tick.IsolationError{Key: e.Key, Error: e.Error}
	if !u.reported[anywhere] {
		u.reported[anywhere] = true
		r.fail(e)
	}
}

// without names a key whose desired values have no file on this machine.
func (u *unavailable) without(r *round, key string) {
	if !slices.Contains(r.Unavailable, key) {
		r.Unavailable = append(r.Unavailable, key)
	}
}
