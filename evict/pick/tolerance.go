package pick

import (
	"time"

	"polder/evict/rule"
)

// Steady is the time since which samples have come without a break: what was met before a break, and is met after it, was not met
// without one. It is encoded as JSON into the state file.
type Steady struct {
	Start time.Time `json:"start,omitzero"`
	Last  time.Time `json:"last,omitzero"`
	// Interval is that of the last sample, 0 where it was the first of its collector.
	Interval time.Duration `json:"interval,omitzero"`
}

// Observe notes a sample; interval is the time that its rates cover, 0 where that is not known.
func (s *Steady) Observe(now time.Time, interval time.Duration) {
	if s.Last.IsZero() || now.Before(s.Start) || now.Sub(s.Last) > rule.LongestGap(s.Interval) {
		s.Start = now
	}
	s.Last, s.Interval = now, interval
}

// toleranceLeft is how long a finding that is met must still be so before a pod is evicted.
func (s *Steady) toleranceLeft(f *rule.Finding, now time.Time) time.Duration {
	if f.Tolerance <= 0 {
		return 0
	}
	since, err := time.Parse(time.RFC3339Nano, f.Since)
	if err != nil || since.After(now) {
		return f.Tolerance // not known since when: not long enough
	}
	if s.Start.After(since) {
		since = s.Start
	}
	return max(0, f.Tolerance-now.Sub(since))
}
