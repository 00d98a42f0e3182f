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
	class          string // from its priority
	isHighPriority bool   // neither batch nor free
	isProd         bool   // its unused request may be offered to mid pods
	isInCluster    bool   // to the API server; another pod exists, but its requests are unknown
	isLSE          bool
	current        amounts       // use in this tick
	isCurrentKnown resourceFlags // whether current is known

	request     amounts
	used        amounts       // average use
	isUsedKnown resourceFlags // whether used is known
}

// podOf returns the data of a pod; false if it has ended: the rest of its use counts as the system's.
func podOf(p *tick.Pod, c *sloconfig.Colocation) (pod, bool) {
	if p.Ended() {
		return pod{}, false
	}
	class := qos.PriorityClassOrDefault(p)
	result := pod{
		Pod: p, class: class, isHighPriority: class != qos.Batch && class != qos.Free || hasUntrustedPriority(p),
		isInCluster: p.Missing != tick.MissingCluster,
		isLSE:       qos.Koordinator(p) == qos.LSE,
	}
	result.isProd = class == qos.Prod && result.isInCluster && !p.Terminating
	for r := range resources {
		result.request[r], _ = wholeNumber(valueOf(p.Requests, r))
	}
	result.current[cpu], result.isCurrentKnown[cpu] = wholeNumber(p.UsageMilliCPU)
	result.current[memory], result.isCurrentKnown[memory] = memoryOf(p.Memory, c)
	return result, true
}

// hasUntrustedPriority reports whether a pod that is not suppressed has a low class only by its label, which any user may write: a pod that
// is not confined is counted. (The API server validates spec.priority.)
func hasUntrustedPriority(p *tick.Pod) bool {
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
	anonymous, ok := wholeNumber(m.RSSBytes)
	switch cache, isCacheKnown := wholeNumber(m.CacheBytes); {
	case withPageCache(c) && ok && isCacheKnown:
		return add(anonymous, cache), true
	case withPageCache(c):
		return wholeNumber(m.UsageBytes)
	case ok:
		return anonymous, true
	}
	return wholeNumber(m.WorkingSetBytes)
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
	total, ok := wholeNumber(m.TotalBytes)
	available, isFreeKnown := wholeNumber(free)
	return max(total-available, 0), ok && isFreeKnown
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

// slotCount is the number of slots of a sample window, which leave the average one by one, and minSlotWidth their least width.
const (
	slotCount    = 20
	minSlotWidth = 5 * time.Second
)

// windowOf returns the length of the sample window; Koordinator's agent uses at least a minute.
func windowOf(c *sloconfig.Colocation) time.Duration {
	return time.Duration(sloconfig.Within(c.MetricAggregateDurationSeconds, 300, 60, 86400)) * time.Second
}

// observe adds the use of the node and its pods. If the node's use is unknown it returns what is missing.
func (st *State) observe(t *tick.Tick, c *sloconfig.Colocation) string {
	u := &st.Uses
	slotsChange := u.advance(t.Time, windowOf(c))
	for r := range resources {
		u.Node[r].applyChange(slotsChange, len(u.At))
		u.System[r].applyChange(slotsChange, len(u.At))
	}
	podsUse := st.observePods(t, c, slotsChange)

	var current amounts
	var isKnown resourceFlags
	if t.Sample.CPU != nil {
		current[cpu], isKnown[cpu] = wholeNumber(t.Sample.CPU.UsageMilliCPU)
	}
	current[memory], isKnown[memory] = nodeMemory(t.Sample.Memory, c)
	var system amounts
	for r := range resources {
		if isKnown[r] {
			system[r] = max(subtract(current[r], podsUse[r]), 0)
			u.Node[r].add(current[r])
			u.System[r].add(system[r])
		}
	}
	st.History.observe(t.Time, st.pods, system, isKnown)
	switch {
	case isKnown[cpu] && isKnown[memory]:
		return ""
	case t.Sample.IntervalSeconds == nil && isKnown[memory]:
		return "first reading, there are no rates yet"
	case isKnown[memory]:
		return "the node's CPU use is unknown"
	case isKnown[cpu]:
		return "the node's memory in use is unknown"
	}
	return "the node's use is unknown"
}

// observePods adds the pods' use, and returns the sum; slotsChange is as for applyChange.
func (st *State) observePods(t *tick.Tick, c *sloconfig.Colocation, slotsChange change) (total amounts) {
	u := &st.Uses
	st.pods = st.pods[:0]
	if u.Pods == nil {
		u.Pods = make(map[string]*podUses, len(t.Sample.Pods))
	}
	for i := range t.Sample.Pods {
		p, isRunning := podOf(&t.Sample.Pods[i], c)
		if !isRunning {
			continue
		}
		id := policy.Identity(p.Pod)
		podSeries := u.Pods[id]
		if podSeries == nil {
			podSeries = &podUses{}
			u.Pods[id] = podSeries
		}
		for r := range resources {
			podSeries[r].applyChange(slotsChange, len(u.At))
			if p.isCurrentKnown[r] {
				podSeries[r].add(p.current[r])
				total[r] = add(total[r], p.current[r])
			}
			p.used[r], p.isUsedKnown[r] = podSeries[r].average()
		}
		st.pods = append(st.pods, p)
	}
	if len(u.Pods) > len(st.pods) {
		u.removeEnded(st.pods)
	}
	return total
}

// removeEnded removes the pods that no longer exist.
func (u *uses) removeEnded(pods []pod) {
	existing := make(map[string]*podUses, len(pods))
	for i := range pods {
		id := policy.Identity(pods[i].Pod)
		existing[id] = u.Pods[id]
	}
	u.Pods = existing
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
		if pods[i].isHighPriority {
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
	request, used := equalPart(p.request[r], n), equalPart(p.used[r], n)
	switch {
	case !p.isInCluster:
		s.notInCluster = add(s.notInCluster, used)
		s.nNotInCluster++
		s.uses, s.larger = add(s.uses, used), add(s.larger, used)
		return
	case !p.isUsedKnown[r]:
		used = request
		s.requested = add(s.requested, request)
		s.nRequested++
		s.larger = add(s.larger, request)
	case p.isLSE && r == cpu && request > 0:
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

// text explains the pods' term.
func (s *podSum) text(policy string, amount func(int64) string) string {
	count := s.nMeasured + s.nRequested + s.nExclusive
	switch policy {
	case sloconfig.CalculateRequest:
		return fmt.Sprintf(" (requests of %d)", count)
	case sloconfig.CalculateMaxUsageRequest:
		return fmt.Sprintf(" (the larger of request and usage of %d, %s)", count, notInClusterText(s, amount))
	}
	var list []string
	for _, part := range []struct {
		n    int
		v    int64
		text string
	}{{s.nMeasured, s.measured, "used by %d"}, {s.nExclusive, s.exclusive, "of %d LSE"}, {s.nRequested, s.requested, "requested by %d without metric"}, {s.nNotInCluster, s.notInCluster, "used by %d unknown to the cluster"}} {
		if part.n > 0 {
			list = append(list, amount(part.v)+" "+fmt.Sprintf(part.text, part.n))
		}
	}
	if list == nil {
		return ""
	}
	return " (" + strings.Join(list, " + ") + ")"
}

func notInClusterText(s *podSum, amount func(int64) string) string {
	return fmt.Sprintf("and %s used by %d unknown to the cluster", amount(s.notInCluster), s.nNotInCluster)
}
