package apply

import (
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"polder/isolate/plan"
	"polder/lib/cgroup"
	"polder/lib/clip"
	"polder/lib/tick"
)

// shownBytes is the maximum length of foreign text in a message.
const shownBytes = 300

// program makes items from the desired state, unless they were made from the same one.
func (a *Applier) program(desired []tick.Cgroup) {
	same := slices.EqualFunc(a.desired, desired, func(x, y tick.Cgroup) bool { return plan.Equal(&x, &y) })
	if same && !a.rootChanged && a.age > 0 {
		return
	}
	a.age++
	a.desired, a.problems, a.items = desired, nil, nil
	checked := make([]tick.Cgroup, 0, len(desired))
	for _, c := range desired {
		if err := cgroup.CheckPath(c.Cgroup); err != nil {
			a.problems = append(a.problems, tick.IsolationError{Cgroup: clip.Text(c.Cgroup, shownBytes), Error: "refused: " + clip.Text(err.Error(), shownBytes)})
			continue
		}
		checked = append(checked, c)
	}
	settings, problems := plan.Translate(a.machine, checked)
	a.problems = append(a.problems, problems...)
	settings = append(settings, a.widenBack()...)
	a.items = make([]item, len(settings))
	for i, s := range settings {
		a.items[i].Setting = s
		a.attach(&a.items[i])
	}
	for key, f := range a.files {
		if f.age != a.age {
			a.shut(f)
			delete(a.files, key)
		}
	}
}

func (a *Applier) attach(it *item) {
	it.file = a.fileOf(it.File)
	beside := it.File
	if beside.Name = it.PeriodFile(); beside.Name != "" {
		it.period = a.fileOf(beside)
	}
	if beside.Name = it.QuotaFile(); beside.Name != "" {
		it.quota = a.fileOf(beside)
	}
	if it.Version == 2 && it.Name == "cpuset.cpus" {
		beside.Name = "cpuset.cpus.effective"
		it.inForce = a.fileOf(beside)
	}
}

// readItems reads every item's files and checks those that changed. It counts the cgroups that do not exist.
func (a *Applier) readItems(r *round) {
	a.unavailable.next()
	reported := map[string]bool{}
	for start := 0; start < len(a.items); {
		end := start
		absent, present := 0, 0
		for ; end < len(a.items) && a.items[end].Cgroup == a.items[start].Cgroup; end++ {
			switch it := &a.items[end]; {
			case a.unavailable.known(it):
				it.err = errNoFile
			case a.readItem(it):
				present++
			default:
				absent++
			}
		}
		group := a.items[start:end]
		start = end
		dropInstead(group)
		if present == 0 && absent > 0 {
			r.Missing++
			continue
		}
		for i := range group {
			it := &group[i]
			if it.err == nil || it.spare {
				continue
			}
			if errors.Is(it.err, errNoFile) {
				a.unavailable.without(r, it.Key)
				continue
			}
			e := tick.IsolationError{Cgroup: it.Cgroup, Key: it.Key, Error: a.explainMissing(it)}
			if plan.Unavailable(e) && a.unavailable.has(it) {
				e.Error = "there is no " + it.Name + " in it, though this kernel has such a file: the cgroup is being made or removed, or it is the root's"
			}
			if plan.Unavailable(e) {
				a.unavailable.note(it)
				a.unavailable.report(r, e)
				continue
			}
			if !reported[e.Error] { // an error of many keys and cgroups is reported only for the first
				reported[e.Error] = true
				if linked(it.err) {
					r.refuse(e)
				} else {
					r.fail(e)
				}
			}
		}
	}
}

// dropInstead marks settings of one cgroup as done if the file that they replace is available, and settings of an alternative file if
// that file does not exist, or equals the first one already.
func dropInstead(group []item) {
	for i := range group {
		it := &group[i]
		it.spare = it.Instead() != "" && slices.ContainsFunc(group, func(of item) bool { return of.Name == it.Instead() && of.err == nil }) ||
			it.Optional() && (it.err != nil || slices.ContainsFunc(group, func(of item) bool { return !of.Optional() && of.File == it.File }))
	}
}

// readItem returns false if the cgroup has no directory in the controller's hierarchy.
func (a *Applier) readItem(it *item) bool {
	err := a.read(it.file)
	if err != nil && gone(err) && it.Other != "" {
		other := it.File
		other.Name = it.Other
		f := a.fileOf(other)
		if a.read(f) == nil {
			it.UseOther()
			it.file, it.judged, err = f, 0, nil
		}
	}
	readings := it.file.readings
	for _, beside := range []*file{it.period, it.quota} {
		if err == nil && beside != nil {
			err = a.read(beside)
			readings += beside.readings
		}
	}
	it.err = err
	if err != nil {
		if gone(err) {
			exists, _ := a.Hierarchy.Exists(it.Controller, it.Cgroup)
			return exists
		}
		return true
	}
	if readings != it.judged {
		a.unavailable.saw(it)
		it.Present = it.file.text
		if it.period != nil {
			it.Period = it.period.text
		}
		if it.quota != nil {
			it.Quota = it.quota.text
		}
		if it.NeedsFirst() {
			it.First = it.Present
			if r := a.records[it.File]; r != nil && r.Inode == a.inode(it.File) {
				it.First = r.First
			}
		}
		it.done, it.judged = it.Done(), readings
	}
	return true
}

// linked reports whether a path was refused because it contains a symbolic link.
func linked(err error) bool { return errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) }

// explainMissing returns why an existing cgroup's file could not be read.
func (a *Applier) explainMissing(it *item) string {
	switch {
	case linked(it.err):
		return "refused: there is a link in the path (" + clip.Text(it.err.Error(), shownBytes) + ")"
	case !gone(it.err):
		return clip.Text(it.err.Error(), shownBytes)
	}
	if exists, _ := a.Hierarchy.Exists(it.Controller, it.Cgroup); !exists {
		dir, _, _ := a.Hierarchy.Dir(it.Controller, it.Cgroup)
		return "there is no " + clip.Text(dir, shownBytes) + ", though the cgroup is in other controllers' hierarchies"
	}
	if it.Version == 2 {
		kind, err := a.Hierarchy.ReadFile(it.Controller, it.Cgroup, "cgroup.type")
		if err == nil && strings.HasPrefix(kind, "threaded") && it.Controller != "cpu" && it.Controller != "cpuset" {
			return "a threaded cgroup has no " + it.Name + " of its own"
		}
		if at := a.notEnabled(it); at != "" {
			return it.Controller + " is not enabled in " + clip.Text(at, shownBytes) + ": write +" + it.Controller + " to it"
		}
	}
	return it.NoFile()
}

// notEnabled returns the topmost cgroup.subtree_control above the item that lacks its controller.
func (a *Applier) notEnabled(it *item) string {
	at := ""
	for up := it.Cgroup; up != "/"; {
		up = path.Dir(up)
		enabled, err := a.Hierarchy.ReadFile(it.Controller, up, "cgroup.subtree_control")
		if err == nil && slices.Contains(strings.Fields(enabled), it.Controller) {
			break
		}
		if err == nil {
			at = path.Join(up, "cgroup.subtree_control")
		}
	}
	return at
}
