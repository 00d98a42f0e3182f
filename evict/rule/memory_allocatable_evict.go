package rule

import (
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// memoryAllocatableEvict is Koordinator's eviction by the pods' memory requests.
var memoryAllocatableEvict = &Rule{
	Name: "MemoryAllocatableEvict",
	Doc: `pods request far more memory than the node offers: pods that allow it are evicted
It is on where memoryAllocatableEvictThresholdPercent, memoryAllocatableEvictLowerPercent and allocatableEvictPriorityThreshold (at most
7999) are set. The memory requests of the pods of that priority or a lower one, which have neither ended nor begun to end, are
compared with what the node has as allocatable: batch-memory of pods of the class koord-batch, mid-memory of koord-mid, and the
node's own of all others. Over the threshold, those with the label koordinator.sh/eviction-enabled and the value true are evicted, in the
order of MemoryEvict with the request in the place of the use, until the lower percentage is reached. Then none for 4 seconds. Where the
node has no such resource as allocatable, or 0 of it, which is what a withdrawn offer and a kubelet that has just started leave, no pod
is evicted for it.`,
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
	if err := enabled(th); err != nil {
		return bounds{}, err
	}
	b, err := requestBounds(key, th.MemoryAllocatableEvictThresholdPercent, "memoryAllocatableEvictLowerPercent", th.MemoryAllocatableEvictLowerPercent)
	if err != nil {
		return b, err
	}
	return b, batchPriority(th, key)
}

type memoryAllocatableWindow struct {
	Over levels `json:"over,omitempty"`
}

func (w *memoryAllocatableWindow) Measure(s *Settings, t *tick.Tick) Measure {
	m, off := memoryAllocatableEvict.off(s.Strategies)
	if off {
		*w = memoryAllocatableWindow{}
		return m
	}
	b, _ := memoryAllocatableBounds(&s.Strategies.Threshold)
	w.Over.measure(&m, memoryAllocatableEvict, b, *s.Strategies.Threshold.AllocatableEvictPriorityThreshold, t, "",
		[]requested{resourceBatchMemory, resourceMidMemory, resourceMemory})
	return m
}
