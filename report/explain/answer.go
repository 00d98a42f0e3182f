package explain

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"polder/lib/clip"
	"polder/lib/phrase"
	"polder/lib/reason"
	"polder/lib/tick"
	"polder/report/amounts"
	"polder/report/view"
)

const (
	// fullPart is the used part of an allowance from which the allowance counts as what limits the pod.
	fullPart = 0.9
	// roomPart is the used part of CPUs up to which they have room for more, however their load is distributed.
	roomPart = 0.7
	// recent is how long a squeeze counts as a cause of the state at the time of the question.
	recent = time.Hour
	// leastNamed is the part of all needs from which a service is named.
	leastNamed = 0.01
	// mostListed bounds the lines of a list.
	mostListed = 8
)

// podAt answers about a pod at one time.
func (r *Recording) podAt(n *node, add func(string)) {
	t, p := n.current, n.pod
	a := allowanceOf(t, p)
	add(paragraph("Allowed", append(append([]string{describeClass(p)}, a.describe(t, p)...), used(p), inForce(t, p, a))...))
	add(paragraph("What held it back", r.held(t, p, a)))
	add(paragraph("Why no more", why(t, p)...))
	if p.QoS == tick.QoSReclaimed {
		add(paragraph("Which service", r.services(n, t)...))
		add(paragraph("Cold memory", n.describeCold(t)...))
		add(paragraph("Network", describeNetwork(t)...))
	}
	add(paragraph("Disk", describeDisks(t, p)...))
	add(paragraph("Throttled", describeThrottling(p)))
	add(r.evicted(n, t, p))
	add(paragraph("To change it", whatToChange(t, p)...))
	add(failures(t, p))
}

// nodeAt answers about a node at one time.
func (r *Recording) nodeAt(n *node, add func(string)) {
	t := n.current
	add(paragraph("Offered", offered(t)...))
	add(paragraph("Why no more", why(t, nil)...))
	add(paragraph("Which service", r.services(n, t)...))
	add(paragraph("Cold memory", n.describeCold(t)...))
	add(paragraph("Network", describeNetwork(t)...))
	add(paragraph("Disk", describeDisks(t, nil)...))
	add(r.throttledNow(t))
	add(r.evicted(n, t, nil))
	add(paragraph("To change it", whatToChange(t, nil)...))
	add(failures(t, nil))
}

// describeClass names the pod's class and where it comes from.
func describeClass(p *tick.Pod) string {
	from := map[string]string{
		tick.QoSFromKatalyst: "by its Katalyst labels", tick.QoSFromKoordinator: "by its Koordinator labels",
		tick.QoSFromKubernetes: "by its class in Kubernetes", tick.QoSFromRule: "by the classification rules",
	}[p.QoSSource]
	text := "Its class is " + clip.Clean(p.QoS)
	if from != "" {
		text += ", " + from
	}
	return text + "."
}

// inForce names the CPUs in force if they are not the advised ones.
func inForce(t *tick.Tick, p *tick.Pod, a allowance) string {
	if a.cpus == "" || t.Isolation != nil {
		return ""
	}
	for i := range p.Containers {
		if now := p.Containers[i].CPUSetCPUs; now != "" && now != a.cpus {
			return fmt.Sprintf("(The recording has no isolation: these are the advised CPUs, "+
				"those in force when the sample was taken were %s.)", brief(now))
		}
	}
	return ""
}

