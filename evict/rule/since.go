package rule

import "time"

// Since remembers when a condition began.
type Since struct {
	Start time.Time `json:"start,omitzero"`
}

// Observe records whether the condition is true at now and returns since when it has been true without a break; zero
// if it is false. If the clock was set back behind the beginning, it begins now: a duration is never negative.
func (s *Since) Observe(now time.Time, isTrue bool) time.Time {
	switch {
	case !isTrue:
		s.Start = time.Time{}
	case s.Start.IsZero(), now.Before(s.Start):
		s.Start = now
	}
	return s.Start
}
