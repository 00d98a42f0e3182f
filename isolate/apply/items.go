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

// maxShownBytes is the maximum length of foreign text in a message.
const maxShownBytes = 300

// makeItems makes items from the desired state, unless they were made from the same one.
func (a *Applier) makeItems(desired []tick.Cgroup) {
	isSame := slices.EqualFunc(a.desired, desired, func(x, y tick.Cgroup) bool { return plan.Equal(&x, &y) })
	if isSame && !a.machineChanged && a.itemsGeneration > 0 {
		return
	}
	a.itemsGeneration++
	a.desired, a.problems, a.items = desired, nil, nil
	checked := make([]tick.Cgroup, 0, len(desired))
	for _, c := range desired {
		if err := cgroup.CheckPath(c.Cgroup); err != nil {
			a.problems = append(a.problems, tick.IsolationError{Cgroup: clip.Text(c.Cgroup, maxShownBytes), Error: "refused: " + clip.Text(err.Error(), maxShownBytes)})
			continue
		}
		checked = append(checked, c)
	}
	settings, problems := plan.Translate(a.machine, checked)
	a.problems = append(a.problems, problems...)
	settings = append(settings, a.narrowedLists()...)
	a.items = make([]item, len(settings))
	for i, s := range settings {
		a.items[i].Setting = s
		a.attachFiles(&a.items[i])
	}
	for key, f := range a.files {
		if f.usedGeneration != a.itemsGeneration {
			a.closeFile(f)
			delete(a.files, key)
		}
	}
}

func (a *Applier) attachFiles(it *item) {
	it.file = a.fileOf(it.File)
	extra := it.File
	if extra.Name = it.PeriodFile(); extra.Name != "" {
		it.period = a.fileOf(extra)
	}
	if extra.Name = it.QuotaFile(); extra.Name != "" {
		it.quota = a.fileOf(extra)
	}
	if it.Version == 2 && it.Name == "cpuset.cpus" {
		extra.Name = "cpuset.cpus.effective"
		it.effective = a.fileOf(extra)
	}
}

// readItems reads every item's files and checks those that changed. It counts the cgroups that do not exist.
func (a *Applier) readItems(r *round) {
	a.unavailable.startRound()
	reported := map[string]bool{}
	for start := 0; start < len(a.items); {
		end := start
		absent, found := 0, 0
		for ; end < len(a.items) && a.items[end].Cgroup == a.items[start].Cgroup; end++ {
			switch it := &a.items[end]; {
			case a.unavailable.isMissing(it):
				it.err = errNoFile
			case a.readItem(it):
				found++
			default:
				absent++
			}
		}
		group := a.items[start:end]
		start = end
		markRedundant(group)
		if found == 0 && absent > 0 {
			r.Missing++
			continue
		}
		for i := range group {
			it := &group[i]
			if it.err == nil || it.isRedundant {
				continue
			}
			if errors.Is(it.err, errNoFile) {
				a.unavailable.addKey(r, it.Key)
				continue
			}
			e := tick.IsolationError{Cgroup: it.Cgroup, Key: it.Key, Error: a.explainMissing(it)}
			if plan.IsUnavailable(e) && a.unavailable.isAvailable(it) {
				e.Error = "there is no " + it.Name + " in it, though this kernel has such a file: the cgroup is being created or removed, or it is the root cgroup"
			}
			if plan.IsUnavailable(e) {
				a.unavailable.markMissing(it)
				a.unavailable.report(r, e)
				continue
			}
			if !reported[e.Error] { // an error of many keys and cgroups is reported only for the first
				reported[e.Error] = true
				if isLinkError(it.err) {
					r.refuse(e)
				} else {
					r.fail(e)
				}
			}
		}
	}
}

