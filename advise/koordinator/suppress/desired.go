package suppress

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"polder/advise/koordinator/revert"
	"polder/advise/policy"
	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// desiredState collects the desired state, one entry per cgroup.
type desiredState struct {
	byPath map[string]*tick.Cgroup
	list   []*tick.Cgroup
}

func (w *desiredState) entry(path string) *tick.Cgroup {
	if c := w.byPath[path]; c != nil {
		return c
	}
	if w.byPath == nil {
		w.byPath = map[string]*tick.Cgroup{}
	}
	c := &tick.Cgroup{Cgroup: path}
	w.byPath[path] = c
	w.list = append(w.list, c)
	return c
}

func (w *desiredState) appendTo(list *[]tick.Cgroup) {
	for _, c := range w.list {
		if keysOf(c) != 0 {
			*list = append(*list, *c)
		}
	}
}

// pin pins the batch pods to a set of CPUs. If kubelet manages no CPUs, its cgroup of BestEffort pods and the pods' own cgroups are
// narrowed, too, so that a new container is confined from its start; if it manages CPUs, or may, only the containers are, because kubelet
// could not start the next one in a narrowed cgroup (Koordinator's issues 395, 546, 556).
func (v *view) pin(desired *desiredState, be set) (reasons []string) {
	if v.tier != nil && !v.mayNarrowTier {
		reasons = append(reasons, fmt.Sprintf("suppression: only containers are narrowed, not %s: kubelet's CPU manager policy is %s",
			clip.Text(v.tier.Cgroup, shownBytes), clip.Text(cmp.Or(v.cpuManager, "unknown"), shownBytes)))
	}
	v.pinCPUs(desired, be)
	return reasons
}

func (v *view) pinCPUs(desired *desiredState, be set) {
	list := be.String()
	if v.tier != nil && v.mayNarrowTier {
		desired.entry(v.tier.Cgroup).CPUSetCPUs = list
	}
	for i := range v.pods {
		p := &v.pods[i]
		if !p.isSuppressed {
			continue
		}
		if p.ownCgroup != "" && (p.isFromRule || v.mayNarrowTier) {
			desired.entry(p.ownCgroup).CPUSetCPUs = list
		}
		for _, j := range p.containers {
			desired.entry(p.Containers[j].Cgroup).CPUSetCPUs = list
		}
	}
}

// fallback returns the desired state for when advice stops: the batch pods at their minimum. It only takes CPUs away; if nothing was
// decided, it omits CPUs that others have got since.
func (v *view) fallback(current limit) *desiredState {
	w := &desiredState{}
	if current.mode == sloconfig.SuppressCPUSet {
		be := parse(current.cpus).Intersection(v.Online).Difference(v.all)
		if be.IsEmpty() {
			be = v.unsuppressedCPUs()
		}
		v.pinCPUs(w, cpus.New(v.TakePairs(be, minCPUs)...))
	}
	if current.quotaMilliCPU > 0 {
		v.divideQuota(w, minQuotaMilliCPU)
	}
	return w
}

// keys is a set of a cgroup's keys that this package sets.
type keys uint8

const (
	keyCPUs keys = 1 << iota
	keyQuota
	keyWeight
	keyMemory
	keyIdle
)

func keysOf(c *tick.Cgroup) (k keys) {
	for _, field := range []struct {
		key   keys
		isSet bool
	}{
		{keyCPUs, c.CPUSetCPUs != ""},
		{keyQuota, c.CPUMaxMilliCPU != nil},
		{keyWeight, c.CPUWeight != nil},
		{keyMemory, c.MemoryMaxBytes != nil},
		{keyIdle, c.CPUIdle != nil},
	} {
		if field.isSet {
			k |= field.key
		}
	}
	return k
}

// owner is the pod or container that a cgroup belongs to.
type owner struct {
	pod       *pod
	container *tick.Container // nil for the pod's own cgroup
}

// advised is what was desired of a cgroup.
type advised struct {
	revert.Last
	Keys keys `json:"keys"`
}

// UnmarshalJSON also reads only the keys, the format of a state file of version 0.1.
func (h *advised) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &h.Keys) == nil {
		return nil
	}
	type plain advised
	return json.Unmarshal(data, (*plain)(h))
}

