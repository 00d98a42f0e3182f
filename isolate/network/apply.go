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

// shownBytes is the maximum length of foreign text in a message; maxListed bounds the errors and writes of one tick.
const (
	shownBytes = 400
	maxListed  = 200
)

// releaseAfter is how long no advice may name a link before the link is released: a sample that fails briefly changes nothing.
const releaseAfter = time.Minute

// Options set how an [Applier] acts.
type Options struct {
	Hierarchy *cgroup.Hierarchy // nil if no cgroups are mounted
	Journal   *Journal          // nil if there is none
	// Contest is how often something that another program removed is set again before it is left alone.
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
	seek   seeker

	held     map[string]time.Time // the links that isolate shapes, with the time of the last advice that named them
	contest  map[string]*journal.Contest
	reported map[string]bool // problems caused by another program, or by a missing feature of the kernel
	noLeaf   bool            // the kernel has no fq_codel
	noMarks  bool            // the kernel has no socket expression: packets are marked only by link
}

// New returns an Applier.
func New(o Options) *Applier {
	a := &Applier{Options: o, held: map[string]time.Time{}, contest: map[string]*journal.Contest{}, reported: map[string]bool{}}
	a.seek = seeker{h: o.Hierarchy, now: o.Now}
	for _, name := range o.Journal.Links() { // a link that an earlier isolate shaped is released in time, too
		a.held[name] = o.Now()
	}
	return a
}

// round collects what is done for one tick.
type round struct {
	*Applier
	out *tick.NetworkIsolation
	// lasting are the problems of this round that are reported only once.
	lasting map[string]bool
}

// Apply applies the desired state as far as possible, and adds what it did to out. What is no longer desired is released after
// [releaseAfter]; desired is nil if the advice does not mention the network, which counts as an advice without links.
func (a *Applier) Apply(out *tick.NetworkIsolation, desired *tick.Network) {
	if desired == nil && len(a.held) == 0 {
		return
	}
	r := &round{Applier: a, out: out, lasting: map[string]bool{}}
	observed, err := a.links.observe()
	if err != nil {
		r.fail(placeLinks, "", fmt.Errorf("list the machine's links: %w", err))
		return
	}
	due := a.due(desired)
	p := plan.Make(desired, observed, due)
	for _, problem := range p.Problems {
		if problem.Lasting {
			r.once(place(problem.Link), "", problem.Text)
		} else {
			r.fail(place(problem.Link), "", fmt.Errorf("%s", problem.Text))
		}
	}
	r.mark(&p)
	failed := r.steps(p.Steps)
	for _, name := range p.Held {
		if !failed[name] && !a.DryRun {
			a.held[name] = a.Now()
		}
	}
	for _, name := range due {
		if !failed[name] {
			delete(a.held, name)
		}
	}
	r.count(p.Named)
	r.settle()
}

// due returns the links that isolate shapes and that no advice has named for long.
func (a *Applier) due(desired *tick.Network) (due []string) {
	now := a.Now()
	for name, at := range a.held {
		if desired != nil && slices.ContainsFunc(desired.Links, func(l tick.NetworkLink) bool { return l.Link == name }) {
			a.held[name] = now
		} else if now.Sub(at) >= releaseAfter {
			due = append(due, name)
		}
	}
	slices.Sort(due)
	return due
}

// steps executes the links' steps. It returns the links with a failed step: nothing more is done to those in this round.
func (r *round) steps(steps []plan.Step) (failed map[string]bool) {
	failed = map[string]bool{}
	for _, s := range steps {
		key := string(s.Op)
		if s.Name != "" {
			key += ":" + s.Name
		}
		switch {
		case failed[s.Link]:
			continue
		case s.Op == plan.AddLeaf && r.noLeaf:
			r.once(placeLinks, "leaf", "unavailable: the kernel has no fq_codel: the classes have its plain queues")
			continue
		}
		if why := r.lost(s); why != "" {
			failed[s.Link] = true
			r.once(place(s.Link), key, why)
			continue
		}
		err := r.step(s)
		switch {
		case err == nil:
			r.wrote(place(s.Link), key, s.Old, describe(s))
		case s.Op == plan.AddLeaf && isMissing(err):
			r.noLeaf = true
			r.once(placeLinks, "leaf", "unavailable: the kernel has no fq_codel: the classes have its plain queues")
		case s.Op == plan.AddRoot && isMissing(err):
			failed[s.Link] = true
			r.once(placeLinks, key, "unavailable: the kernel has no HTB: the links are left alone")
		default:
			failed[s.Link] = true
			r.fail(place(s.Link), key, explain(err))
		}
	}
	return failed
}

