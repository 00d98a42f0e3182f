// Package amounts computes a node's used, free and offered amounts at a tick. It is pure.
package amounts

import (
	"math"

	"polder/lib/cpus"
	"polder/lib/tick"
	"polder/lib/usage"
)

// Amounts are a tick's figures; one that is unknown is nil. CPU is in cores, memory in bytes.
type Amounts struct {
	Capacity *float64
	// Services, Batch and Rest are the use of the services, of the batch pods and of everything that is no pod. While the class of a pod
	// is unknown, so is the use of services and of batch: the pod may be either.
	Services, Batch, Rest *float64
	// Free is the capacity that batch used or nothing used: that of [usage.Free].
	Free *float64
	// Offered is the offer to batch pods, Requested the sum of the requests of those that have not ended, Pool the CPUs of their pool.
	Offered, Requested, Pool *float64
	// Shadow is the offer of advise's shadow policy.
	Shadow *float64
	// Memory is the memory in use.
	Memory, MemoryAll, MemoryOffered *float64
	// Throttled is the largest part, in percent, of periods in which a container of batch was throttled; ServicesThrottled that of services.
	Throttled, ServicesThrottled *float64
	// ServicesWaiting is how many threads of services were ready to run and did not: their load beyond their use.
	ServicesWaiting *float64
	// CPUStall is the part of the last 10 seconds, in percent, in which some task waited for a CPU.
	CPUStall, Load1 *float64
}

// Of returns the amounts of a tick.
func Of(t *tick.Tick) Amounts {
	var a Amounts
	if all := usage.Capacity(t.Sample); all != nil {
		a.Capacity = new(*all / 1000)
	}
	if t.Sample != nil {
		a.takeNode(t.Sample)
		a.takePods(t.Sample)
	}
	if x := t.Advice; x != nil {
		if x.Reclaimed != nil {
			a.Offered, a.MemoryOffered = cores(x.Reclaimed.MilliCPU), tick.Float(x.Reclaimed.MemoryBytes)
		}
		if x.Shadow != nil && x.Shadow.Reclaimed != nil {
			a.Shadow = cores(x.Shadow.Reclaimed.MilliCPU)
		}
		if n, found := PoolCPUs(x, tick.PoolReclaim); found {
			a.Pool = new(float64(n))
		}
	}
	return a
}

func (a *Amounts) takeNode(s *tick.Sample) {
	if s.CPU != nil {
		a.Load1 = known(s.CPU.Load1)
		if s.CPU.Pressure != nil && s.CPU.Pressure.Some != nil {
			a.CPUStall = known(&s.CPU.Pressure.Some.Avg10)
		}
	}
	if s.Memory == nil {
		return
	}
	a.MemoryAll = known(s.Memory.TotalBytes)
	if available := known(s.Memory.AvailableBytes); a.MemoryAll != nil && available != nil {
		a.Memory = new(*a.MemoryAll - *available)
	}
}

// sum is a sum of amounts that is unknown as soon as one of them is.
type sum struct {
	value   float64
	unknown bool
}

func (s *sum) add(v *float64) {
	if v = known(v); v == nil {
		s.unknown = true
		return
	}
	s.value += *v
}

func (s *sum) times(factor float64) *float64 {
	if s.unknown {
		return nil
	}
	return new(s.value * factor)
}

// use returns what a pod uses, nil if that is unknown.
func use(p *tick.Pod) *float64 {
	if v := known(p.UsageMilliCPU); v != nil || !p.IsIdle() {
		return v
	}
	return new(0.0)
}

// takePods adds up what the pods use, and computes what follows from that and from the node's use.
func (a *Amounts) takePods(s *tick.Sample) {
	var all, batch, services, requested, waiting sum
	for i := range s.Pods {
		p := &s.Pods[i]
		used := use(p)
		all.add(used)
		switch {
		case p.IsBatch():
			batch.add(used)
			if p.Requests != nil && p.Requests.ReclaimedMilliCPU != nil && !p.Ended() {
				requested.add(p.Requests.ReclaimedMilliCPU)
			}
			a.Throttled = largest(a.Throttled, Throttled(p))
		case p.IsService():
			services.add(used)
			a.ServicesThrottled = largest(a.ServicesThrottled, Throttled(p))
			waiting.add(waitingThreads(p, used))
		case used == nil || *used != 0: // its class is unknown; one that uses nothing, as a cgroup that was left behind, is in neither sum
			batch.unknown, services.unknown, requested.unknown, waiting.unknown = true, true, true, true
		}
	}
	a.Requested = requested.times(1.0 / 1000)
	a.Batch, a.Services, a.ServicesWaiting = batch.times(1.0/1000), services.times(1.0/1000), waiting.times(1)
	if s.CPU == nil {
		return
	}
	node := known(s.CPU.UsageMilliCPU)
	if node == nil {
		return
	}
	if !all.unknown {
		// The counters are read one after the other, so that the pods' use may slightly exceed the node's.
		a.Rest = new(max(0, *node-all.value) / 1000)
	}
	if a.Capacity != nil && a.Batch != nil {
		a.Free = new(usage.Free(*a.Capacity, *usage.Taken(node, s.CPU.StealMilliCPU)/1000, *a.Batch))
	}
}

// waitingThreads returns how many threads of a pod were ready to run and did not, nil if that is unknown.
func waitingThreads(p *tick.Pod, used *float64) *float64 {
	load := known(p.Load1)
	switch {
	case load != nil && used != nil:
		return new(max(0, *load-*used/1000))
	case load == nil && p.IsIdle():
		return new(0.0)
	}
	return nil
}

// PoolCPUs is the number of CPUs of a pool, false where the advice has no such pool.
func PoolCPUs(a *tick.Advice, name string) (n int, found bool) {
	for _, p := range a.Pools {
		if p.Name == name {
			set, err := cpus.Parse(p.CPUs)
			return set.Size(), err == nil
		}
	}
	return 0, false
}

// Throttled is the largest part, in percent, of periods in which a container of the pod was throttled; nil if unknown.
func Throttled(p *tick.Pod) (most *float64) {
	for i := range p.Containers {
		most = largest(most, known(p.Containers[i].ThrottledPercent))
	}
	return most
}

func largest(a, b *float64) *float64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// known is a value, nil where it is not a number.
func known(v *float64) *float64 {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return nil
	}
	return v
}

func cores(milli *int64) *float64 {
	if milli == nil {
		return nil
	}
	return new(float64(*milli) / 1000)
}
