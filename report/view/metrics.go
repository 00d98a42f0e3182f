package view

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// Metrics is a page in Prometheus' text format, made from the newest tick of each node and from counters over all ticks
// since the start. Amounts are in base units: cores, bytes, seconds, ratios from 0 to 1.
type Metrics struct {
	nodes map[string]*nodeMetrics
}

type nodeMetrics struct {
	tick      *tick.Tick
	ticks     float64
	writes    map[string]float64    // by key
	errors    map[string]float64    // by tool
	evictions map[[2]string]float64 // by rule and state
	states    map[string]string     // the last state of each eviction, by UID and rule
}

// forgetAfter is how long a node's metrics are kept after its last tick, while others' ticks come.
const forgetAfter = time.Hour

// Add takes in a tick.
func (m *Metrics) Add(t *tick.Tick) {
	if m.nodes == nil {
		m.nodes = map[string]*nodeMetrics{}
	}
	n := m.nodes[t.Node]
	if n == nil {
		n = &nodeMetrics{writes: map[string]float64{}, errors: map[string]float64{}, evictions: map[[2]string]float64{}}
		m.nodes[t.Node] = n
	}
	n.add(t)
	maps.DeleteFunc(m.nodes, func(_ string, n *nodeMetrics) bool { return t.Time.Sub(n.tick.Time) > forgetAfter })
}

func (n *nodeMetrics) add(t *tick.Tick) {
	n.tick = t
	n.ticks++
	if t.Sample != nil {
		n.errors["collect"] += float64(len(t.Sample.Errors))
	}
	if i := t.Isolation; i != nil {
		n.errors["isolate"] += float64(len(i.Errors))
		if !i.DryRun {
			for _, w := range i.Writes {
				n.writes[w.Key]++
			}
		}
	}
	if e := t.Eviction; e != nil {
		n.errors["evict"] += float64(len(e.Errors))
		states := map[string]string{}
		for _, x := range e.Evictions {
			key := x.UID + " " + x.Rule
			if n.states[key] != x.State { // a state lasts for many ticks, and counts once
				n.evictions[[2]string{x.Rule, x.State}]++
			}
			states[key] = x.State
		}
		n.states = states
	}
}

// Page is the text. The samples that change with every tick alone, its time and number, are left out of stable.
func (m *Metrics) Page() (page, stable string) {
	p := &sheet{families: map[string]*family{}}
	for _, name := range sortedKeys(m.nodes) {
		m.nodes[name].collect(p, name)
	}
	return p.text(false), p.text(true)
}

type sheet struct {
	order    []string
	families map[string]*family
}

type family struct {
	kind, help string
	samples    []string
}

// volatile are the families that change with every tick.
var volatile = []string{"polder_tick_timestamp_seconds", "polder_ticks_total"}

func (p *sheet) text(stable bool) string {
	var b strings.Builder
	for _, name := range p.order {
		if stable && slices.Contains(volatile, name) {
			continue
		}
		f := p.families[name]
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, f.help, name, f.kind)
		for _, s := range f.samples {
			b.WriteString(s)
		}
	}
	return b.String()
}

// put adds a sample; labels are names and values in turns. A value that is not known has no sample.
func (p *sheet) put(kind, name, help string, v *float64, labels ...string) {
	if v == nil || math.IsNaN(*v) {
		return
	}
	f := p.families[name]
	if f == nil {
		f = &family{kind: kind, help: help}
		p.families[name] = f
		p.order = append(p.order, name)
	}
	var b strings.Builder
	b.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		b.WriteString(cond(i == 0, "{", ","))
		fmt.Fprintf(&b, `%s="%s"`, labels[i], escape.Replace(labels[i+1]))
	}
	b.WriteString(cond(len(labels) > 0, "} ", " "))
	b.WriteString(strconv.FormatFloat(*v, 'f', -1, 64) + "\n")
	f.samples = append(f.samples, b.String())
}

