package explain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"polder/lib/clip"
	"polder/lib/tick"
)

// Kinds of events.
const (
	EventSqueeze  = "squeeze"
	EventEviction = "eviction"
	EventNoOffer  = "no offer"
	EventTaint    = "taint"
	EventFallback = "fallback"
	EventFailure  = "failure"
)

// Event is something that happened on a node, in a sentence.
type Event struct {
	Kind     string
	From, To time.Time
	Text     string
}

const (
	// storySqueezes bounds the squeezes of a story, which has the largest ones.
	storySqueezes = 200
	// storyOthers bounds its events that are neither a squeeze nor an eviction.
	storyOthers = 200
)

// Story collects the events of one node: squeezes, evictions, times without an offer, taints, fallbacks and failures. Its size does
// not grow with the number of ticks.
type Story struct {
	squeezes  squeezes
	pooled    bool
	evictions evictions
	others    []Event
	open      map[string]int // events that have not ended, by their text: the index in others
	left      int            // events that were not kept
}

// NewStory returns a Story without ticks.
func NewStory() *Story {
	return &Story{squeezes: squeezes{keep: storySqueezes}, open: map[string]int{}}
}

// Add adds the next tick of the node.
func (s *Story) Add(t *tick.Tick) {
	offer, _ := offerOf(t)
	amount := offer
	if size, found := reclaimPool(t); found {
		amount, s.pooled = &size, true
	}
	if amount != nil {
		s.squeezes.add(t, *amount)
	}
	s.evictions.add(t, func(*tick.PodEviction) bool { return true })
	for _, e := range conditions(t, offer) {
		s.note(e)
	}
	for key, i := range s.open {
		if t.Time.Sub(s.others[i].To) > squeezeWithin {
			delete(s.open, key)
		}
	}
}

// note begins an event, or prolongs one whose sentence differs only in its figures.
func (s *Story) note(e Event) {
	key := e.Kind + "\x00" + shape(e.Text)
	if i, continues := s.open[key]; continues {
		s.others[i].To = e.To
		return
	}
	if len(s.others) >= storyOthers {
		s.left++
		return
	}
	s.open[key] = len(s.others)
	s.others = append(s.others, e)
}

// Forget drops the events that ended before a time, so that there is room for later ones.
func (s *Story) Forget(before time.Time) {
	s.evictions.forget(before)
	s.squeezes.forget(before)
	kept, indexes := []Event(nil), make([]int, len(s.others))
	for i, e := range s.others {
		if indexes[i] = len(kept); !e.To.Before(before) {
			kept = append(kept, e)
		}
	}
	if len(kept) == len(s.others) {
		return
	}
	for key, i := range s.open {
		if s.others[i].To.Before(before) {
			delete(s.open, key)
		} else {
			s.open[key] = indexes[i]
		}
	}
	if s.others = kept; len(kept) == 0 {
		s.left = 0
	}
}

// conditions are the states of a tick that are events.
func conditions(t *tick.Tick, offer *float64) (all []Event) {
	add := func(kind, text string) { all = append(all, Event{Kind: kind, From: t.Time, To: t.Time, Text: text}) }
	if t.Advice != nil && (offer == nil || *offer <= 0) {
		add(EventNoOffer, "Nothing was offered: "+sentence(short(whyNothing(t)))+".")
	}
	const most = 5 // of a kind and tick
	if e := t.Eviction; e != nil {
		for _, x := range e.Taints[:min(len(e.Taints), most)] {
			add(EventTaint, "The taint "+short(x.Key+":"+x.Effect)+" kept new pods away.")
		}
		if e.Refused != "" {
			add(EventFailure, "evict refused the tick: "+sentence(plain(e.Refused))+".")
		}
	}
	if i := t.Isolation; i != nil {
		if i.Fallback {
			add(EventFallback, "isolate applied the fallback, because no advice had come for a while: batch was at its floor.")
		}
		if i.Refused != "" {
			add(EventFailure, "isolate refused the tick: "+sentence(plain(i.Refused))+".")
		}
		for _, x := range i.Errors[:min(len(i.Errors), most)] {
			add(EventFailure, fmt.Sprintf("isolate could not write %s of %s: %s.",
				clip.Clean(x.Key), brief(x.Cgroup), sentence(short(x.Error))))
		}
	}
	if t.Sample != nil {
		for _, x := range t.Sample.Errors[:min(len(t.Sample.Errors), most)] {
			add(EventFailure, fmt.Sprintf("collect could not read %s: %s.", brief(x.Source), sentence(short(x.Error))))
		}
	}
	return all
}

// Events are the events so far in order of time, and how many more there were.
func (s *Story) Events() (all []Event, more int) {
	clock := func(t time.Time) string { return t.Format("15:04:05") }
	q := s.squeezes
	q.found = slices.Clone(q.found)
	q.end() // of the copy: a squeeze that has not ended counts, too
	what := "the offer"
	if s.pooled {
		what = "the pool of reclaimed pods"
	}
	for _, x := range q.found {
		all = append(all, Event{Kind: EventSqueeze, From: x.from, To: x.to, Text: x.describe(what, clock)})
	}
	for _, x := range s.evictions.all {
		all = append(all, Event{Kind: EventEviction, From: x.first, To: x.last, Text: x.describe(clock)})
	}
	all = append(all, s.others...)
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Kind, b.Kind)) })
	return all, s.left + s.evictions.more + q.total - len(q.found)
}

// Squeezes counts how often the amount that reclaimed pods may use fell by 5 % of the machine or more within 5 minutes.
func (s *Story) Squeezes() int {
	q := s.squeezes
	q.found = slices.Clone(q.found)
	q.end()
	return q.total
}

// Evictions counts the evictions by their last state.
func (s *Story) Evictions() map[string]int {
	n := map[string]int{}
	for _, x := range s.evictions.all {
		n[x.state]++
	}
	for state, count := range s.evictions.moreStates {
		n[state] += count
	}
	return n
}

// Plain is a reason or a message with its figures in cores and GiB.
func Plain(text string) string { return plain(text) }

// Short makes text from a tick safe to print and small enough to keep.
func Short(text string) string { return short(text) }
