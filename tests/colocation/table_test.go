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

// alone is the name of the way without a batch job.
const alone = "alone"

// table has all results of a run, in the order in which their cells were first measured.
type table struct {
	rows []*row
}

type row struct {
	cell    cell
	way     string
	rate    float64
	results []result
}

func newTable() *table { return &table{} }

func (t *table) add(c cell, way string, rate float64, r result) {
	if way == alone {
		c.job = nil
	}
	for _, known := range t.rows {
		if known.cell == c && known.way == way {
			known.results = append(known.results, r)
			return
		}
	}
	t.rows = append(t.rows, &row{c, way, rate, []result{r}})
}

// of is the median of a value, with the least and the most, over the rounds that the host did not disturb; over the least disturbed
// one if it disturbed all.
func (r *row) of(value func(result) float64) (median, least, most float64) {
	best := slices.MinFunc(r.results, func(a, b result) int { return cmp.Compare(a.Stolen, b.Stolen) })
	var values []float64
	for _, one := range r.results {
		if one.Stolen <= max(tolerable, best.Stolen) {
			values = append(values, value(one))
		}
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1]
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
		fmt.Fprintf(&b, "\n## %s\n\n%.0f requests a second. Medians of %d, and in brackets the least and the most.\n\n", first.cell.title(), first.rate, len(first.results))
		b.WriteString("| batch job | way | p50 ms | p99 ms | p99.9 ms | errors | batch CPUs | machine busy | host took | Polder's CPUs |\n|---|---|---|---|---|---|---|---|---|---|\n")
		for _, r := range t.rows {
			if r.cell.service == first.cell.service && r.cell.percent == first.cell.percent {
				b.WriteString(r.line())
			}
		}
	}
	return b.String()
}

func (r *row) line() string {
	p50, _, _ := r.of(func(x result) float64 { return x.P50 })
	p99, least, most := r.of(func(x result) float64 { return x.P99 })
	p999, _, _ := r.of(func(x result) float64 { return x.P999 })
	errors, _, _ := r.of(func(x result) float64 { return float64(x.Errors) })
	batch, leastBatch, mostBatch := r.of(func(x result) float64 { return x.Batch })
	busy, _, _ := r.of(func(x result) float64 { return x.Busy })
	stolen, _, _ := r.of(func(x result) float64 { return x.Stolen })
	own, _, _ := r.of(func(x result) float64 { return x.Polder })
	job := ""
	if r.cell.job != nil {
		job = r.cell.job.name
	}
	cost := ""
	if strings.HasPrefix(r.way, "Polder") {
		cost = fmt.Sprintf("%.3f", own)
	}
	return fmt.Sprintf("| %s | %s | %.2f | %.2f (%.2f-%.2f) | %.2f | %.0f | %.2f (%.2f-%.2f) | %.0f %% | %.1f %% | %s |\n",
		job, r.way, p50, p99, least, most, p999, errors, batch, leastBatch, mostBatch, busy, stolen, cost)
}

// page is docs/colocation.md.
func (t *table) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Does colocation work?

`+"`make bench-colocation`"+` measures it and writes this page (`+"`QUICK=1`"+` for four minutes, `+"`ROUNDS=1`"+` for a quarter of an hour). Measured on a machine of %d CPUs, %s.

Each service runs in a cgroup of its own at the top of the hierarchy, as below systemd's slices, with its client, which begins a request whenever one is due and counts the latency from then. Each batch job has
twice as many processes as there are CPUs, in a cgroup beside the service's. The rate is the one at which service and client take so much of the machine
alone. Every way is measured once a round; the rounds follow each other. "Polder" is collect | advise | isolate at their defaults, in a cgroup beside the others,
started %s before the measurement of %s.

On the Kubernetes node (a real kubelet, containerd and control plane, all on this machine) service and batch job run in the cgroups of a
Burstable and a BestEffort pod's containers.

![What batch gets, and what the service feels](colocation.svg)

Each dot is one service under one load beside one job. Lower is better for the service, farther right for batch; "alone" is the dark line.

Where the host took more than %.0f %% of this virtual machine's CPUs during a measurement, it was made again, at most %d times in a run, and another round counts instead where there is one.

Not measured here: clients on another machine; latency on cgroup v2 (a guest's CPUs are emulated).
`, runtime.NumCPU(), kernel(), warm, span, tolerable, mostAgain)
	b.WriteString(t.summary("In short", func(c cell) bool { return c.service != &onKubernetes }, ways[1].name))
	b.WriteString(t.summary("On the Kubernetes node", func(c cell) bool { return c.service == &onKubernetes }, podIdle))
	b.WriteString(t.markdown())
	return b.String()
}

// summary is a table with a line for each way, over all cells of a kind: geometric means, and how many cells are within 5 % of
// alone as far as the rounds can show. Batch's CPU is compared with that of the one line of shell.
func (t *table) summary(title string, of func(cell) bool, byHand string) string {
	p99 := func(x result) float64 { return x.P99 }
	type sums struct{ p50, p99, least, batch, cells, within float64 }
	all := map[string]*sums{}
	var order []string
	for _, r := range t.rows {
		alone, hand := t.find(r.cell, alone), t.find(r.cell, byHand)
		if r.cell.job == nil || !of(r.cell) || alone == nil || hand == nil {
			continue
		}
		if all[r.way] == nil {
			all[r.way], order = &sums{}, append(order, r.way)
		}
		s := all[r.way]
		ratio := func(of *row, value func(result) float64) (median, least float64) {
			a, aLeast, _ := r.of(value)
			b, bLeast, _ := of.of(value)
			return math.Log(a / b), math.Log(aLeast / bLeast)
		}
		p50, _ := ratio(alone, func(x result) float64 { return x.P50 })
		median, least := ratio(alone, p99)
		batch, _ := ratio(hand, func(x result) float64 { return x.Batch })
		s.p50, s.p99, s.least, s.batch, s.cells = s.p50+p50, s.p99+median, s.least+least, s.batch+batch, s.cells+1
		_, lowest, _ := r.of(p99)
		if _, _, most := alone.of(p99); lowest <= 1.05*most {
			s.within++
		}
	}
	if len(order) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\nGeometric means over %.0f cells: the service's latency against alone, of the medians and of the best rounds; what batch gets against \"%s\"; cells whose best round is within\n"+
		"5 %% of what the service alone has in its worst.\n\n| way | p50 | p99 | p99, best rounds | batch CPUs | cells within |\n|---|---|---|---|---|---|\n", title, all[order[0]].cells, byHand)
	for _, way := range order {
		s := all[way]
		mean := func(sum float64) float64 { return math.Exp(sum / s.cells) }
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %.2f | %.2f | %.0f |\n", way, mean(s.p50), mean(s.p99), mean(s.least), mean(s.batch), s.within)
	}
	return b.String()
}

// find is the row of the same service, load and job in another way, or the one of the service alone.
func (t *table) find(c cell, way string) *row {
	if way == alone {
		c.job = nil
	}
	for _, r := range t.rows {
		if r.cell == c && r.way == way {
			return r
		}
	}
	return nil
}

// write writes the page, and the chart beside it.
func (t *table) write(path string) error {
	svg := strings.TrimSuffix(path, ".md") + ".svg"
	return errors.Join(os.WriteFile(path, []byte(t.page()), 0o644), os.WriteFile(svg, []byte(t.chart(runtime.NumCPU())), 0o644))
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
