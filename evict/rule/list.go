package rule

import (
	"fmt"
	"strings"

	"polder/lib/choice"
)

// All contains the rules, in the order in which they are measured and their victims chosen. Koordinator's rules are in Koordinator's order:
// victims of the batch pod rules count for the rules about requests, and their victims for the rules about use.
var All = []*Rule{
	reclaimedPressure,
	memoryPressure,
	cpuPressure,
	rssOveruse,
	serviceWaiting,
	serviceIO,
	serviceMemory,
	beMemoryEvict,
	beCPUEvict,
	memoryAllocatableEvict,
	cpuAllocatableEvict,
	memoryEvict,
	cpuEvict,
}

// Select returns the named rules in the order of All, or all of them if names is empty.
func Select(names []string) ([]*Rule, error) {
	if len(names) == 0 {
		return All, nil
	}
	unmatched := map[string]bool{}
	for _, n := range names {
		unmatched[n] = true
	}
	var rules []*Rule
	for _, r := range All {
		if unmatched[r.Name] {
			rules = append(rules, r)
			delete(unmatched, r.Name)
		}
	}
	for _, n := range names {
		if unmatched[n] {
			return nil, fmt.Errorf("no rule %q: want some of %s%s", n, strings.Join(Names(), ", "), choice.Suggestion(n, Names()))
		}
	}
	return rules, nil
}

// Names returns the names of all rules.
func Names() []string {
	names := make([]string, len(All))
	for i, r := range All {
		names[i] = r.Name
	}
	return names
}
