package colocation

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
)

// alone is the name of the method without a batch job.
const alone = "alone"

// table has all results of a run, in the order in which their cells were first measured.
type table struct {
	rows []*row
}

type row struct {
	cell    cell
	method  string
	rate    float64
	results []result
}

func newTable() *table { return &table{} }

func (t *table) add(c cell, method string, rate float64, r result) {
	if method == alone {
		c.job = nil
	}
	for _, existing := range t.rows {
		if existing.cell == c && existing.method == method {
			existing.results = append(existing.results, r)
			return
		}
	}
	t.rows = append(t.rows, &row{c, method, rate, []result{r}})
}

// stats is the median of a value, with the least and the most, over the rounds that the host did not disturb; over the least disturbed
// one if it disturbed all.
func (r *row) stats(value func(result) float64) (median, lowest, highest float64) {
	leastDisturbed := slices.MinFunc(r.results, func(a, b result) int { return cmp.Compare(a.Steal, b.Steal) })
	var values []float64
	for _, one := range r.results {
		if one.Steal <= max(maxSteal, leastDisturbed.Steal) {
			values = append(values, value(one))
		}
	}
	return spread(values)
}

// spread is the median of some values, with the least and the most.
func spread(values []float64) (median, lowest, highest float64) {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]
}

// title names what a row was measured for.
func (c cell) title() string {
	return fmt.Sprintf("%s, %d %% of the machine", c.service.name, c.percent)
}

