// Package reclaim reclaims cold memory as the advice requests, with the kernel's memory.reclaim (cgroup version 2, Linux 5.19).
//
// A reclaim is an action and not a state: a repeated tick must not repeat it. Each request has the boot ID and the time since boot of its
// sample, by the kernel's own clock, which is never set back; a [Runner] begins none whose time is not later than that of the last one,
// or than its own start. So nothing has to be stored on a disk: whatever another isolate may have begun is older than this one's start
// (docs/adr/0015-reclaim-once.md).
//
// The kernel reclaims in the time of the writing process, for as long as it takes. So one goroutine writes in parallel with the ticks, in
// small parts and for a bounded time, and a later tick reports the result.
package reclaim

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"polder/isolate/plan"
	"polder/lib/cgroup"
	"polder/lib/clip"
	"polder/lib/kernfile"
	"polder/lib/tick"
)

const (
	// partBytes is the size of one write: the time is checked between two writes.
	partBytes = 4 << 20
	// maxTime is the maximum duration of one reclaim, all its cgroups together. The kernel counts it as memory pressure of isolate's
	// cgroup and of the machine.
	maxTime = time.Second
	// maxShownBytes is the maximum length of foreign text in a message.
	maxShownBytes = 300
	// maxReported bounds what one tick reports.
	maxReported = 2 * plan.MaxReclaimCgroups
)

// Options set how a [Runner] acts.
type Options struct {
	Hierarchy *cgroup.Hierarchy
	Root      string // of the machine's /proc
	DryRun    bool
	Now       func() time.Time
	Log       *slog.Logger
}

// Runner executes one reclaim after the other. Only one goroutine may call its methods.
type Runner struct {
	Options
	boot            string
	lastRequest     float64
	missingReported bool // the missing file was reported

	running      sync.WaitGroup
	mu           sync.Mutex
	isInProgress bool
	finished     []tick.Reclaim // not reported yet
}

// New returns a Runner that ignores all samples from before its start.
func New(o Options) *Runner {
	r := &Runner{Options: o, boot: kernfile.BootID(o.Root)}
	if o.Root == "" || o.Root == "/" { // the clock of a copy stands still, so nothing is from before
		r.lastRequest, _ = r.secondsSinceBoot()
	}
	return r
}

// secondsSinceBoot returns the time since boot.
func (r *Runner) secondsSinceBoot() (float64, bool) {
	data, err := kernfile.Read(filepath.Join("/", r.Root, "proc/uptime"), nil)
	if err != nil {
		return 0, false
	}
	first, _ := kernfile.Field(kernfile.Text(data))
	secondsSinceBoot, err := strconv.ParseFloat(string(first), 64)
	return secondsSinceBoot, err == nil && secondsSinceBoot >= 0
}

// Apply begins what an advice requests, unless it was begun already or another reclaim is in progress.
func (r *Runner) Apply(out *tick.Isolation, request *tick.MemoryReclaim) {
	if request == nil {
		return
	}
	if !r.Hierarchy.HasReclaim() {
		out.Unavailable = append(out.Unavailable, plan.KeyReclaim)
		if !r.missingReported && len(request.Cgroups) > 0 {
			r.missingReported = true
			out.Errors = append(out.Errors, tick.IsolationError{
				Cgroup: clip.Text(request.Cgroups[0].Cgroup, maxShownBytes), Key: plan.KeyReclaim,
				Error: plan.NoReclaim,
			})
		}
		return
	}
	reason := r.skipReason(request)
	if reason == "" {
		r.lastRequest = request.BootSeconds // also if it does not begin: a dropped request is not executed later
		if r.inProgress() {
			reason = "an earlier one is in progress"
		}
	}
	if reason != "" {
		out.Reclaims = append(out.Reclaims, tick.Reclaim{BootSeconds: finite(request.BootSeconds), State: tick.ReclaimSkipped, Reason: reason})
		return
	}
	list, problems := plan.ValidReclaims(r.validPaths(out, request.Cgroups))
	out.Errors = append(out.Errors, problems...)
	if r.DryRun {
		for _, w := range list {
			out.Reclaims = append(out.Reclaims, tick.Reclaim{
				BootSeconds: finite(request.BootSeconds), Cgroup: w.Cgroup, Bytes: w.Bytes,
				State: tick.ReclaimDryRun,
			})
		}
		return
	}
	if len(list) == 0 {
		return
	}
	for i := range list { // the tick's memory is reused
		list[i].Cgroup = strings.Clone(list[i].Cgroup)
	}
	r.start(request.BootSeconds, list)
}