// undo adds the neutral value of what was desired before and no longer is, for [revert.Duration]: whether the value was ever written is
// unknown. If nothing was decided, lists and quotas stay. It returns the cgroups whose desired quota only undoes an earlier one.
func (v *view) undo(
	desired *desiredState, previous *revert.Cgroups[advised, *advised], isDecided bool, now time.Time,
) (undoneQuotas map[string]bool) {
	desiredKeys := make(map[string]keys, len(desired.list))
	for _, w := range desired.list {
		if k := keysOf(w); k != 0 {
			desiredKeys[w.Cgroup] = k
		}
	}
	owners := v.owners()
	for _, path := range slices.Sorted(maps.Keys(*previous)) {
		entry := (*previous)[path]
		cgroupOwner, isLive := owners[path]
		isTier := path == v.tierPath
		switch {
		case entry == nil, !isTier && !isLive && len(v.sample.Pods) > 0:
			delete(*previous, path)
			continue
		case isTier && v.tier == nil, !isTier && !isLive, // missing in this sample
			!isTier && (cgroupOwner.pod.Missing == tick.MissingCluster ||
				cgroupOwner.container != nil && !cgroupOwner.pod.isFromRule && isUnnamed(cgroupOwner.container)):
			// Its requests are unknown at present: it stays unchanged.
			entry.At = now
			continue
		}
		dropped := entry.Keys &^ desiredKeys[path]
		if !isDecided {
			dropped &^= keyCPUs | keyQuota
			entry.At = now
		}
		if dropped == 0 {
			continue
		}
		v.addNeutral(desired.entry(path), cgroupOwner, dropped)
		if dropped&keyQuota != 0 {
			if undoneQuotas == nil {
				undoneQuotas = map[string]bool{}
			}
			undoneQuotas[path] = cgroupOwner.pod != nil
		}
	}
	for path, k := range desiredKeys {
		h := previous.Entry(path)
		h.Keys, h.At = h.Keys|k, now
	}
	previous.RemoveExpired(now)
	return undoneQuotas
}

// owners returns the cgroups of the existing pods and of their containers.
func (v *view) owners() map[string]owner {
	owners := make(map[string]owner, 3*len(v.pods))
	for i := range v.pods {
		p := &v.pods[i]
		if p.Missing != tick.MissingCgroup && p.Cgroup != "" {
			owners[p.Cgroup] = owner{pod: p}
		}
		for _, j := range p.containers {
			owners[p.Containers[j].Cgroup] = owner{p, &p.Containers[j]}
		}
	}
	return owners
}

// widenUnowned widens a confined tier without an entry in the state (the state was lost, or another program confined it) to its size
// without suppression, as Koordinator does each time. After --contest external changes isolate leaves the value to the other writer.
func (v *view) widenUnowned(desired *desiredState, l limit) (reasons []string) {
	if v.tier == nil {
		return nil
	}
	if current := v.tier.CPUMaxMilliCPU; current != nil && *current > 0 && l.quotaMilliCPU == 0 {
		if w := desired.entry(v.tier.Cgroup); w.CPUMaxMilliCPU == nil {
			w.CPUMaxMilliCPU = new(int64(tick.Unlimited))
			reasons = append(reasons, fmt.Sprintf("suppression: %s has a quota of %dm that is not desired: it is removed", clip.Text(v.tier.Cgroup, shownBytes), *current))
		}
	}
	if !v.mayNarrowTier || l.mode == sloconfig.SuppressCPUSet || len(v.sample.Pods) == 0 || policy.PodsUnknown(v.sample) {
		return reasons
	}
	target := v.unsuppressedCPUs()
	if parent := v.sample.Tier(tick.TierPods); parent != nil { // the tier cannot be wider than its parent
		if within := target.Intersection(parse(parent.CPUSetCPUs)); !within.IsEmpty() {
			target = within
		}
	}
	differs := func(list string) bool { current := parse(list); return !current.IsEmpty() && !current.Equals(target) }
	narrowed, where := v.tier.CPUSetCPUs, clip.Text(v.tier.Cgroup, shownBytes)
	for i := range v.pods {
		if p := &v.pods[i]; p.isSuppressed && p.isInTier && !differs(narrowed) {
			for _, j := range p.containers {
				if own := &p.Containers[j]; differs(own.CPUSetCPUs) {
					narrowed, where = own.CPUSetCPUs, clip.Text(own.Cgroup, shownBytes)
					break
				}
			}
		}
	}
	if !differs(narrowed) {
		return reasons
	}
	if desired.entry(v.tier.Cgroup).CPUSetCPUs == "" {
		reasons = append(reasons, fmt.Sprintf("suppression: %s has CPUs %s, which are not desired: batch pods get %s",
			where, clip.Text(narrowed, shownBytes), clip.Text(target.String(), shownBytes)))
	}
	v.pinCPUs(desired, target)
	return reasons
}