// markRedundant marks settings of one cgroup as done if the file that they replace is available, and settings of an alternative file if
// that file does not exist, or equals the first one already.
func markRedundant(group []item) {
	for i := range group {
		it := &group[i]
		it.isRedundant = it.ReplacedFile() != "" && slices.ContainsFunc(group, func(of item) bool { return of.Name == it.ReplacedFile() && of.err == nil }) ||
			it.IsOptional() && (it.err != nil || slices.ContainsFunc(group, func(of item) bool { return !of.IsOptional() && of.File == it.File }))
	}
}

// readItem returns false if the cgroup has no directory in the controller's hierarchy.
func (a *Applier) readItem(it *item) bool {
	err := a.read(it.file)
	if cgroup.IsGone(err) && it.Alternative != "" {
		alternative := it.File
		alternative.Name = it.Alternative
		f := a.fileOf(alternative)
		if a.read(f) == nil {
			it.UseAlternative()
			it.file, it.checkedChanges, err = f, 0, nil
		}
	}
	changes := it.file.textVersion
	for _, extra := range []*file{it.period, it.quota} {
		if err == nil && extra != nil {
			err = a.read(extra)
			changes += extra.textVersion
		}
	}
	it.err = err
	if err != nil {
		if cgroup.IsGone(err) {
			exists, _ := a.Hierarchy.Exists(it.Controller, it.Cgroup)
			return exists
		}
		return true
	}
	if changes != it.checkedChanges {
		a.unavailable.markAvailable(it)
		it.Observed = it.file.text
		if it.period != nil {
			it.Period = it.period.text
		}
		if it.quota != nil {
			it.Quota = it.quota.text
		}
		if it.NeedsOriginal() {
			it.Original = it.Observed
			if r := a.records[it.File]; r != nil && r.Inode == a.inode(it.File) && !r.isReplaced(it.Name, it.Observed, it.FollowsOriginal()) {
				it.Original = r.Original
			}
		}
		it.isAsDesired, it.checkedChanges = it.IsAsDesired(), changes
		a.recordAccepted(it)
		a.warnOfOwnLimit(it)
	}
	return true
}

// warnOfOwnLimit warns once of a limit that bounds the desired one and may be one that an earlier isolate left: without a journal nothing
// distinguishes it from one that the unit has of its own, which must not be widened.
func (a *Applier) warnOfOwnLimit(it *item) {
	if a.Journal != nil || a.DryRun || it.file.isOwnLimitReported || !it.IsOriginalTighter() {
		return
	}
	it.file.isOwnLimitReported = true
	a.Log.Warn("a limit is tighter than the advised one, and stays; without --journal it may be one that an earlier isolate left",
		"cgroup", it.Cgroup, "file", it.Name, "value", clip.Text(it.Original, maxShownBytes))
}

// isLinkError reports whether a path was refused because it contains a symbolic link.
func isLinkError(err error) bool { return errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) }

// explainMissing returns why an existing cgroup's file could not be read.
func (a *Applier) explainMissing(it *item) string {
	switch {
	case isLinkError(it.err):
		return "refused: the path contains a symbolic link (" + clip.Text(it.err.Error(), maxShownBytes) + ")"
	case !cgroup.IsGone(it.err):
		return clip.Text(it.err.Error(), maxShownBytes)
	}
	if exists, _ := a.Hierarchy.Exists(it.Controller, it.Cgroup); !exists {
		dir, _, _ := a.Hierarchy.Dir(it.Controller, it.Cgroup)
		return "there is no " + clip.Text(dir, maxShownBytes) + ", though the cgroup is in other controllers' hierarchies"
	}
	if it.Version == 2 {
		kind, err := a.Hierarchy.ReadFile(it.Controller, it.Cgroup, "cgroup.type")
		if err == nil && strings.HasPrefix(kind, "threaded") && it.Controller != "cpu" && it.Controller != "cpuset" {
			return "a threaded cgroup has no " + it.Name + " of its own"
		}
		if at := a.notEnabled(it); at != "" {
			return it.Controller + " is not enabled in " + clip.Text(at, maxShownBytes) + ": write +" + it.Controller + " to it"
		}
	}
	return it.MissingFile()
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
