package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"polder/isolate/apply"
	"polder/isolate/plan"
	"polder/isolate/reclaim"
	"polder/isolate/resched"
	"polder/isolate/resctrl"
	"polder/lib/cgroup"
	"polder/lib/cpumanager"
	"polder/lib/stage"
	"polder/lib/tick"
)

// options are the tool's own flags.
type options struct {
	root       string
	kubelet    string
	journal    string
	restore    bool
	ifExists   bool
	force      bool
	contest    int
	staleAfter time.Duration
	atEnd      string
	only       string

	isStaleAfterSet bool // otherwise staleAfter is the minimum of a time that depends on the ticks
}

// These are the values of --at-end.
const (
	fallbackAtEnd = "fallback"
	keepAtEnd     = "keep"
)

func command() stage.Command {
	var o options
	return stage.Command{
		Name:     "isolate",
		Synopsis: "apply the advised state to cgroups",
		Summary:  summary,
		Tasks:    tasks,
		Manual:   manual,
		Kind:     stage.Kind{Reads: true, Writes: true, Acts: true},
		Flags: func(f *stage.Flags) {
			f.Category("Isolation")
			f.Path(&o.journal, "journal", "", "keep the original value of every changed file in `FILE`, for --restore\n"+
				"With --dry-run it is not changed.")
			f.Bool(&o.restore, "restore", "restore the values in the journal, read no ticks, and end")
			f.Bool(&o.ifExists, "if-exists", "with --restore: a missing journal is not an error\nThis is for a unit that cannot know whether isolate ever ran.")
			f.Bool(&o.force, "force", "with --restore: also restore externally changed values\n"+
				"So it does with limits of memory that the kernel can enforce only by killing.")
			f.Int(&o.contest, "contest", 5, "times that a value is written again after an external change\nAfter that the value is not written until there was no external change for 100 rounds.")
			f.Duration(&o.staleAfter, "stale-after", 30*time.Second, "apply the fallback after this long without advice (0: never)\n"+
				"The fallback is the one of the last advice. Unless it is given, it is three intervals of the ticks where that is longer.")
			f.Choice(&o.atEnd, "at-end", fallbackAtEnd, "state to leave at the input's end\nfallback applies that of the last advice, keep changes nothing. It also applies when the output is closed, but not at a signal: then all values stay.", fallbackAtEnd, keepAtEnd)
			f.Choice(&o.only, "only", onlyCgroups, "what this process writes\ncgroups means cgroups and /sys/fs/resctrl. network means the uplinks, by advice.network: that is a second isolate beside the first, which needs only CAP_NET_ADMIN, and has a journal of its own.", onlyCgroups, onlyNetwork)
			f.Path(&o.root, "root", "/", "use a copy of the machine's files under `DIR`")
			f.Path(&o.kubelet, "kubelet-root", "/var/lib/kubelet", "kubelet's `DIR`, under --root\nisolate reads the CPUs that kubelet has assigned exclusively there.")
		},
		Run: func(ctx context.Context, s *stage.Session) error {
			o.isStaleAfterSet = s.IsSet("stale-after")
			return run(ctx, s, o)
		},
	}
}

func run(ctx context.Context, s *stage.Session, o options) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.only == onlyNetwork {
		return runNetwork(ctx, s, o)
	}
	h, err := cgroup.Detect(o.root)
	if err != nil {
		if o.root != "/" {
			return stage.Usagef("--root %s: %w", o.root, err)
		}
		return fmt.Errorf("%w: isolate has nothing to work on (in a container, mount the host's /sys/fs/cgroup writable)", err)
	}
	if o.restore {
		return restore(s, o, h)
	}
	return isolate(ctx, s, o, h)
}

