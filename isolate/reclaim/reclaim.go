// Package reclaim takes cold memory back where an advice asks for it, by the kernel's memory.reclaim (cgroup version 2, Linux 5.19).
//
// That is an action and not a state: a tick that comes again must not repeat it. Each has the run of the kernel and the time in it at which
// its sample was taken, by the kernel's own clock, which is never set back; a [Runner] begins none whose time is not later than that of the
// last one, or than its own start. So nothing has to be kept on a disk: what another isolate may have begun is from before this one's start
// (docs/adr/0015-reclaim-once.md).
//
// The kernel works in the time of whoever writes, as long as it takes. So it is done beside the ticks, by one goroutine at a time, in small
// parts and for a bounded time, and a later tick reports what became of it.
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
	// partBytes is what is written at once: the time is looked at between two parts.
	partBytes = 4 << 20
	// mostTime is how long one reclaim may take, all its cgroups together. The kernel counts it as time in which a task waited for memory, of
	// isolate's cgroup and of the machine.
	mostTime = time.Second
	// shownBytes is how much of a text from elsewhere stands in a message.
	shownBytes = 300
	// mostReported bounds what one tick reports.
	mostReported = 2 * plan.MaxReclaimCgroups
)

// Options set how a [Runner] acts.
type Options struct {
	Hierarchy *cgroup.Hierarchy
	Root      string // of the machine's /proc
	DryRun    bool
	Now       func() time.Time
	Log       *slog.Logger
}

// Runner does one reclaim after the other. Its methods are for one goroutine.
type Runner struct {
	Options
	boot     string
	last     float64
	reported bool // that the kernel has no such file

	running sync.WaitGroup
	mu      sync.Mutex
	busy    bool
	ended   []tick.Reclaim // not reported yet
}

// New returns a Runner, to which all that was sampled before is past.
func New(o Options) *Runner {
	r := &Runner{Options: o, boot: kernfile.BootID(o.Root)}
	if o.Root == "" || o.Root == "/" { // a copy's clock stands still: there is no before
		r.last, _ = r.seconds()
	}
	return r
}

// seconds is the time since the start of the kernel.
func (r *Runner) seconds() (float64, bool) {
	data, err := kernfile.Read(filepath.Join("/", r.Root, "proc/uptime"), nil)
	if err != nil {
		return 0, false
	}
	first, _ := kernfile.Field(kernfile.Text(data))
	seconds, err := strconv.ParseFloat(string(first), 64)
	return seconds, err == nil && seconds >= 0
}

// Apply begins what an advice asks for, where it is not begun already and nothing else is under way.
func (r *Runner) Apply(out *tick.Isolation, want *tick.MemoryReclaim) {
	if want == nil {
		return
	}
	if !r.Hierarchy.HasReclaim() {
		out.Unavailable = append(out.Unavailable, plan.KeyReclaim)
		if !r.reported && len(want.Cgroups) > 0 {
			r.reported = true
			out.Errors = append(out.Errors, tick.IsolationError{
				Cgroup: clip.Text(want.Cgroups[0].Cgroup, shownBytes), Key: plan.KeyReclaim,
				Error: plan.NoReclaim,
			})
		}
		return
	}
	why := r.skips(want)
	if why == "" {
		r.last = want.BootSeconds // whether it is begun or not: what is dropped is not made up for
		if r.isBusy() {
			why = "an earlier one is under way"
		}
	}
	if why != "" {
		out.Reclaims = append(out.Reclaims, tick.Reclaim{BootSeconds: finite(want.BootSeconds), State: tick.ReclaimSkipped, Why: why})
		return
	}
	list, problems := plan.Reclaims(r.checked(out, want.Cgroups))
	out.Errors = append(out.Errors, problems...)
	if r.DryRun {
		for _, w := range list {
			out.Reclaims = append(out.Reclaims, tick.Reclaim{
				BootSeconds: finite(want.BootSeconds), Cgroup: w.Cgroup, Bytes: w.Bytes,
				State: tick.ReclaimWould,
			})
		}
		return
	}
	if len(list) == 0 {
		return
	}
	for i := range list { // the tick's memory is used again
		list[i].Cgroup = strings.Clone(list[i].Cgroup)
	}
	r.begin(want.BootSeconds, list)
}

// skips returns why a reclaim is not begun. A dry run shows any: it does nothing.
func (r *Runner) skips(want *tick.MemoryReclaim) string {
	if r.DryRun {
		return ""
	}
	now, known := r.seconds()
	if !known {
		return "the time since the kernel's start cannot be read"
	}
	return plan.ReclaimClock{Boot: r.boot, Seconds: now, Last: r.last}.Skips(want)
}

// finite is a number that JSON has.
func finite(f float64) float64 {
	if f-f != 0 || f < 0 {
		return 0
	}
	return f
}

// checked are the parts whose cgroups may be paths.
func (r *Runner) checked(out *tick.Isolation, want []tick.MemoryToTake) []tick.MemoryToTake {
	good := make([]tick.MemoryToTake, 0, min(len(want), mostReported))
	for _, w := range want[:min(len(want), mostReported)] {
		if err := cgroup.CheckPath(w.Cgroup); err != nil {
			out.Errors = append(out.Errors, tick.IsolationError{Cgroup: clip.Text(w.Cgroup, shownBytes), Key: plan.KeyReclaim, Error: "refused: " + clip.Text(err.Error(), shownBytes)})
			continue
		}
		good = append(good, w)
	}
	return good
}

func (r *Runner) isBusy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.busy
}

func (r *Runner) begin(at float64, list []tick.MemoryToTake) {
	r.mu.Lock()
	r.busy = true
	r.mu.Unlock()
	r.running.Go(func() {
		until := r.Now().Add(mostTime)
		var done []tick.Reclaim
		for _, w := range list {
			one := r.take(w, until)
			one.BootSeconds = at
			done = append(done, one)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.busy, r.ended = false, append(r.ended, done...)
	})
}

// take takes memory back of one cgroup, until that is all, the kernel finds no more, or the time is over.
func (r *Runner) take(w tick.MemoryToTake, until time.Time) (out tick.Reclaim) {
	out = tick.Reclaim{Cgroup: w.Cgroup, Bytes: w.Bytes, State: tick.ReclaimDone}
	begun := r.Now()
	defer func() { out.Seconds = r.Now().Sub(begun).Seconds() }()
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
			out.State = tick.ReclaimPart
			return out
		case cgroup.Gone(err):
			out.State, out.Why = tick.ReclaimSkipped, "the cgroup is gone, or has no memory controller"
			return out
		default:
			out.State, out.Why = tick.ReclaimFailed, clip.Text(err.Error(), shownBytes)
			return out
		}
	}
	return out
}

// Report adds what has ended since the last call.
func (r *Runner) Report(out *tick.Isolation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.ended {
		if len(out.Reclaims) < mostReported {
			out.Reclaims = append(out.Reclaims, e)
		}
		if e.State == tick.ReclaimFailed {
			out.Errors = append(out.Errors, tick.IsolationError{Cgroup: e.Cgroup, Key: plan.KeyReclaim, Error: e.Why})
		}
	}
	r.ended = nil
}

// Close waits for what is under way, for a bounded time: the kernel may be in the middle of a part.
func (r *Runner) Close() {
	ended := make(chan struct{})
	go func() {
		r.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(2 * mostTime):
		r.Log.Warn("the kernel still takes memory back")
	}
}
