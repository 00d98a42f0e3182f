package main

import (
	"log/slog"

	"polder/lib/tick"
)

// maxLogged bounds the errors of one tick that are logged; the tick contains all that are listed.
const maxLogged = 10

// logger logs the errors of ticks.
type logger struct {
	logged map[tick.IsolationError]bool
}

// logNew logs the errors that the previous tick did not have.
func (l *logger) logNew(log *slog.Logger, list []tick.IsolationError) {
	if len(list) == 0 {
		l.logged = nil
		return
	}
	current := make(map[tick.IsolationError]bool, len(list))
	count := 0
	for _, e := range list {
		if !l.logged[e] && !current[e] {
			if count++; count <= maxLogged {
				log.Warn("not as advised", "cgroup", e.Cgroup, "key", e.Key, "error", e.Error)
			}
		}
		current[e] = true
	}
	if count > maxLogged {
		log.Warn("not as advised: more errors, see the tick", "notLogged", count-maxLogged)
	}
	l.logged = current
}
