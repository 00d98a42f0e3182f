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

// wants collects the desired state, one entry per cgroup.
type wants struct {
	at   map[string]*tick.Cgroup
	list []*tick.Cgroup
}

func (w *wants) of(path string) *tick.Cgroup {
	if c := w.at[path]; c != nil {
		return c
	}
	if w.at == nil {
		w.at = map[string]*tick.Cgroup{}
	}
	c := &tick.Cgroup{Cgroup: path}
	w.at[path] = c
	w.list = append(w.list, c)
	return c
}

func (w *wants) into(list *[]tick.Cgroup) {
	for _, c := range w.list {
		if keysOf(c) != 0 {
			*list = append(*list, *c)
		}
	}
}

// hold pins the batch pods to a set of CPUs. If kubelet manages no CPUs, its cgroup of BestEffort pods and the pods' own cgroups are
// narrowed, too, so that a new container is confined from its start; if it manages CPUs, or may, only the containers are, because kubelet
// could not start the next one in a narrowed cgroup (Koordinator's issues 395, 546, 556).
func (v *view) hold(want *wants, be set) (reasons []string) {
	if v.tier != nil && !v.above {
		reasons = append(reasons, fmt.Sprintf("suppression: only containers are narrowed, not %s: kubelet's CPU manager policy is %s",
			clip.Text(v.tier.Cgroup, shownBytes), clip.Text(cmp.Or(v.cpuManager, "not known"), shownBytes)))
	}
	v.confine(want, be)
	return reasons
}

func (v *view) confine(want *wants, be set) {
	list := be.String()
	if v.tier != nil && v.above {
		want.of(v.tier.Cgroup).CPUSetCPUs = list
	}
	for i := range v.pods {
		p := &v.pods[i]
		if !p.suppressed {
			continue
		}
		if p.own != "" && (p.rule || v.above) {
			want.of(p.own).CPUSetCPUs = list
		}
		for _, j := range p.containers {
			want.of(p.Containers[j].Cgroup).CPUSetCPUs = list
		}
	}
}

// floor returns the fallback for when advice stops: the batch pods at their minimum. It only takes CPUs away; if nothing was decided, it
// omits CPUs that others have got since.
func (v *view) floor(now limit) *wants {
	w := &wants{}
	if now.mode == sloconfig.SuppressCPUSet {
		be := parse(now.cpus).Intersection(v.Online).Difference(v.out)
		if be.IsEmpty() {
			be = v.full()
		}
		v.confine(w, cpus.New(v.TakePairs(be, minCPUs)...))
	}
	if now.quotaMilliCPU > 0 {
		v.divide(w, minQuotaMilliCPU, false)
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
	for _, of := range []struct {
		key    keys
		wanted bool
	}{
		{keyCPUs, c.CPUSetCPUs != ""},
		{keyQuota, c.CPUMaxMilliCPU != nil},
		{keyWeight, c.CPUWeight != nil},
		{keyMemory, c.MemoryMaxBytes != nil},
		{keyIdle, c.CPUIdle != nil},
	} {
		if of.wanted {
			k |= of.key
		}
	}
	return k
}

// place is the pod or container that a cgroup belongs to.
type place struct {
	pod       *pod
	container *tick.Container // nil for the pod's own cgroup
}

// held is what was desired of a cgroup.
type held struct {
	revert.Last
	Keys keys `json:"keys"`
}

// UnmarshalJSON also reads only the keys, the format of a state file of version 0.1.
func (h *held) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &h.Keys) == nil {
		return nil
	}
	type plain held
	return json.Unmarshal(data, (*plain)(h))
}

// undo adds the neutral value of what was desired before and no longer is, for [revert.For]: whether the value was ever written is unknown.
// If nothing was decided, lists and quotas stay. It returns the cgroups whose desired quota only undoes an earlier one.
func (v *view) undo(want *wants, before *revert.Cgroups[held, *held], decided bool, now time.Time) (yields map[string]bool) {
	wanted := make(map[string]keys, len(want.list))
	for _, w := range want.list {
		if k := keysOf(w); k != 0 {
			wanted[w.Cgroup] = k
		}
	}
	places := v.places()
	for _, path := range slices.Sorted(maps.Keys(*before)) {
		was := (*before)[path]
		at, isLive := places[path]
		isTier := path == v.path
		switch {
		case was == nil, !isTier && !isLive && len(v.sample.Pods) > 0:
			delete(*before, path)
			continue
		case isTier && v.tier == nil, !isTier && !isLive, // missing in this sample
			!isTier && (at.pod.Missing == tick.MissingCluster || at.container != nil && !at.pod.rule && unnamed(at.container)):
			// Its requests are unknown at present: it stays unchanged.
			was.At = now
			continue
		}
		undone := was.Keys &^ wanted[path]
		if !decided {
			undone &^= keyCPUs | keyQuota
			was.At = now
		}
		if undone == 0 {
			continue
		}
		v.neutral(want.of(path), at, undone)
		if undone&keyQuota != 0 {
			if yields == nil {
				yields = map[string]bool{}
			}
			yields[path] = at.pod != nil
		}
	}
	for path, k := range wanted {
		h := before.Remember(path)
		h.Keys, h.At = h.Keys|k, now
	}
	before.Forget(now)
	return yields
}