// held names the limit that the pod reached.
func (r *Recording) held(t *tick.Tick, p *tick.Pod, a allowance) string {
	use, throttle := p.UsageMilliCPU, amounts.Throttled(p)
	own := ownLimit(p)
	used, isKnown := onCPUs(t, a.cpus)
	waiting := p.Load1 != nil && use != nil && *p.Load1*1000 > *use*1.2+500
	switch {
	case use == nil:
		return "Its use is unknown, and so is what limited it."
	case throttle != nil && *throttle >= 1 && own != nil && (a.quota == nil || *own <= float64(*a.quota)):
		return fmt.Sprintf("Its own CPU limit of %s: it was throttled in %s %% of the periods.", coresOf(*own), phrase.Decimal(*throttle, 0))
	case throttle != nil && *throttle >= 1:
		return fmt.Sprintf("Its quota: it was throttled in %s %% of the periods.", phrase.Decimal(*throttle, 0))
	case a.quota != nil && a.quotaOf == "" && *use >= fullPart*float64(*a.quota):
		return fmt.Sprintf("Its quota: it used %s of %s.", coresNumber(*use), coresOf(float64(*a.quota)))
	case a.quotaOf != "" && inCgroup(t, a.quotaOf) >= fullPart*float64(*a.quota):
		used, quota := inCgroup(t, a.quotaOf), float64(*a.quota)
		return fmt.Sprintf("The quota of %s: the pods in it used %s of %s.", brief(a.quotaOf), coresNumber(used), coresOf(quota))
	case a.size > 0 && used >= fullPart*float64(a.size)*1000:
		return fmt.Sprintf("Its CPUs: the pods on them used %s of %s.", coresNumber(used), coresOf(float64(a.size)*1000))
	case a.size > 0 && isKnown && used < roomPart*float64(a.size)*1000:
		return fmt.Sprintf("Nothing: the pods on its CPUs used %s of %s.", coresNumber(used), coresOf(float64(a.size)*1000))
	case a.comesLast() && busy(t) >= fullPart:
		return fmt.Sprintf("Its class: the machine was %s %% busy, and %s gets only what the others leave.",
			phrase.Decimal(busy(t)*100, 0), a.class())
	case waiting && a.comesLast():
		return fmt.Sprintf("Its class, as far as the recording shows: threads were ready to run and waited, as those of %s do "+
			"while others run on the same CPUs.", a.class())
	case waiting:
		return "Threads were ready to run and waited, although no limit was reached: short waits that the averages do not show."
	case a.size > 0 && !isKnown:
		return "Unknown: what another pod on its CPUs used is unknown."
	}
	return "Nothing: it used less than it was allowed."
}

// onCPUs is the known use of the pods on a list of CPUs, and whether that of all of them is known.
func onCPUs(t *tick.Tick, list string) (milliCPU float64, isKnown bool) {
	isKnown = true
	for _, p := range podsOn(t, list) {
		switch {
		case p.UsageMilliCPU != nil:
			milliCPU += *p.UsageMilliCPU
		case !p.IsIdle():
			isKnown = false
		}
	}
	return milliCPU, isKnown
}

// inCgroup is the use of the pods below a cgroup.
func inCgroup(t *tick.Tick, cgroup string) (milliCPU float64) {
	for i := range t.Sample.Pods {
		if p := &t.Sample.Pods[i]; p.UsageMilliCPU != nil && tick.IsBelow(p.Cgroup, cgroup) {
			milliCPU += *p.UsageMilliCPU
		}
	}
	return milliCPU
}

// busy is the used part of the machine's CPU time.
func busy(t *tick.Tick) float64 {
	all := machine(t)
	if t.Sample.CPU == nil || t.Sample.CPU.UsageMilliCPU == nil || all == 0 {
		return 0
	}
	return *t.Sample.CPU.UsageMilliCPU / all
}

// offered describes the offer, and what reclaimed pods requested and used of it.
func offered(t *tick.Tick) []string {
	var s []string
	milliCPU, bytes := offerOf(t)
	switch {
	case t.Advice == nil:
		return []string{"This tick has no advice, so nothing was offered."}
	case milliCPU == nil && bytes == nil || milliCPU != nil && *milliCPU == 0:
		s = append(s, "Nothing: "+whyNothing(t)+".")
	default:
		var parts []string
		if milliCPU != nil {
			parts = append(parts, coresOf(*milliCPU))
		}
		if bytes != nil {
			parts = append(parts, bytesOf(*bytes)+" of memory")
		}
		s = append(s, list(parts)+" to reclaimed pods (policy "+clip.Clean(t.Advice.Policy)+").")
	}
	if t.Sample != nil {
		s = append(s, reclaimedPods(t.Sample))
	}
	if t.Report != nil {
		for _, x := range t.Report.Targets {
			switch {
			case x.Error != "":
				s = append(s, fmt.Sprintf("It did not reach %s (%s): %s.",
					clip.Clean(x.Target), clip.Clean(x.State), sentence(clip.Clean(x.Error))))
			case x.Note != "":
				s = append(s, fmt.Sprintf("%s got something else: %s.", clip.Clean(x.Target), sentence(clip.Clean(x.Note))))
			}
		}
	}
	if t.Eviction != nil {
		for _, x := range t.Eviction.Taints {
			s = append(s, fmt.Sprintf("The taint %s:%s keeps new pods away.", clip.Clean(x.Key), clip.Clean(x.Effect)))
		}
	}
	return s
}

