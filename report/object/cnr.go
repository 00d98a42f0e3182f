package object

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"polder/lib/quantity"
	"polder/lib/tick"
)

// What a CustomNodeResource is called.
const (
	CNRVersion = "node.katalyst.kubewharf.io/v1alpha1"
	CNRKind    = "CustomNodeResource"
)

// CNR is the object itself, without what it says. It goes with its node, whose UID is empty where it is not known.
func CNR(node, uid string) map[string]any {
	metadata := map[string]any{"name": node}
	if uid != "" {
		metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}}
	}
	return map[string]any{"apiVersion": CNRVersion, "kind": CNRKind, "metadata": metadata}
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

// CNRWithdrawal is a JSON merge patch of the status that takes away what [CNRStatus] put there, and nothing else. Applying
// an empty status would not do: the server makes a null of a map that loses its last key, and refuses that.
func CNRWithdrawal(cnr map[string]any, resourceVersion string) map[string]any {
	patch := map[string]any{}
	for _, path := range offers {
		have, _ := at(cnr, append([]string{"status"}, path...)...).(map[string]any)
		gone := map[string]any{}
		for _, name := range names {
			if _, ok := have[name]; ok {
				gone[name] = nil
			}
		}
		if len(gone) == 0 {
			continue
		}
		in := patch
		for _, key := range path[:len(path)-1] {
			if in[key] == nil {
				in[key] = map[string]any{}
			}
			in, _ = in[key].(map[string]any)
		}
		in[path[len(path)-1]] = gone
	}
	if list, _ := at(cnr, "status", "topologyZone").([]any); slices.ContainsFunc(list, isOurs) {
		patch["topologyZone"] = nil
		if others := slices.DeleteFunc(slices.Clone(list), isOurs); len(others) > 0 {
			patch["topologyZone"] = others
		}
	}
	if len(patch) == 0 {
		return nil
	}
	return map[string]any{"metadata": map[string]any{"resourceVersion": resourceVersion}, "status": patch}
}

// The lists of a status that have our resources, and their names.
var (
	offers = [][]string{{"resourceAllocatable"}, {"resourceCapacity"}, {"resources", "allocatable"}, {"resources", "capacity"}}
	names  = []string{guideMilliCPU, guideMemory, ReclaimedMilliCPU, ReclaimedMemory}
)

// isOurs reports whether a zone is of the kinds that are made here; there may be GPUs beside them.
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
	return CNRWithdrawal(cnr, "") == nil
}

func both(list func() map[string]any) map[string]any {
	return map[string]any{"allocatable": list(), "capacity": list()}
}

// topologyZone has the sockets with their NUMA nodes, and beside them the NUMA nodes that are of no one socket.
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
		sockets = append(sockets, map[string]any{"type": "Socket", "name": strconv.Itoa(id), "resources": map[string]any{}, "children": children[id]})
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

// part is the i-th of n equal parts: a pod that may run on two NUMA nodes counts by half on each, and the parts add up to
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

// taintsAnnotation names our taints in the object: a list of them belongs to all who write it, and not every version of
// the CRD lets each own its part.
const taintsAnnotation = "polder/taints"

// taintQoS is the class of pods that our taints are for.
const taintQoS = "reclaimed_cores"

// Taints are an object's taints and which of them are ours.
type Taints struct {
	list []any
	ours []string // "key:effect"
}

// TaintsOf reads an object's taints.
func TaintsOf(cnr map[string]any) Taints {
	list, _ := at(cnr, "spec", "taints").([]any)
	text, _ := at(cnr, "metadata", "annotations", taintsAnnotation).(string)
	return Taints{list: list, ours: strings.FieldsFunc(text, func(r rune) bool { return r == ',' })}
}

// Want makes the taints those that are wanted, beside what others have set, which stays. A taint that is there already
// keeps its time; one that somebody else has set is not ours and will not be taken away.
func (t Taints) Want(wanted []tick.Taint, at time.Time) Taints {
	names := map[string]bool{}
	for _, w := range wanted {
		names[w.Key+":"+w.Effect] = true
	}
	var next Taints
	present := map[string]bool{}
	for _, item := range t.list {
		name := taintName(item)
		mine := slices.Contains(t.ours, name)
		if mine && !names[name] {
			continue
		}
		next.list, present[name] = append(next.list, item), true
		if mine && !slices.Contains(next.ours, name) {
			next.ours = append(next.ours, name)
		}
	}
	for _, w := range wanted {
		name := w.Key + ":" + w.Effect
		if present[name] || w.Key == "" || strings.Contains(name, ",") {
			continue
		}
		present[name] = true
		next.list = append(next.list, map[string]any{"key": w.Key, "effect": w.Effect, "qosLevel": taintQoS, "timeAdded": at.UTC().Format(time.RFC3339)})
		next.ours = append(next.ours, name)
	}
	slices.Sort(next.ours)
	return next
}

func taintName(item any) string {
	m, _ := item.(map[string]any)
	key, _ := m["key"].(string)
	effect, _ := m["effect"].(string)
	return key + ":" + effect
}

// Equal reports whether there is nothing to write.
func (t Taints) Equal(u Taints) bool {
	return slices.Equal(t.ours, u.ours) && slices.EqualFunc(t.list, u.list, func(a, b any) bool { return Holds(a, b) && Holds(b, a) })
}

// Patch is a JSON merge patch that sets the taints of the object at that version: the list is replaced as a whole, and if
// somebody else has written meanwhile, the server refuses it.
func (t Taints) Patch(resourceVersion string) map[string]any {
	var list, ours any
	if len(t.list) > 0 {
		list = t.list
	}
	if len(t.ours) > 0 {
		ours = strings.Join(t.ours, ",")
	}
	return map[string]any{
		"metadata": map[string]any{"resourceVersion": resourceVersion, "annotations": map[string]any{taintsAnnotation: ours}},
		"spec":     map[string]any{"taints": list},
	}
}
