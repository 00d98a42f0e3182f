// Package cpus has CPU sets in the kernel's list format and takes CPUs from a machine with regard to its shape. It is
// pure: sets and topologies in, sets out.
package cpus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/cpuset"

	"polder/lib/clip"
)

// Set is a set of CPU ids.
type Set = cpuset.CPUSet

// MaxID is the highest CPU id that Parse takes: the most that the kernel can be built for (CONFIG_NR_CPUS) is 8192.
const MaxID = 8191

// New returns a set of ids.
func New(ids ...int) Set { return cpuset.New(ids...) }

// Parse reads a list in the kernel's format ("0-10,12-21"); the empty text is the empty set. Ids over MaxID are
// refused, for a short line could otherwise ask for gigabytes. The set is empty where there is an error.
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

// ParseWithin is the part of a list that lies within a set. Its cost grows with the text and the set alone, whatever the list
// names: it is for lists that tenants write.
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

// span is a range of ids, both ends included.
type span struct{ first, last int }

// parse reads a list's ranges: in order, and none touching another, so that no id is named twice however often the list does.
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

// number is an id, or -1 where the text is none.
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
