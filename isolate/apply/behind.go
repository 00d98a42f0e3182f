package apply

import (
	"path"

	"polder/isolate/plan"
)

// behind finds the files that the advice does not name and that an earlier plan left behind. A plan widens a parent before its children: if
// isolate is killed in between, if a write fails, or if a container is created just before with its parent's list, then the child stays
// squeezed, and no later advice for the parent would change it, because the parent is as desired. In a steady state this reads nothing.
type behind struct {
	isSearched bool                 // the journal was searched for what an earlier process left behind
	candidates map[plan.File]bool   // files whose last write may not have been completed
	generation uint64               // the itemsGeneration for which the candidates were examined
	widened    map[plan.File]string // lists of version 1 that the last plan widened, with their texts from before
	files      map[plan.File]string // those that are behind in this round, with their texts
}

// addCandidate adds a file to be examined in the next round.
func (b *behind) addCandidate(f plan.File) {
	if b.candidates == nil {
		b.candidates = map[plan.File]bool{}
	}
	b.candidates[f], b.generation = true, 0
}

// addWidened records that a list was widened. Of several writes the first counts: it has the text that a container may have copied.
func (b *behind) addWidened(f plan.File, before string) {
	if b.widened == nil {
		b.widened = map[plan.File]string{}
	}
	if _, isKnown := b.widened[f]; !isKnown {
		b.widened[f] = before
	}
}

// has reports whether a file with this text is behind; with another text, another program has changed it.
func (b *behind) has(f plan.File, text string) bool {
	known, isKnown := b.files[f]
	return isKnown && known == text
}

// findBehind determines which files are behind in this round.
func (a *Applier) findBehind() {
	b := &a.behind
	widened := b.widened
	b.files, b.widened = nil, nil
	if !b.isSearched {
		b.isSearched = true
		for f := range a.records {
			if f.MayBeImplied(a.machine.Versions[f.Controller]) {
				b.addCandidate(f)
			}
		}
	}
	hasCandidates := len(b.candidates) > 0 && b.generation != a.itemsGeneration
	if !hasCandidates && len(widened) == 0 {
		return
	}
	b.files = map[plan.File]string{}
	named := make(map[plan.File]bool, len(a.items))
	for i := range a.items {
		named[a.items[i].File] = true
	}
	if hasCandidates {
		a.examineCandidates(named)
	}
	for f := range widened {
		a.addFilledBefore(f, widened, named)
	}
}

// examineCandidates finds the files that have not got their last value, and forgets them: what then fails becomes a candidate again. It
// keeps those without a named cgroup above, because a later advice may name it.
func (a *Applier) examineCandidates(named map[plan.File]bool) {
	b := &a.behind
	for f := range b.candidates {
		if !named[f] && !isBelowNamed(f, named) {
			continue
		}
		if text, isUnfinished := a.unfinishedText(f); isUnfinished && !named[f] {
			b.files[f] = text
		}
		if !a.DryRun { // which predicts it in every round
			delete(b.candidates, f)
		}
	}
	if !a.DryRun {
		b.generation = a.itemsGeneration
	}
}

// isBelowNamed reports whether the file of a cgroup above is named, or the quota that bounds a burst.
func isBelowNamed(f plan.File, named map[plan.File]bool) bool {
	f = boundingFile(f)
	for ; len(f.Cgroup) > 1; f.Cgroup = path.Dir(f.Cgroup) {
		if named[f] {
			return true
		}
	}
	return false
}

// boundingFile returns the quota's file of a burst; other files are bounded by the same file of the cgroup above.
func boundingFile(f plan.File) plan.File {
	if quota := f.QuotaFile(); quota != "" {
		f.Name = quota
	}
	return f
}

// unfinishedText returns the text of a file that has one of isolate's values, but not the last one; false for another file.
func (a *Applier) unfinishedText(f plan.File) (string, bool) {
	r := a.records[f]
	if r == nil || len(r.Written) == 0 || r.Inode != a.inode(f) {
		return "", false
	}
	text, err := a.readText(f)
	return text, err == nil && r.isOurs(f.Name, text) && !plan.Same(f.Name, text, r.Written[len(r.Written)-1])
}

// addFilledBefore adds the cgroups that were created, with their parent's list, between the reading of the children and the write that
// widened it: they have no record, and the text that the parent had before.
func (a *Applier) addFilledBefore(f plan.File, widened map[plan.File]string, named map[plan.File]bool) {
	for _, child := range a.children(f) {
		if _, isWidened := widened[child]; isWidened || named[child] {
			continue
		}
		if r := a.records[child]; r != nil && r.Inode == a.inode(child) {
			continue
		}
		if text, err := a.readText(child); err == nil && plan.Same(f.Name, text, widened[f]) {
			a.behind.files[child] = text
		}
	}
}

// addBehind adds the files that are behind, and those around them. A named quota whose burst is behind is among the settings already.
func (n *neighbours) addBehind() {
	for _, f := range sortedFiles(n.a.behind.files) {
		f = boundingFile(f)
		if !n.seen[f] {
			n.add(f, f.PeriodFile())
		}
		n.addAncestors(f, f.PeriodFile())
		n.addDescendants(f, f.PeriodFile())
	}
}
