package source

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"polder/lib/cgroup"
)

// Wait is how long services wait for a CPU where their cgroups have no cpu.pressure, on version 1 and on version 2 without PSI: the run
// delay of their threads. Its cost is bounded: only threads of services that ran are read, every 2 s, or 4 where they ran and waited
// little, and in a round for a part of the interval at most.
var Wait = Source{
	Name: "wait",
	Doc:  "run delay of the threads of services without cpu.pressure, from /proc/TID/task/TID/schedstat, within 0.25 % of the interval",
	New:  func(e *Env) Reader { return &waitReader{env: e} },
}

const (
	// waitShare is the part of the interval that reading run delays may take in a round.
	waitShare = 400
	// waitMaxAge is how old a container's waiting may be, in seconds: an older one is absent.
	waitMaxAge = 30
	// quietInterval is how often the threads of a container are read that hardly ran and hardly waited: no more than maxIdleUse and
	// quietPermille since the last pass.
	quietInterval = 4 - 0.5
	quietPermille = 5
	// maxDelays bounds the threads that are remembered, of all services together. So many cannot be read within waitMaxAge.
	maxDelays = 1 << 16
)

type waitReader struct {
	env *Env
	due []*container
}

// waits is the remembered waiting of a container's threads.
type waits struct {
	// batch means that the waiting is not needed. Until the pods are assembled a container counts as a service's.
	batch bool

	// before are the delays that the last pass over all threads found, sorted by thread, and now those of the current pass.
	before, now []threadDelay
	reader      *cgroup.Reader // holds the threads' files open
	walk        cgroup.Walk
	growth      uint64 // by how much the current pass exceeds the last one, in nanoseconds
	lastTurn    float64

	at           float64 // when the last pass ended, in the clock's seconds; 0 where there was none
	usage        uint64  // the CPU time that the container had used before that pass; see hasUsage
	usageAtBegin uint64
	hasUsage     bool
	permille     float64 // NaN where it is not known
	isQuiet      bool    // the container hardly ran and hardly waited
	// visited is how many threads the current pass has found, and isUnreadable means that the last one could read none of them.
	visited      int
	isUnreadable bool
}

type threadDelay struct {
	tid         uint32
	file        cgroup.ThreadFile
	nanoseconds uint64
}

func (w *waitReader) Read(r *Round) error {
	t := w.env.pods.tree
	if t == nil || t.h.Version("cpu") == 0 {
		return nil
	}
	seconds := r.Clock.Seconds()
	w.due = w.due[:0]
	remembered := 0
	for _, n := range t.nodes {
		c := n.container
		if c == nil {
			continue
		}
		if n.hasCPUPressure() {
			c.waits.stop()
			continue
		}
		remembered += len(c.waits.before)
		if c.group != nil && !c.waits.batch && c.waitDue(seconds) {
			w.due = append(w.due, c)
		}
	}
	slices.SortFunc(w.due, func(a, b *container) int {
		return cmp.Or(cmp.Compare(a.waits.lastTurn, b.waits.lastTurn), strings.Compare(a.path, b.path))
	})
	allowed := w.env.allow(waitShare)
	var errs []error
	for i, c := range w.due {
		if i > 0 && !allowed.hasTime(0) {
			break // they are first in the next rounds
		}
		remembered -= len(c.waits.before)
		if !c.sampleWait(t.reader, seconds, allowed.hasTime, maxDelays-remembered) {
			errs = append(errs, fmt.Errorf("the services have more than %d threads: how long those of %s wait is left out", maxDelays, c.path))
		}
		remembered += len(c.waits.before)
	}
	return errors.Join(errs...)
}

// hasCPUPressure reports whether the container's pod has a cpu.pressure, which then is its waiting.
func (n *node) hasCPUPressure() bool {
	if !n.isPod() {
		n = n.parent
	}
	return n != nil && n.stalls != nil && n.stalls.cpu.file != nil
}

// waitDue reports whether it is time for a pass. A container that has not run since the last pass has not ended a wait either, and needs
// none. Where its threads cannot be read its waiting stays unknown.
func (c *container) waitDue(seconds float64) bool {
	w, v := &c.waits, &c.group.Values
	every := stallsEvery
	if w.isQuiet {
		every = quietInterval
	}
	if elapsed := seconds - w.at; w.at > 0 && elapsed >= 0 && elapsed < every {
		return false
	}
	if w.at > 0 && w.walk == (cgroup.Walk{}) && w.hasUsage && v.Has&cgroup.HasUsage != 0 && v.UsageNanoseconds == w.usage {
		w.at, w.lastTurn, w.permille, w.isQuiet = seconds, seconds, 0, false
		if w.isUnreadable {
			w.permille = math.NaN()
		}
		return false
	}
	return true
}

