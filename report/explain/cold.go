package explain

import (
	"fmt"
	"strings"

	"polder/lib/clip"
	"polder/lib/phrase"
	"polder/lib/reason"
	"polder/lib/tick"
)

// taken is the cold memory that was reclaimed in the period of the question, of one pod or of all.
type taken struct {
	bytes       float64
	steps, part int
	refused     int
	why         string // the last reason for a refusal
}

// add counts the tick's reclaims; within reports whether the question is about a cgroup.
func (c *taken) add(t *tick.Tick, within func(cgroup string) bool) {
	if t.Isolation == nil {
		return
	}
	for _, r := range t.Isolation.Reclaims {
		switch {
		case r.State == tick.ReclaimDryRun:
		case r.State == tick.ReclaimSkipped && r.Cgroup == "", r.State == tick.ReclaimFailed && within(r.Cgroup):
			c.refused++
			c.why = short(r.Reason)
		case r.State != tick.ReclaimSkipped && within(r.Cgroup):
			c.bytes += float64(r.ReclaimedBytes)
			c.steps++
			if r.State != tick.ReclaimDone {
				c.part++
			}
		}
	}
}

// describeCold describes the memory that was reclaimed, with advise's reasons in the last tick; it is empty where cold memory is not
// reclaimed.
func (n *node) describeCold(t *tick.Tick) (s []string) {
	c := &n.cold
	if c.steps > 0 {
		text := fmt.Sprintf("%s that batch did not use was reclaimed in %s from %s on", bytesOf(c.bytes), phrase.Count(c.steps, "step"), n.clock(n.begin))
		if n.pod != nil || n.lastPod != nil {
			text = fmt.Sprintf("%s that it did not use was reclaimed from it in %s from %s on", bytesOf(c.bytes), phrase.Count(c.steps, "step"), n.clock(n.begin))
		}
		if c.part > 0 {
			text += fmt.Sprintf(" (%d of them incomplete)", c.part)
		}
		s = append(s, text+".")
	}
	if c.refused > 0 {
		s = append(s, fmt.Sprintf("%s not done; the last reason: %s.", phrase.Count(c.refused, "step"), clip.Clean(c.why)))
	}
	if t.Advice == nil {
		return s
	}
	var reasons []string
	for _, r := range t.Advice.Reasons {
		const most = 4
		if rest, found := strings.CutPrefix(r, reason.ColdMemory); found && len(reasons) < most {
			reasons = append(reasons, plain(rest))
		}
	}
	if len(reasons) > 0 {
		s = append(s, "Advise reports: "+strings.Join(reasons, "; ")+".")
	}
	return s
}