// reclaimedPods describes what the reclaimed pods requested and used, without those that have ended.
func reclaimedPods(sample *tick.Sample) string {
	requested, use, pods, unknown := 0.0, 0.0, 0, 0
	for i := range sample.Pods {
		p := &sample.Pods[i]
		if p.QoS != tick.QoSReclaimed || p.Ended() {
			continue
		}
		pods++
		if p.Requests != nil && p.Requests.ReclaimedMilliCPU != nil {
			requested += *p.Requests.ReclaimedMilliCPU
		}
		switch {
		case p.UsageMilliCPU != nil:
			use += *p.UsageMilliCPU
		case !p.IsIdle():
			unknown++
		}
	}
	switch {
	case pods == 0:
		return "No reclaimed pod ran."
	case unknown > 0:
		return fmt.Sprintf("%s requested %s; what %d of them used is unknown.", phrase.Count(pods, "reclaimed pod"), coresOf(requested), unknown)
	}
	return fmt.Sprintf("%s requested %s and used %s.", phrase.Count(pods, "reclaimed pod"), coresNumber(requested), coresOf(use))
}

// whyNothing is why a tick offers nothing.
func whyNothing(t *tick.Tick) string {
	a := t.Advice
	switch {
	case a == nil:
		return "there was no advice"
	case a.Withdrawn != "":
		return "it was withdrawn: " + plain(a.Withdrawn)
	case a.Reclaimed == nil && len(a.Reasons) > 0:
		return "advise did not decide: " + plain(a.Reasons[0])
	case a.Reclaimed == nil:
		return "advise reported no offer"
	}
	if b, found := shareOf(a.Reasons); found {
		text := fmt.Sprintf("%s had %s", b.services(), coresOf(b.size()))
		if all := machine(t); all > 0 {
			text += " of " + coresOf(all)
		}
		if ns := needs(t); len(ns) > 0 {
			text += ", and " + ns[0].name + " needed most: " + ns[0].amount()
		}
		return text
	}
	if len(a.Reasons) > 0 {
		return plain(a.Reasons[max(slices.IndexFunc(a.Reasons, reason.IsOffer), 0)])
	}
	return "advise gives no reason"
}

// why is the policy's sum and its other reasons; about is nil for the node.
func why(t *tick.Tick, about *tick.Pod) []string {
	if t.Advice == nil {
		return []string{"This tick has no advice."}
	}
	var s []string
	if b, found := shareOf(t.Advice.Reasons); found {
		s = append(s, b.describe(machine(t)))
	}
	if x, found := suppressionOf(t.Advice.Reasons); found {
		s = append(s, describeSuppression(x))
	}
	if others := otherReasons(t, about, 6); len(others) > 0 {
		heading := "Advise adds: "
		if len(s) == 0 {
			heading = "Advise reports: "
		}
		s = append(s, heading+strings.Join(others, "; ")+".")
	}
	if len(s) == 0 {
		s = append(s, "Advise gives no reason.")
	}
	return s
}

// services names the services that needed most, and the last squeeze.
func (r *Recording) services(n *node, t *tick.Tick) []string {
	s := needed(t)
	if q := n.squeezes.last; q != nil && t.Time.Sub(q.to) <= recent {
		s = append(s, q.describe(r.amount(n), n.clock))
	}
	return s
}

// needed names the services that needed most.
func needed(t *tick.Tick) []string {
	var s []string
	ns := needs(t)
	total := sum(ns)
	switch {
	case len(ns) == 0:
		s = append(s, "No service ran.")
	case total == 0 && slices.ContainsFunc(ns, func(n need) bool { return n.isUnknown }):
		s = append(s, "What the services needed is unknown.")
	case total == 0:
		s = append(s, "No service needed anything.")
	default:
		text := ns[0].name + " needed most: " + ns[0].amount()
		if len(ns) > 1 {
			text += fmt.Sprintf(", %.0f %% of all services' need", 100*ns[0].milliCPU/total)
			var next []string
			for _, x := range ns[1:min(len(ns), 4)] {
				if x.milliCPU >= leastNamed*total {
					next = append(next, x.name+" "+x.amount())
				}
			}
			if len(next) > 0 {
				text += "; then " + list(next)
			}
			if more := len(ns) - 4; more > 0 {
				text += fmt.Sprintf("; %s more", phrase.Count(more, "service"))
			}
		}
		s = append(s, text+".")
	}
	return s
}

// amount names the amount whose falls are the squeezes.
func (r *Recording) amount(n *node) string {
	if r.name == "" && n.pooled {
		return "the pool of reclaimed pods"
	}
	if r.name != "" && n.allowed.number > 0 {
		return "what it was allowed"
	}
	return "the offer"
}

