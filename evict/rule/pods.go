package rule

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"polder/lib/clip"
	"polder/lib/evictconfig"
	"polder/lib/tick"
)

// shownBytes is the maximum length of foreign text in a message.
const shownBytes = 40

// shownNames is the number of pods that a message names; it counts the others.
const shownNames = 3

// These are the annotations that the rules read. The enhancements are JSON objects in a string, with strings as values.
const (
	annotationCPU         = "katalyst.kubewharf.io/cpu_enhancement"
	annotationMemory      = "katalyst.kubewharf.io/memory_enhancement"
	annotationEvictScore  = "katalyst.kubewharf.io/pod_evict_score"
	annotationNUMABinding = "katalyst.kubewharf.io/numa_bind_result"
)

// maxEnhancement bounds an annotation, in bytes.
const maxEnhancement = 16 << 10

// enhancement returns a field of an annotation; empty if there is none, or if the annotation is invalid.
func enhancement(p *tick.Pod, annotation, field string) string {
	text := p.Annotations[annotation]
	if !strings.Contains(text, field) || len(text) > maxEnhancement {
		return ""
	}
	fields := map[string]tick.Raw{}
	if tick.Unmarshal([]byte(text), &fields) != nil {
		return ""
	}
	raw, value := fields[field], ""
	if len(raw) == 0 || raw[0] != '"' || tick.Unmarshal(raw, &value) != nil {
		return ""
	}
	return value
}

// OptedOut returns the annotation by which a pod opts out of eviction, KEY=VALUE or KEY for any value; empty if it has none of these.
func OptedOut(p *tick.Pod, optOut []string) string {
	for _, a := range optOut {
		key, desired, hasValue := strings.Cut(a, "=")
		if value, ok := p.Annotations[key]; ok && (!hasValue || value == desired) {
			return a
		}
	}
	return ""
}

// criticalPriority is the lowest priority of the classes system-cluster-critical and system-node-critical.
const criticalPriority = 2_000_000_000

// IsCritical reports whether a pod has one of these classes. Unless a quota restricts them, anybody may name them.
func IsCritical(p *tick.Pod) bool { return p.Priority != nil && *p.Priority >= criticalPriority }

// IsTerminating reports whether a pod's end has begun: its deletion, or what the cluster's deletion by force leaves to kubelet. Then the
// cluster no longer has the pod, its processes still run, and the tick has what was known of it.
func IsTerminating(p *tick.Pod) bool {
	return p.Terminating || p.Missing == tick.MissingCluster && !p.IsClassUnknown()
}

// rate returns the positive number in an annotation's field; nil if there is none.
func rate(p *tick.Pod, annotation, field string) (*float64, error) {
	text := enhancement(p, annotation, field)
	if text == "" {
		return nil, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0 && v <= evictconfig.MaxRatio) {
		return nil, fmt.Errorf("%s %q is not a number over 0", field, clip.Text(text, shownBytes))
	}
	return &v, nil
}

// podRequest returns the pod's request, or its containers' sum if the pod itself has none.
func podRequest(p *tick.Pod, of func(*tick.Resources) *float64) (float64, bool) {
	return ownOrSum(p, p.Requests, func(c *tick.Container) *tick.Resources { return c.Requests }, of)
}

// podMemory returns a pod's memory, or its containers' sum if the pod itself has none.
func podMemory(p *tick.Pod, of func(*tick.Memory) *float64) (float64, bool) {
	return ownOrSum(p, p.Memory, func(c *tick.Container) *tick.Memory { return c.Memory }, of)
}

// ownOrSum returns an amount of the pod's own values, or the sum of its containers' if the pod itself has none; false if neither is known.
func ownOrSum[V any](p *tick.Pod, own *V, ofContainer func(*tick.Container) *V, amountOf func(*V) *float64) (sum float64, isKnown bool) {
	known := func(v *V) (float64, bool) {
		if v == nil {
			return 0, false
		}
		return amount(amountOf(v))
	}
	if v, ok := known(own); ok {
		return v, true
	}
	for i := range p.Containers {
		if v, ok := known(ofContainer(&p.Containers[i])); ok {
			sum, isKnown = sum+v, true
		}
	}
	return sum, isKnown
}

func reclaimedMilliCPU(r *tick.Resources) *float64    { return r.ReclaimedMilliCPU }
func reclaimedMemoryBytes(r *tick.Resources) *float64 { return r.ReclaimedMemoryBytes }

func usageBytes(m *tick.Memory) *float64 { return m.UsageBytes }
func rssBytes(m *tick.Memory) *float64   { return m.RSSBytes }

func workingSetBytes(m *tick.Memory) *float64 { return m.WorkingSetBytes }

// noPriority stands for a priority below all others: Katalyst evicts a pod without one before all that have one.
const noPriority = 2 * math.MinInt64

func priority(p *tick.Pod) float64 {
	if p.Priority == nil {
		return noPriority
	}
	return float64(*p.Priority)
}

func milliCPU(v float64) string { return fmt.Sprintf("%.0fm", v) }

func mebibytes(v float64) string { return fmt.Sprintf("%.0fMi", v/(1<<20)) }
