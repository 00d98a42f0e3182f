package series

import (
	"time"

	"polder/lib/tick"
)

// These are the directions in which a shadow's offer differs.
const (
	shadowMore = "more"
	shadowLess = "less"
)

// maxShadowSpan is the longest time between two advices that counts: for a longer one the offer in between is unknown.
const maxShadowSpan = 5 * time.Minute

// addShadow counts by how much the shadow's offer differs from the policy's, over the time since the previous advice.
func (n *Node) addShadow(t *tick.Tick) {
	if t.Advice == nil {
		return
	}
	span := t.Time.Sub(n.lastAdvice)
	first := n.lastAdvice.IsZero()
	n.lastAdvice = t.Time
	shadow, policy := t.Advice.Shadow, t.Advice.Reclaimed
	if shadow == nil {
		return
	}
	for _, direction := range []string{shadowMore, shadowLess} {
		n.shadow.begin(direction + "\x00" + shadow.Policy)
	}
	unknown := policy == nil || policy.MilliCPU == nil || shadow.Reclaimed == nil || shadow.Reclaimed.MilliCPU == nil
	if first || span <= 0 || span > maxShadowSpan || unknown {
		return
	}
	difference := (float64(*shadow.Reclaimed.MilliCPU) - float64(*policy.MilliCPU)) / 1000 * span.Seconds()
	switch {
	case difference > 0:
		n.shadow.add(shadowMore+"\x00"+shadow.Policy, difference)
	case difference < 0:
		n.shadow.add(shadowLess+"\x00"+shadow.Policy, -difference)
	}
}
