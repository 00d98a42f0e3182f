package kubernetes

import (
	"cmp"
	"slices"

	"polder/lib/tick"
)

// maxInTick bounds what tenants write of all pods in a tick: their labels and annotations, and the errors in these and in the rest. The
// next stage drops a tick that is longer than [tick.DefaultMaxLine], so that without a bound anybody who creates many pods on a node,
// which need not even start, could keep it from all advice.
const maxInTick = tick.DefaultMaxLine / 4

// maxProtection bounds the value of a protecting annotation where even those that decide are left out.
const maxProtection = 256

// Errors of pods of which something is left out because of the bound of all pods.
const (
	othersLeftOut = "labels and annotations that decide nothing" + tooLong
	allLeftOut    = "labels and annotations that do not protect it" + tooLong
	tooLong       = ", and further errors, are left out: those of all pods are too long for a tick"
)

// Within returns the pods with what tenants write of them within the bound of a tick. Of the pods that have most of it everything is left
// out that decides and protects nothing, until the rest fits; if that of all pods is not enough, also what decides. Pods that have ended
// do not count: they have no cgroup, or not for long.
func Within(pods []*Pod) []*Pod { return within(pods, maxInTick) }

func within(pods []*Pod, bound int) []*Pod {
	total := 0
	for _, p := range pods {
		if !p.Tick.Ended() {
			total += p.size
		}
	}
	if total <= bound {
		return pods
	}
	out := slices.Clone(pods) // the list belongs to others
	order := make([]int, 0, len(pods))
	for i, p := range pods {
		if !p.Tick.Ended() {
			order = append(order, i)
		}
	}
	for _, kept := range []rank{deciding, protecting} {
		slices.SortFunc(order, func(i, j int) int { // by the UID, too, so that two ticks have the same
			return cmp.Or(cmp.Compare(out[j].size, out[i].size), cmp.Compare(out[i].Tick.UID, out[j].Tick.UID))
		})
		for _, i := range order {
			if total <= bound {
				return out
			}
			if c := pods[i].reduced(kept); c.size < out[i].size {
				total -= out[i].size - c.size
				out[i] = c
			}
		}
	}
	return out
}

// reduced is a copy of the pod without the labels and annotations of the ranks after kept, and with an error that says so in place of its
// other errors, of which the first stays.
func (p *Pod) reduced(kept rank) *Pod {
	c := *p
	own := marks{map[string]string{}, map[string]string{}}
	for key, value := range p.Tick.Labels {
		if p.ranks.label(key) <= kept {
			own.labels[key] = value
		}
	}
	for key, value := range p.Tick.Annotations {
		r, _ := p.ranks.annotation(key)
		if r > kept {
			continue
		}
		if kept == protecting && len(value) > maxProtection {
			value = ""
		}
		own.annotations[key] = value
	}
	own = own.withoutEmpty()
	c.Tick.Labels, c.Tick.Annotations = own.labels, own.annotations
	notice := othersLeftOut
	if kept == protecting {
		notice = allLeftOut
	}
	c.Tick.Errors = append(slices.Clone(p.Tick.Errors[:min(1, len(p.Tick.Errors))]), notice)
	c.size = written(&c.Tick)
	return &c
}

// written is the size in JSON of what tenants write of a pod without a bound of its own.
func written(t *tick.Pod) int {
	size := marks{t.Labels, t.Annotations}.size()
	for _, problem := range t.Errors {
		size += encoded(problem) + len(`"",`)
	}
	return size
}