func cond(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (p *sheet) gauge(name, help string, v *float64, labels ...string) {
	p.put("gauge", name, help, v, labels...)
}

func (p *sheet) counter(name, help string, v float64, labels ...string) {
	p.put("counter", name, help, &v, labels...)
}

// inCores turns milli-CPU into the base unit.
func inCores(milli *float64) *float64 {
	if milli == nil {
		return nil
	}
	return tick.Ptr(*milli / 1000)
}

func (n *nodeMetrics) collect(p *sheet, node string) {
	t := n.tick
	p.gauge("polder_tick_timestamp_seconds", "Time of the newest tick.", tick.Ptr(float64(t.Time.UnixMilli())/1000), "node", node)
	p.counter("polder_ticks_total", "Ticks reported.", n.ticks, "node", node)
	if t.Sample != nil {
		sampleMetrics(p, node, t.Sample)
	}
	if t.Advice != nil {
		adviceMetrics(p, node, t.Advice)
	}
	if t.Isolation != nil {
		for _, key := range sortedKeys(n.writes) {
			p.counter("polder_isolation_writes_total", "Values written to cgroups, by key.", n.writes[key], "node", node, "key", key)
		}
		p.gauge("polder_isolation_missing_cgroups", "Cgroups of the advice that do not exist.", tick.Ptr(float64(t.Isolation.Missing)), "node", node)
		p.gauge("polder_isolation_fallback", "Whether the fallback was applied since the tick before.", truth(t.Isolation.Fallback), "node", node)
	}
	if t.Eviction != nil {
		n.evictionMetrics(p, node, t.Eviction)
	}
	for _, tool := range sortedKeys(n.errors) {
		p.counter("polder_errors_total", "Errors that the tools put into the ticks.", n.errors[tool], "node", node, "tool", tool)
	}
	for _, d := range []struct {
		tool string
		n    int64
	}{{"collect", droppedBy(t.Sample)}, {"isolate", droppedBy(t.Isolation)}, {"evict", droppedBy(t.Eviction)}} {
		if d.n >= 0 {
			p.counter("polder_dropped_ticks_total", "Ticks given up because the next stage was slow.", float64(d.n), "node", node, "tool", d.tool)
		}
	}
}

// droppedBy is -1 where the section is not there.
func droppedBy(section any) int64 {
	switch s := section.(type) {
	case *tick.Sample:
		if s != nil {
			return s.DroppedTicks
		}
	case *tick.Isolation:
		if s != nil {
			return s.DroppedTicks
		}
	case *tick.Eviction:
		if s != nil {
			return s.DroppedTicks
		}
	}
	return -1
}

func truth(is bool) *float64 {
	if is {
		return tick.Ptr(1.0)
	}
	return tick.Ptr(0.0)
}

func sampleMetrics(p *sheet, node string, s *tick.Sample) {
	if s.Topology != nil {
		if set, err := cpus.Parse(s.Topology.CPUs); err == nil {
			p.gauge("polder_node_cpus", "Online logical CPUs.", tick.Ptr(float64(set.Size())), "node", node)
		}
	}
	if c := s.CPU; c != nil {
		p.gauge("polder_node_cpu_usage_cores", "CPU time used by the node.", inCores(c.UsageMilliCPU), "node", node)
		p.gauge("polder_node_load1", "Load averaged over a minute.", c.Load1, "node", node)
		p.gauge("polder_node_load5", "Load averaged over 5 minutes.", c.Load5, "node", node)
		pressureMetrics(p, node, "cpu", c.Pressure)
	}
	if m := s.Memory; m != nil {
		p.gauge("polder_node_memory_total_bytes", "Memory of the node.", m.TotalBytes, "node", node)
		p.gauge("polder_node_memory_available_bytes", "Memory that can be had without swapping.", m.AvailableBytes, "node", node)
		p.gauge("polder_node_memory_free_bytes", "Memory not used for anything.", m.FreeBytes, "node", node)
		p.gauge("polder_node_memory_kswapd_steal_pages_per_second", "Pages that kswapd reclaims.", m.KswapdStealPerSecond, "node", node)
		pressureMetrics(p, node, "memory", m.Pressure)
	}
	type sum struct {
		pods                                    float64
		usage, load, requested, requestedMemory *float64
	}
	sums := map[string]*sum{}
	for i := range s.Pods {
		pod := &s.Pods[i]
		x := sums[pod.QoS]
		if x == nil {
			x = new(sum)
			sums[pod.QoS] = x
		}
		x.pods++
		x.usage = plus(x.usage, pod.UsageMilliCPU)
		x.load = plus(x.load, pod.Load1)
		if pod.Requests != nil {
			x.requested = plus(x.requested, pod.Requests.ReclaimedMilliCPU)
			x.requestedMemory = plus(x.requestedMemory, pod.Requests.ReclaimedMemoryBytes)
		}
	}
	for _, class := range sortedKeys(sums) {
		x := sums[class]
		p.gauge("polder_pods", "Pods of a class.", &x.pods, "node", node, "qos", class)
		p.gauge("polder_pods_cpu_usage_cores", "CPU time used by the pods of a class.", inCores(x.usage), "node", node, "qos", class)
		p.gauge("polder_pods_load1", "Runnable threads of the pods of a class, averaged over a minute.", x.load, "node", node, "qos", class)
	}
	if x := sums[tick.QoSReclaimed]; x != nil {
		p.gauge("polder_reclaimed_requested_cpu_cores", "Reclaimed CPU that pods request.", inCores(x.requested), "node", node)
		p.gauge("polder_reclaimed_requested_memory_bytes", "Reclaimed memory that pods request.", x.requestedMemory, "node", node)
	}
}

// plus adds what is known; a sum of nothing known is not known.
func plus(sum, v *float64) *float64 {
	switch {
	case v == nil:
		return sum
	case sum == nil:
		return tick.Ptr(*v)
	}
	return tick.Ptr(*sum + *v)
}

func pressureMetrics(p *sheet, node, resource string, psi *tick.Pressure) {
	if psi == nil {
		return
	}
	for _, l := range []struct {
		kind string
		line *tick.PressureLine
	}{{"some", psi.Some}, {"full", psi.Full}} {
		if l.line != nil {
			p.gauge("polder_node_stall_ratio", "Part of the last 10 seconds in which some or all tasks waited for a resource (PSI).", tick.Ptr(l.line.Avg10/100), "node", node, "resource", resource, "tasks", l.kind)
		}
	}
}

func adviceMetrics(p *sheet, node string, a *tick.Advice) {
	if r := a.Reclaimed; r != nil {
		p.gauge("polder_reclaimed_cpu_cores", "CPU that may be offered to reclaimed pods.", inCores(floatOf(r.MilliCPU)), "node", node)
		p.gauge("polder_reclaimed_memory_bytes", "Memory that may be offered to reclaimed pods.", floatOf(r.MemoryBytes), "node", node)
		for _, x := range r.NUMANodes {
			id := strconv.Itoa(x.ID)
			p.gauge("polder_reclaimed_numa_cpu_cores", "A NUMA node's part of the reclaimed CPU.", inCores(floatOf(x.MilliCPU)), "node", node, "numa", id)
			p.gauge("polder_reclaimed_numa_memory_bytes", "A NUMA node's part of the reclaimed memory.", floatOf(x.MemoryBytes), "node", node, "numa", id)
		}
	}
	pools := slices.Clone(a.Pools)
	slices.SortFunc(pools, func(a, b tick.Pool) int { return cmp.Compare(a.Name, b.Name) })
	for _, x := range slices.CompactFunc(pools, func(a, b tick.Pool) bool { return a.Name == b.Name }) {
		if set, err := cpus.Parse(x.CPUs); err == nil {
			p.gauge("polder_pool_cpus", "Logical CPUs of a pool.", tick.Ptr(float64(set.Size())), "node", node, "pool", x.Name)
		}
	}
}

func (n *nodeMetrics) evictionMetrics(p *sheet, node string, e *tick.Eviction) {
	seen := map[[3]string]bool{}
	for _, x := range e.Pressures {
		level := cond(x.Hard, "hard", "soft")
		if key := [3]string{x.Rule, x.Scope, level}; seen[key] {
			continue
		} else {
			seen[key] = true
		}
		labels := []string{"node", node, "rule", x.Rule, "scope", x.Scope, "level", level}
		p.gauge("polder_pressure_value", "What a rule measured, in its scope's unit.", &x.Value, labels...)
		p.gauge("polder_pressure_threshold", "The threshold that it is compared with.", &x.Threshold, labels...)
		p.gauge("polder_pressure_met", "Whether the rule's condition is met.", truth(x.Met), labels...)
	}
	for _, x := range e.Taints {
		p.gauge("polder_taint", "1 for each taint that should be on the node.", tick.Ptr(1.0), "node", node, "key", x.Key, "effect", x.Effect)
	}
	keys := slices.SortedFunc(maps.Keys(n.evictions), func(a, b [2]string) int {
		return cmp.Or(strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1]))
	})
	for _, k := range keys {
		p.counter("polder_evictions_total", "Evictions that came to a state.", n.evictions[k], "node", node, "rule", k[0], "state", k[1])
	}
}
