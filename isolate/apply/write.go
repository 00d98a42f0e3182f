package apply

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"polder/isolate/plan"
	"polder/lib/cgroup"
	"polder/lib/clip"
	"polder/lib/tick"
)

// MaxListed bounds the writes and the errors that one tick lists: the advice comes from another process and may be hostile.
const MaxListed = 1000

// round collects the writes and errors of one tick.
type round struct {
	tick.Isolation
	unlisted int
	failed   int // errors that a retry may resolve
}

func (r *round) fail(e tick.IsolationError) {
	r.failed++
	r.refuse(e)
}

// failWrite records an error of a write, perhaps to a cgroup that the advice does not name, of any name.
func (r *round) failWrite(w plan.Write, text string) {
	r.fail(tick.IsolationError{Cgroup: cgroup.ShownPath(w.Cgroup), Key: w.Key, Error: text})
}

// refuse records an error like fail, but for advice that no retry can apply.
func (r *round) refuse(e tick.IsolationError) {
	if len(r.Errors) >= MaxListed {
		r.unlisted++
		return
	}
	r.Errors = append(r.Errors, e)
}

func (r *round) addWrite(w plan.Write, old, newText string) {
	if !r.DryRun {
		r.Applied++
	}
	if len(r.Writes) < MaxListed {
		x := tick.Write{Cgroup: cgroup.ShownPath(w.Cgroup), Key: w.Key, Old: w.MessageText(old), New: w.MessageText(newText)}
		if w.Period != "" {
			x.OldMilliCPU, x.NewMilliCPU = plan.MilliCPU(old, w.Period), plan.MilliCPU(newText, w.Period)
		}
		r.Writes = append(r.Writes, x)
	}
}

// addPlanned adds what a dry run would write.
func (r *round) addPlanned(writes []plan.Write) {
	for _, w := range writes {
		if !w.RecordsOnly() {
			r.addWrite(w, w.Old, w.New)
		}
	}
}

func (r *round) finish() tick.Isolation {
	slices.Sort(r.Unavailable)
	if r.unlisted > 0 {
		r.Errors = append(r.Errors, tick.IsolationError{Error: fmt.Sprintf("%d more errors are not listed", r.unlisted)})
	}
	return r.Isolation
}

// execute executes the writes. It skips writes that depend on a refused one, and executes all others.
func (a *Applier) execute(r *round, writes []plan.Write) {
	refused := make([]bool, len(writes))
	for i, w := range writes {
		if w.RecordsOnly() {
			continue
		}
		if by := firstRefused(refused, w.Needs); by >= 0 {
			refused[i] = true
			a.noteFailure(w)
			r.failWrite(w, fmt.Sprintf("%q not written: it depends on the write to %s, which failed",
				clip.Text(w.New, maxShownBytes), clip.Text(cgroup.ShownPath(writes[by].Cgroup), maxShownBytes)))
			continue
		}
		if err := a.write(r, w); err != nil {
			refused[i] = true
			a.noteFailure(w)
			r.failWrite(w, err.Error())
		}
	}
}

// noteFailure lets the next round try an implied write again, which no value in the advice shows to be missing.
func (a *Applier) noteFailure(w plan.Write) {
	if w.IsImplied {
		a.behind.addCandidate(w.File)
	}
}

func firstRefused(refused []bool, needs []int) int {
	for _, n := range needs {
		if refused[n] {
			return n
		}
	}
	return -1
}

// errChangedMeanwhile means that a value was not written because its original value is not recorded: it would be lost. A retry reads the
// file again.
var errChangedMeanwhile = errors.New("not written yet: the cgroup was created again, or its value changed, since the value was read")

