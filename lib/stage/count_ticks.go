package stage

import (
	"errors"
	"time"

	"polder/lib/metrics"
	"polder/lib/tick"
)

// serveMetrics begins to answer Prometheus, where that is asked for. It is a part of the stream's beginning, not of every
// command's: isolate --restore is not in the way of the isolate that runs.
func (s *Session) serveMetrics() error {
	if s.Metrics == nil {
		return nil
	}
	if err := s.Metrics.Serve(s.MetricsAddr); err != nil {
		return err
	}
	s.Log.Info("metrics", "url", "http://"+s.Metrics.Addr()+"/metrics")
	return nil
}

// measure counts a tick that was handled in the metrics: of the sections the tool's own alone, for the others are counted by
// those who made them.
func (s *Session) measure(l *tick.Line, section any, refused string, took time.Duration) {
	if s.Metrics == nil {
		return
	}
	if refused == metrics.RefusedNode {
		s.Metrics.Refused(refused)
		return // it has nothing of this node, and others' nodes are not to be kept
	}
	if refused != "" {
		s.Metrics.Refused(refused)
	}
	t := tick.Tick{V: tick.Version, Node: l.Node, Time: l.Time}
	switch section := section.(type) {
	case *tick.Advice:
		t.Advice = section
	case tick.Isolation:
		t.Isolation = &section
	case *tick.Eviction:
		t.Eviction = section
	case *tick.Report:
		t.Report = section
	}
	s.Metrics.Tick(&t, took)
}

// invalid is why a line is no tick, in a word.
func invalid(err error) string {
	if long := (tick.TooLong{}); errors.As(err, &long) {
		return metrics.InvalidLong
	}
	return metrics.InvalidLine
}
