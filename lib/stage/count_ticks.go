package stage

import (
	"errors"
	"time"

	"polder/lib/metrics"
	"polder/lib/tick"
)

// serveMetrics starts the server for Prometheus, if --metrics-addr is set. Only commands that read or write the stream call it, so
// that isolate --restore does not use the port of a running isolate.
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

// measure counts a handled tick in the metrics: of the sections only the tool's own, because the other tools count
// theirs.
func (s *Session) measure(l *tick.Line, section any, refused string, duration time.Duration) {
	if s.Metrics == nil {
		return
	}
	if refused != "" {
		s.Metrics.Refused(refused)
	}
	if refused == metrics.RefusedNode {
		return // it has no section for another node, about which nothing is stored
	}
	t := tick.Tick{V: tick.Version, Node: l.Node, Time: l.Time}
	switch section := section.(type) {
	case *tick.Advice:
		t.Advice = section
	case tick.Isolation:
		t.Isolation = &section
	case tick.NetworkIsolation:
		t.Network = &section
	case *tick.Eviction:
		t.Eviction = section
	case *tick.Report:
		t.Report = section
	}
	s.Metrics.Tick(&t, duration)
}

// invalid returns the reason why a line is not a tick, in one word.
func invalid(err error) string {
	if long := (tick.TooLong{}); errors.As(err, &long) {
		return metrics.InvalidLong
	}
	return metrics.InvalidLine
}
