package apply

import (
	"errors"
	"slices"

	"polder/isolate/plan"
	"polder/lib/tick"
)

// lookAgain is for how many rounds a file that this kernel has not got is not looked for.
const lookAgain = 100

// errNoFile is that a file is known not to be there.
var errNoFile = errors.New("this kernel has no such file")

// lacks is what this machine has no place for: each is said once, and from then on its keys are only named.
type lacks struct {
	files map[plan.File]int // rounds until a file is looked for again; no cgroup in them: a kernel has a file for all or for none
	said  map[tick.IsolationError]bool
	had   map[plan.File]bool // files that were read of some cgroup: this kernel has them, whatever one reading says
}

func newLacks() lacks {
	return lacks{files: map[plan.File]int{}, said: map[tick.IsolationError]bool{}, had: map[plan.File]bool{}}
}

// next counts a round.
func (l *lacks) next() {
	for f := range l.files {
		if l.files[f]--; l.files[f] <= 0 {
			delete(l.files, f)
		}
	}
}

func fileAnywhere(it *item) plan.File { return plan.File{Controller: it.Controller, Name: it.Name} }

func (l *lacks) known(it *item) bool { return len(l.files) > 0 && l.files[fileAnywhere(it)] > 0 }

// saw notes that the machine has an item's file.
func (l *lacks) saw(it *item) {
	at := fileAnywhere(it)
	l.had[at] = true
	delete(l.files, at)
}

// has reports whether the machine is known to have an item's file, or the other of the two that its key may be in.
func (l *lacks) has(it *item) bool {
	other := fileAnywhere(it)
	other.Name = it.Other
	return l.had[fileAnywhere(it)] || l.had[other]
}

func (l *lacks) note(it *item) { l.files[fileAnywhere(it)] = lookAgain }

// say lists an error the first time that it is met, of whatever cgroup, and names its key every time.
func (l *lacks) say(r *round, e tick.IsolationError) {
	l.without(r, e.Key)
	anywhere := tick.IsolationError{Key: e.Key, Error: e.Error}
	if !l.said[anywhere] {
		l.said[anywhere] = true
		r.fail(e)
	}
}

// without names a key whose wanted values have no place.
func (l *lacks) without(r *round, key string) {
	if !slices.Contains(r.Unavailable, key) {
		r.Unavailable = append(r.Unavailable, key)
	}
}
