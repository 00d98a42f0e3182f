// Package view draws ticks: a screen, a line, a page of metrics. It is pure: its input is ticks, sizes and the time, its output
// text.
package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"polder/lib/cpus"
	"polder/lib/series"
	"polder/lib/tick"
	"polder/report/age"
)

const (
	keepHistory = 240
	keepWrites  = 100
)

// Model is the screen's state of one node.
type Model struct {
	Tick *tick.Tick
	// Stream is the input that the ticks come from, nil where a recording is played.
	Stream *age.Stream
	// Playback is how a recording is played, empty where the ticks are shown as they come.
	Playback string
	// Pods are the pods that are shown, by their names; nil is all of them. Searched is the text of the search.
	Pods     func(name string) bool
	Searched string
	// OtherNodes counts the stream's nodes that are not shown.
	OtherNodes int

	offeredCPU, offeredMemory []*float64
	writes                    []writeAt
	writesTotal               int
	taken                     taken
	counted                   *series.Node
	partial                   bool // the ticks before the first one are unknown
}

// Resumed is a model that begins in the middle of a recording: sums over all of it are unknown.
func Resumed() *Model { return &Model{partial: true} }

type writeAt struct {
	at time.Time
	tick.Write
}

// Add adds a tick.
func (m *Model) Add(t *tick.Tick) {
	m.Tick = t
	if m.counted == nil {
		m.counted = series.NewNode("report")
	}
	m.counted.Add(t)
	var offered tick.Reclaimed
	if t.Advice != nil && t.Advice.Reclaimed != nil {
		offered = *t.Advice.Reclaimed
	}
	m.offeredCPU = remember(m.offeredCPU, tick.Float(offered.MilliCPU))
	m.offeredMemory = remember(m.offeredMemory, tick.Float(offered.MemoryBytes))
	if t.Isolation == nil {
		return
	}
	m.taken.add(t.Isolation)
	if t.Isolation.DryRun { // writes that are not carried out are planned again in every tick
		m.writes, m.writesTotal = planned(m.writes, t), len(t.Isolation.Writes)
	} else {
		for _, w := range t.Isolation.Writes {
			m.writesTotal++
			m.writes = append(m.writes, writeAt{t.Time, w})
		}
	}
	if over := len(m.writes) - keepWrites; over > 0 {
		m.writes = slices.Delete(m.writes, 0, over)
	}
}

// planned are the writes of a dry run's tick, each with the time since when it is planned.
func planned(before []writeAt, t *tick.Tick) []writeAt {
	since := map[tick.Write]time.Time{}
	for _, w := range before {
		since[w.Write] = w.at
	}
	var now []writeAt
	for _, w := range t.Isolation.Writes {
		at, known := since[w]
		if !known {
			at = t.Time
		}
		now = append(now, writeAt{at, w})
	}
	slices.SortStableFunc(now, func(a, b writeAt) int { return a.at.Compare(b.at) })
	return now
}

// inForce reports whether the advice of the newest tick is written to the cgroups.
func (m *Model) inForce() bool {
	i := m.Tick.Isolation
	return i != nil && !i.DryRun && i.Refused == ""
}

// Worth describes batch's use since the first tick, in pieces, and how long services waited; it is empty where both are unknown.
func (m *Model) Worth() (batch, services []string) {
	if m.counted == nil || m.partial {
		return nil, nil
	}
	w := m.counted.Worth()
	batch = w.OfBatch()
	if held := w.OfSqueeze(); held != "" && len(batch) > 0 {
		batch = append(batch, held)
	}
	return batch, w.OfServices()
}

func remember(history []*float64, v *float64) []*float64 {
	history = append(history, v)
	if over := len(history) - keepHistory; over > 0 {
		history = slices.Delete(history, 0, over)
	}
	return history
}

// letter distinguishes a pool where there is no colour.
type letter struct {
	text  string
	name  string
	style style
}

var (
	letterShare     = letter{"S", "share", poolShare}
	letterReclaim   = letter{"R", "reclaim", poolReclaim}
	letterDedicated = letter{"D", "dedicated", poolDedicated}
	letterReserve   = letter{"V", "reserve", poolReserve}
	letterOther     = letter{"O", "other", title}
	letterNone      = letter{"·", "no pool", dim}
)

func letterOf(pool string) letter {
	switch {
	case pool == tick.PoolShare:
		return letterShare
	case pool == tick.PoolReclaim:
		return letterReclaim
	case pool == tick.PoolReserve:
		return letterReserve
	case strings.HasPrefix(pool, tick.PoolDedicatedPrefix):
		return letterDedicated
	}
	return letterOther
}

// rank decides as which pool a CPU in several ones is drawn: the narrower one.
var rank = []letter{letterReclaim, letterOther, letterShare, letterReserve, letterDedicated}

// pools are the letters of the CPUs, and the number of CPUs of each letter.
func (m *Model) pools() (of map[int]letter, size map[letter]int) {
	of, size = map[int]letter{}, map[letter]int{}
	if m.Tick.Advice == nil {
		return of, size
	}
	byLetter := map[letter]cpus.Set{}
	for _, p := range m.Tick.Advice.Pools {
		if set, err := cpus.Parse(p.CPUs); err == nil {
			byLetter[letterOf(p.Name)] = byLetter[letterOf(p.Name)].Union(set)
		}
	}
	for _, l := range rank {
		if set, ok := byLetter[l]; ok {
			size[l] = set.Size()
			for _, id := range set.UnsortedList() {
				of[id] = l
			}
		}
	}
	return of, size
}

// sets are the cgroups' CPUs after this tick's isolate, by cgroup: they are newer than collect's.
func (m *Model) sets() map[string]string {
	sets := map[string]string{}
	if !m.inForce() || m.Tick.Advice == nil {
		return sets
	}
	for _, c := range m.Tick.Advice.Cgroups {
		if c.CPUSetCPUs != "" {
			sets[c.Cgroup] = c.CPUSetCPUs
		}
	}
	for _, e := range m.Tick.Isolation.Errors {
		delete(sets, e.Cgroup)
	}
	return sets
}

// advisedSets are the CPUs that are advised for cgroups but not written: in a dry run, without isolate, where it refused the tick
// or failed.
func (m *Model) advisedSets() map[string]string {
	advised := map[string]string{}
	if m.Tick.Advice == nil {
		return advised
	}
	written := m.sets()
	for _, c := range m.Tick.Advice.Cgroups {
		if c.CPUSetCPUs != "" && written[c.Cgroup] == "" {
			advised[c.Cgroup] = c.CPUSetCPUs
		}
	}
	return advised
}

// limits are the quotas and scheduling classes that are advised, in words, by cgroup, and marked as advised alone where nothing writes
// them.
func (m *Model) limits() map[string]string {
	limits := map[string]string{}
	if m.Tick.Advice == nil {
		return limits
	}
	for _, c := range m.Tick.Advice.Cgroups {
		var words []string
		if c.CPUMaxMilliCPU != nil && *c.CPUMaxMilliCPU != tick.Unlimited {
			words = append(words, "quota "+Cores(tick.Float(c.CPUMaxMilliCPU)))
		}
		if c.CPUIdle != nil && *c.CPUIdle {
			words = append(words, "idle")
		} else if c.CPUWeight != nil && c.CPUIdle != nil {
			words = append(words, fmt.Sprintf("weight %d", *c.CPUWeight))
		}
		if len(words) > 0 {
			limits[c.Cgroup] = cond(m.inForce(), "", "advised: ") + strings.Join(words, " ")
		}
	}
	return limits
}
