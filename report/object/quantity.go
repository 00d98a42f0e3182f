package object

import (
	"strconv"

	"polder/lib/quantity"
)

// Names of the reclaimed resources: those that pods request, and those of the colocation guide's CustomNodeResource.
const (
	ReclaimedMilliCPU = "resource.katalyst.kubewharf.io/reclaimed_millicpu"
	ReclaimedMemory   = "resource.katalyst.kubewharf.io/reclaimed_memory"
	guideMilliCPU     = "katalyst.kubewharf.io/reclaimed_millicpu"
	guideMemory       = "katalyst.kubewharf.io/reclaimed_memory"
)

// bytes formats memory in plain bytes, as the guide does, because canonical forms of odd numbers change their unit from one value to
// the next.
func bytes(v int64) string { return strconv.FormatInt(v, 10) }

// sameAmount reports whether two values are quantities of the same amount: 44k is 44000.
func sameAmount(a, b any) bool {
	x, err := quantity.Integer(a)
	if err != nil {
		return false
	}
	y, err := quantity.Integer(b)
	return err == nil && x == y
}

// list is a resource list with the amounts that are known.
func (a Amounts) list(cpu, memory string) map[string]any {
	l := map[string]any{}
	if a.MilliCPU != nil {
		l[cpu] = quantity.Format(*a.MilliCPU)
	}
	if a.MemoryBytes != nil {
		l[memory] = bytes(*a.MemoryBytes)
	}
	return l
}
