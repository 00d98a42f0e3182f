package main

import (
	"log/slog"
	"strings"

	"polder/lib/tick"
)

// maxLogged bounds the errors of one tick that are logged; the tick contains all that are listed.
const maxLogged = 10

// logger logs the errors of ticks.
type logger struct {
	logged map[tick.IsolationError]bool // without digits in their texts
}

// logNew logs the errors that the previous tick did not have. An error with other numbers is the same one: a limit that cannot be applied
// may change with every tick, and so may the use that is above it.
func (l *logger) logNew(log *slog.Logger, list []tick.IsolationError) {
	if len(list) == 0 {
		l.logged = nil
		return
	}
	current := make(map[tick.IsolationError]bool, len(list))
	count := 0
	for _, e := range list {
		id := e
		id.Error = withoutDigits(e.Error)
		if !l.logged[id] && !current[id] {
			if count++; count <= maxLogged {
				log.Warn("not as advised", "cgroup", e.Cgroup, "key", e.Key, "error", e.Error)
			}
		}
		current[id] = true
	}
	if count > maxLogged {
		log.Warn("not as advised: more errors, see the tick", "notLogged", count-maxLogged)
	}
	l.logged = current
}

func withoutDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}
