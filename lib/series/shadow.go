package series

import "polder/lib/tick"

// These are the directions in which a shadow's offer differs.
const (
	shadowMore = "more"
	shadowLess = "less"
)

// addShadow counts by how much the shadow's offer differs from the policy's, over the time in seconds since the previous advice; 0 is
// unknown.
func (n *Node) addShadow(a *tick.Advice, seconds float64) {
	shadow, policy := a.Shadow, a.Reclaimed
	if shadow == nil {
		return
	}
	for _, direction := range []string{shadowMore, shadowLess} {
		n.shadow.begin(direction + "\x00" + shadow.Policy)
	}
	unknown := policy == nil || policy.MilliCPU == nil || shadow.Reclaimed == nil || shadow.Reclaimed.MilliCPU == nil
	if seconds == 0 || unknown {
		return
	}
	difference := (float64(*shadow.Reclaimed.MilliCPU) - float64(*policy.MilliCPU)) / 1000 * seconds
	switch {
	case difference > 0:
		n.shadow.add(shadowMore+"\x00"+shadow.Policy, difference)
	case difference < 0:
		n.shadow.add(shadowLess+"\x00"+shadow.Policy, -difference)
	}
}
