package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"polder/lib/phrase"
	"polder/lib/tick"
)

// podOver answers about a pod over a period.
func (r *Recording) podOver(n *node, add func(string)) {
	var s []string
	if f := n.allowed; f.number > 0 {
		s = append(s, spread("It was allowed", f)+".")
	} else {
		s = append(s, "Neither a quota nor CPUs bounded it.")
	}
	if f := n.use; f.number > 0 {
		s = append(s, spread("It used", f)+".")
	}
	end := "at the end"
	if n.pod == nil {
		end = "at " + n.clock(n.podTick.Time)
		s = append(s, fmt.Sprintf("It was last seen %s.", end))
	}
	add(paragraph("Allowed", s...))
	add(r.squeezed(n))
	t, p := n.podTick, n.lastPod
	a := allowanceOf(t, p)
	add(paragraph(strings.ToUpper(end[:1])+end[1:], append(append([]string{describeClass(p)}, a.describe(t, p)...), used(p))...))
	add(paragraph("What held it back then", r.held(t, p, a)))
	add(paragraph("Why no more "+end, why(t, p)...))
	if p.QoS == tick.QoSReclaimed {
		add(paragraph("Which service", needed(t)...))
		add(paragraph("Network "+end, describeNetwork(t)...))
	}
	add(paragraph("Disk "+end, describeDisks(t, p)...))
	switch f := n.throttling; {
	case f.number == 0:
		add(paragraph("Throttled", "Unknown: no container has the figure."))
	case f.high < 1:
		add(paragraph("Throttled", "No: no quota stopped it."))
	default:
		const text = "Yes: in %s %% of the periods on average, most at %s (%s %%)."
		add(paragraph("Throttled", fmt.Sprintf(text, phrase.Decimal(f.average(), 0), n.clock(f.highAt), phrase.Decimal(f.high, 0))))
	}
	if p.QoS == tick.QoSReclaimed {
		add(paragraph("Cold memory", n.describeCold(t)...))
	}
	add(r.evicted(n, t, p))
	add(paragraph("To change it", whatToChange(t, p)...))
	add(failures(t, p))
}

// nodeOver answers about a node over a period.
func (r *Recording) nodeOver(n *node, add func(string)) {
	var s []string
	if n.offer.number > 0 {
		s = append(s, spread("", n.offer)+", to reclaimed pods.")
	}
	if f := n.memory; f.number > 0 {
		text := bytesOf(f.low)
		if high := bytesOf(f.high); high != text {
			text += " to " + high
		}
		s = append(s, "Memory: "+text+".")
	}
	for _, key := range slices.Sorted(maps.Keys(n.taints)) {
		s = append(s, fmt.Sprintf("The taint %s kept new pods away in %s.", key, phrase.Count(n.taints[key], "tick")))
	}
	if len(s) == 0 && len(n.gaps) == 0 {
		s = offered(n.current)
	}
	add(paragraph("Offered", s...))
	add(r.nothing(n))
	add(r.squeezed(n))
	var parts []string
	for i, p := range largest(n.peaks, 4) {
		if i > 0 && p.value < leastNamed*largest(n.peaks, 1)[0].value {
			break
		}
		parts = append(parts, fmt.Sprintf("%s at %s", p.text, n.clock(p.at)))
	}
	if len(parts) > 0 {
		add(paragraph("Which service", "The largest needs were "+list(parts)+"."))
	}
	add(paragraph("Why no more at the end", why(n.current, nil)...))
	add(paragraph("Network at the end", describeNetwork(n.current)...))
	add(paragraph("Disk at the end", describeDisks(n.current, nil)...))
	add(throttledList(n.throttledPods, n.throttlingKnown, func(p peak) string { return n.clock(p.at) }))
	add(paragraph("Cold memory", n.describeCold(n.current)...))
	add(r.evicted(n, n.current, nil))
	add(paragraph("To change it", whatToChange(n.current, nil)...))
	add(failures(n.current, nil))
}

// spread describes an amount over a period.
func spread(begin string, f figures) string {
	begin = strings.TrimLeft(begin+" ", " ")
	if f.low == f.high {
		return fmt.Sprintf("%s%s all the time", begin, coresOf(f.low))
	}
	return fmt.Sprintf("%s%s to %s, %s on average, %s at the end",
		begin, coresNumber(f.low), coresOf(f.high), coresNumber(f.average()), coresNumber(f.ending))
}

// nothing lists the times without an offer.
func (r *Recording) nothing(n *node) string {
	if len(n.gaps) == 0 {
		return ""
	}
	if s := n.gaps[0]; len(n.gaps) == 1 && n.moreGaps == 0 {
		return paragraph("Nothing was offered", fmt.Sprintf("From %s to %s: %s.", n.clock(s.from), n.clock(s.to), sentence(s.why)))
	}
	var text strings.Builder
	text.WriteString(paragraph("Nothing was offered", phrase.Count(len(n.gaps)+n.moreGaps, "time")+"."))
	for _, s := range n.gaps {
		text.WriteString(item(fmt.Sprintf("From %s to %s: %s.", n.clock(s.from), n.clock(s.to), sentence(s.why))))
	}
	if n.moreGaps > 0 {
		text.WriteString(item(fmt.Sprintf("and %s more", phrase.Count(n.moreGaps, "time"))))
	}
	return text.String()
}

// squeezed lists the squeezes.
func (r *Recording) squeezed(n *node) string {
	q := &n.squeezes
	switch q.total {
	case 0:
		if r.name == "" && !n.pooled && n.offer.number == 0 || r.name != "" && n.allowed.number == 0 && n.offer.number == 0 {
			return ""
		}
		const text = "No: %s never fell by %.0f %% of the machine within 5 minutes."
		return paragraph("Squeezed", fmt.Sprintf(text, r.amount(n), squeezePart*100))
	case 1:
		return paragraph("Squeezed", q.found[0].describe(r.amount(n), n.clock))
	}
	var text strings.Builder
	text.WriteString(paragraph("Squeezed", phrase.Count(q.total, "time")+"."))
	for _, s := range q.found {
		text.WriteString(item(s.describe(r.amount(n), n.clock)))
	}
	if over := q.total - len(q.found); over > 0 {
		text.WriteString(item(fmt.Sprintf("and %s more, smaller ones", phrase.Count(over, "time"))))
	}
	return text.String()
}
