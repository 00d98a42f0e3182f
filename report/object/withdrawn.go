package object

import (
	"fmt"
	"slices"
	"strings"

	"polder/lib/quantity"
	"polder/lib/tick"
)

// WithdrawnAnnotation marks a Node of which the fleet controller has withdrawn the reclaimed resources; its value is the reason. While
// it is set, the node's own report offers nothing, because the rest of its agent may not work.
const WithdrawnAnnotation = "polder/withdrawn"

// Mark is the reason why the fleet controller has withdrawn a Node's offer; it is empty where it has not.
func Mark(node map[string]any) string {
	reason, marked := at(node, "metadata", "annotations", WithdrawnAnnotation).(string)
	if marked && reason == "" {
		return "no reason given"
	}
	return reason
}

// longestReason bounds the part of a mark that is repeated, because everybody who may write the Node can have written it.
const longestReason = 200

// Withdrawn are the figures of a node whose offer the fleet controller has withdrawn: only its taints.
func (f Figures) Withdrawn(reason string) Figures {
	return Figures{Taints: f.Taints, Dialect: f.Dialect, IsIntended: true, Note: fmt.Sprintf("nothing is offered: the Node is marked %s: %.*s", WithdrawnAnnotation, longestReason, reason)}
}

// isPressureTaint reports whether a taint of a pressure keeps new reclaimed pods away.
func isPressureTaint(t tick.Taint) bool {
	return strings.HasPrefix(t.Key, TaintPrefix) && (strings.HasPrefix(t.Effect, "NoSchedule") || t.Effect == "NoExecute")
}

// LimitByTaint is a Node's offer: no more than its reclaimed pods request while a taint keeps new ones away, because no stock
// scheduler reads the taints of a CustomNodeResource. Where the pods are unknown, it is no more than the published offer.
func (f Figures) LimitByTaint(published Offer) Figures {
	i := slices.IndexFunc(f.Taints, isPressureTaint)
	if i < 0 {
		return f
	}
	limit, by := published, "is published (the pods are not in the sample)"
	if f.Requested != nil {
		limit, by = *f.Requested, "the reclaimed pods request"
	}
	f.ReducedByTaint = true
	f.Note = fmt.Sprintf("no more is offered than what %s; taint %.300s:%.63s", by, f.Taints[i].Key, f.Taints[i].Effect)
	f.Reclaimed, f.Mid = leastOf(f.Reclaimed, limit.Reclaimed), leastOf(f.Mid, limit.Mid)
	return f
}

// leastOf is the smaller amount of each resource.
func leastOf(a, b Amounts) Amounts {
	return Amounts{least(a.MilliCPU, b.MilliCPU), least(a.MemoryBytes, b.MemoryBytes)}
}

// least is the smaller one, unknown where either is.
func least(a, b *int64) *int64 {
	if a == nil || b == nil {
		return nil
	}
	return new(min(*a, *b))
}

// NodeTaints are the figures of a Node's taints.
func (f Figures) NodeTaints() Figures {
	t := Figures{OnlyTaints: true}
	if f.Taints != nil {
		var rejected []string
		t.IsIntended = true
		if t.Taints, rejected = forNode(f.Taints); len(rejected) > 0 {
			t.Note = fmt.Sprintf("not for a Node: taint %.500s (want a key under %s and the effect NoSchedule, PreferNoSchedule or NoExecute)", strings.Join(rejected, ", "), TaintPrefix)
		}
	}
	return t
}

// NodeOffer is what a Node's status offers to reclaimed pods under a dialect's names.
func NodeOffer(node map[string]any, d Dialect, prefix string) Offer {
	n := d.names(prefix)
	list, _ := at(node, "status", "allocatable").(map[string]any)
	amount := func(name string) *int64 {
		v, err := quantity.Integer(list[name])
		if list[name] == nil || err != nil {
			return nil
		}
		return whole(&v)
	}
	return Offer{Amounts{amount(n.milliCPU), amount(n.memory)}, Amounts{amount(n.midMilliCPU), amount(n.midMemory)}}
}

// requested is the sum of the requests of the reclaimed pods that are bound to the node and stay there; nil where it is unknown.
// A pod that is ending does not count: the scheduler would give its part to another one as soon as it has ended.
func requested(t *tick.Tick) *Offer {
	s := t.Sample
	if s == nil || s.IsUnread("pods") {
		return nil
	}
	gone := map[string]bool{}
	if e := t.Eviction; e != nil && !e.DryRun && e.Refused == "" {
		for _, x := range e.Evictions {
			if x.State == tick.StateRequested || x.State == tick.StateCreated {
				gone[x.UID] = true
			}
		}
	}
	var milliCPU, memory, midMilliCPU, midMemory int64
	for i := range s.Pods {
		p := &s.Pods[i]
		if !isConsumer(p) || p.Terminating || gone[p.UID] {
			continue
		}
		gone[p.UID] = true // a pod that is listed twice counts once
		for sum, request := range map[*int64]*float64{
			&milliCPU: p.Requests.ReclaimedMilliCPU, &memory: p.Requests.ReclaimedMemoryBytes,
			&midMilliCPU: p.Requests.MidMilliCPU, &midMemory: p.Requests.MidMemoryBytes,
		} {
			if v := whole(request); v != nil {
				*sum = min(*sum+*v, largest)
			}
		}
	}
	return &Offer{Amounts{&milliCPU, &memory}, Amounts{&midMilliCPU, &midMemory}}
}