// skipReason returns why a reclaim does not begin. A dry run shows every reclaim, because it does nothing.
func (r *Runner) skipReason(request *tick.MemoryReclaim) string {
	if r.DryRun {
		return ""
	}
	now, isKnown := r.secondsSinceBoot()
	if !isKnown {
		return "the time since boot cannot be read"
	}
	return plan.ReclaimClock{Boot: r.boot, Seconds: now, Last: r.lastRequest}.SkipReason(request)
}

// finite returns a number that JSON can represent.
func finite(f float64) float64 {
	if f-f != 0 || f < 0 {
		return 0
	}
	return f
}

// validPaths returns the parts whose cgroups are valid paths.
func (r *Runner) validPaths(out *tick.Isolation, requested []tick.CgroupReclaim) []tick.CgroupReclaim {
	valid := make([]tick.CgroupReclaim, 0, min(len(requested), maxReported))
	for _, w := range requested[:min(len(requested), maxReported)] {
		if err := cgroup.CheckPath(w.Cgroup); err != nil {
			out.Errors = append(out.Errors, tick.IsolationError{Cgroup: clip.Text(w.Cgroup, maxShownBytes), Key: plan.KeyReclaim, Error: "refused: " + clip.Text(err.Error(), maxShownBytes)})
			continue
		}
		valid = append(valid, w)
	}
	return valid
}

func (r *Runner) inProgress() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isInProgress
}

func (r *Runner) start(at float64, list []tick.CgroupReclaim) {
	r.mu.Lock()
	r.isInProgress = true
	r.mu.Unlock()
	r.running.Go(func() {
		until := r.Now().Add(maxTime)
		var results []tick.Reclaim
		for _, w := range list {
			result := r.reclaim(w, until)
			result.BootSeconds = at
			results = append(results, result)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.isInProgress, r.finished = false, append(r.finished, results...)
	})
}

// reclaim reclaims memory of one cgroup, until the amount is reached, the kernel finds no more, or the time is over.
func (r *Runner) reclaim(w tick.CgroupReclaim, until time.Time) (out tick.Reclaim) {
	out = tick.Reclaim{Cgroup: w.Cgroup, Bytes: w.Bytes, State: tick.ReclaimDone}
	started := r.Now()
	defer func() { out.Seconds = r.Now().Sub(started).Seconds() }()
	for out.ReclaimedBytes < w.Bytes {
		if !r.Now().Before(until) {
			out.State = tick.ReclaimTimeout
			return out
		}
		part := min(w.Bytes-out.ReclaimedBytes, partBytes)
		switch err := r.Hierarchy.WriteFile("memory", w.Cgroup, cgroup.FileReclaim, strconv.FormatInt(part, 10)); {
		case err == nil:
			out.ReclaimedBytes += part
		case errors.Is(err, unix.EAGAIN):
			out.State = tick.ReclaimPartial
			return out
		case cgroup.IsGone(err):
			out.State, out.Reason = tick.ReclaimSkipped, "the cgroup is gone, or has no memory controller"
			return out
		default:
			out.State, out.Reason = tick.ReclaimFailed, clip.Text(err.Error(), maxShownBytes)
			return out
		}
	}
	return out
}

// Report adds what has ended since the last call.
func (r *Runner) Report(out *tick.Isolation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.finished {
		if len(out.Reclaims) < maxReported {
			out.Reclaims = append(out.Reclaims, e)
		}
		if e.State == tick.ReclaimFailed {
			out.Errors = append(out.Errors, tick.IsolationError{Cgroup: e.Cgroup, Key: plan.KeyReclaim, Error: e.Reason})
		}
	}
	r.finished = nil
}

// Close waits for a reclaim in progress, for a bounded time: the kernel may be in the middle of a write.
func (r *Runner) Close() {
	ended := make(chan struct{})
	go func() {
		r.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(2 * maxTime):
		r.Log.Warn("the kernel is still reclaiming memory")
	}
}
