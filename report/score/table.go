package score

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"polder/lib/clip"
	"polder/lib/phrase"
	"polder/lib/tick"
	"polder/report/view"
)

const unknown = "-"

// row is a line of the table: its name, and its value for each stream.
type row struct {
	name string
	// alone is its name outside of the table, without the lines above it; empty where that is the same.
	alone string
	of    func(*node) string
}

// rows are the table's lines; the text beside them explains them.
var rows = []row{
	{"policy", "", func(n *node) string { return orUnknown(n.policy) }},
	{"time", "", func(n *node) string { return view.Span(n.last.Sub(n.first)) }},
	{"ticks", "", func(n *node) string { return fmt.Sprint(n.ticks) }},
	{"offered, cores", "", func(n *node) string { return n.offered.cores() }},
	{"free, cores", "", func(n *node) string { return n.free.cores() }},
	{"batch used, cores", "", func(n *node) string { return n.batch() }},
	{"memory offered", "", func(n *node) string { return n.memory.bytes() }},
	{"oversold, of the ticks", "", func(n *node) string { return part(n.oversold, n.judged) }},
	{"  by, cores", "oversold by, cores", func(n *node) string { return n.overBy() }},
	{"moves", "", func(n *node) string { return n.anHour(n.moves, n.compared > 0) }},
	{"squeezes", "", func(n *node) string { return n.anHour(n.story.Squeezes(), n.offered.n > 0) }},
	{"evictions", "", func(n *node) string { return n.evictions() }},
	{"  that would be", "evictions of a dry run", func(n *node) string { return n.wouldBe() }},
	{"  needed of those", "needed, of a dry run's evictions", func(n *node) string { return n.neededOf() }},
	{"services wait, threads", "", func(n *node) string { return n.waiting.plain() }},
	{"  throttled", "services throttled", func(n *node) string { return n.throttled.percent() }},
	{"shadow policy", "", func(n *node) string { return orUnknown(n.shadow) }},
	{"  would offer, cores", "shadow offers, cores", func(n *node) string { return n.shadowOffered.cores() }},
	{"  would be oversold, of the ticks", "shadow oversold, of the ticks", func(n *node) string { return part(n.shadowOversold, n.shadowJudged) }},
	{"writes", "", func(n *node) string { return n.writesAnHour() }},
}

// legend explains the lines.
const legend = `
offered            on average, to reclaimed pods
free               what all but the reclaimed pods and the hypervisor left: what could have been offered, on average
oversold           ticks at which more was offered than was free at the next one, and by how much then, on average
moves              an offer that differs from the one before by more than 5 % of the machine
squeezes           what reclaimed pods may use fell by 5 % of the machine or more within 5 minutes
that would be      evictions of a dry run; needed are those whose condition still held a minute later, with the pod still there.
                   Whether one that was carried out was needed cannot be seen
services wait      threads of services that were ready to run and did not, on average: their load beyond their use
shadow policy      what advise --shadow would have decided on the same samples
writes             values that isolate wrote, or would have written in a dry run
`

// Text is the score of each stream in a column, node by node. The streams have the same nodes.
func Text(streams ...*Stream) string {
	var names []string
	for _, s := range streams {
		for _, name := range s.sorted() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		cells := [][]string{{clip.Clean(name)}}
		for _, s := range streams {
			cells[0] = append(cells[0], clip.Clean(s.Name))
		}
		for _, r := range rows {
			line := []string{r.name}
			for _, s := range streams {
				if n := s.nodes[name]; n != nil {
					line = append(line, r.of(n))
				} else {
					line = append(line, unknown)
				}
			}
			cells = append(cells, line)
		}
		writeTable(&b, cells)
		b.WriteByte('\n')
		for _, s := range streams {
			if n := s.nodes[name]; n != nil && n.leftOut > 0 {
				fmt.Fprintf(&b, "%s: %s left out: not newer than the one before.\n\n", clip.Clean(s.Name), phrase.Count(n.leftOut, "tick"))
			}
		}
	}
	for _, s := range streams {
		if s.otherTicks > 0 {
			fmt.Fprintf(&b, "%s has more than %d nodes: %d ticks of the others are left out.\n\n",
				clip.Clean(s.Name), mostNodes, s.otherTicks)
		}
	}
	return b.String() + strings.TrimPrefix(legend, "\n")
}

// writeTable writes lines whose first cell is left-aligned and the others right-aligned.
func writeTable(b *strings.Builder, cells [][]string) {
	widths := make([]int, len(cells[0]))
	for _, line := range cells {
		for i, cell := range line {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for _, line := range cells {
		for i, cell := range line {
			space := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			switch i {
			case 0:
				b.WriteString(cell + space)
			default:
				b.WriteString("  " + space + cell)
			}
		}
		b.WriteByte('\n')
	}
}

func orUnknown(text string) string {
	if text == "" {
		return unknown
	}
	return clip.Clean(text)
}

func (m *mean) value() (v float64, known bool) {
	if m.n == 0 {
		return 0, false
	}
	return m.sum / float64(m.n), true
}

// with formats the average with so many decimals.
func (m *mean) with(decimals int) string {
	v, known := m.value()
	if !known {
		return unknown
	}
	return phrase.Decimal(v, decimals)
}

func (m *mean) cores() string { return m.with(2) }
func (m *mean) plain() string { return m.with(2) }

func (m *mean) percent() string {
	if _, known := m.value(); !known {
		return unknown
	}
	return m.with(1) + " %"
}

func (m *mean) bytes() string {
	v, known := m.value()
	if !known {
		return unknown
	}
	return view.Bytes(&v)
}

func part(n, of int) string {
	if of == 0 {
		return unknown
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of))
}

func (n *node) batch() string {
	w := n.counted.Worth()
	if w.Seconds == 0 {
		return unknown
	}
	return phrase.Decimal(w.Batch/w.Seconds, 2)
}

func (n *node) overBy() string {
	switch {
	case n.judged == 0:
		return unknown
	case n.oversold == 0:
		return "0"
	}
	return n.over.cores()
}

// anHour is a number of events as a rate, which would be meaningless for less than a minute.
func (n *node) anHour(events int, known bool) string {
	span := n.last.Sub(n.first)
	switch {
	case !known || span <= 0:
		return unknown
	case span < time.Minute:
		return fmt.Sprint(events)
	}
	return fmt.Sprintf("%.1f an hour", float64(events)/span.Hours())
}

func (n *node) evictions() string {
	states := n.story.Evictions()
	return fmt.Sprint(states[tick.StateCreated] + states[tick.StateSucceeded])
}

func (n *node) wouldBe() string { return fmt.Sprint(n.story.Evictions()[tick.StateWouldEvict]) }

func (n *node) neededOf() string {
	if n.needed+n.notNeeded == 0 {
		return unknown
	}
	return fmt.Sprintf("%d of %d", n.needed, n.needed+n.notNeeded)
}

func (n *node) writesAnHour() string {
	switch {
	case !n.isolated:
		return unknown
	case n.writes == 0 && n.wouldWrite > 0:
		return n.anHour(n.wouldWrite, true) + " (dry run)"
	}
	return n.anHour(n.writes, true)
}

// Fact is a line of a node's score for another view.
type Fact struct{ Name, Value string }

// Facts are the node's score; nil where it is not in the stream.
func (s *Stream) Facts(node string) (all []Fact) {
	n := s.nodes[node]
	if n == nil {
		return nil
	}
	for _, r := range rows {
		if v := r.of(n); v != unknown {
			all = append(all, Fact{cmp.Or(r.alone, r.name), v})
		}
	}
	return all
}
