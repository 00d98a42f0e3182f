package source

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"polder/lib/cgroup"
	"polder/lib/phrase"
)

// Load is each container's load: its runnable threads, sampled every 5 s and averaged as the kernel averages its own.
// A container's averages are absent for its first 5 seconds, and begin with their mean; see [loadavg.Average].
var Load = Source{
	Name: "load",
	Doc:  "runnable threads, from cgroup tasks and /proc/TID/task/TID/stat, within a twentieth of the interval",
	New:  func(e *Env) Reader { return &loadReader{env: e} },
}

type loadReader struct {
	env         *Env
	due         []*container
	hidden      int // containers in which threads are hidden, in this round
	firstHidden string
}

// loadSample is a container's last sample.
type loadSample struct {
	usage, throttled uint64
	runnable         uint64
	skipped          int // samples since then without reading the threads
	any              bool
}

// maxIdleUse is the part of a CPU up to which a container's threads need not be read for each sample, and maxSkipped how many samples in a
// row may leave them out.
const (
	maxIdleUse = 0.01
	maxSkipped = 2
)

// pass is one walk over all threads of a container, which may take several rounds.
type pass struct {
	cgroup.Walk
	// At is when the walk last continued, in the clock's seconds.
	At float64 `json:"at"`
	// begin has the counters at the beginning of the pass.
	begin loadSample
}

// loadMaxAge is how old the last sample of a load may be: the averages of an older one are absent. It is the window of the shorter one.
const loadMaxAge = time.Minute

func (l *loadReader) Read(r *Round) error {
	t := l.env.pods.tree
	if t == nil {
		return nil
	}
	seconds := r.Clock.Seconds()
	l.due = l.due[:0]
	for _, n := range t.nodes {
		if c := n.container; c != nil && c.group != nil && c.loadDue(asTime(seconds)) {
			l.due = append(l.due, c)
		}
	}
	// The container that was read longest ago comes first, so that one that takes all the time delays the others by one round only.
	slices.SortFunc(l.due, func(a, b *container) int {
		return cmp.Or(cmp.Compare(a.lastTurn(), b.lastTurn()), strings.Compare(a.path, b.path))
	})
	allowed := l.env.threadTime()
	l.hidden = 0
	var pending overdue
	for i, c := range l.due {
		if i > 0 && !allowed.hasTime(0) || !c.sampleLoad(t.reader, seconds, allowed.hasTime) {
			pending.add(c, asTime(seconds))
		}
		if c.areThreadsHidden {
			l.addHidden(c)
		}
	}
	return errors.Join(pending.err(allowed.limit), l.hiddenError())
}

func (l *loadReader) addHidden(c *container) {
	if l.hidden == 0 {
		l.firstHidden = c.path
	}
	l.hidden++
}

func (l *loadReader) hiddenError() error {
	if l.hidden == 0 {
		return nil
	}
	return fmt.Errorf("threads of %s cannot be seen here, first in %s: the load is unknown "+
		"(is /proc mounted with hidepid, or has collect another pid namespace? see hostPID)",
		phrase.Count(l.hidden, "container"), l.firstHidden)
}

// between takes samples between two rounds that are far apart.
func (l *loadReader) between(r *Round) error {
	t := l.env.pods.tree
	if t == nil {
		return nil
	}
	t.reader.LimitTime(l.env.threadTime().hasTime)
	for _, n := range t.nodes {
		if c := n.container; c != nil && c.group != nil {
			_ = c.group.Read(r.Clock.Seconds()) // for the use; the next tick will report an error that lasts
		}
	}
	return l.Read(r)
}

// loadDue reports whether it is time for a sample of the threads. Where they need not be read it takes the sample itself.
func (c *container) loadDue(at time.Time) bool {
	if !c.loads.Due(at) {
		return false
	}
	if use, idle := c.idle(at); idle {
		c.sampled.skipped, c.sampled.usage, c.pass = c.sampled.skipped+1, c.group.Values.UsageNanoseconds, pass{}
		c.loads.Add(at, use)
		return false
	}
	return true
}

// lastTurn is when the container's threads were last read.
func (c *container) lastTurn() float64 {
	if c.pass.At > 0 {
		return c.pass.At
	}
	if !c.loads.Valid() {
		return 0
	}
	return float64(c.loads.At.UnixNano()) / 1e9
}

// sampleLoad reads the states of the container's threads. It reports false where the time did not suffice for all: a later round
// continues and completes the sample.
func (c *container) sampleLoad(reader *cgroup.Reader, seconds float64, hasTime cgroup.HasTime) bool {
	p := &c.pass
	if p.Walk == (cgroup.Walk{}) {
		v := &c.group.Values
		p.begin = loadSample{usage: v.UsageNanoseconds, throttled: v.ThrottledPeriods, any: v.Has&cgroup.HasUsage != 0}
	}
	p.At = seconds
	done, ok := reader.Runnable(c.path, &p.Walk, hasTime)
	if !ok { // the cgroup is removed, or is being removed
		c.pass, c.areThreadsHidden = pass{}, false
		return true
	}
	if !done {
		return false
	}
	if c.areThreadsHidden = p.Hidden; p.Hidden {
		c.pass = pass{}
		return true
	}
	c.sampled = p.begin
	c.sampled.runnable = p.Count
	c.loads.Add(asTime(seconds), float64(p.Count))
	c.pass = pass{}
	return true
}

// loadKnown reports whether the averages may be relied on.
func (c *container) loadKnown(at time.Time) bool {
	return c.loads.Known(at) && at.Sub(c.loads.At) <= loadMaxAge
}

// idle reports whether the walk over the threads may be left out, and returns the use of CPU since the last sample, which is how many
// threads ran on average. A walk costs some 6 us a thread, which was two fifths of collect's cost with 250 containers whose threads hardly
// run. The use does not include threads that wait for a CPU all the time. Such starved threads must be counted, so no more than
// [maxSkipped] samples in a row leave the walk out: they are found 10 s late at most, and from then on at each sample until they run. A
// container that was throttled since is not idle: its threads may have been runnable all the time.
func (c *container) idle(at time.Time) (use float64, ok bool) {
	v, s := &c.group.Values, &c.sampled
	seconds := at.Sub(c.loads.At).Seconds()
	if !s.any || s.skipped >= maxSkipped || s.runnable != 0 || v.Has&cgroup.HasUsage == 0 || v.ThrottledPeriods != s.throttled ||
		v.UsageNanoseconds < s.usage || seconds <= 0 {
		return 0, false
	}
	use = float64(v.UsageNanoseconds-s.usage) / 1e9 / seconds
	return use, use <= maxIdleUse
}

// overdue are the containers whose threads were not all read in a round.
type overdue struct {
	containers, unknown int
	first               string
	oldest              time.Duration
}

func (o *overdue) add(c *container, at time.Time) {
	if o.containers == 0 {
		o.first = c.path
	}
	o.containers++
	if !c.loadKnown(at) {
		o.unknown++
	} else {
		o.oldest = max(o.oldest, at.Sub(c.loads.At))
	}
}

func (o *overdue) err(limit time.Duration) error {
	if o.containers == 0 {
		return nil
	}
	return fmt.Errorf("not all threads were read in %s, the next round continues with %s: "+
		"containers whose load is up to %s old: %d, without a load: %d",
		limit, o.first, o.oldest.Round(time.Millisecond), o.containers-o.unknown, o.unknown)
}