// sampleWait continues the pass over the container's threads. A thread counts from its first reading until it ends. It reports false
// where there are more threads than may be remembered.
func (c *container) sampleWait(reader *cgroup.Reader, seconds float64, hasTime cgroup.HasTime, maxThreads int) bool {
	w, v := &c.waits, &c.group.Values
	if w.walk == (cgroup.Walk{}) {
		w.now, w.growth, w.visited = w.now[:0], 0, 0
		w.usageAtBegin, w.hasUsage = v.UsageNanoseconds, v.Has&cgroup.HasUsage != 0
	}
	w.lastTurn, w.reader = seconds, reader
	done, ok := reader.RunDelays(c.path, &w.walk, hasTime, w)
	switch {
	case !ok: // the cgroup is removed, or is being removed
		w.reset()
		return true
	case len(w.now) > max(maxThreads, 0):
		w.reset()
		return false
	case !done:
		return true
	}
	slices.SortFunc(w.now, func(a, b threadDelay) int { return cmp.Compare(a.tid, b.tid) })
	w.isUnreadable = w.walk.Hidden || w.visited > 0 && len(w.now) == 0
	elapsed := seconds - w.at
	w.permille = math.NaN()
	if w.at > 0 && elapsed > 0 && len(w.now) > 0 && !w.walk.Hidden {
		w.permille = float64(w.growth) / 1e9 / elapsed * 1000
	}
	w.isQuiet = w.permille <= quietPermille && w.hasUsage && w.usageAtBegin >= w.usage &&
		float64(w.usageAtBegin-w.usage)/1e9 <= maxIdleUse*elapsed
	w.release(w.before) // what is left are threads that have ended
	w.before, w.now, w.walk = w.now, w.before, cgroup.Walk{}
	w.at, w.usage = seconds, w.usageAtBegin
	return true
}

// find finds a thread in the last pass, nil where it was not there.
func (w *waits) find(tid uint32) *threadDelay {
	i, known := slices.BinarySearchFunc(w.before, tid, func(d threadDelay, tid uint32) int { return cmp.Compare(d.tid, tid) })
	if !known {
		return nil
	}
	return &w.before[i]
}

// Take implements [cgroup.ThreadFiles].
func (w *waits) Take(tid uint32) (f cgroup.ThreadFile) {
	w.visited++
	if d := w.find(tid); d != nil {
		f, d.file = d.file, 0
	}
	return f
}

// See notes a thread's delay. One that is smaller than before belongs to another thread with the same number.
func (w *waits) See(tid uint32, f cgroup.ThreadFile, nanoseconds uint64) {
	if d := w.find(tid); d != nil && nanoseconds > d.nanoseconds {
		w.growth += nanoseconds - d.nanoseconds
	}
	w.now = append(w.now, threadDelay{tid, f, nanoseconds})
}

// reset removes all readings: the next pass is the first.
func (w *waits) reset() {
	w.release(w.before)
	w.release(w.now)
	*w = waits{batch: w.batch, lastTurn: w.lastTurn, permille: math.NaN()}
}

// stop removes the readings of threads that need not be read any more.
func (w *waits) stop() {
	if w.at != 0 || len(w.now) > 0 || len(w.before) > 0 {
		w.reset()
	}
}

// release closes the threads' files.
func (w *waits) release(list []threadDelay) {
	for i := range list {
		if d := &list[i]; d.file != 0 {
			w.reader.Release(d.file)
			d.file = 0
		}
	}
}

// setService sets whether the container belongs to a service.
func (w *waits) setService(isService bool) {
	if isService == w.batch {
		w.reset()
		w.batch = !isService
	}
}

// share is how long the threads waited, in thousandths of the time between two passes; NaN where it is not known.
func (w *waits) share(seconds float64) float64 {
	if w.batch || w.at == 0 || seconds-w.at > waitMaxAge || seconds < w.at {
		return math.NaN()
	}
	return w.permille
}