// check rejects options that cannot be combined, and makes the root an absolute path.
func (o *options) check() (err error) {
	switch {
	case o.contest < 0:
		return stage.Usagef("--contest %d: want 0 or more", o.contest)
	case o.restore && o.journal == "":
		return stage.Usagef("--restore needs --journal FILE: it contains the original values")
	case o.ifExists && !o.restore:
		return stage.Usagef("--if-exists is for --restore")
	case o.force && !o.restore:
		return stage.Usagef("--force is for --restore")
	case o.force && o.only == onlyNetwork:
		return stage.Usagef("--force is not for --only %s: a qdisc or table of another program is never removed", onlyNetwork)
	}
	root, err := filepath.Abs(o.root)
	if err != nil {
		return stage.Usagef("--root %s: %w", o.root, err)
	}
	o.root = root
	if o.only == onlyNetwork && o.root != "/" {
		return stage.Usagef("--only %s is for this machine's own links: leave --root out", onlyNetwork)
	}
	return nil
}

// isolate applies each tick's advice to cgroups and to /sys/fs/resctrl.
func isolate(ctx context.Context, s *stage.Session, o options, h *cgroup.Hierarchy) (err error) {
	a := applyOptions(s, o, h)
	groups := resctrl.Options{Root: o.root, Hierarchy: h, Contest: o.contest, DryRun: s.DryRun, Now: s.Now, Log: s.Log}
	if !s.DryRun {
		warnReadOnly(s, h)
	}
	if a.Journal, err = openJournal(s, o, h); err != nil {
		return err
	}
	if a.Journal != nil {
		defer a.Journal.Close()
		if !s.DryRun { // no advice for groups depends on their original values
			if groups.Journal, err = openResctrlJournal(s, o); err != nil {
				return err
			}
			defer groups.Journal.Close()
		}
	}
	t := &tool{s: s, o: o, apply: apply.New(a), resctrl: resctrl.New(groups), lastAdvice: s.Now()}
	t.reclaim = reclaim.New(reclaim.Options{Hierarchy: h, Root: o.root, DryRun: s.DryRun, Now: s.Now, Log: s.Log})
	t.resched = resched.New(resched.Options{DryRun: s.DryRun, Copy: o.root != "/", MoveToRoot: toRoot(h), Log: s.Log})
	defer t.close()
	err = s.Filter(ctx, stage.Filter{
		Section:      tick.SectionIsolation,
		Reads:        []string{tick.SectionAdvice},
		Handle:       t.handle,
		OnSilence:    func(context.Context) { t.applyFallback() },
		SilenceAfter: t.untilSilence,
		Live:         !s.DryRun,
	})
	if ctx.Err() == nil {
		err = errors.Join(err, t.end(ctx))
	}
	return err
}

// toRoot returns what moves a process to the root cgroup of the machine; nil if only a part of the hierarchy is visible here.
func toRoot(h *cgroup.Hierarchy) func(pid int) error {
	const controller = "cpu"
	if !h.IsMachineRoot(controller) {
		return nil
	}
	return func(pid int) error { return h.WriteFile(controller, "/", "cgroup.procs", strconv.Itoa(pid)) }
}

// applyOptions are those of the cgroups' applier, without a journal.
func applyOptions(s *stage.Session, o options, h *cgroup.Hierarchy) apply.Options {
	return apply.Options{
		Hierarchy: h, Root: o.root, Online: filepath.Join(o.root, "sys/devices/system/cpu/online"),
		Kubelet: cpumanager.NewReader(filepath.Join(o.root, o.kubelet)), Contest: o.contest, DryRun: s.DryRun, Log: s.Log,
	}
}

// warnReadOnly reports at start what every write would report later.
func warnReadOnly(s *stage.Session, h *cgroup.Hierarchy) {
	for _, controller := range plan.Controllers() {
		dir, version, err := h.Dir(controller, "/")
		if err != nil || version == 0 {
			continue
		}
		// Check a file, not the directory: the mode of version 2's root is 0555, but root without capabilities may still write its files.
		if err := unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Log.Warn("cgroups cannot be written here: isolate needs root and a writable mount", "controller", controller, "path", dir, "error", err)
		}
	}
}