// markdown is the table for people: a part for each service, load and job, the run alone first in each.
func (t *table) markdown() string {
	var b strings.Builder
	for _, first := range t.rows {
		if first.cell.job != nil {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%.0f requests a second. Medians of %d rounds, with minimum and maximum in brackets.\n\n", first.cell.title(), first.rate, len(first.results))
		b.WriteString("| batch job | method | p50 ms | p99 ms | p99.9 ms | errors | batch CPUs | machine busy | steal | Polder's CPUs |\n|---|---|---|---|---|---|---|---|---|---|\n")
		for _, r := range t.rows {
			if r.cell.service == first.cell.service && r.cell.percent == first.cell.percent {
				b.WriteString(r.line())
			}
		}
	}
	return b.String()
}

func (r *row) line() string {
	p50, _, _ := r.stats(func(x result) float64 { return x.P50 })
	p99, lowest, highest := r.stats(func(x result) float64 { return x.P99 })
	p999, _, _ := r.stats(func(x result) float64 { return x.P999 })
	errors, _, _ := r.stats(func(x result) float64 { return float64(x.Errors) })
	batch, lowestBatch, highestBatch := r.stats(func(x result) float64 { return x.Batch })
	busy, _, _ := r.stats(func(x result) float64 { return x.Busy })
	steal, _, _ := r.stats(func(x result) float64 { return x.Steal })
	own, _, _ := r.stats(func(x result) float64 { return x.Polder })
	job := ""
	if r.cell.job != nil {
		job = r.cell.job.name
	}
	cost := ""
	if strings.HasPrefix(r.method, "Polder") {
		cost = fmt.Sprintf("%.3f", own)
	}
	return fmt.Sprintf("| %s | %s | %.2f | %.2f (%.2f-%.2f) | %.2f | %.0f | %.2f (%.2f-%.2f) | %.0f %% | %.1f %% | %s |\n",
		job, r.method, p50, p99, lowest, highest, p999, errors, batch, lowestBatch, highestBatch, busy, steal, cost)
}

// page is docs/colocation.md.
func (t *table) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Does colocation work?

`+"`make bench-colocation`"+` makes these measurements and writes this page (`+"`ROUNDS=N`"+`: with N rounds; `+"`QUICK=1`"+`: a part of them in
4 minutes, without the page). Measured on a machine of %d CPUs, %s.
`+"`make bench-disks`"+` writes the sections on disks.

Each service runs in a cgroup of its own at the top of the hierarchy, as below systemd's slices, together with its client. The client
starts a request whenever one is due, and counts the latency from that time. Each batch job has twice as many processes as there are
CPUs, in a cgroup beside the service's. At the request rate of a section, service and client alone use that percentage of the machine. In
each round every method is measured once. "Polder" is collect | advise | isolate at their defaults, in another cgroup beside these. The
client starts when batch is in its class, or, on the Kubernetes node, when the tools have started; the measurement begins %s later and
takes %s.

On the Kubernetes node (a real kubelet, containerd and control plane, all on this machine) service and batch job run in the cgroups of the
containers of a Burstable and a BestEffort pod.

![CPU of batch and latency of the service](colocation.svg)

Each dot is one service under one load beside one job. Lower is better for the service, farther right is better for batch; the dark line is
the service alone.

If the host took more than %.0f %% of this virtual machine's CPUs (steal time) during a measurement, the measurement was repeated, at most
%d times in a run. Rounds above that do not count, unless all rounds of a row are above it: then the one with the
least steal time counts.

Not measured here: clients on another machine; latency on cgroup v2 (a guest's CPUs are emulated:
[shares of CPU and waiting](#with-cgroup-v2) only)%s.
`, runtime.NumCPU(), kernel(), warmUp, measureTime, maxSteal, maxRepeats, t.missing())
	b.WriteString(t.summary("Summary", func(c cell) bool { return c.service != &onKubernetes }, idleByHand))
	b.WriteString(t.summary("On the Kubernetes node", func(c cell) bool { return c.service == &onKubernetes }, podIdle))
	b.WriteString(t.markdown())
	return b.String()
}

// missing names what this run has left out, to be added to a list of what is not measured.
func (t *table) missing() string {
	if slices.ContainsFunc(t.rows, func(r *row) bool { return r.cell.service == &onKubernetes }) {
		return ""
	}
	return "; in this run, the Kubernetes node"
}

// summary is a table with a line for each way, over all cells of a kind: geometric means, and how many cells are within 5 % of
// alone as far as the rounds can show. Batch's CPU is compared with that of the one line of shell.
func (t *table) summary(title string, isIncluded func(cell) bool, baseline string) string {
	p99 := func(x result) float64 { return x.P99 }
	type sums struct{ p50, p99, lowest, batch, cells, within float64 }
	all := map[string]*sums{}
	var order []string
	for _, r := range t.rows {
		alone, baselineRow := t.find(r.cell, alone), t.find(r.cell, baseline)
		if r.cell.job == nil || !isIncluded(r.cell) || alone == nil || baselineRow == nil {
			continue
		}
		if all[r.method] == nil {
			all[r.method], order = &sums{}, append(order, r.method)
		}
		s := all[r.method]
		ratio := func(reference *row, value func(result) float64) (median, lowest float64) {
			a, aLowest, _ := r.stats(value)
			b, bLowest, _ := reference.stats(value)
			return math.Log(a / b), math.Log(aLowest / bLowest)
		}
		p50, _ := ratio(alone, func(x result) float64 { return x.P50 })
		median, lowest := ratio(alone, p99)
		batch, _ := ratio(baselineRow, func(x result) float64 { return x.Batch })
		s.p50, s.p99, s.lowest, s.batch, s.cells = s.p50+p50, s.p99+median, s.lowest+lowest, s.batch+batch, s.cells+1
		_, lowestP99, _ := r.stats(p99)
		if _, _, highest := alone.stats(p99); lowestP99 <= 1.05*highest {
			s.within++
		}
	}
	if len(order) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\nGeometric means over %.0f cells (a service under a load beside a job): the service's latency divided by its latency alone, of the medians and\n"+
		"of the best rounds; batch's CPU divided by that of \"%s\"; and how many cells have a best round within 5 %% of the service's worst round alone.\n\n| method | p50 | p99 | p99, best rounds | batch CPUs | cells within |\n|---|---|---|---|---|---|\n", title, all[order[0]].cells, baseline)
	for _, method := range order {
		s := all[method]
		mean := func(sum float64) float64 { return math.Exp(sum / s.cells) }
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %.2f | %.2f | %.0f |\n", method, mean(s.p50), mean(s.p99), mean(s.lowest), mean(s.batch), s.within)
	}
	return b.String()
}

// find is the row of the same service, load and job in another way, or the one of the service alone.
func (t *table) find(c cell, method string) *row {
	if method == alone {
		c.job = nil
	}
	for _, r := range t.rows {
		if r.cell == c && r.method == method {
			return r
		}
	}
	return nil
}

// write writes the page, and the chart beside it. Sections of other benchmarks stay on the page.
func (t *table) write(path string) error {
	svg := strings.TrimSuffix(path, ".md") + ".svg"
	return errors.Join(
		changePage(path, func(earlier string) string { return withSectionsOf(t.page(), earlier) }),
		os.WriteFile(svg, []byte(t.chart(runtime.NumCPU())), 0o644),
	)
}

// kernel is the running kernel's version, and that of its cgroups.
func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	version := "cgroup v1"
	if _, missing := os.Stat("/sys/fs/cgroup/cgroup.controllers"); missing == nil {
		version = "cgroup v2"
	}
	return cmp.Or(strings.TrimSpace("Linux "+string(release)), fmt.Sprint(err)) + ", " + version
}
