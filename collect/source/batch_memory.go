package source

import (
	"errors"
	"slices"

	"polder/lib/tick"
)

// BatchMemory is the memory.events of the cgroups above batch pods, whose limits bound batch as a whole, and whether memory can be
// reclaimed.
var BatchMemory = Source{
	Name: "batchMemory",
	Doc:  "memory.events of the cgroups above batch pods, and whether cgroups have memory.reclaim",
	New:  func(e *Env) Reader { return &batchMemory{env: e, at: map[string]*events{}} },
}

type batchMemory struct {
	env     *Env
	at      map[string]*events
	reclaim bool
	clock   tick.ReclaimClock
	out     []tick.CgroupMemory
}

func (b *batchMemory) Read(r *Round) error {
	t := b.env.pods.tree
	if t == nil {
		return nil // the cgroup source reports why
	}
	t.errs = t.errs[:0]
	b.read(t, r)
	if r.Rescan {
		b.reclaim = t.h.HasReclaim()
	}
	if b.reclaim {
		up, err := b.env.Host.UptimeSeconds()
		if b.clock.Boot == "" {
			b.clock.Boot = b.env.Host.BootID()
		}
		if b.clock.BootSeconds = up; err == nil && b.clock.Boot != "" {
			r.Sample.MemoryReclaim = &b.clock
		}
	}
	return errors.Join(t.errs...)
}

// read reads the events of the cgroups above batch pods.
func (b *batchMemory) read(t *tree, r *Round) {
	paths := outermost(r.Sample.BatchCgroups)
	if t := r.Sample.Tier(tick.TierBestEffort); t != nil && !slices.Contains(paths, t.Cgroup) {
		paths = append(paths, t.Cgroup)
	}
	for path, e := range b.at {
		if !slices.Contains(paths, path) {
			e.close()
			delete(b.at, path)
		}
	}
	b.out = b.out[:0]
	for _, path := range paths {
		e := b.at[path]
		if e == nil {
			e = &events{}
			b.at[path] = e
			t.openEvents(e, path)
		} else if r.Rescan {
			t.openEvents(e, path)
		}
		t.readEvents(e, r.Clock.Seconds(), stallsEvery)
		if v := e.value(); v != nil {
			b.out = append(b.out, tick.CgroupMemory{Cgroup: path, Events: v})
		}
	}
	if len(b.out) > 0 {
		r.Sample.BatchMemory = b.out
	}
}

// outermost returns the cgroups that are below no other one. paths has outer ones first.
func outermost(paths []string) []string {
	var out []string
	for _, path := range paths {
		if !slices.ContainsFunc(out, func(p string) bool { return tick.IsWithin(path, p) }) {
			out = append(out, path)
		}
	}
	return out
}

func (b *batchMemory) Close() error {
	for _, e := range b.at {
		e.close()
	}
	return nil
}
