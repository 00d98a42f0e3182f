// Package amounts computes a node's used, free and offered amounts at a tick. It is pure.
package amounts

import (
	"math"

	"polder/lib/tick"
	"polder/report/explain"
)

// Amounts are a tick's figures; one that is unknown is nil. CPU is in cores, memory in bytes.
type Amounts struct {
	Capacity *float64
	// Services, Batch and Rest are the use of the services' pods, of the reclaimed pods and of everything else.
	Services, Batch, Rest *float64
	// Free is the capacity that batch used or nothing used.
	Free *float64
	// Offered is the offer to reclaimed pods, Requested the sum of their requests, Pool the CPUs of their pool.
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
	all := explain.Machine(t)
	if all > 0 {
		a.Capacity = new(all / 1000)
	}
	if t.Sample != nil {
		a.takeNode(t.Sample)
		a.takePods(t.Sample.Pods)
		a.takeLeft(t.Sample)
	}
	if x := t.Advice; x != nil {
		if x.Reclaimed != nil {
			a.Offered, a.MemoryOffered = cores(x.Reclaimed.MilliCPU), number(x.Reclaimed.MemoryBytes)
		}
		if x.Shadow != nil && x.Shadow.Reclaimed != nil {
			a.Shadow = cores(x.Shadow.Reclaimed.MilliCPU)
		}
		if n, found := explain.PoolCPUs(x, tick.PoolReclaim); found {
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

func (a *Amounts) takePods(pods []tick.Pod) {
	var batch, services, waiting sum
	requested := 0.0
	for i := range pods {
		p := &pods[i]
		switch p.QoS {
		case tick.QoSReclaimed:
			batch.add(p.UsageMilliCPU)
			if p.Requests != nil && p.Requests.ReclaimedMilliCPU != nil {
				requested += *p.Requests.ReclaimedMilliCPU
			}
			a.Throttled = largest(a.Throttled, throttled(p))
		case tick.QoSShared, tick.QoSDedicated:
			services.add(p.UsageMilliCPU)
			a.ServicesThrottled = largest(a.ServicesThrottled, throttled(p))
			if load := known(p.Load1); load == nil || p.UsageMilliCPU == nil {
				waiting.unknown = true
			} else {
				waiting.add(new(max(0, *load-*p.UsageMilliCPU/1000)))
			}
		}
	}
	a.Requested = new(requested / 1000)
	a.Batch, a.Services, a.ServicesWaiting = batch.times(1.0/1000), services.times(1.0/1000), waiting.times(1)
}

// takeLeft computes the amounts that follow from the use of the node and of the pods.
func (a *Amounts) takeLeft(s *tick.Sample) {
	if s.CPU == nil || a.Batch == nil {
		return
	}
	node := known(s.CPU.UsageMilliCPU)
	if node == nil {
		return
	}
	// The counters are read one after the other, so that the pods' use may slightly exceed the node's.
	others := max(0, *node/1000-*a.Batch)
	if a.Services != nil {
		a.Rest = new(max(0, others-*a.Services))
	}
	if a.Capacity != nil {
		a.Free = new(max(0, *a.Capacity-others))
	}
}

func throttled(p *tick.Pod) (most *float64) {
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

func number(n *int64) *float64 {
	if n == nil {
		return nil
	}
	return new(float64(*n))
}
