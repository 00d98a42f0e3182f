// Package network applies the desired shaping of links: HTB with one class per class of packets at the root of an uplink, fq_codel
// below each class, and nftables rules that mark the packets of cgroups. It first observes, writes only differences, does not touch
// what other programs have set, and keeps a journal from which everything can be undone. It needs only CAP_NET_ADMIN.
package network

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"polder/isolate/journal"
	"polder/isolate/network/plan"
	"polder/lib/cgroup"
	"polder/lib/clip"
	"polder/lib/tick"
)

// maxShownBytes is the maximum length of foreign text in a message; maxListed bounds the errors and writes of one tick.
const (
	maxShownBytes = 400
	maxListed     = 200
)

// releaseAfter is how long no advice may name a link before the link is released: a sample that fails briefly changes nothing.
const releaseAfter = time.Minute

// Options set how an [Applier] acts.
type Options struct {
	Hierarchy *cgroup.Hierarchy // nil if no cgroups are mounted
	Journal   *Journal          // nil if there is none
	// Contest is how often something that another program removed is set again before it is left to that program.
	Contest int
	DryRun  bool
	Now     func() time.Time
	Log     *slog.Logger
}

// Applier applies desired shapings, one advice after the other. It is not safe for concurrent use.
type Applier struct {
	Options
	links  links
	tables tables
	finder sourceFinder

	lastAdvised      map[string]time.Time // the links that isolate shapes, with the time of the last advice that named them
	contests         map[string]*journal.Contest
	reported         map[string]bool // problems caused by another program, or by a missing feature of the kernel
	lacksFQCodel     bool            // the kernel has no fq_codel
	lacksSocketMatch bool            // the kernel has no socket expression: packets are marked only by link
}

// New returns an Applier.
func New(o Options) *Applier {
	a := &Applier{Options: o, lastAdvised: map[string]time.Time{}, contests: map[string]*journal.Contest{}, reported: map[string]bool{}}
	a.finder = sourceFinder{h: o.Hierarchy, now: o.Now}
	for _, name := range o.Journal.Links() { // a link that an earlier isolate shaped is released in time, too
		a.lastAdvised[name] = o.Now()
	}
	return a
}

// round collects what is done for one tick.
type round struct {
	*Applier
	out *tick.NetworkIsolation
	// persistent are the problems of this round that are reported only once.
	persistent map[string]bool
}

// Apply applies the desired state as far as possible, and adds what it did to out. What is no longer desired is released after
// [releaseAfter]; desired is nil if the advice does not mention the network, which counts as an advice without links.
func (a *Applier) Apply(out *tick.NetworkIsolation, desired *tick.Network) {
	if desired == nil && len(a.lastAdvised) == 0 {
		return
	}
	r := &round{Applier: a, out: out, persistent: map[string]bool{}}
	observed, err := a.links.observe()
	if err != nil {
		r.fail(nameLinks, "", fmt.Errorf("list the machine's links: %w", err))
		return
	}
	waiting, release := a.unnamedLinks(desired)
	p := plan.Make(desired, observed, waiting, release)
	for _, problem := range p.Problems {
		if problem.IsPersistent {
			r.failOnce(linkName(problem.Link), "", problem.Text)
		} else {
			r.fail(linkName(problem.Link), "", fmt.Errorf("%s", problem.Text))
		}
	}
	if len(p.Marks) > 0 || !p.IsWaiting { // without marks, those of the last advice stay until the last link is released
		r.markPackets(&p)
	}
	failed := r.runSteps(p.Steps)
	for _, name := range p.Shaped {
		if !failed[name] && !a.DryRun {
			a.lastAdvised[name] = a.Now()
		}
	}
	for _, name := range release {
		if !failed[name] {
			delete(a.lastAdvised, name)
		}
	}
	r.addCounters(p.Counted)
	r.finish()
}

// unnamedLinks returns the links that isolate shapes and that this advice does not name: those that no advice has named for long, and
// those that may still be named again.
func (a *Applier) unnamedLinks(desired *tick.Network) (waiting, release []string) {
	now := a.Now()
	for name, at := range a.lastAdvised {
		switch {
		case desired != nil && slices.ContainsFunc(desired.Links, func(l tick.NetworkLink) bool { return l.Link == name }):
			a.lastAdvised[name] = now
		case now.Sub(at) >= releaseAfter:
			release = append(release, name)
		default:
			waiting = append(waiting, name)
		}
	}
	slices.Sort(waiting)
	slices.Sort(release)
	return waiting, release
}

