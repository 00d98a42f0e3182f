package view

import (
	"fmt"
	"slices"
	"strings"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// block is one NUMA node's CPUs: a column a physical core, a row a hyperthread.
type block struct {
	label   string
	columns [][]int
}

// blocks sorts the machine's CPUs.
func blocks(t *tick.Topology) []block {
	online, err := cpus.Parse(t.CPUs)
	if err != nil || online.IsEmpty() {
		return nil
	}
	coreOf := map[int][]int{} // by the core's first CPU
	seen := cpus.New()
	for _, list := range t.Cores {
		if set, err := cpus.Parse(list); err == nil && !set.IsEmpty() {
			coreOf[set.List()[0]] = set.List()
			seen = seen.Union(set)
		}
	}
	for _, id := range online.Difference(seen).List() {
		coreOf[id] = []int{id}
	}
	var out []block
	taken := cpus.New()
	for _, n := range t.NUMANodes {
		set, err := cpus.Parse(n.CPUs)
		if err != nil || set.IsEmpty() {
			continue
		}
		out = append(out, block{fmt.Sprintf("numa%d", n.ID), columnsOf(set, coreOf)})
		taken = taken.Union(set)
	}
	if rest := online.Difference(taken); !rest.IsEmpty() {
		out = append(out, block{"cpus", columnsOf(rest, coreOf)})
	}
	return out
}

func columnsOf(set cpus.Set, coreOf map[int][]int) [][]int {
	var columns [][]int
	for _, id := range set.List() {
		if core := coreOf[id]; core != nil {
			columns = append(columns, core)
		}
	}
	return columns
}

func (b block) rows() int {
	n := 0
	for _, c := range b.columns {
		n = max(n, len(c))
	}
	return n
}

// split cuts a block that is too wide into pieces that follow each other.
func (b block) split(most int) []block {
	var out []block
	for label := b.label; len(b.columns) > 0; label = "" {
		n := min(most, len(b.columns))
		out = append(out, block{label, b.columns[:n]})
		b.columns = b.columns[n:]
	}
	return out
}

const labelWidth = 7

// coreMap draws the CPUs in at most height lines: in cells of two columns where they fit, else of one.
func coreMap(t *tick.Topology, of map[int]letter, width, height int) []*line {
	all := blocks(t)
	var lines []*line
	var shown, total int
	for _, cell := range []int{2, 1} {
		lines, shown, total = flow(all, of, width, height, cell)
		if shown == total {
			return lines
		}
	}
	if total > shown && len(lines) > 0 {
		lines[len(lines)-1].add(dim, fmt.Sprintf("  … %d more CPUs", total-shown))
	}
	return lines
}

// flow places the blocks side by side, as many to a band as fit.
func flow(all []block, of map[int]letter, width, height, cell int) (lines []*line, shown, total int) {
	var pieces []block
	for _, b := range all {
		pieces = append(pieces, b.split(max(1, (width-labelWidth)/cell))...)
		for _, c := range b.columns {
			total += len(c)
		}
	}
	for len(pieces) > 0 {
		n, used := 0, 0
		for n < len(pieces) {
			need := labelWidth + cell*len(pieces[n].columns)
			if n > 0 && used+2+need > width {
				break
			}
			used += need + 2
			n++
		}
		band, count := drawBand(pieces[:n], of, cell)
		if len(lines)+len(band) > height {
			break
		}
		lines = append(lines, band...)
		shown += count
		pieces = pieces[n:]
	}
	return lines, shown, total
}

func drawBand(band []block, of map[int]letter, cell int) ([]*line, int) {
	rows, count := 0, 0
	for _, b := range band {
		rows = max(rows, b.rows())
	}
	lines := make([]*line, rows)
	for row := range lines {
		l := &line{}
		for i, b := range band {
			if i > 0 {
				l.add(plain, "  ")
			}
			label := ""
			if row == 0 {
				label = b.label
			}
			l.add(dim, fit(label, labelWidth))
			count += drawRow(l, b, row, of, cell)
		}
		lines[row] = l
	}
	return lines, count
}

func drawRow(l *line, b block, row int, of map[int]letter, cell int) int {
	n := 0
	for _, c := range b.columns {
		if row >= len(c) {
			l.add(plain, strings.Repeat(" ", cell))
			continue
		}
		n++
		x, ok := of[c[row]]
		if !ok {
			x = letterNone
		}
		l.add(x.style, fit(x.text, cell))
	}
	return n
}

// legend names the letters with the number of CPUs.
func legend(l *line, size map[letter]int, total int) {
	pooled := 0
	for _, x := range slices.Backward(rank) {
		if size[x] == 0 {
			continue
		}
		pooled += size[x]
		l.add(x.style, " "+x.text+" ").add(plain, fmt.Sprintf(" %s %d   ", x.name, size[x]))
	}
	if left := total - pooled; left > 0 {
		l.add(dim, fmt.Sprintf("%s %s %d", letterNone.text, letterNone.name, left))
	}
}
