package class

import (
	"fmt"
	"math"
	"time"

	"polder/advise/policy"
	"polder/lib/kubepods"
	"polder/lib/tick"
)

// floorWeight returns the weight with which a cgroup gets the floor beside one busy sibling with the default weight: w / (w + default) of
// the machine is the floor.
func (m Machine) floorWeight() int64 {
	part := min(max(float64(m.FloorMilliCPU)/float64(max(m.MilliCPU, 1)), 0), 0.5)
	if m.CgroupVersion == 1 {
		return policy.WeightOf(int64(math.Ceil(defaultShares*part/(1-part))), 1)
	}
	return max(int64(math.Ceil(defaultWeight*part/(1-part))), minWeight)
}

// updateFloorWeight decides whether batch has a weight for its floor, and which, and adds the reason. Inside kubelet's tiers it never has
// one: a weight there has no effect against services.
func (st *State) updateFloorWeight(t *tick.Tick, a *tick.Advice, setting string, m Machine) bool {
	batch, cpu := batchCPUOf(t.Sample, setting), t.Sample.CPU
	if m.FloorMilliCPU <= 0 || !batch.exists || st.RelievedAt.After(t.Time) || st.StarvingSince.After(t.Time) { // or the clock was set back
		st.StarvingSince, st.RelievedAt = time.Time{}, time.Time{}
		return false
	}
	if !batch.isUseKnown || cpu == nil || cpu.UsageMilliCPU == nil { // unknown values change nothing
		return !st.RelievedAt.IsZero()
	}
	floor, totalUse, machine := float64(m.FloorMilliCPU), *cpu.UsageMilliCPU, float64(m.MilliCPU)
	isFull := totalUse*1000 >= machine*fullMachinePermille
	isStarved := isFull && batch.use < batch.needed(floor)
	a.BatchStarved = &isStarved
	if !batch.isRelievable {
		if isStarved {
			const text = "batch starves: it has %s on a full machine; the weights of kubelet's tiers determine it"
			a.Reasons = append(a.Reasons, fmt.Sprintf(text, batch.text(floor)))
		}
		st.StarvingSince, st.RelievedAt = time.Time{}, time.Time{}
		return false
	}
	if !st.RelievedAt.IsZero() {
		if t.Time.Sub(st.RelievedAt) < minReliefTime || machine-(totalUse-batch.use) < 2*floor {
			st.adjustWeight(batch, isFull, m)
			a.Reasons = append(a.Reasons, fmt.Sprintf("batch class: weight %d until the services leave %.0fm: they use %.0fm of %dm, batch has %s",
				st.Weight, 2*floor, max(totalUse-batch.use, 0), m.MilliCPU, batch.text(floor)))
			return true
		}
		st.RelievedAt = time.Time{}
	}
	if !isStarved {
		st.StarvingSince = time.Time{}
		return false
	}
	last := st.StarvedAt
	if st.StarvingSince.After(last) { // a state file of an earlier version
		last = st.StarvingSince
	}
	if st.StarvingSince.IsZero() || t.Time.Sub(last) > max(starvingFor, 3*t.Sample.Interval()) { // what it had since then is unknown
		st.StarvingSince = t.Time
	}
	st.StarvedAt = t.Time
	if starved := t.Time.Sub(st.StarvingSince); starved < starvingFor {
		a.Reasons = append(a.Reasons, fmt.Sprintf("batch starves: it has %s on a full machine, for %s",
			batch.text(floor), starved.Round(time.Second)))
		return false
	}
	st.StarvingSince, st.RelievedAt, st.Weight = time.Time{}, t.Time, m.floorWeight()
	a.Reasons = append(a.Reasons, fmt.Sprintf("batch class: weight %d for at least %s: on a full machine batch had %s or less for %s",
		st.Weight, minReliefTime, batch.text(floor), starvingFor))
	return true
}

// adjustWeight doubles the weight on a full machine while batch has less than nine tenths of what it needs, and halves it while batch has
// more than twice the floor: the number of busy siblings is unknown. Batch never gets more than the default weight.
func (st *State) adjustWeight(batch batchCPU, isFull bool, m Machine) {
	floor := float64(m.FloorMilliCPU)
	switch {
	case isFull && batch.use < 0.9*batch.needed(floor):
		st.Weight = min(2*st.Weight, defaultWeight)
	case isFull && batch.use > 2*floor:
		st.Weight /= 2
	}
	st.Weight = max(st.Weight, m.floorWeight())
}

// batchCPU is the CPU use of all pods in a class, and what it says of their floor.
type batchCPU struct {
	exists          bool
	use             float64 // in milli-CPU
	isUseKnown      bool    // of each pod
	runnableThreads float64 // load1
	isLoadKnown     bool    // of each pod
	isRelievable    bool    // a pod is outside of kubelet's cgroups, where a weight helps
}

func batchCPUOf(s *tick.Sample, setting string) batchCPU {
	b := batchCPU{isUseKnown: true, isLoadKnown: true}
	for i := range s.Pods {
		p := &s.Pods[i]
		if classOf(setting, p) == None {
			continue
		}
		b.exists = true
		b.isRelievable = b.isRelievable || !kubepods.Contains(p.Cgroup)
		use := policy.Use(p)
		b.use += policy.Amount(use)
		b.isUseKnown = b.isUseKnown && use != nil
		b.runnableThreads += policy.Amount(p.Load1)
		b.isLoadKnown = b.isLoadKnown && (p.Load1 != nil || p.UsageMilliCPU == nil && p.IsIdle())
	}
	return b
}

// needed returns how much CPU batch must have in order not to starve: the floor, but no more than half of the time in which its threads
// were runnable. Batch that sleeps needs nothing, and one busy thread is no reason to give batch the floor of a large machine.
func (b *batchCPU) needed(floor float64) float64 {
	if !b.isLoadKnown {
		return floor
	}
	return min(floor, b.runnableThreads*1000/2)
}

// text names batch's use and what it needs.
func (b *batchCPU) text(floor float64) string {
	if needed := b.needed(floor); needed < floor {
		return fmt.Sprintf("%.0fm of the %.0fm that its runnable threads need (its floor is %.0fm)", b.use, needed, floor)
	}
	return fmt.Sprintf("%.0fm of its floor of %.0fm", b.use, floor)
}
