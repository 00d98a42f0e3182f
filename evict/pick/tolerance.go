package pick

import (
	"time"

	"polder/evict/rule"
)

// Continuity is the time since which samples have come without a break: a condition that is met before and after a break was not met
// continuously. The state file contains it as JSON.
type Continuity struct {
	Start time.Time `json:"start,omitzero"`
	Last  time.Time `json:"last,omitzero"`
	// Interval is that of the last sample, 0 if it was the first of its collector.
	Interval time.Duration `json:"interval,omitzero"`
}

// Observe records a sample; interval is the time that its rates cover, 0 if unknown.
func (s *Continuity) Observe(now time.Time, interval time.Duration) {
	if s.Last.IsZero() || now.Before(s.Start) || now.Sub(s.Last) > rule.MaxGap(s.Interval) {
		s.Start = now
	}
	s.Last, s.Interval = now, interval
}

// toleranceLeft returns how long a finding that is met must stay so before a pod is evicted.
func (s *Continuity) toleranceLeft(f *rule.Finding, now time.Time) time.Duration {
	if f.Tolerance <= 0 {
		return 0
	}
	since, err := time.Parse(time.RFC3339Nano, f.Since)
	if err != nil || since.After(now) {
		return f.Tolerance // start unknown: not long enough
	}
	if s.Start.After(since) {
		since = s.Start
	}
	return max(0, f.Tolerance-now.Sub(since))
}
