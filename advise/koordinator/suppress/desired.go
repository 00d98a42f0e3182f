package suppress

import (
	"maps"
	"slices"

	"polder/advise/policy"
	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// wants collects the wanted state, one entry a cgroup.
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

// hold wants the batch pods on a set of CPUs. Where kubelet manages no CPUs its cgroup of BestEffort pods and the pods' own are
// narrowed, too, so that a new container is there from its first moment; where it does, or may, the containers alone are: kubelet
// could not start the next one in a narrowed cgroup (Koordinator's issues 395, 546, 556).
func (c *call) hold(be set) {
	if c.tier != nil && !c.above {
		policy := c.policy
		if policy == "" {
			policy = "not known"
		}
		c.say("suppression: only containers are narrowed, not %s: kubelet's CPU manager policy is %s", clip.Text(c.tier.Cgroup, shownBytes), clip.Text(policy, shownBytes))
	}
	c.holdIn(&c.want, be)
}

func (c *call) holdIn(w *wants, be set) {
	list := be.String()
	if c.tier != nil && c.above {
		w.of(c.tier.Cgroup).CPUSetCPUs = list
	}
	for i := range c.pods {
		p := &c.pods[i]
		if !p.held {
			continue
		}
		if p.own != "" && (p.rule || c.above) {
			w.of(p.own).CPUSetCPUs = list
		}
		for _, j := range p.containers {
			w.of(p.Containers[j].Cgroup).CPUSetCPUs = list
		}
	}
}

// floor is what should hold when advise falls silent: the batch pods at their minimum. It only takes; where nothing was decided,
// CPUs that somebody else has by now are left out.
func (c *call) floor() {
	var w wants
	if c.st.Mode == sloconfig.SuppressCPUSet {
		be := parse(c.st.CPUs).Intersection(c.Online).Difference(c.out)
		if be.IsEmpty() {
			be = c.full()
		}
		c.holdIn(&w, cpus.New(c.TakePairs(be, minCPUs)...))
	}
	if c.st.QuotaMilliCPU > 0 {
		c.divideIn(&w, minQuotaMilliCPU, false)
	}
	w.into(&c.a.Fallback)
}

// keys are those of a cgroup that this package wants.
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

// place is what a cgroup is of: a pod's own, or its container's.
type place struct {
	pod       *pod
	container *tick.Container // nil for the pod's own
}

// undo wants the neutral value of what was once wanted and no longer is, for as long as the cgroup is there: whether it was ever
// written cannot be seen. Where nothing was decided, lists and quotas stay.
func (c *call) undo(decided bool) {
	held := make(map[string]keys, len(c.want.list))
	for _, w := range c.want.list {
		if k := keysOf(w); k != 0 {
			held[w.Cgroup] = k
		}
	}
	places := make(map[string]place, 3*len(c.pods))
	for i := range c.pods {
		p := &c.pods[i]
		if p.Missing != tick.MissingCgroup && p.Cgroup != "" {
			places[p.Cgroup] = place{pod: p}
		}
		for _, j := range p.containers {
			places[p.Containers[j].Cgroup] = place{p, &p.Containers[j]}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(c.st.Held)) {
		was := c.st.Held[path]
		at, live := places[path]
		switch isTier := path == c.st.Tier; {
		case isTier && c.tier == nil, !isTier && len(c.sample.Pods) == 0: // not seen this time
			held[path] |= was
			continue
		case !isTier && !live:
			continue
		case !isTier && (at.pod.Missing == tick.MissingCluster || at.container != nil && !at.pod.rule && unnamed(at.container)):
			// What it asked for is not known (yet, or any more): it stays as it is.
			held[path] |= was
			continue
		}
		gone := was &^ held[path]
		held[path] |= was
		if !decided {
			gone &^= keyCPUs | keyQuota
		}
		if gone != 0 {
			c.neutral(c.want.of(path), at, gone)
		}
	}
	c.st.Held = held
	c.widen()
	if decided {
		c.widenForgotten()
	}
}

// widenForgotten wants a tier that is held, though nothing of what was advised is remembered (the state was lost, or somebody else held
// it), as wide as it is without suppression, as Koordinator does each time. After --contest external changes the value is left to the other
// writer: isolate leaves it to him.
func (c *call) widenForgotten() {
	if c.tier == nil {
		return
	}
	if now := c.tier.CPUMaxMilliCPU; now != nil && *now > 0 && c.st.QuotaMilliCPU == 0 {
		if w := c.want.of(c.tier.Cgroup); w.CPUMaxMilliCPU == nil {
			w.CPUMaxMilliCPU = tick.Ptr(int64(tick.Unlimited))
			c.say("suppression: %s has a quota of %dm that nothing asks for: it is lifted", clip.Text(c.tier.Cgroup, shownBytes), *now)
		}
	}
	if !c.above || c.st.Mode == sloconfig.SuppressCPUSet || len(c.sample.Pods) == 0 || policy.PodsUnknown(c.sample) {
		return
	}
	to := c.full()
	for i := range c.sample.Tiers { // it cannot be wider than the one above
		if t := &c.sample.Tiers[i]; t.Name == tick.TierPods {
			if within := to.Intersection(parse(t.CPUSetCPUs)); !within.IsEmpty() {
				to = within
			}
		}
	}
	differs := func(list string) bool { now := parse(list); return !now.IsEmpty() && !now.Equals(to) }
	narrow, where := c.tier.CPUSetCPUs, clip.Text(c.tier.Cgroup, shownBytes)
	for i := range c.pods {
		if p := &c.pods[i]; p.held && p.tier && !differs(narrow) {
			for _, j := range p.containers {
				if own := &p.Containers[j]; differs(own.CPUSetCPUs) {
					narrow, where = own.CPUSetCPUs, clip.Text(own.Cgroup, shownBytes)
					break
				}
			}
		}
	}
	if !differs(narrow) {
		return
	}
	if c.want.of(c.tier.Cgroup).CPUSetCPUs == "" {
		c.say("suppression: %s has CPUs %s, and nothing asks for that: batch pods get %s", where, clip.Text(narrow, shownBytes), clip.Text(to.String(), shownBytes))
	}
	c.holdIn(&c.want, to)
}

func (c *call) neutral(w *tick.Cgroup, at place, gone keys) {
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
	if gone&keyCPUs != 0 {
		if to := c.neutralCPUs(at); !to.IsEmpty() {
			w.CPUSetCPUs = to.String()
		}
	}
	if gone&keyQuota != 0 {
		w.CPUMaxMilliCPU = new(quotaOf(valueOf(limits.MilliCPU), 1))
		if c.st.yields == nil {
			c.st.yields = map[string]bool{}
		}
		c.st.yields[w.Cgroup] = at.pod != nil
	}
	if gone&keyMemory != 0 {
		w.MemoryMaxBytes = new(bytesOf(valueOf(limits.MemoryBytes)))
	}
	if gone&keyIdle != 0 {
		w.CPUIdle = new(false)
		if at.pod == nil || !at.pod.rule { // the kernel makes the weight its default, and kubelet had given it another one
			gone |= keyWeight
		}
	}
	if gone&keyWeight != 0 && w.CPUWeight == nil && (w.CPUIdle == nil || !*w.CPUIdle) {
		w.CPUWeight = new(policy.WeightOf(policy.SharesOf(valueOf(requests.MilliCPU)), c.sample.CgroupVersion))
	}
}

// neutralCPUs is what a cgroup is widened to; empty where it must be left alone. On version 1 isolate writes no list above
// containers while kubelet manages CPUs, and puts back what it wrote before.
func (c *call) neutralCPUs(at place) set {
	above := at.pod == nil || at.pod.above(at.container)
	switch {
	case !above || c.above:
		return c.full()
	case c.policy == "" || c.sample.CgroupVersion == 1:
		return set{}
	}
	return c.wide()
}

// above reports whether a pod's cgroup is one that kubelet made above containers.
func (p *pod) above(container *tick.Container) bool { return !p.rule && container == nil }

// wide is all CPUs but those that kubelet gave away.
func (c *call) wide() set {
	if wide := c.Online.Difference(parse(c.st.Given)); !wide.IsEmpty() {
		return wide
	}
	return c.Online
}

// widen wants kubelet's cgroup of BestEffort pods wide enough for the containers below, where it is not held itself.
func (c *call) widen() {
	if c.tier == nil || c.above || c.policy == "" || c.st.Mode != sloconfig.SuppressCPUSet {
		return
	}
	inForce := parse(c.tier.CPUSetCPUs)
	if be := parse(c.st.CPUs); !inForce.IsEmpty() && !be.IsSubsetOf(inForce) {
		c.want.of(c.tier.Cgroup).CPUSetCPUs = c.wide().String()
	}
}
