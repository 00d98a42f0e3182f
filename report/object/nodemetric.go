package object

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"polder/lib/quantity"
	"polder/lib/sloconfig"
)

// Names of a NodeMetric.
const (
	nodeMetricVersion = "slo.koordinator.sh/v1alpha1"
	NodeMetricKind    = "NodeMetric"
)

// NodeMetric is the object itself, without its content. It is deleted with its node, whose UID is empty where it is unknown. Koordinator's
// manager writes its spec.
func NodeMetric(node, uid string) map[string]any {
	metadata := map[string]any{"name": node}
	if uid != "" {
		metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}}
	}
	return map[string]any{"apiVersion": nodeMetricVersion, "kind": NodeMetricKind, "metadata": metadata, "spec": map[string]any{}}
}

// NodeMetricStatus is the object with the status, to be shown.
func NodeMetricStatus(node string, status map[string]any) map[string]any {
	return map[string]any{"apiVersion": nodeMetricVersion, "kind": NodeMetricKind, "metadata": map[string]any{"name": node}, "status": status}
}

// NodeMetricPatch is a JSON merge patch that writes an object's status. It removes our fields that are now unknown; other fields stay, as a
// prediction of another program.
func NodeMetricPatch(status map[string]any) map[string]any {
	node, _ := status["nodeMetric"].(map[string]any)
	node = withNulls(node, "nodeUsage", "systemUsage", "aggregatedNodeUsages", "aggregatedSystemUsages", "numaUsages")
	for _, key := range []string{"nodeUsage", "systemUsage"} {
		if x, ok := node[key].(map[string]any); ok {
			list, _ := x["resources"].(map[string]any)
			node[key] = map[string]any{"resources": withNulls(list, "cpu", "memory")}
		}
	}
	status = withNulls(status, "podsMetric")
	status["nodeMetric"] = node
	return map[string]any{"status": status}
}

// withNulls is a copy of the object in which the keys that it lacks are null.
func withNulls(o map[string]any, keys ...string) map[string]any {
	all := map[string]any{}
	for _, key := range keys {
		all[key] = nil
	}
	maps.Copy(all, o)
	return all
}

// percentiles are those of the aggregates, in per cent.
var percentiles = []int{50, 90, 95, 99}

// Status is the NodeMetric's status at the time, without unknown figures.
func (u *Usage) Status(now time.Time) map[string]any {
	s := &u.settings
	node := map[string]any{}
	for key, x := range map[string]*use{"node": &u.node, "system": &u.system} {
		if r := x.average(now, s.aggregate); r != nil {
			node[key+"Usage"] = r
		}
		if a := x.aggregates(now, s.durations); a != nil {
			node["aggregated"+strings.ToUpper(key[:1])+key[1:]+"Usages"] = a
		}
	}
	var numa []any
	for _, id := range slices.Sorted(maps.Keys(u.numa)) {
		if r := u.numa[id].average(now, s.aggregate); r != nil {
			numa = append(numa, map[string]any{"numaNodeID": int64(id), "nodeUsage": r})
		}
	}
	if numa != nil {
		node["numaUsages"] = numa
	}
	status := map[string]any{"updateTime": now.UTC().Format(time.RFC3339), "nodeMetric": node}
	if pods := u.podsMetric(now); pods != nil {
		status["podsMetric"] = pods
	}
	return status
}

// podsMetric are the pods of which both figures are known, by namespace and name.
func (u *Usage) podsMetric(now time.Time) []any {
	pods := slices.SortedFunc(maps.Values(u.pods), func(a, b *podUse) int {
		stay := 0
		if a.terminating != b.terminating {
			stay = -1
			if a.terminating {
				stay = 1
			}
		}
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name), stay, cmp.Compare(a.qos, b.qos))
	})
	var list []any
	for i, p := range pods {
		if i > 0 && p.namespace == pods[i-1].namespace && p.name == pods[i-1].name {
			continue // a pod of the same name is ending
		}
		r := p.average(now, u.settings.aggregate)
		if resources, _ := r["resources"].(map[string]any); len(resources) == 2 {
			list = append(list, map[string]any{"namespace": p.namespace, "name": p.name, "podUsage": r, "priority": p.priority, "qos": p.qos})
		}
	}
	return list
}

// resources is an amount as the object has it; nil where nothing is known.
func resources(cpu, memory float64, hasCPU, hasMemory bool) map[string]any {
	list := map[string]any{}
	if hasCPU {
		list["cpu"] = quantity.FormatMilli(truncate(cpu))
	}
	if hasMemory {
		list["memory"] = quantity.FormatBytes(truncate(memory))
	}
	if len(list) == 0 {
		return nil
	}
	return map[string]any{"resources": list}
}

func (x *use) average(now time.Time, over time.Duration) map[string]any {
	cpu, hasCPU := x.cpu.Average(now, over)
	memory, hasMemory := x.memory.Average(now, over)
	return resources(cpu, memory, hasCPU, hasMemory)
}

// aggregates are the average and percentiles over each of the times, except those of which the samples cover less than half.
func (x *use) aggregates(now time.Time, durations []time.Duration) []any {
	var list []any
	for _, over := range durations {
		usage := map[string]any{}
		if 2*x.cpu.Span(now, over) >= over && 2*x.memory.Span(now, over) >= over {
			usage["avg"] = x.average(now, over)
			for _, p := range percentiles {
				cpu, hasCPU := x.cpu.Percentile(now, over, float64(p)/100)
				memory, hasMemory := x.memory.Percentile(now, over, float64(p)/100)
				usage[fmt.Sprintf("p%d", p)] = resources(cpu, memory, hasCPU, hasMemory)
			}
		}
		list = append(list, map[string]any{"duration": over.String(), "usage": usage})
	}
	return list
}

// Note names what differs from the settings or the ticks; it is empty where nothing does.
func (u *Usage) Note(now time.Time) string {
	switch {
	case u.New() || !u.Ready(now):
		return "not written: the node's use of CPU and memory is not known yet, or no longer"
	case u.omitted > 0:
		return fmt.Sprintf("%d pods are left out: more than %d, or without a name that may be written", u.omitted, maxMeasuredPods)
	case u.settings.memory == sloconfig.UsageWithHotPageCache:
		return "metricMemoryCollectPolicy usageWithHotPageCache needs a kernel that reports cold pages: memory is that without the page cache"
	}
	return ""
}
