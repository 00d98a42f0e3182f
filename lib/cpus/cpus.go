// Package cpus has CPU sets in the kernel's list format and takes CPUs from a machine with regard to its shape. It is
// pure: sets and topologies in, sets out.
package cpus

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Set is a set of CPU ids.
type Set = cpuset.CPUSet

// MaxID is the highest CPU id that Parse takes: the most that the kernel can be built for (CONFIG_NR_CPUS) is 8192.
const MaxID = 8191

// New returns a set of ids.
func New(ids ...int) Set { return cpuset.New(ids...) }

// Parse reads a list in the kernel's format ("0-10,12-21"); the empty text is the empty set. Ids over MaxID are
// refused, for a short line could otherwise ask for gigabytes.
func Parse(list string) (Set, error) {
	if len(list) > 64<<10 {
		return Set{}, fmt.Errorf("CPU list of %d bytes", len(list))
	}
	if list == "" {
		return Set{}, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		for _, id := range []string{first, last} {
			if id == "" && !isRange {
				continue
			}
			if n, err := strconv.Atoi(id); err != nil || n < 0 || n > MaxID || id[0] == '+' {
				return Set{}, fmt.Errorf("CPU list %q: %q is no CPU id from 0 to %d", clip(list), clip(part), MaxID)
			}
			if !isRange {
				break
			}
		}
	}
	s, err := cpuset.Parse(list)
	if err != nil {
		return Set{}, fmt.Errorf("CPU list %q: %w", clip(list), err)
	}
	return s, nil
}

func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}
