package rule

import (
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// memoryAllocatableEvict is Koordinator's eviction by the pods' memory requests.
var memoryAllocatableEvict = &Rule{
	Name: "MemoryAllocatableEvict",
	Doc: `pods request far more memory than the node offers: pods that permit it are evicted
The rule is on if memoryAllocatableEvictThresholdPercent, memoryAllocatableEvictLowerPercent and allocatableEvictPriorityThreshold (at most
7999) are set. It compares the memory requests of the pods with at most that priority, which have not ended and are not terminating, with
the node's allocatable memory: batch-memory for pods of the class koord-batch, mid-memory for koord-mid, and the node's own memory for all
others. If the requests are over the threshold, the pods with the label koordinator.sh/eviction-enabled=true are evicted until the
lower percentage is reached, in the order of MemoryEvict with the request instead of the use. The cooldown is 4 seconds. If the
resource is missing in the node's allocatable or is 0, as after a withdrawn offer or the start of kubelet, no pod is evicted because of
it.`,
	Scopes:     []string{resourceBatchMemory.name, resourceMidMemory.name, resourceMemory.name},
	Thresholds: []string{"enable", "memoryAllocatableEvictThresholdPercent", "memoryAllocatableEvictLowerPercent", "allocatableEvictPriorityThreshold"},
	Strategy: func(th *sloconfig.Threshold) error {
		_, err := memoryAllocatableBounds(th)
		return err
	},
	New: func() Window { return &memoryAllocatableWindow{} },
}

func memoryAllocatableBounds(th *sloconfig.Threshold) (bounds, error) {
	const key = "memoryAllocatableEvictThresholdPercent"
	if err := checkEnabled(th); err != nil {
		return bounds{}, err
	}
	b, err := requestBounds(key, th.MemoryAllocatableEvictThresholdPercent, "memoryAllocatableEvictLowerPercent", th.MemoryAllocatableEvictLowerPercent)
	if err != nil {
		return b, err
	}
	return b, checkBatchPriority(th, key)
}

type memoryAllocatableWindow struct {
	Pressures conditions `json:"over,omitempty"`
}

func (w *memoryAllocatableWindow) Measure(s *Settings, t *tick.Tick) Measure {
	m, off := memoryAllocatableEvict.measureIfOff(s.Strategies)
	if off {
		*w = memoryAllocatableWindow{}
		return m
	}
	b, _ := memoryAllocatableBounds(&s.Strategies.Threshold)
	w.Pressures.measure(&m, memoryAllocatableEvict, b, *s.Strategies.Threshold.AllocatableEvictPriorityThreshold, t, "",
		[]requestedResource{resourceBatchMemory, resourceMidMemory, resourceMemory})
	return m
}
