package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"polder/isolate/apply"
	"polder/isolate/journal"
	"polder/isolate/network"
	"polder/isolate/resctrl"
	"polder/lib/cgroup"
	"polder/lib/stage"
)

// openJournal opens the cgroups' journal; nil if there is none. A dry run only reads it, for the original values on which desired values
// depend: it creates no file, and another isolate may have the journal open.
func openJournal(s *stage.Session, o options, h *cgroup.Hierarchy) (*apply.Journal, error) {
	if o.journal == "" {
		warnNoJournal(s)
		return nil, nil
	}
	open := apply.OpenJournal
	if s.DryRun {
		open = apply.ReadJournal
	}
	j, err := open(o.journal, o.root, s.Now)
	if j, err = usable(s, j, err, func() error { return j.Check(h) }); err == nil && j.InvalidLines+j.StaleLines > 0 {
		s.Log.Info("journal read", "files", j.Len(), "cutOrForeignLines", j.InvalidLines, "linesOfEarlierBoots", j.StaleLines)
	}
	return j, err
}

// openResctrlJournal opens the journal of the groups of /sys/fs/resctrl, which the lock of the cgroups' journal protects.
func openResctrlJournal(s *stage.Session, o options) (*resctrl.Journal, error) {
	j, err := resctrl.OpenJournal(o.journal, o.root, s.Now)
	return usable(s, j, err, func() error { return j.Check() })
}

// openNetworkJournal opens the network's journal; nil if there is none.
func openNetworkJournal(s *stage.Session, o options) (*network.Journal, error) {
	if o.journal == "" {
		warnNoJournal(s)
		return nil, nil
	}
	j, err := network.OpenJournal(o.journal, o.root, s.Now)
	return usable(s, j, err, func() error { return j.Check() })
}

func warnNoJournal(s *stage.Session) {
	if !s.DryRun {
		s.Log.Warn("no --journal: changes cannot be restored later")
	}
}

// usable returns a journal that was opened, without the lines that are not needed any more, and reports its entries of another version.
// It closes one that check refuses. err is that of opening it.
func usable[J interface {
	Path() string
	UnknownLines() int
	Compact() error
	Close() error
}](s *stage.Session, j J, err error, check func() error,
) (opened J, _ error) {
	switch {
	case errors.Is(err, journal.ErrInUse):
		return opened, fmt.Errorf("--journal: %w", err)
	case err != nil:
		return opened, stage.OpenError(fmt.Errorf("--journal: %w", err))
	}
	if err := check(); err != nil {
		j.Close()
		return opened, stage.Usagef("--journal: %w", err)
	}
	if s.DryRun {
		return j, nil
	}
	if n := j.UnknownLines(); n > 0 {
		s.Log.Warn("the journal has entries of another version of isolate, which that version can restore", "path", j.Path(), "entries", n)
	}
	if err := j.Compact(); err != nil {
		s.Log.Warn("the journal was not rewritten; it keeps growing", "error", err)
	}
	return j, nil
}

// restore restores everything and prints the result to standard error. The groups of /sys/fs/resctrl come first: the cgroups' journal,
// whose lock protects both, is removed when everything is restored, so that no isolate starts in between.
func restore(s *stage.Session, o options, h *cgroup.Hierarchy) error {
	hasCgroups := exists(o.journal)
	switch {
	case hasCgroups:
	case !exists(resctrl.JournalName(o.journal)):
		return noJournal(s, o, "isolate")
	case s.DryRun: // it creates no file for the lock
		return restoreResctrl(s, o, h)
	}
	j, err := apply.OpenJournal(o.journal, o.root, s.Now)
	if errors.Is(err, journal.ErrInUse) {
		return fmt.Errorf("--journal: %w", err)
	}
	errGroups := restoreResctrl(s, o, h)
	switch {
	case err != nil && hasCgroups:
		return errors.Join(fmt.Errorf("--journal: %w", err), errGroups)
	case err != nil: // the directory cannot be written, so that no isolate can start either
		return errGroups
	}
	defer j.Close()
	if !hasCgroups {
		return errors.Join(errGroups, j.Remove())
	}
	return errors.Join(restoreCgroups(s, o, h, j), errGroups)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// noJournal says that there is nothing to restore, which is an error without --if-exists; ran is what the journal would be of.
func noJournal(s *stage.Session, o options, ran string) error {
	if !o.ifExists {
		return fmt.Errorf("the journal %s does not exist, nothing is restored: name the file that %s was run with "+
			"(a complete restore removes it; with --if-exists that is no error)", o.journal, ran)
	}
	fmt.Fprintf(s.Err, "isolate: the journal %s does not exist: nothing to restore\n", o.journal)
	return nil
}

// restored prints what a restore did, or would do without --dry-run, and returns an error if something is left to restore.
func restored(s *stage.Session, out interface {
	IsComplete() bool
	String() string
}, err error, path string,
) error {
	if s.DryRun {
		fmt.Fprintf(s.Err, "isolate: nothing is changed; without --dry-run: %s\n", out)
	} else {
		fmt.Fprintf(s.Err, "isolate: %s\n", out)
	}
	switch {
	case err != nil || out.IsComplete():
		return err
	case s.DryRun:
		return fmt.Errorf("not everything would be restored; %s would keep the rest", path)
	}
	return fmt.Errorf("not everything is restored; %s keeps the rest", path)
}

// restoreCgroups restores the values in the cgroups' journal.
func restoreCgroups(s *stage.Session, o options, h *cgroup.Hierarchy, j *apply.Journal) error {
	if err := j.Check(h); err != nil {
		return fmt.Errorf("--journal: %w", err)
	}
	options := applyOptions(s, o, h)
	options.Journal = j
	a := apply.New(options)
	defer a.Close()
	out, err := a.Restore(o.force)
	return restored(s, out, err, o.journal)
}

// restoreResctrl restores the groups of /sys/fs/resctrl, if any were changed.
func restoreResctrl(s *stage.Session, o options, h *cgroup.Hierarchy) error {
	path := resctrl.JournalName(o.journal)
	if !exists(path) {
		return nil
	}
	j, err := resctrl.OpenJournal(o.journal, o.root, s.Now)
	if err != nil {
		return fmt.Errorf("--journal: %w", err)
	}
	defer j.Close()
	if err := j.Check(); err != nil {
		return fmt.Errorf("--journal: %w", err)
	}
	out, err := resctrl.New(resctrl.Options{Root: o.root, Hierarchy: h, Journal: j, DryRun: s.DryRun, Now: s.Now, Log: s.Log}).Restore(o.force)
	return restored(s, out, err, path)
}

// restoreNetwork undoes what the network's journal contains.
func restoreNetwork(s *stage.Session, o options, a network.Options) (err error) {
	if !exists(o.journal) {
		return noJournal(s, o, "isolate --only network")
	}
	if a.Journal, err = network.OpenJournal(o.journal, o.root, s.Now); err != nil {
		return fmt.Errorf("--journal: %w", err)
	}
	defer a.Journal.Close()
	if err := a.Journal.Check(); err != nil {
		return fmt.Errorf("--journal: %w", err)
	}
	out, err := network.New(a).Restore()
	return restored(s, out, err, o.journal)
}
