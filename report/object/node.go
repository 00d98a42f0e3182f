package object

// NodePatch is a JSON merge patch for a node's status that names the two resources alone, so that kubelet's own stay as
// they are. An amount that is not known is taken away. Kubelet derives what is allocatable from the capacity, whenever it
// writes its status: both are the same.
func NodePatch(a Amounts) map[string]any {
	list := func() map[string]any {
		l := map[string]any{ReclaimedMilliCPU: nil, ReclaimedMemory: nil}
		for k, v := range a.list(ReclaimedMilliCPU, ReclaimedMemory) {
			l[k] = v
		}
		return l
	}
	return map[string]any{"status": map[string]any{"capacity": list(), "allocatable": list()}}
}

// NodeHolds reports whether a node has exactly the amounts, and those that are not known not at all. Kubelet sets to zero
// what it does not know when it starts on a new machine.
func NodeHolds(node map[string]any, a Amounts) bool {
	for _, part := range []string{"capacity", "allocatable"} {
		have, _ := at(node, "status", part).(map[string]any)
		want := a.list(ReclaimedMilliCPU, ReclaimedMemory)
		for _, name := range []string{ReclaimedMilliCPU, ReclaimedMemory} {
			h, there := have[name]
			w, wanted := want[name]
			if there != wanted || wanted && !Holds(h, w) {
				return false
			}
		}
	}
	return true
}

// at is the value at a path of keys, nil where there is none.
func at(o map[string]any, path ...string) any {
	var v any = o
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}