// lost counts the removals of a root qdisc of ours by others, and reports why it is not set again if that happened too often.
func (r *round) lost(s plan.Step) (why string) {
	if _, held := r.held[s.Link]; !held || s.Op != plan.AddRoot || r.DryRun {
		return ""
	}
	c := r.contest[s.Link]
	if c == nil {
		c = &journal.Contest{}
		r.contest[s.Link] = c
	}
	if why = c.LeftAlone(r.Contest); why == "" {
		c.Change()
		why = c.LeftAlone(r.Contest)
	}
	return why
}

func (r *round) step(s plan.Step) error {
	if r.DryRun {
		return nil
	}
	if s.Op == plan.AddRoot {
		if err := r.Journal.shapes(s.Link, s.Index, s.Old); err != nil {
			return fmt.Errorf("not written, for it could not be undone: %w", err)
		}
	}
	return r.links.do(s)
}

func describe(s plan.Step) string {
	switch s.Op {
	case plan.AddRoot:
		return fmt.Sprintf("htb %x:", plan.Handle)
	case plan.SetClass:
		return s.Class.String()
	case plan.AddLeaf:
		return kindLeaf
	}
	return ""
}

// count adds the kernel's counters of the active classes.
func (r *round) count(named []plan.Named) {
	if r.DryRun || len(named) == 0 {
		return
	}
	counts, err := r.links.count(named)
	if err != nil {
		r.fail(placeLinks, "", fmt.Errorf("read the classes' counters: %w", err))
	}
	r.out.Classes = counts
}

// settle removes problems that no longer exist, and ends contests.
func (r *round) settle() {
	for key := range r.reported {
		if !r.lasting[key] {
			delete(r.reported, key)
		}
	}
	for _, c := range r.contest {
		c.Calm()
	}
	slices.Sort(r.out.Unavailable)
	r.out.Unavailable = slices.Compact(r.out.Unavailable)
	if len(r.out.Writes) == 0 && len(r.out.Errors) == 0 {
		r.out.Unchanged += len(r.out.Classes)
	}
}

// These names stand in the tick in the place of a cgroup.
const (
	placeLinks  = "link"
	placeTables = "nftables"
)

func place(link string) string {
	if link == "" {
		return placeLinks
	}
	return placeLinks + "/" + clip.Text(link, shownBytes)
}

func (r *round) fail(where, key string, err error) {
	if len(r.out.Errors) < maxListed {
		r.out.Errors = append(r.out.Errors, tick.IsolationError{Cgroup: where, Key: key, Error: clip.Text(err.Error(), shownBytes)})
	}
}

// once reports a lasting problem when it first occurs; afterwards the affected item is listed as unavailable.
func (r *round) once(where, key, text string) {
	id := where + " " + key + " " + text
	r.lasting[id] = true
	name := where
	if key != "" {
		name += " " + key
	}
	r.out.Unavailable = append(r.out.Unavailable, name)
	if !r.reported[id] {
		r.reported[id] = true
		r.fail(where, key, fmt.Errorf("%s", text))
	}
}

func (r *round) wrote(where, key, old, now string) {
	if !r.DryRun {
		r.out.Applied++
	}
	if len(r.out.Writes) < maxListed {
		r.out.Writes = append(r.out.Writes, tick.Write{Cgroup: where, Key: key, Old: clip.Text(old, shownBytes), New: clip.Text(now, shownBytes)})
	}
}