// places returns the cgroups of the existing pods and of their containers.
func (v *view) places() map[string]place {
	places := make(map[string]place, 3*len(v.pods))
	for i := range v.pods {
		p := &v.pods[i]
		if p.Missing != tick.MissingCgroup && p.Cgroup != "" {
			places[p.Cgroup] = place{pod: p}
		}
		for _, j := range p.containers {
			places[p.Containers[j].Cgroup] = place{p, &p.Containers[j]}
		}
	}
	return places
}

// widenForgotten widens a confined tier without an entry in the state (the state was lost, or another program confined it) to its size
// without suppression, as Koordinator does each time. After --contest external changes isolate leaves the value to the other writer.
func (v *view) widenForgotten(want *wants, l limit) (reasons []string) {
	if v.tier == nil {
		return nil
	}
	if now := v.tier.CPUMaxMilliCPU; now != nil && *now > 0 && l.quotaMilliCPU == 0 {
		if w := want.of(v.tier.Cgroup); w.CPUMaxMilliCPU == nil {
			w.CPUMaxMilliCPU = tick.Ptr(int64(tick.Unlimited))
			reasons = append(reasons, fmt.Sprintf("suppression: %s has a quota of %dm that nothing asks for: it is lifted", clip.Text(v.tier.Cgroup, shownBytes), *now))
		}
	}
	if !v.above || l.mode == sloconfig.SuppressCPUSet || len(v.sample.Pods) == 0 || policy.PodsUnknown(v.sample) {
		return reasons
	}
	to := v.full()
	for i := range v.sample.Tiers { // it cannot be wider than its parent
		if t := &v.sample.Tiers[i]; t.Name == tick.TierPods {
			if within := to.Intersection(parse(t.CPUSetCPUs)); !within.IsEmpty() {
				to = within
			}
		}
	}
	differs := func(list string) bool { now := parse(list); return !now.IsEmpty() && !now.Equals(to) }
	narrow, where := v.tier.CPUSetCPUs, clip.Text(v.tier.Cgroup, shownBytes)
	for i := range v.pods {
		if p := &v.pods[i]; p.suppressed && p.tier && !differs(narrow) {
			for _, j := range p.containers {
				if own := &p.Containers[j]; differs(own.CPUSetCPUs) {
					narrow, where = own.CPUSetCPUs, clip.Text(own.Cgroup, shownBytes)
					break
				}
			}
		}
	}
	if !differs(narrow) {
		return reasons
	}
	if want.of(v.tier.Cgroup).CPUSetCPUs == "" {
		reasons = append(reasons, fmt.Sprintf("suppression: %s has CPUs %s, and nothing asks for that: batch pods get %s",
			where, clip.Text(narrow, shownBytes), clip.Text(to.String(), shownBytes)))
	}
	v.confine(want, to)
	return reasons
}

func (v *view) neutral(w *tick.Cgroup, at place, undone keys) {
	requests, limits := (*tick.Resources)(nil), (*tick.Resources)(nil)
	switch {
	case at.container != nil:
		requests, limits = at.container.Requests, at.container.Limits
	case at.pod != nil:
		requests, limits = at.pod.Requests, at.pod.Limits
	}
	if requests == nil {
		requests = &tick.Resources{}
	}
	if limits == nil {
		limits = &tick.Resources{}
	}
	if undone&keyCPUs != 0 {
		if to := v.neutralCPUs(at); !to.IsEmpty() {
			w.CPUSetCPUs = to.String()
		}
	}
	if undone&keyQuota != 0 {
		w.CPUMaxMilliCPU = new(quotaOf(valueOf(limits.MilliCPU), 1))
	}
	if undone&keyMemory != 0 {
		w.MemoryMaxBytes = new(bytesOf(valueOf(limits.MemoryBytes)))
	}
	if undone&keyIdle != 0 {
		w.CPUIdle = new(false)
		if at.pod == nil || !at.pod.rule { // the kernel resets the weight to its default, but kubelet had set another one
			undone |= keyWeight
		}
	}
	if undone&keyWeight != 0 && w.CPUWeight == nil && (w.CPUIdle == nil || !*w.CPUIdle) {
		w.CPUWeight = new(policy.WeightOf(policy.SharesOf(valueOf(requests.MilliCPU)), v.sample.CgroupVersion))
	}
}

// neutralCPUs returns the CPUs that a cgroup is widened to; empty if it must be left alone. On version 1 isolate writes no list above
// containers while kubelet manages CPUs, and restores what it wrote before.
func (v *view) neutralCPUs(at place) set {
	above := at.pod == nil || at.pod.above(at.container)
	switch {
	case !above || v.above:
		return v.full()
	case v.cpuManager == "" || v.sample.CgroupVersion == 1:
		return set{}
	}
	return v.wide()
}

// above reports whether a pod's cgroup is one that kubelet created above containers.
func (p *pod) above(container *tick.Container) bool { return !p.rule && container == nil }

// wide returns all CPUs except those that kubelet gave to pods exclusively.
func (v *view) wide() set {
	if wide := v.Online.Difference(v.given); !wide.IsEmpty() {
		return wide
	}
	return v.Online
}

// widen makes kubelet's cgroup of BestEffort pods wide enough for the containers below, if it is not confined itself.
func (v *view) widen(want *wants, now limit) {
	if v.tier == nil || v.above || v.cpuManager == "" || now.mode != sloconfig.SuppressCPUSet {
		return
	}
	inForce := parse(v.tier.CPUSetCPUs)
	if be := parse(now.cpus); !inForce.IsEmpty() && !be.IsSubsetOf(inForce) {
		want.of(v.tier.Cgroup).CPUSetCPUs = v.wide().String()
	}
}
