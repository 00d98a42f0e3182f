package class

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"polder/advise/policy"
	"polder/lib/kubepods"
	"polder/lib/phrase"
	"polder/lib/tick"
)

// DefaultServiceWeightFactor is the default of [Settings.ServiceWeightFactor] (docs/adr/0020 has the measurements).
const DefaultServiceWeightFactor = 64

// busyPermille is the part of the machine from which the services' use ends the multiplied weights, for busyHold at least: on a full
// machine they would come before everything beside them that has no multiplied weight, such as the kernel's own threads.
const (
	busyPermille = 800
	busyHold     = 10 * time.Second
)

// ServiceState is what is remembered of the services of one node, in the format of the state file.
type ServiceState struct {
	// Multiplied has the cgroups whose weight is or was multiplied.
	Multiplied policy.SetCgroups `json:"multiplied,omitempty"`
	// BusyAt is when services last used too much of the machine; zero means never.
	BusyAt time.Time `json:"busyAt,omitzero"`
}

// serviceAdvice are the desired weights of services' cgroups, those of the fallback, and the reason.
type serviceAdvice struct {
	desired, fallback []tick.Cgroup
	reason            string
}

func (a *serviceAdvice) add(cgroup string, factor int) {
	a.desired = append(a.desired, tick.Cgroup{Cgroup: cgroup, CPUWeightFactor: new(int64(factor))})
	a.fallback = append(a.fallback, tick.Cgroup{Cgroup: cgroup, CPUWeightFactor: new(int64(1))})
}

// advise returns the advice on the services' cgroups beside batch; the fallback has their original weights. All cgroups beside batch that
// contain pods and no batch have the same factor, so that their weights keep their ratio. Without batch, on a busy machine and while batch
// has the weight of its floor they have their original weights.
func (st *ServiceState) advise(t *tick.Tick, c *choices, factor int, m Machine) (a serviceAdvice) {
	st.updateBusy(t, m)
	var beside []string
	if factor > 1 {
		beside = c.servicesBesideBatch(t.Sample.Pods)
	}
	isMultiplied := st.BusyAt.IsZero() && c.floorWeight == 0
	var multiplied []string
	if isMultiplied {
		multiplied = beside
	}
	for _, cgroup := range multiplied {
		a.add(cgroup, factor)
	}
	for _, cgroup := range st.Multiplied.Update(t.Time, multiplied) {
		if c.current[cgroup] == "" {
			a.add(cgroup, 1)
		}
	}
	switch {
	case len(beside) == 0:
	case isMultiplied:
		a.reason = fmt.Sprintf("services' weights x %d: %s beside batch", factor, phrase.Count(len(beside), "cgroup"))
	case c.floorWeight > 0:
		a.reason = "services have their own weights while batch has the weight of its floor"
	default:
		a.reason = fmt.Sprintf("services have their own weights: they used %d %% of the machine or more within %s", busyPermille/10, busyHold)
	}
	return a
}

// updateBusy decides whether services use too much of the machine. An unknown use, or an unknown size of the machine, changes nothing.
func (st *ServiceState) updateBusy(t *tick.Tick, m Machine) {
	cpu := t.Sample.CPU
	batchUse, isKnown := batchUse(t.Sample)
	switch {
	case cpu == nil || cpu.UsageMilliCPU == nil || !isKnown || m.MilliCPU <= 0:
	case (*cpu.UsageMilliCPU-batchUse)*1000 >= float64(m.MilliCPU)*busyPermille:
		st.BusyAt = t.Time
	case t.Time.Sub(st.BusyAt) >= busyHold || st.BusyAt.After(t.Time): // or the clock was set back
		st.BusyAt = time.Time{}
	}
}

// batchUse returns the CPU use of all reclaimed pods in milli-CPU, and whether the use of each is known.
func batchUse(s *tick.Sample) (milliCPU float64, isKnown bool) {
	for i := range s.Pods {
		p := &s.Pods[i]
		switch use := policy.Use(p); {
		case p.QoS != tick.QoSReclaimed || !hasCgroup(p):
		case use == nil:
			return 0, false
		default:
			milliCPU += *use
		}
	}
	return milliCPU, true
}

// servicesBesideBatch returns the cgroups that contain other pods than batch and are siblings of an outermost batch cgroup, sorted. One
// that also contains batch is left out, and so are kubelet's: it writes their weights itself.
func (c *choices) servicesBesideBatch(pods []tick.Pod) []string {
	parents, aboveBatch := map[string]bool{}, map[string]bool{}
	for _, cgroup := range c.chosen {
		for above := path.Dir(cgroup); above != "/"; above = path.Dir(above) {
			aboveBatch[above] = true
		}
		if parent := path.Dir(cgroup); !kubepods.Contains(cgroup) && c.current[parent] == "" {
			parents[parent] = true
		}
	}
	if len(parents) == 0 {
		return nil
	}
	found := map[string]bool{}
	for i := range pods {
		p := &pods[i]
		if !hasCgroup(p) || p.QoS == tick.QoSReclaimed || kubepods.Contains(p.Cgroup) || path.Clean(p.Cgroup) != p.Cgroup {
			continue
		}
		for cgroup := p.Cgroup; cgroup != "/"; cgroup = path.Dir(cgroup) {
			if parents[path.Dir(cgroup)] && !aboveBatch[cgroup] && c.current[cgroup] == "" {
				found[cgroup] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
