package rule

import (
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// cpuAllocatableEvict is Koordinator's eviction by the pods' CPU requests.
var cpuAllocatableEvict = &Rule{
	Name: "CPUAllocatableEvict",
	Doc: `pods request far more CPU than the node offers: pods that permit it are evicted
As MemoryAllocatableEvict, with cpuAllocatableEvictThresholdPercent and cpuAllocatableEvictLowerPercent, for batch-cpu, mid-cpu and the
node's own CPU. The cooldown is 20 seconds, also after the node's first tick.`,
	Scopes:     []string{resourceBatchCPU.name, resourceMidCPU.name, resourceCPU.name},
	Thresholds: []string{"enable", "cpuAllocatableEvictThresholdPercent", "cpuAllocatableEvictLowerPercent", "allocatableEvictPriorityThreshold"},
	Strategy: func(th *sloconfig.Threshold) error {
		_, err := cpuAllocatableBounds(th)
		return err
	},
	New: func() Window { return &cpuAllocatableWindow{} },
}

func cpuAllocatableBounds(th *sloconfig.Threshold) (bounds, error) {
	const key = "cpuAllocatableEvictThresholdPercent"
	if err := checkEnabled(th); err != nil {
		return bounds{}, err
	}
	b, err := requestBounds(key, th.CPUAllocatableEvictThresholdPercent, "cpuAllocatableEvictLowerPercent", th.CPUAllocatableEvictLowerPercent)
	if err != nil {
		return b, err
	}
	return b, checkBatchPriority(th, key)
}

type cpuAllocatableWindow struct {
	Observed  observation `json:"watched"`
	Pressures conditions  `json:"over,omitempty"`
}

func (w *cpuAllocatableWindow) Measure(s *Settings, t *tick.Tick) Measure {
	m, off := cpuAllocatableEvict.measureIfOff(s.Strategies)
	if off {
		*w = cpuAllocatableWindow{}
		return m
	}
	b, _ := cpuAllocatableBounds(&s.Strategies.Threshold)
	w.Pressures.measure(&m, cpuAllocatableEvict, b, *s.Strategies.Threshold.AllocatableEvictPriorityThreshold, t, w.Observed.observeNode(t),
		[]requestedResource{resourceBatchCPU, resourceMidCPU, resourceCPU})
	return m
}
