package rule

import "time"

// Since remembers when something began to hold.
type Since struct {
	Start time.Time `json:"start,omitzero"`
}

// Observe notes whether it holds at now and returns since when it has held without a break; zero where it does not. If
// the clock was set back behind the beginning, it begins now: a duration is never negative.
func (s *Since) Observe(now time.Time, holds bool) time.Time {
	switch {
	case !holds:
		s.Start = time.Time{}
	case s.Start.IsZero(), now.Before(s.Start):
		s.Start = now
	}
	return s.Start
}
