package guard

import (
	"fmt"
	"time"

	"polder/advise/policy"
	"polder/lib/tick"
)

const (
	// judgeAfter is how long all steps must have been in force before a service's waiting is compared with its waiting beside batch that no
	// step limits: if more than notCausePart of that is left, batch is not the cause.
	judgeAfter   = 15 * time.Second
	notCausePart = 0.75
	// maxObservations is how many of the latest waitings a mean is of, about.
	maxObservations = 300
)

// mean is a mean of waitings, in thousandths of the time.
type mean struct {
	Sum   float64 `json:"sum"`
	Count float64 `json:"count"`
}

// add adds a waiting. More than [maxObservations] count as so many with the same mean.
func (m *mean) add(permille float64) {
	m.Sum, m.Count = m.Sum+permille, m.Count+1
	if m.Count > maxObservations {
		m.Sum, m.Count = m.Sum*maxObservations/m.Count, maxObservations
	}
}

// valueIn returns the mean at a level; false if there are too few observations to compare with it.
func valueIn(means []mean, level int) (float64, bool) {
	if level < 0 || level >= len(means) || means[level].Count < takeTicks {
		return 0, false
	}
	return max(means[level].Sum/means[level].Count, 0), true
}

// atFloor is how long the service that caused all steps waits while all of them are in force.
type atFloor struct {
	Waiting mean `json:"waiting"`
	// Beside has, for each of these observations, the service's mean waiting at that level of use beside batch that no step limits.
	Beside mean `json:"beside"`
	// Most is the longest waiting.
	Most float64 `json:"most"`
}

// observe adds a waiting to the means that decide whether batch is its cause. It returns the service's history.
func (st *State) observe(w *waiting, history *service, now time.Time) *service {
	switch {
	case len(st.Steps) == 0 && now.Sub(st.ChangedAt) >= takeAfter:
		if history = st.historyOf(w.pod, history, now); history == nil {
			return nil
		}
		means := &history.Beside[w.resourceIndex]
		for len(*means) <= w.level {
			*means = append(*means, mean{})
		}
		(*means)[w.level].add(w.permille)
		return history
	case st.ExhaustedSince.IsZero() || now.Sub(st.ExhaustedSince) < takeAfter || !st.isOnlyCause(w) || history == nil:
		return history
	}
	if beside, known := valueIn(history.Beside[w.resourceIndex], w.level); known {
		if st.Floor == nil {
			st.Floor = &atFloor{}
		}
		st.Floor.Waiting.add(w.permille)
		st.Floor.Beside.add(beside)
		st.Floor.Most = max(st.Floor.Most, w.permille)
	}
	return history
}

// isOnlyCause reports whether all steps in force were taken for a service's waiting for one resource.
func (st *State) isOnlyCause(w *waiting) bool {
	for i := range st.Steps {
		if st.Steps[i].Service != nameOf(w.pod) || st.Steps[i].Resource != w.resource {
			return false
		}
	}
	return len(st.Steps) > 0
}

// isNotCause reports whether taking everything from batch left the waiting as it was beside batch without limits, at the same levels of the
// service's use. Means are compared, because single waitings vary by much more than what batch causes.
func (st *State) isNotCause(now time.Time) bool {
	return !st.ExhaustedSince.IsZero() && now.Sub(st.ExhaustedSince) >= judgeAfter && st.Floor != nil && st.Floor.Waiting.Count >= takeTicks &&
		st.Floor.Waiting.Sum > notCausePart*st.Floor.Beside.Sum
}

// revertAll reverts all steps, because batch was not the cause of a waiting, and takes none for the hold-down, which doubles the next time.
func (st *State) revertAll(now time.Time, a *tick.Advice, cause *waiting) {
	const text = "guard: service %s waits for %s for %.0f ms per second on average, and did for %.0f ms before the steps: " +
		"batch is not the cause, all steps are reverted"
	a.Reasons = append(a.Reasons, fmt.Sprintf(text, policy.Quote(nameOf(cause.pod)), cause.resource,
		st.Floor.Waiting.Sum/st.Floor.Waiting.Count, st.Floor.Beside.Sum/st.Floor.Beside.Count))
	own := *cause
	own.permille = min(max(st.Floor.Most, st.Steps[0].MeanPermille), maxPermille)
	st.learnAsOwn(&own, now)
	st.Steps, st.ChangedAt, st.RevertedAt = nil, now, now
	st.NoStepUntil = now.Add(st.Hold)
	st.OverSince, st.OverTicks, st.MeanPermille, st.ExhaustedSince, st.Floor = time.Time{}, 0, 0, time.Time{}, nil
}
