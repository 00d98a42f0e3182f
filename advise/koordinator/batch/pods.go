package batch

import (
	"fmt"
	"strings"
	"time"

	"polder/advise/policy"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// pod is the data of a pod that has not ended.
type pod struct {
	*tick.Pod
	class    string // from its priority
	high     bool   // neither batch nor free
	prod     bool   // its unused request may be offered to mid pods
	known    bool   // to the API server; another pod exists, but its requests are unknown
	lse      bool
	now      amounts // use in this tick
	measured has     // whether now is known

	request amounts
	used    amounts // average use
	metric  has     // whether used is known
}

// podOf returns the data of a pod; false if it has ended: the rest of its use counts as the system's.
func podOf(p *tick.Pod, c *sloconfig.Colocation) (pod, bool) {
	if p.Ended() {
		return pod{}, false
	}
	class := qos.PriorityClassOrDefault(p)
	one := pod{
		Pod: p, class: class, high: class != qos.Batch && class != qos.Free || pretends(p), known: p.Missing != tick.MissingCluster,
		lse: qos.Koordinator(p) == qos.LSE,
	}
	one.prod = class == qos.Prod && one.known && !p.Terminating
	for r := range resources {
		one.request[r], _ = whole(pick(p.Requests, r))
	}
	one.now[cpu], one.measured[cpu] = whole(p.UsageMilliCPU)
	one.now[memory], one.measured[memory] = memoryOf(p.Memory, c)
	return one, true
}

// pretends reports whether a pod that is not suppressed has a low class only by its label, which any user may write: a pod that is not
// confined is counted. (The API server validates spec.priority.)
func pretends(p *tick.Pod) bool {
	if _, labeled := p.Labels[qos.KoordinatorPriorityClass]; !labeled || qos.Koordinator(p) == qos.BE ||
		qos.KubernetesOf(p) == qos.BestEffort {
		return false
	}
	admitted := *p
	admitted.Labels = nil
	class := qos.PriorityClass(&admitted)
	return class != qos.Batch && class != qos.Free
}

// memoryOf returns a pod's memory in use: its anonymous pages, and the page cache if that counts. Its other memory, such as the kernel's
// for it, counts as the system's, because the node's total includes it.
func memoryOf(m *tick.Memory, c *sloconfig.Colocation) (int64, bool) {
	if m == nil {
		return 0, false
	}
	anonymous, ok := whole(m.RSSBytes)
	switch cache, known := whole(m.CacheBytes); {
	case withPageCache(c) && ok && known:
		return add(anonymous, cache), true
	case withPageCache(c):
		return whole(m.UsageBytes)
	case ok:
		return anonymous, true
	}
	return whole(m.WorkingSetBytes)
}

// nodeMemory returns the node's memory in use, by the same measure.
func nodeMemory(m *tick.NodeMemory, c *sloconfig.Colocation) (int64, bool) {
	if m == nil {
		return 0, false
	}
	free := m.AvailableBytes
	if withPageCache(c) {
		free = m.FreeBytes
	}
	total, ok := whole(m.TotalBytes)
	left, known := whole(free)
	return max(total-left, 0), ok && known
}

func withPageCache(c *sloconfig.Colocation) bool {
	return c.MetricMemoryCollectPolicy != nil && *c.MetricMemoryCollectPolicy == sloconfig.UsageWithPageCache
}

// uses are the values of the sample window.
type uses struct {
	slots
	Node   [resources]series   `json:"node"`
	System [resources]series   `json:"system"` // the node's less the pods'
	Pods   map[string]*podUses `json:"pods,omitempty"`
}

type podUses [resources]series

// parts is the number of slots of a sample window, which leave the average one by one, and minWidth their least width.
const (
	parts    = 20
	minWidth = 5 * time.Second
)

// windowOf returns the length of the sample window; Koordinator's agent uses at least a minute.
func windowOf(c *sloconfig.Colocation) time.Duration {
	return time.Duration(sloconfig.Within(c.MetricAggregateDurationSeconds, 300, 60, 86400)) * time.Second
}

// observe adds the use of the node and its pods. If the node's use is unknown it returns what is missing.
func (st *State) observe(t *tick.Tick, c *sloconfig.Colocation) string {
	u := &st.Uses
	begun := u.advance(t.Time, windowOf(c))
	for r := range resources {
		u.Node[r].follow(begun, len(u.At))
		u.System[r].follow(begun, len(u.At))
	}
	all := st.observePods(t, c, begun)

	var now amounts
	var measured has
	if t.Sample.CPU != nil {
		now[cpu], measured[cpu] = whole(t.Sample.CPU.UsageMilliCPU)
	}
	now[memory], measured[memory] = nodeMemory(t.Sample.Memory, c)
	var system amounts
	for r := range resources {
		if measured[r] {
			system[r] = max(less(now[r], all[r]), 0)
			u.Node[r].note(now[r])
			u.System[r].note(system[r])
		}
	}
	st.History.observe(t.Time, st.pods, system, measured)
	switch {
	case measured[cpu] && measured[memory]:
		return ""
	case t.Sample.IntervalSeconds == nil && measured[memory]:
		return "first reading, there are no rates yet"
	case measured[memory]:
		return "the node's CPU use is not known"
	case measured[cpu]:
		return "the node's memory in use is not known"
	}
	return "the node's use is not known"
}

// observePods adds the pods' use, and returns the sum; begun is as for follow.
func (st *State) observePods(t *tick.Tick, c *sloconfig.Colocation, begun change) (all amounts) {
	u := &st.Uses
	st.pods = st.pods[:0]
	if u.Pods == nil {
		u.Pods = make(map[string]*podUses, len(t.Sample.Pods))
	}
	for i := range t.Sample.Pods {
		p, runs := podOf(&t.Sample.Pods[i], c)
		if !runs {
			continue
		}
		id := policy.Identity(p.Pod)
		own := u.Pods[id]
		if own == nil {
			own = &podUses{}
			u.Pods[id] = own
		}
		for r := range resources {
			own[r].follow(begun, len(u.At))
			if p.measured[r] {
				own[r].note(p.now[r])
				all[r] = add(all[r], p.now[r])
			}
			p.used[r], p.metric[r] = own[r].average()
		}
		st.pods = append(st.pods, p)
	}
	if len(u.Pods) > len(st.pods) {
		u.forget(st.pods)
	}
	return all
}

// forget removes the pods that no longer exist.
func (u *uses) forget(pods []pod) {
	present := make(map[string]*podUses, len(pods))
	for i := range pods {
		id := policy.Identity(pods[i].Pod)
		present[id] = u.Pods[id]
	}
	u.Pods = present
}

// podSum is the high-priority pods' amount of one resource, by each policy: their requests, their uses, and the sum of the larger of the
// two of each pod.
type podSum struct {
	requests, uses, larger int64
	// Components of the uses, and the number of pods in each.
	measured, requested, exclusive, notInCluster     int64
	nMeasured, nRequested, nExclusive, nNotInCluster int
}

// sum adds up the high-priority pods.
func sum(pods []pod) (s [resources]podSum) {
	for i := range pods {
		if pods[i].high {
			for r := range resources {
				s[r].count(&pods[i], r, 1)
			}
		}
	}
	return s
}

// count adds a pod, or one of n equal parts of it. A pod without a metric counts with its request under every policy: Koordinator omits it
// (maxUsageRequest) and so does not see new services.
func (s *podSum) count(p *pod, r resource, n int) {
	request, used := shared(p.request[r], n), shared(p.used[r], n)
	switch {
	case !p.known:
		s.notInCluster = add(s.notInCluster, used)
		s.nNotInCluster++
		s.uses, s.larger = add(s.uses, used), add(s.larger, used)
		return
	case !p.metric[r]:
		used = request
		s.requested = add(s.requested, request)
		s.nRequested++
		s.larger = add(s.larger, request)
	case p.lse && r == cpu && request > 0:
		used = max(request, used) // no other pod may use its CPUs
		s.exclusive = add(s.exclusive, used)
		s.nExclusive++
		s.larger = add(s.larger, used)
	default:
		s.measured = add(s.measured, used)
		s.nMeasured++
		s.larger = add(s.larger, max(request, used))
	}
	s.requests = add(s.requests, request)
	s.uses = add(s.uses, used)
}

// parts explains the pods' term.
func (s *podSum) parts(policy string, amount func(int64) string) string {
	known := s.nMeasured + s.nRequested + s.nExclusive
	switch policy {
	case sloconfig.CalculateRequest:
		return fmt.Sprintf(" (requests of %d)", known)
	case sloconfig.CalculateMaxUsageRequest:
		return fmt.Sprintf(" (the larger of request and usage of %d, %s)", known, unknown(s, amount))
	}
	var list []string
	for _, part := range []struct {
		n    int
		v    int64
		text string
	}{{s.nMeasured, s.measured, "used by %d"}, {s.nExclusive, s.exclusive, "of %d LSE"}, {s.nRequested, s.requested, "requested by %d without metric"}, {s.nNotInCluster, s.notInCluster, "used by %d that the cluster does not know"}} {
		if part.n > 0 {
			list = append(list, amount(part.v)+" "+fmt.Sprintf(part.text, part.n))
		}
	}
	if list == nil {
		return ""
	}
	return " (" + strings.Join(list, " + ") + ")"
}

func unknown(s *podSum, amount func(int64) string) string {
	return fmt.Sprintf("and %s used by %d that the cluster does not know", amount(s.notInCluster), s.nNotInCluster)
}
