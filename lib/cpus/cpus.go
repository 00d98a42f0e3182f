// Package cpus parses and formats CPU sets in the kernel's list format, and selects CPUs of a machine with regard to
// its topology. It is pure.
package cpus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/cpuset"

	"polder/lib/clip"
)

// Set is a set of CPU IDs.
type Set = cpuset.CPUSet

// MaxID is the highest CPU ID that Parse accepts: a kernel can be built for at most 8192 (CONFIG_NR_CPUS).
const MaxID = 8191

// New returns a set of ids.
func New(ids ...int) Set { return cpuset.New(ids...) }

// Parse reads a list in the kernel's format ("0-10,12-21"); the empty text is the empty set. It rejects IDs
// above MaxID, because otherwise a short line could require gigabytes. The set is empty if there is an error.
func Parse(list string) (Set, error) {
	spans, err := parse(list)
	if err != nil || len(spans) == 0 {
		return Set{}, err
	}
	size := 0
	for _, s := range spans {
		size += s.last - s.first + 1
	}
	ids := make([]int, 0, size)
	for _, s := range spans {
		for id := s.first; id <= s.last; id++ {
			ids = append(ids, id)
		}
	}
	return New(ids...), nil
}

// ParseWithin returns the part of a list that lies within a set. Its cost grows only with the text and the set, whatever the
// list contains: it is for lists that tenants write.
func ParseWithin(list string, within Set) (Set, error) {
	spans, err := parse(list)
	if err != nil || len(spans) == 0 {
		return Set{}, err
	}
	var ids []int
	for _, id := range within.UnsortedList() {
		at, found := slices.BinarySearchFunc(spans, id, func(s span, id int) int { return cmp.Compare(s.first, id) })
		if found || at > 0 && id <= spans[at-1].last {
			ids = append(ids, id)
		}
	}
	return New(ids...), nil
}

// span is a range of IDs, both ends included.
type span struct{ first, last int }

// parse reads a list's ranges: sorted and merged, so that no ID is contained twice however often the list names it.
func parse(list string) ([]span, error) {
	if len(list) > 64<<10 {
		return nil, fmt.Errorf("CPU list of %d bytes", len(list))
	}
	if list == "" {
		return nil, nil
	}
	var spans []span
	sorted := true
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		s := span{number(first), number(last)}
		if s.first < 0 || s.last < 0 {
			return nil, fmt.Errorf("CPU list %q: %q is not a CPU id from 0 to %d", clip.Text(list, 60), clip.Text(part, 60), MaxID)
		}
		if s.first > s.last {
			return nil, fmt.Errorf("CPU list %q: %q begins after its end", clip.Text(list, 60), clip.Text(part, 60))
		}
		sorted = sorted && (len(spans) == 0 || spans[len(spans)-1].last < s.first)
		spans = append(spans, s)
	}
	if sorted {
		return spans, nil
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	merged := spans[:1]
	for _, s := range spans[1:] {
		if before := &merged[len(merged)-1]; s.first <= before.last+1 {
			before.last = max(before.last, s.last)
		} else {
			merged = append(merged, s)
		}
	}
	return merged, nil
}

// number returns an ID, or -1 if the text is none.
func number(text string) int {
	if text == "" || len(text) > 9 {
		return -1
	}
	n := 0
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	if n > MaxID {
		return -1
	}
	return n
}
