package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"polder/lib/clip"
	"polder/lib/phrase"
	"polder/report/view"
)

// isPastEnd reports whether the recording ended well before the time of the question.
func (r *Recording) isPastEnd(n *node) bool {
	if r.q.At == nil || !n.next.IsZero() {
		return false
	}
	between := time.Second
	if n.ticks > 1 {
		between = n.last.Sub(n.first) / time.Duration(n.ticks-1)
	}
	return r.until.Sub(n.last) > max(3*between, r.q.At.precision, time.Second)
}

func (r *Recording) outside(n *node) error {
	what := "that time"
	switch {
	case r.q.At != nil:
		what = "--at " + r.q.At.text
	case r.q.From != nil && r.q.Until != nil:
		what = "--from " + r.q.From.text + " --until " + r.q.Until.text
	case r.q.From != nil:
		what = "--from " + r.q.From.text
	case r.q.Until != nil:
		what = "--until " + r.q.Until.text
	}
	return fmt.Errorf("%s: the recording has no tick of that time: of %s it has %s to %s (%s)",
		what, clip.Clean(n.name), full(n.first), full(n.last), phrase.Count(n.ticks, "tick"))
}

// podAway is the error for a pod that is in the recording, but not at the time of the question.
func (r *Recording) podAway(n *node) error {
	when := "the tick of " + full(n.current.Time)
	if r.q.At == nil {
		when = fmt.Sprintf("the ticks from %s to %s", full(n.begin), full(n.current.Time))
	}
	text := fmt.Sprintf("--pod %s is not in %s: it is in those from %s to %s", clip.Clean(r.q.Pod), when, full(n.podFirst), full(n.podEnd))
	for _, e := range n.evictions.all {
		if r.q.At != nil && !e.first.After(n.current.Time) {
			return fmt.Errorf("%s, and its eviction begins at %s: ask with --at %s", text, full(e.first), n.podEnd.Format("15:04:05"))
		}
	}
	return fmt.Errorf("%s: ask for a time within these, or omit the time", text)
}

func (r *Recording) unknownPod() error {
	near := nearest(r.q.Pod, r.names)
	switch {
	case len(r.names) == 0:
		return fmt.Errorf("--pod %s: no tick of the recording has any pod", clip.Clean(r.q.Pod))
	case len(near) == 0:
		return fmt.Errorf("--pod %s: no tick of the recording has it", clip.Clean(r.q.Pod))
	}
	return fmt.Errorf("--pod %s: no tick of the recording has it. It has %s", clip.Clean(r.q.Pod), strings.Join(near, ", "))
}

// full is a time with its date and zone.
func full(t time.Time) string { return t.Format("2006-01-02 15:04:05Z07:00") }

// clock formats a time of day, with the date where the recording has several days.
func (n *node) clock(t time.Time) string {
	if n.first.Format(time.DateOnly) == n.last.Format(time.DateOnly) {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

func (r *Recording) title(n *node) string {
	what := clip.Clean(n.name)
	if r.name != "" {
		what = n.podKey + " on " + what
	}
	if r.q.At != nil {
		return fmt.Sprintf("%s at %s", what, full(n.current.Time))
	}
	return fmt.Sprintf("%s from %s to %s (%s)", what, full(n.begin), n.clock(n.current.Time), phrase.Count(n.asked, "tick"))
}

// caveats are what the reader must know to judge the answer.
func (r *Recording) caveats(n *node) []string {
	var s []string
	switch len(r.q.Inserted) {
	case 0:
	case 1:
		s = append(s, fmt.Sprintf("The recording has no %s. What follows is what the tool decides now, with its default settings, "+
			"and not what was done then.", r.q.Inserted[0]))
	default:
		s = append(s, fmt.Sprintf("The recording has no %s. What follows is what the tools decide now, with their default settings, "+
			"and not what was done then.", strings.Join(r.q.Inserted, " and no ")))
	}
	if r.q.At != nil {
		if gap := r.until.Sub(n.current.Time); gap > time.Minute {
			s = append(s, fmt.Sprintf("There is no tick in the %s before the time of the question: this one is the last before it.",
				view.Span(gap)))
		}
	}
	if n.outOfOrder > 0 {
		s = append(s, fmt.Sprintf("%s left out: older than the one before it.", phrase.Count(n.outOfOrder, "tick")))
	}
	t := n.current
	if t.Isolation != nil && t.Isolation.DryRun {
		s = append(s, "Isolate ran with --dry-run: the limits below were decided and not written.")
	}
	if t.Isolation != nil && t.Isolation.Refused != "" {
		s = append(s, "Isolate refused this tick ("+plain(t.Isolation.Refused)+"): the limits below were not written.")
	}
	if t.Eviction != nil && t.Eviction.Refused != "" {
		s = append(s, "Evict refused this tick ("+plain(t.Eviction.Refused)+"): nothing was measured.")
	}
	if t.Isolation != nil && t.Isolation.Fallback {
		s = append(s, "Isolate applied the fallback before this tick, because no tick had come for a while: batch was at its floor.")
	}
	return s
}

// nearest are the names most like a text, at most five: those that contain its last part, then those that contain its first.
func nearest(text string, names map[string]bool) []string {
	first, last, found := strings.Cut(text, "/")
	if !found {
		last = first
	}
	rank := func(name string) int {
		switch {
		case last != "" && strings.Contains(name, last):
			return 0
		case first != "" && strings.Contains(name, first):
			return 1
		}
		return 2
	}
	all := slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b))
	})
	near := all[:min(len(all), 5)]
	if more := len(all) - len(near); more > 0 {
		near = append(slices.Clone(near), fmt.Sprintf("and %d more", more))
	}
	return near
}
