package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"polder/lib/tick"
	"polder/report/amounts"
	"polder/report/view"
)

// need is the CPU time that advise keeps for a service.
type need struct {
	name     string
	milliCPU float64
	by       string // the largest measure: its use, its load or its request
	request  *float64
	// isUnknown means that milliCPU lacks a part of which nothing is known: neither a measure nor a request.
	isUnknown bool
}

// koordinatorPolicy is the policy that counts what services use; the others count loads and requests, too.
const koordinatorPolicy = "koordinator"

// needs are the services' needs, the largest first. They are the policies' own measures: under koordinator a pod's use; otherwise
// of each container the largest of use and both loads, and its request where one of them is missing.
func needs(t *tick.Tick) []need {
	if t.Sample == nil {
		return nil
	}
	usageAlone := t.Advice != nil && t.Advice.Policy == koordinatorPolicy
	var all []need
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if !p.IsService() || p.QoS == tick.QoSSystem || p.Ended() { // no policy keeps a pool for class system
			continue
		}
		n := need{name: nameOf(p.Namespace, p.Name)}
		if p.Requests != nil {
			n.request = p.Requests.MilliCPU
		}
		switch {
		case usageAlone || len(p.Containers) == 0:
			n.take(p.UsageMilliCPU, p.Load1, p.Load5, n.request, usageAlone)
		default:
			largest := 0.0
			for j := range p.Containers {
				c, one := &p.Containers[j], need{}
				request := n.request
				if request != nil {
					request = new(*request / float64(len(p.Containers)))
				}
				if c.Requests != nil && c.Requests.MilliCPU != nil {
					request = c.Requests.MilliCPU
				}
				one.take(c.UsageMilliCPU, c.Load1, c.Load5, request, false)
				n.milliCPU += one.milliCPU
				n.isUnknown = n.isUnknown || one.isUnknown
				if one.milliCPU > largest {
					largest, n.by = one.milliCPU, one.by
				}
			}
		}
		n.isUnknown = n.isUnknown && !p.IsIdle()
		all = append(all, n)
	}
	slices.SortStableFunc(all, func(a, b need) int {
		return cmp.Or(cmp.Compare(b.milliCPU, a.milliCPU), strings.Compare(a.name, b.name))
	})
	return all
}

func (n *need) take(usage, load1, load5, request *float64, usageAlone bool) {
	missing, known := false, false
	for _, m := range [...]struct {
		value  *float64
		factor float64
		by     string
	}{{usage, 1, "its use"}, {load1, 1000, "its load"}, {load5, 1000, "its load of 5 minutes"}} {
		if usageAlone && m.by != "its use" {
			continue
		}
		known = known || m.value != nil
		if m.value == nil || !(*m.value > 0) {
			missing = true
			continue
		}
		if v := *m.value * m.factor; v > n.milliCPU {
			n.milliCPU, n.by = v, m.by
		}
	}
	if missing && !usageAlone && request != nil && *request > n.milliCPU {
		n.milliCPU, n.by = *request, "its request"
	}
	n.isUnknown = !known && n.by == ""
}

// amount is the need with its measure.
func (n need) amount() string {
	text := coresOf(n.milliCPU)
	switch {
	case n.by == "":
		return text
	case n.request != nil && *n.request > 0 && n.by != "its request":
		return fmt.Sprintf("%s (%s; it requests %s)", text, n.by, view.Cores(n.request))
	}
	return fmt.Sprintf("%s (%s)", text, n.by)
}

func sum(ns []need) (milliCPU float64) {
	for _, n := range ns {
		milliCPU += n.milliCPU
	}
	return milliCPU
}

// beside is the CPU time in milli-CPU that no pod used; false where it is unknown.
func beside(t *tick.Tick) (milliCPU float64, known bool) {
	rest := amounts.Of(t).Rest
	if rest == nil {
		return 0, false
	}
	return *rest * 1000, true
}