// write executes one write and reads the value back. A cgroup that was removed meanwhile is no error, because nothing depends on it.
func (a *Applier) write(r *round, w plan.Write) error {
	f := a.files[w.File]
	if f == nil {
		f = &file{File: w.File} // implied: seldom written, so not kept open
		defer a.closeFile(f)
	}
	if err := a.read(f); err != nil {
		if cgroup.IsGone(err) {
			return nil
		}
		return fmt.Errorf("not written: %w", err)
	}
	if rec := a.records[w.File]; !a.isRestoring {
		switch inode := a.inode(w.File); {
		case inode == 0: // gone
			return nil
		case rec == nil || rec.Inode != inode:
			return errChangedMeanwhile
		}
	}
	old := f.text
	a.waitForChildren(w, old)
	if err := a.Writer.WriteFile(w.Controller, w.Cgroup, w.Name, writtenText(w.Line(w.New))); err != nil {
		switch {
		case cgroup.IsGone(err):
			return nil
		case a.mayWriteParentList(w, err):
			return a.writeParentList(r, w, old, err)
		}
		return explain(w, err)
	}
	if err := a.read(f); err != nil {
		if cgroup.IsGone(err) {
			return nil
		}
		return fmt.Errorf("written, but reading it back failed: %w", err)
	}
	f.lastApplied, f.hasLastApplied = f.text, true
	if w.SideEffect != "" { // the kernel changes that file now, not another program
		sideEffect := w.File
		sideEffect.Name = w.SideEffect
		if known := a.files[sideEffect]; known != nil {
			known.hasLastApplied = false
		}
	}
	if w.Controller == "cpuset" && a.machine.Versions["cpuset"] == 1 && old != "" && isNarrower(f.text, old) {
		a.behind.addWidened(w.File, old)
	}
	r.addWrite(w, old, f.text)
	if !plan.Same(w.Name, f.text, w.New) {
		return fmt.Errorf("wrote %q to %s, but it reads %q", clip.Text(w.New, maxShownBytes), w.Name, clip.Text(f.text, maxShownBytes))
	}
	return nil
}

// writtenText returns the text as it is written: a write of no bytes would not reach the kernel's file at all.
func writtenText(text string) string {
	if text == "" {
		return "\n"
	}
	return text
}

// hints explain the most likely cause of the kernel's errors.
var hints = []struct {
	name string // of the file, "" for any
	err  error
	hint string
}{
	{"cpuset.cpus", unix.EBUSY, "a child cgroup has other CPUs, or another cgroup's cpuset is exclusive"},
	{"cpuset.mems", unix.EBUSY, "a child cgroup has other memory nodes, or another cgroup's cpuset is exclusive"},
	{"cpuset.cpus", unix.EACCES, "the parent cgroup does not have all of these CPUs"},
	{"cpuset.mems", unix.EACCES, "the parent cgroup does not have all of these memory nodes"},
	{"cpuset.cpus", unix.ENOSPC, "the cgroup has tasks and would be left without CPUs"},
	{"cpuset.mems", unix.ENOSPC, "the cgroup has tasks and would be left without memory nodes"},
	{"cpuset.cpus", unix.ERANGE, "the machine has no such CPU"},
	{"cpuset.cpus", unix.EINVAL, "one of these CPUs is isolated, offline, or in another exclusive cpuset"},
	{"memory.limit_in_bytes", unix.EBUSY, "the cgroup uses more and the kernel could not reclaim enough"},
	{"memory.limit_in_bytes", unix.EINVAL, "the limit is over memory.memsw.limit_in_bytes"},
	{"cpu.cfs_quota_us", unix.EINVAL, "the quota is below cpu.cfs_burst_us, above the parent's quota, or below a child's"},
	{"cpu.max", unix.EINVAL, "the quota is below cpu.max.burst"},
	{"cpu.cfs_burst_us", unix.EINVAL, "the burst is above cpu.cfs_quota_us"},
	{"cpu.max.burst", unix.EINVAL, "the burst is above the quota of cpu.max"},
	{"cpu.shares", unix.EINVAL, "an idle cgroup (cpu.idle is 1) accepts no weight"},
	{"cpu.weight", unix.EINVAL, "an idle cgroup (cpu.idle is 1) accepts no weight"},
	{"", unix.EROFS, "the cgroup hierarchy is mounted read-only here"},
	{"", unix.EPERM, "isolate needs root and a writable cgroup mount"},
	{"", unix.EACCES, "isolate needs root and a writable cgroup mount"},
}

func explain(w plan.Write, err error) error {
	for _, h := range hints {
		if (h.name == "" || h.name == w.Name) && errors.Is(err, h.err) {
			return fmt.Errorf("%w (%s)", err, h.hint)
		}
	}
	return err
}