func describeThrottling(p *tick.Pod) string {
	switch v := amounts.Throttled(p); {
	case v == nil:
		return "Unknown: no container has the figure."
	case *v < 1:
		return "No: no quota stopped it."
	default:
		var parts []string
		for i := range p.Containers {
			if c := &p.Containers[i]; c.ThrottledPercent != nil && *c.ThrottledPercent >= 1 {
				parts = append(parts, fmt.Sprintf("container %s in %s %%", clip.Clean(c.Name), phrase.Decimal(*c.ThrottledPercent, 0)))
			}
		}
		return "Yes, " + list(parts[:min(len(parts), 5)]) + " of the periods: its quota was used up."
	}
}

func (r *Recording) throttledNow(t *tick.Tick) string {
	if t.Sample == nil {
		return ""
	}
	all, known := map[string]peak{}, false
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		v := amounts.Throttled(p)
		known = known || v != nil
		if v != nil && *v >= 1 {
			all[p.UID] = peak{name: nameOf(p.Namespace, p.Name), value: *v}
		}
	}
	return throttledList(all, known, nil)
}

func throttledList(all map[string]peak, known bool, clock func(peak) string) string {
	switch {
	case !known:
		return paragraph("Throttled", "Unknown: no container has the figure.")
	case len(all) == 0:
		return paragraph("Throttled", "No pod.")
	}
	var parts []string
	for _, p := range largest(all, mostListed) {
		text := fmt.Sprintf("%s in %s %% of the periods", p.name, phrase.Decimal(p.value, 0))
		if clock != nil {
			text += " at " + clock(p)
		}
		parts = append(parts, text)
	}
	more := ""
	if over := len(all) - mostListed; over > 0 {
		more = fmt.Sprintf(" %s more.", phrase.Count(over, "pod"))
	}
	return paragraph("Throttled", list(parts)+"."+more)
}

// largest are the peaks with the largest values.
func largest(all map[string]peak, most int) []peak {
	sorted := slices.SortedFunc(maps.Values(all), func(a, b peak) int {
		return cmp.Or(cmp.Compare(b.value, a.value), strings.Compare(a.name, b.name))
	})
	return sorted[:min(len(sorted), most)]
}

// evicted names the evicted pods, with the rule's numbers and what would have spared them, or else the rule that was nearest to evicting.
func (r *Recording) evicted(n *node, t *tick.Tick, p *tick.Pod) string {
	found := n.evictions.all
	if r.q.At != nil && p == nil { // without a pod only the evictions of this time
		found = slices.DeleteFunc(slices.Clone(found), func(e *eviction) bool { return e.last.Before(t.Time) })
	}
	if len(found) == 0 {
		switch {
		case t.Eviction != nil && t.Eviction.Refused != "":
			return paragraph("Evicted", "Unknown: evict refused the tick.")
		case t.Eviction == nil:
			return paragraph("Evicted", "The recording has no eviction here: evict did not run.")
		case p != nil:
			return paragraph("Evicted", "No.", near(t))
		}
		return paragraph("Evicted", "No pod.", near(t))
	}
	if len(found) == 1 {
		return paragraph("Evicted", found[0].describe(n.clock), found[0].whatToChange())
	}
	var text strings.Builder
	text.WriteString(paragraph("Evicted", phrase.Count(len(found)+n.evictions.more, "eviction")+"."))
	for _, e := range found[:min(len(found), mostListed)] {
		text.WriteString(item(e.describe(n.clock) + " " + e.whatToChange()))
	}
	if over := len(found) - mostListed; over > 0 {
		text.WriteString(item(fmt.Sprintf("and %d more", over)))
	}
	return text.String()
}

// near is the rule that is nearest to evicting.
func near(t *tick.Tick) string {
	if t.Eviction == nil {
		return ""
	}
	var next *tick.PressureFinding
	closest := 0.0
	for i := range t.Eviction.Pressures {
		f := &t.Eviction.Pressures[i]
		part := f.Value / f.Threshold
		if f.Below {
			part = f.Threshold / f.Value
		}
		if !f.Hard || f.DryRun || math.IsNaN(part) || part < closest {
			continue
		}
		next, closest = f, part
	}
	if next == nil {
		return ""
	}
	verb := "Nearest to an eviction"
	if next.Met {
		verb = "A limit is exceeded and no pod is evicted yet"
		if since, err := time.Parse(time.RFC3339Nano, next.Since); err == nil {
			verb = "A limit has been exceeded for " + view.Span(t.Time.Sub(since)) + ", and no pod is evicted yet"
		}
	}
	side := "over"
	if next.Below {
		side = "under"
	}
	amount := func(v float64) string { return measure(next.Scope, next.Part, v) }
	return fmt.Sprintf("%s: %s, %s; evictions begin %s %s.",
		verb, describeScope(next.Scope, next.Part), amount(next.Value), side, amount(next.Threshold))
}