// runSteps executes the links' steps. It returns the links with a failed step: nothing more is done to those in this round.
func (r *round) runSteps(runSteps []plan.Step) (failed map[string]bool) {
	failed = map[string]bool{}
	for _, s := range runSteps {
		key := string(s.Op)
		if s.Name != "" {
			key += ":" + s.Name
		}
		switch {
		case failed[s.Link]:
			continue
		case s.Op == plan.AddLeaf && r.lacksFQCodel:
			r.failOnce(nameLinks, "leaf", "unavailable: the kernel has no fq_codel: the classes keep its default queues")
			continue
		}
		if reason := r.lossReason(s); reason != "" {
			failed[s.Link] = true
			r.failOnce(linkName(s.Link), key, reason)
			continue
		}
		err := r.runStep(s)
		switch {
		case err == nil:
			r.addWrite(linkName(s.Link), key, s.Old, describe(s))
		case s.Op == plan.AddLeaf && isMissing(err):
			r.lacksFQCodel = true
			r.failOnce(nameLinks, "leaf", "unavailable: the kernel has no fq_codel: the classes keep its default queues")
		case s.Op == plan.AddRoot && isMissing(err):
			failed[s.Link] = true
			r.failOnce(nameLinks, key, "unavailable: the kernel has no HTB: the links are not shaped")
		default:
			failed[s.Link] = true
			r.fail(linkName(s.Link), key, explain(err))
		}
	}
	return failed
}

// lossReason counts the removals of a root qdisc of ours by others, and reports why it is not set again if that happened too often.
func (r *round) lossReason(s plan.Step) (reason string) {
	if _, isShaped := r.lastAdvised[s.Link]; !isShaped || s.Op != plan.AddRoot || r.DryRun {
		return ""
	}
	c := r.contests[s.Link]
	if c == nil {
		c = &journal.Contest{}
		r.contests[s.Link] = c
	}
	if reason = c.YieldReason(r.Contest); reason == "" {
		c.RecordChange()
		reason = c.YieldReason(r.Contest)
	}
	return reason
}

func (r *round) runStep(s plan.Step) error {
	if r.DryRun {
		return nil
	}
	if s.Op == plan.AddRoot {
		if err := r.Journal.recordLink(s.Link, s.Index, s.Old); err != nil {
			return fmt.Errorf("not written, because the journal failed: %w", err)
		}
	}
	err := r.links.execute(s)
	if err == nil && s.Op == plan.RemoveRoot {
		if err := r.Journal.recordRelease(s.Link, s.Index); err != nil {
			r.Log.Warn("network: cannot record the release of a link in the journal; a restore will look at it again", "link", s.Link, "error", err)
		}
	}
	return err
}

func describe(s plan.Step) string {
	switch s.Op {
	case plan.AddRoot:
		return fmt.Sprintf("htb %x:", plan.Handle)
	case plan.SetClass:
		return s.Class.String()
	case plan.AddLeaf:
		return leafKind
	}
	return ""
}

// addCounters adds the kernel's counters of the active classes.
func (r *round) addCounters(classes []plan.CountedClass) {
	if r.DryRun || len(classes) == 0 {
		return
	}
	counts, err := r.links.counters(classes)
	if err != nil {
		r.fail(nameLinks, "", fmt.Errorf("read the classes' counters: %w", err))
	}
	r.out.Classes = counts
}

// finish removes problems that no longer exist, and ends contests.
func (r *round) finish() {
	for key := range r.reported {
		if !r.persistent[key] {
			delete(r.reported, key)
		}
	}
	for _, c := range r.contests {
		c.RecordUnchanged()
	}
	slices.Sort(r.out.Unavailable)
	r.out.Unavailable = slices.Compact(r.out.Unavailable)
	if len(r.out.Writes) == 0 && len(r.out.Errors) == 0 {
		r.out.Unchanged += len(r.out.Classes)
	}
}

// These names stand in the tick in the place of a cgroup.
const (
	nameLinks  = "link"
	nameTables = "nftables"
)

func linkName(link string) string {
	if link == "" {
		return nameLinks
	}
	return nameLinks + "/" + clip.Text(link, maxShownBytes)
}

func (r *round) fail(name, key string, err error) {
	if len(r.out.Errors) < maxListed {
		r.out.Errors = append(r.out.Errors, tick.IsolationError{Cgroup: name, Key: key, Error: clip.Text(err.Error(), maxShownBytes)})
	}
}

// failOnce reports a lasting problem when it first occurs; afterwards the affected item is listed as unavailable.
func (r *round) failOnce(name, key, text string) {
	id := name + " " + key + " " + text
	r.persistent[id] = true
	item := name
	if key != "" {
		item += " " + key
	}
	r.out.Unavailable = append(r.out.Unavailable, item)
	if !r.reported[id] {
		r.reported[id] = true
		r.fail(name, key, fmt.Errorf("%s", text))
	}
}

func (r *round) addWrite(name, key, old, newText string) {
	if !r.DryRun {
		r.out.Applied++
	}
	if len(r.out.Writes) < maxListed {
		r.out.Writes = append(r.out.Writes, tick.Write{
			Cgroup: name, Key: key, Old: clip.Text(old, maxShownBytes), New: clip.Text(newText, maxShownBytes),
		})
	}
}