func (v *view) addNeutral(w *tick.Cgroup, cgroupOwner owner, dropped keys) {
	var requests, limits *tick.Resources
	switch {
	case cgroupOwner.container != nil:
		requests, limits = cgroupOwner.container.Requests, cgroupOwner.container.Limits
	case cgroupOwner.pod != nil:
		requests, limits = cgroupOwner.pod.Requests, cgroupOwner.pod.Limits
	}
	if requests == nil {
		requests = &tick.Resources{}
	}
	if limits == nil {
		limits = &tick.Resources{}
	}
	if dropped&keyCPUs != 0 {
		if set := v.neutralCPUs(cgroupOwner); !set.IsEmpty() {
			w.CPUSetCPUs = set.String()
		}
	}
	if dropped&keyQuota != 0 {
		w.CPUMaxMilliCPU = new(quotaOf(valueOf(limits.MilliCPU), 1))
	}
	if dropped&keyMemory != 0 {
		w.MemoryMaxBytes = new(bytesOf(valueOf(limits.MemoryBytes)))
	}
	if dropped&keyIdle != 0 {
		w.CPUIdle = new(false)
		if cgroupOwner.pod == nil || !cgroupOwner.pod.isFromRule { // the kernel resets the weight to its default, but kubelet had set another one
			dropped |= keyWeight
		}
	}
	if dropped&keyWeight != 0 && w.CPUWeight == nil && (w.CPUIdle == nil || !*w.CPUIdle) {
		w.CPUWeight = new(policy.WeightOf(policy.SharesOf(valueOf(requests.MilliCPU)), v.sample.CgroupVersion))
	}
}

// neutralCPUs returns the CPUs that a cgroup is widened to; empty if it must be left alone. On version 1 isolate writes no list above
// containers while kubelet manages CPUs, and restores what it wrote before.
func (v *view) neutralCPUs(cgroupOwner owner) set {
	isParent := cgroupOwner.pod == nil || cgroupOwner.pod.isParent(cgroupOwner.container)
	switch {
	case !isParent || v.mayNarrowTier:
		return v.unsuppressedCPUs()
	case v.cpuManager == "" || v.sample.CgroupVersion == 1:
		return set{}
	}
	return v.exceptExclusive()
}

// isParent reports whether a pod's cgroup is one that kubelet created above containers.
func (p *pod) isParent(container *tick.Container) bool { return !p.isFromRule && container == nil }

// exceptExclusive returns all CPUs except those that kubelet gave to pods exclusively.
func (v *view) exceptExclusive() set {
	if set := v.Online.Difference(v.kubelets); !set.IsEmpty() {
		return set
	}
	return v.Online
}

// widenTier makes kubelet's cgroup of BestEffort pods wide enough for the containers below, if it is not confined itself.
func (v *view) widenTier(desired *desiredState, current limit) {
	if v.tier == nil || v.mayNarrowTier || v.cpuManager == "" || current.mode != sloconfig.SuppressCPUSet {
		return
	}
	inForce := parse(v.tier.CPUSetCPUs)
	if be := parse(current.cpus); !inForce.IsEmpty() && !be.IsSubsetOf(inForce) {
		desired.entry(v.tier.Cgroup).CPUSetCPUs = v.exceptExclusive().String()
	}
}
