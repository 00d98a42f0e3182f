package source

import (
	"time"

	"polder/lib/cgroup"
)

// Load is each container's load: its runnable threads, sampled every 5 s and averaged as the kernel averages its own.
// A container's averages are absent for its first 5 seconds, and begin with their mean; see [window.Load].
var Load = Source{
	Name: "load",
	Doc:  "runnable threads, from cgroup tasks and /proc/TID/stat",
	New:  func(e *Env) Reader { return &loadReader{env: e} },
}

type loadReader struct{ env *Env }

// loadSample is what is remembered of a container's last sample.
type loadSample struct {
	usage, throttled uint64
	runnable         int
	skipped          bool
	any              bool
}

func (l *loadReader) Read(r *Round) error {
	t := l.env.pods.tree
	if t == nil {
		return nil
	}
	at := asTime(r.Clock.Seconds())
	for _, n := range t.nodes {
		if c := n.container; c != nil && c.group != nil {
			c.sampleLoad(t.reader, at)
		}
	}
	return nil
}

// between takes samples between two rounds that are far apart.
func (l *loadReader) between(r *Round) error {
	t := l.env.pods.tree
	if t == nil {
		return nil
	}
	for _, n := range t.nodes {
		if c := n.container; c != nil && c.group != nil {
			_ = c.group.Read() // for the use; what is wrong with it will be in the next tick
		}
	}
	return l.Read(r)
}

func (c *container) sampleLoad(reader *cgroup.Reader, at time.Time) {
	if !c.loads.Due(at) {
		return
	}
	v := &c.group.Values
	s := &c.sampled
	if c.idle() {
		s.skipped = true
		c.loads.Add(at, 0)
		return
	}
	runnable, ok := reader.Runnable(c.path)
	if !ok {
		return // gone, or on its way
	}
	*s = loadSample{usage: v.UsageNanoseconds, throttled: v.ThrottledPeriods, runnable: runnable, any: v.Has&cgroup.HasUsage != 0}
	c.loads.Add(at, float64(runnable))
}

// idle reports whether the walk over the threads may be left out, which costs some 10 us a thread. A container that had
// no runnable thread at the last sample and has not run since can only have one that woke up meanwhile and has waited for
// a CPU ever since. Such a starved thread must be counted, so no two samples in a row are left out: it is seen 5 s late at
// most, and from then on at each sample until it runs. (A throttled container may have had runnable threads all the time.)
func (c *container) idle() bool {
	v, s := &c.group.Values, &c.sampled
	return s.any && !s.skipped && s.runnable == 0 && v.Has&cgroup.HasUsage != 0 &&
		v.UsageNanoseconds == s.usage && v.ThrottledPeriods == s.throttled
}
