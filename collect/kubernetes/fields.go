package kubernetes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"polder/lib/fields"
	"polder/lib/qos"
)

type object = fields.Object

// Bounds of the labels and annotations of one object that are passed on, in bytes of JSON: of one with its key, and of all together. A
// value that exceeds them is left out whole, because a truncated JSON text has another meaning.
const (
	maxValue  = 4 << 10
	maxValues = 16 << 10
)

// entryOverhead are the quotes, the colon and the comma of an entry.
const entryOverhead = len(`"":"",`)

// rank orders labels and annotations: those of the last rank are left out first.
type rank int

const (
	// protecting ones keep a pod from being evicted. Their keys stay where their values exceed the bounds.
	protecting rank = iota
	// deciding ones are those that a stage reads.
	deciding
	other
	// notPassedOn ones are no dialect's.
	notPassedOn
)

// marks are the labels and annotations of an object.
type marks struct{ labels, annotations map[string]string }

// ranks returns the rank of labels and annotations, and the place among those of its rank.
type ranks interface {
	label(key string) rank
	annotation(key string) (r rank, place int)
}

// passedOn are the labels and annotations that are passed on, as far as the bounds allow: by rank, so that none displaces one of a rank
// before its own.
func (m marks) passedOn(by ranks, complain func(string)) marks {
	type entry struct {
		rank     rank
		place    int
		kind     string
		from, to map[string]string
		key      string
	}
	var all []entry
	out := marks{map[string]string{}, map[string]string{}}
	for key := range m.labels {
		if r := by.label(key); r != notPassedOn {
			all = append(all, entry{r, 0, "label", m.labels, out.labels, key})
		}
	}
	for key := range m.annotations {
		if r, place := by.annotation(key); r != notPassedOn {
			all = append(all, entry{r, place, "annotation", m.annotations, out.annotations, key})
		}
	}
	// Labels come before annotations of the same rank, because they are shorter.
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.place, b.place), -cmp.Compare(a.kind, b.kind), cmp.Compare(a.key, b.key))
	})
	total := 0
	for _, e := range all {
		value := e.from[e.key]
		size := encoded(e.key) + encoded(value)
		if size > maxValue || total+size+entryOverhead > maxValues {
			what := "is left out"
			if e.rank == protecting { // they are few, and the API server bounds keys
				what, value = "is passed on as empty", ""
			}
			complain(fmt.Sprintf("%s %s of %d bytes %s: want %d at most, and %d in all labels and annotations",
				e.kind, fields.Clip(e.key), size, what, maxValue, maxValues))
			if e.rank != protecting {
				continue
			}
			size = encoded(e.key)
		}
		total += size + entryOverhead
		e.to[e.key] = value
	}
	return out.withoutEmpty()
}

// withoutEmpty has nil for an empty map, which makes no difference in a tick.
func (m marks) withoutEmpty() marks {
	if len(m.labels) == 0 {
		m.labels = nil
	}
	if len(m.annotations) == 0 {
		m.annotations = nil
	}
	return m
}

// size is the size of the labels and annotations in JSON, in bytes.
func (m marks) size() (size int) {
	for _, entries := range []map[string]string{m.labels, m.annotations} {
		for key, value := range entries {
			size += encoded(key) + encoded(value) + entryOverhead
		}
	}
	return size
}

// encoded is the greatest size of a text in JSON: a control character may be six bytes long, and each byte that is not UTF-8 becomes a
// character of three.
func encoded(text string) (size int) {
	for _, r := range text {
		switch {
		case r < 0x20 || r == 0x7f:
			size += len(`\u0000`)
		case r == '"' || r == '\\':
			size += 2
		default:
			size += utf8.RuneLen(r)
		}
	}
	return size
}

// podRanks are the ranks of a pod's labels and annotations: of the dialects', and of further annotations that protect it.
type podRanks struct{ protecting []string }

// The labels and annotations of pods that later stages read, beside those that protect a pod. One that is missing here is still passed on,
// but it can be displaced by others.
var (
	decidingLabels      = []string{qos.KoordinatorClass, qos.KoordinatorPriority, qos.KoordinatorPriorityClass, qos.EvictionEnabled}
	decidingAnnotations = []string{
		qos.KatalystLevel, qos.EvictionPriority, "koordinator.sh/cpuBurst", "koordinator.sh/memoryQOS",
		"node.koordinator.sh/extended-resource-spec", "node.koordinator.sh/resctrl", "scheduling.koordinator.sh/resource-status",
		"katalyst.kubewharf.io/cpu_enhancement", "katalyst.kubewharf.io/memory_enhancement", "katalyst.kubewharf.io/numa_bind_result",
		"katalyst.kubewharf.io/pod_evict_score",
	}
)

func (podRanks) label(key string) rank {
	switch {
	case slices.Contains(decidingLabels, key):
		return deciding
	case qos.Dialect(key):
		return other
	}
	return notPassedOn
}

func (r podRanks) annotation(key string) (rank, int) {
	if place := slices.Index(r.protecting, key); place >= 0 {
		return protecting, place
	}
	switch {
	case slices.Contains(decidingAnnotations, key):
		return deciding, 0
	case qos.Dialect(key):
		return other, 0
	}
	return notPassedOn, 0
}

// ranks are the ranks of pods. The annotations that protect a pod from eviction are evict's opt-outs, which are among the further keys, by
// their presence or value, and Koordinator's policy, with which no rule may evict the pod where it is not a JSON list.
func (r *Reading) ranks() podRanks {
	return podRanks{slices.Concat([]string{qos.EvictionPolicy}, r.Annotations)}
}

// nodeRanks are the ranks of a node's labels and annotations.
type nodeRanks struct{}

func (nodeRanks) label(key string) rank {
	switch {
	case qos.Dialect(key):
		return deciding
	case strings.HasPrefix(key, "kubernetes.io/"):
		return other
	}
	return notPassedOn
}

func (n nodeRanks) annotation(key string) (rank, int) { return n.label(key), 0 }
