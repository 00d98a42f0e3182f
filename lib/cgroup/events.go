package cgroup

import (
	"errors"
	"fmt"

	"polder/lib/kernfile"
)

// MemoryEvents has the counters of a cgroup's memory.events, including its descendants.
type MemoryEvents struct{ High, Max, OOM, OOMKill uint64 }

// OpenMemoryEvents opens a cgroup's memory.events. It returns nil if there is none: on version 1, in the root, and without the
// controller.
func (h *Hierarchy) OpenMemoryEvents(cgroup string) (*File, error) {
	return h.openV2("memory", cgroup, "memory.events")
}

// HasReclaim reports whether cgroups have memory.reclaim: on version 2, since Linux 5.19.
func (h *Hierarchy) HasReclaim() bool {
	return h.Version("memory") == 2 && h.Has("memory", "/", FileReclaim)
}

// FileReclaim is the file into which the amount of memory to reclaim is written.
const FileReclaim = "memory.reclaim"

var errEvents = errors.New("want high, max, oom and oom_kill")

// Parse parses memory.events. It ignores lines of other events.
func (e *MemoryEvents) Parse(data []byte) error {
	var found MemoryEvents
	const all = 4
	seen := 0
	for len(data) > 0 {
		var line []byte
		line, data = kernfile.Line(data)
		name, rest := kernfile.Field(line)
		var into *uint64
		switch string(name) {
		case "high":
			into = &found.High
		case "max":
			into = &found.Max
		case "oom":
			into = &found.OOM
		case "oom_kill":
			into = &found.OOMKill
		default:
			continue
		}
		n, ok := kernfile.UintLine(rest)
		if !ok {
			return fmt.Errorf("line %q: %w", kernfile.Clip(line), errNumber)
		}
		*into = n
		seen++
	}
	if seen != all {
		return errEvents
	}
	*e = found
	return nil
}
