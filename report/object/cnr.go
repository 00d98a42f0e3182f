package object

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"polder/lib/quantity"
)

// Names of a CustomNodeResource.
const (
	cnrVersion = "node.katalyst.kubewharf.io/v1alpha1"
	CNRKind    = "CustomNodeResource"
)

// CNR is the object itself, without its content. It is deleted with its node, whose UID is empty where it is not known.
func CNR(node, uid string) map[string]any {
	metadata := map[string]any{"name": node}
	if uid != "" {
		metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}}
	}
	return map[string]any{"apiVersion": cnrVersion, "kind": CNRKind, "metadata": metadata}
}

// CNRStatus is the object with the status alone, as it is applied, for figures that are not empty.
func CNRStatus(node string, f Figures) map[string]any {
	guide := func() map[string]any { return f.Reclaimed.list(guideMilliCPU, guideMemory) }
	status := map[string]any{
		"resourceAllocatable": guide(),
		"resourceCapacity":    guide(),
		"resources":           both(func() map[string]any { return f.Reclaimed.list(ReclaimedMilliCPU, ReclaimedMemory) }),
	}
	if zone := topologyZone(f); len(zone) > 0 {
		status["topologyZone"] = zone
	}
	o := CNR(node, "")
	o["status"] = status
	return o
}

// CNRWithdrawal removes from the status what [CNRStatus] has written, and nothing else; nil where there is nothing. Applying
// an empty status is impossible: the server turns a map that loses its last key into null, and refuses that.
func CNRWithdrawal(cnr map[string]any) Patch {
	var p Patch
	for _, path := range offers {
		path = append([]string{"status"}, path...)
		have, _ := at(cnr, path...).(map[string]any)
		for _, name := range names {
			if have[name] != nil {
				p.drop(append(path, name)...)
			}
		}
	}
	if list, _ := at(cnr, "status", "topologyZone").([]any); slices.ContainsFunc(list, isOurs) {
		var left any
		if others := slices.DeleteFunc(slices.Clone(list), isOurs); len(others) > 0 {
			left = others
		}
		p.set(cnr, left, "status", "topologyZone")
	}
	return p
}

// The lists of a status that have our resources, and their names.
var (
	offers = [][]string{{"resourceAllocatable"}, {"resourceCapacity"}, {"resources", "allocatable"}, {"resources", "capacity"}}
	names  = []string{guideMilliCPU, guideMemory, ReclaimedMilliCPU, ReclaimedMemory}
)

// isOurs reports whether a zone is of the kinds that are written here; there may also be GPUs.
func isOurs(zone any) bool {
	m, _ := zone.(map[string]any)
	return m["type"] == "Socket" || m["type"] == "Numa"
}

// CNRHolds reports whether an object has what was written to it, and where nothing was to be offered, offers nothing.
func CNRHolds(cnr map[string]any, f Figures) bool {
	if f.Taints != nil {
		if t := TaintsOf(cnr); !t.Want(f.Taints, time.Time{}).Equal(t) {
			return false
		}
	}
	if !f.Empty() {
		return Holds(cnr["status"], CNRStatus("", f)["status"])
	}
	return CNRWithdrawal(cnr) == nil
}

func both(list func() map[string]any) map[string]any {
	return map[string]any{"allocatable": list(), "capacity": list()}
}

// topologyZone has the sockets with their NUMA nodes, and the NUMA nodes that do not belong to a single socket.
func topologyZone(f Figures) []any {
	children := map[int][]any{}
	var sockets, alone []any
	for _, z := range f.Zones {
		zone := numaZone(z, f.Consumers)
		if z.Socket < 0 {
			alone = append(alone, zone)
			continue
		}
		children[z.Socket] = append(children[z.Socket], zone)
	}
	for _, id := range slices.Sorted(maps.Keys(children)) {
		sockets = append(sockets, map[string]any{
			"type": "Socket", "name": strconv.Itoa(id), "resources": map[string]any{},
			"children": children[id],
		})
	}
	return append(sockets, alone...)
}

func numaZone(z Zone, consumers []Consumer) map[string]any {
	zone := map[string]any{"type": "Numa", "name": strconv.Itoa(z.ID), "resources": both(func() map[string]any {
		l := z.Reclaimed.list(ReclaimedMilliCPU, ReclaimedMemory)
		l["cpu"] = quantity.Format(int64(z.CPUs))
		if z.Bytes != nil {
			l["memory"] = bytes(*z.Bytes)
		}
		return l
	})}
	var allocations []any
	for _, c := range consumers {
		if i := slices.Index(c.Zones, z.ID); i >= 0 {
			requests := Amounts{part(c.Requests.MilliCPU, i, len(c.Zones)), part(c.Requests.MemoryBytes, i, len(c.Zones))}
			allocations = append(allocations, map[string]any{"consumer": c.Name, "requests": requests.list(ReclaimedMilliCPU, ReclaimedMemory)})
		}
	}
	if len(allocations) > 0 {
		zone["allocations"] = allocations
	}
	return zone
}

// part is the i-th of n equal parts: a pod that may run on two NUMA nodes counts half on each, and the parts add up to
// the whole.
func part(v *int64, i, n int) *int64 {
	if v == nil {
		return nil
	}
	p := *v / int64(n)
	if int64(i) < *v%int64(n) {
		p++
	}
	return &p
}
