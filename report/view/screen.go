package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/phrase"
	"polder/lib/tick"
	"polder/lib/usage"
	"polder/report/age"
	"polder/report/amounts"
)

// Frame draws the screen: at most look.Height lines of at most look.Width columns.
func Frame(m *Model, look Look, now time.Time) []string {
	lines := []*line{m.titleLine(look, now)}
	if m.Tick.Sample == nil {
		lines = append(lines, (&line{}).add(warn, "this tick has no sample: is collect in the pipe?"))
	} else {
		lines = append(lines, m.nodeLines(look)...)
	}
	roomy := look.Height >= 34
	if roomy && m.Tick.Sample != nil && m.Tick.Sample.CPU != nil {
		legend := (&line{}).add(dim, fit("", labelWidth)).add(classShare, "█").add(dim, " services  ").add(classReclaim, "▓").add(dim, " batch  ")
		legend.add(classSystem, "▒").add(dim, " the rest")
		if slices.ContainsFunc(useSegments(m.Tick), func(s segment) bool { return s.fill == unattributed }) {
			legend.add(warn, "  "+unattributed).add(dim, " unknown")
		}
		lines = slices.Insert(lines, 2, legend)
	}
	lines = append(lines, m.offerLine(look)...)
	if roomy {
		lines = append(lines, &line{})
	}
	lines = append(lines, m.coreLines(look)...)
	sections := []section{
		m.podSection(look), m.pressureSection(look), m.writeSection(look), m.networkSection(), m.reasonSection(),
		m.errorSection(),
	}
	lines = append(lines, lay(sections, look.Height-len(lines), roomy)...)

	out := make([]string, 0, len(lines))
	for _, l := range lines[:min(len(lines), look.Height)] {
		out = append(out, l.render(look))
	}
	return out
}

// Prompt is the last line of the screen: the text that is typed, or another line.
func Prompt(text string, look Look) string {
	return (&line{}).add(title, fit(" "+clip.Clean(text), look.Width)).render(look)
}

// playKeys are the keys of a recording that is played.
var playKeys = [][2]string{
	{"space", "stop, and play on; at the end from the beginning"},
	{"left, right", "a tick back, or on"},
	{"shift-left, shift-right", "a minute back, or on (where the terminal keeps shift to itself: < and >)"},
	{"e", "the next eviction or squeeze"},
	{"/", "show the pods alone whose names have a text; Enter keeps it, Esc shows all"},
	{"+, -", "twice as fast, half as fast"},
	{"q", "end"},
	{"?", "these keys"},
}

// Help is a screen that names the keys of a recording that is played.
func Help(look Look) []string {
	lines := []*line{(&line{}).add(title, fit(" polder: the keys of a recording", look.Width)), {}}
	for _, k := range playKeys {
		lines = append(lines, (&line{}).add(heading, fit("  "+k[0], 27)).add(plain, k[1]))
	}
	lines = append(lines, &line{}, (&line{}).add(dim, "  any key shows the recording again"))
	var out []string
	for _, l := range lines[:min(len(lines), look.Height)] {
		out = append(out, l.render(look))
	}
	return out
}

// Waiting is the screen before the first tick.
func Waiting(look Look) []string {
	return []string{(&line{}).add(title, fit(" polder", look.Width)).render(look), (&line{}).add(dim, " no tick has come yet").render(look)}
}

func (m *Model) titleLine(look Look, now time.Time) *line {
	t := m.Tick
	left := " polder  " + clip.Clean(t.Node)
	if m.OtherNodes > 0 {
		left += fmt.Sprintf(" (and %d more)", m.OtherNodes)
	}
	if t.Advice != nil {
		left += " · " + clip.Clean(t.Advice.Policy)
	}
	if t.Isolation != nil && t.Isolation.DryRun {
		left += " · dry run"
	}
	form := "2006-01-02 15:04:05Z"
	if look.Width < 70 {
		form = "15:04:05Z"
	}
	right := t.Time.UTC().Format(form) + "  "
	mark := ""
	switch {
	case m.Playback != "":
		right += m.Playback + " "
	case m.Stream == nil || m.Stream.IsRecording():
		right += "recorded "
	default:
		if mark = m.Stream.Mark(t, now); mark == age.Early {
			right += "ahead " + Span(t.Time.Sub(now)) + " "
		} else {
			right += "age " + Span(now.Sub(t.Time)) + " "
		}
	}
	if dropped := dropped(t); dropped > 0 {
		right = fmt.Sprintf("%d ticks dropped  ", dropped) + right
	}
	if mark != "" {
		right = strings.ToUpper(mark) + "  " + right
	}
	if len([]rune(left))+2+len([]rune(right)) > look.Width {
		left = fit(left, max(0, look.Width-2-len([]rune(right))))
	}
	style := title
	if mark != "" {
		style = bad
	}
	l := (&line{}).add(title, left)
	l.add(title, strings.Repeat(" ", max(2, look.Width-l.width()-len([]rune(right)))))
	return l.add(style, right)
}

func dropped(t *tick.Tick) int64 {
	var n int64
	if t.Sample != nil {
		n += t.Sample.DroppedTicks
	}
	if t.Isolation != nil {
		n += t.Isolation.DroppedTicks
	}
	if t.Network != nil {
		n += t.Network.DroppedTicks
	}
	if t.Eviction != nil {
		n += t.Eviction.DroppedTicks
	}
	return n
}

func barWidth(look Look) int {
	if look.Width >= 100 { // with all three loads
		return min(60, look.Width-72)
	}
	return max(8, look.Width-58)
}

func (m *Model) nodeLines(look Look) []*line {
	s := m.Tick.Sample
	var lines []*line
	if s.CPU != nil {
		lines = append(lines, m.cpuLine(look, s))
	}
	if s.Memory != nil {
		lines = append(lines, memoryLine(look, s.Memory))
	}
	if l := m.coldLine(); l != nil {
		lines = append(lines, l)
	}
	if l := diskLine(look, s); l != nil {
		lines = append(lines, l)
	}
	return lines
}

func (m *Model) cpuLine(look Look, s *tick.Sample) *line {
	whole := usage.Capacity(s)
	l := (&line{}).add(heading, fit("cpu", labelWidth))
	all := 0.0
	if whole != nil {
		all = *whole / 1000
	}
	l.bar(all, barWidth(look), useSegments(m.Tick)...)
	of := ""
	if whole != nil {
		of = " of " + phrase.Decimal(*whole/1000, 0)
	}
	l.add(plain, fit(fmt.Sprintf("  %s%s cores", Cores(s.CPU.UsageMilliCPU), of), 20)+right(percent(s.CPU.UsageMilliCPU, whole), 4))
	l.add(dim, "  load ").add(plain, load(s.CPU.Load1))
	if look.Width >= 100 {
		l.add(plain, " "+load(s.CPU.Load5)+" "+load(s.CPU.Load15))
	}
	return l.psi(s.CPU.Pressure)
}

// useSegments are the parts of the node's use, in cores: of services, of batch and of the rest. What cannot be attributed, because the use
// or the class of a pod is unknown, is a part of its own.
func useSegments(t *tick.Tick) []segment {
	a := amounts.Of(t)
	var segments []segment
	attributed, isWhole := 0.0, true
	for _, x := range []struct {
		use *float64
		segment
	}{
		{a.Services, segment{fill: "█", style: classShare}},
		{a.Batch, segment{fill: "▓", style: classReclaim}},
		{a.Rest, segment{fill: "▒", style: classSystem}},
	} {
		if x.use == nil {
			isWhole = false
			continue
		}
		x.part = *x.use
		attributed += x.part
		segments = append(segments, x.segment)
	}
	if isWhole || t.Sample == nil || t.Sample.CPU == nil || t.Sample.CPU.UsageMilliCPU == nil {
		return segments
	}
	return append(segments, segment{max(0, *t.Sample.CPU.UsageMilliCPU/1000-attributed), unattributed, warn})
}

// unattributed is drawn for use that is not known to be that of services, of batch or of the rest.
const unattributed = "?"

func memoryLine(look Look, mem *tick.NodeMemory) *line {
	l := (&line{}).add(heading, fit("memory", labelWidth))
	var used *float64
	if mem.TotalBytes != nil && mem.AvailableBytes != nil {
		used = new(*mem.TotalBytes - *mem.AvailableBytes)
	}
	var all, part float64
	if mem.TotalBytes != nil {
		all = *mem.TotalBytes
	}
	if used != nil {
		part = *used
	}
	l.bar(all, barWidth(look), segment{part, "█", classSystem})
	amount := Bytes(used) + " of " + Bytes(mem.TotalBytes)
	if unit := " GiB"; strings.HasSuffix(Bytes(used), unit) && strings.HasSuffix(Bytes(mem.TotalBytes), unit) {
		amount = strings.TrimSuffix(Bytes(used), unit) + " of " + Bytes(mem.TotalBytes)
	}
	l.add(plain, fit("  "+amount, 20)+right(percent(used, mem.TotalBytes), 4))
	l.add(dim, "  free ").add(plain, Bytes(mem.FreeBytes))
	return l.psi(mem.Pressure)
}

// diskLine is the disk that is used most, with how many there are; nil where no use is known.
func diskLine(look Look, s *tick.Sample) *line {
	var most *tick.Disk
	for i := range s.Disks {
		if d := &s.Disks[i]; d.UsePercent != nil && (most == nil || *d.UsePercent > *most.UsePercent) {
			most = d
		}
	}
	if most == nil {
		return nil
	}
	l := (&line{}).add(heading, fit("disk", labelWidth))
	l.bar(100, barWidth(look), segment{*most.UsePercent, "█", classSystem})
	name := clip.Clean(most.Name)
	if n := len(s.Disks); n > 1 {
		name += fmt.Sprintf(", of %d", n)
	}
	l.add(plain, fit("  "+name, 20)+right(percent(most.UsePercent, new(100.0)), 4))
	l.add(dim, "  queue ").add(plain, load(most.Queue))
	if s.IO != nil {
		l.psi(s.IO.Pressure)
	}
	return l
}

// psi adds the share of the last ten seconds in which some task waited.
func (l *line) psi(p *tick.Pressure) *line {
	if p == nil || p.Some == nil {
		return l
	}
	s := plain
	switch {
	case p.Some.Avg10 >= 50:
		s = bad
	case p.Some.Avg10 >= 10:
		s = warn
	}
	return l.add(dim, "  psi ").add(s, phrase.Decimal(p.Some.Avg10, 1)+"%")
}

// offerLine shows the offer, and its history.
func (m *Model) offerLine(look Look) []*line {
	if m.Tick.Advice == nil {
		return []*line{(&line{}).add(warn, "no advice in this tick: is advise in the pipe?")}
	}
	var r tick.Reclaimed
	if m.Tick.Advice.Reclaimed != nil {
		r = *m.Tick.Advice.Reclaimed
	}
	width := max(8, (look.Width-60)/2)
	l := (&line{}).add(heading, "reclaimed ")
	l.add(good, Cores(tick.Float(r.MilliCPU))).add(plain, " cores ")
	l.sparkline(m.offeredCPU, width, Cores)
	l.add(plain, "   ").add(good, Bytes(tick.Float(r.MemoryBytes))).add(plain, " memory ")
	l.sparkline(m.offeredMemory, width, nil)
	lines := []*line{l}
	if look.Height < 20 {
		return lines
	}
	batch, services := m.Worth()
	return append(append(lines, sentenceLines(look, "batch", batch)...), sentenceLines(look, "services", services)...)
}

// sentenceLines show a sentence that begins with its subject. Pieces that the first line has no room for are in a second one.
func sentenceLines(look Look, subject string, pieces []string) []*line {
	if len(pieces) == 0 {
		return nil
	}
	label := fit(subject, max(labelWidth, len(subject)+1))
	first, rest := strings.TrimPrefix(pieces[0], subject+" "), pieces[1:]
	for len(rest) > 0 && len([]rune(label+first+", "+rest[0])) <= look.Width {
		first, rest = first+", "+rest[0], rest[1:]
	}
	lines := []*line{(&line{}).add(heading, label).add(plain, first)}
	if len(rest) > 0 {
		lines = append(lines, (&line{}).add(plain, fit("", len(label))+strings.Join(rest, ", ")))
	}
	return lines
}

func (l *line) sparkline(history []*float64, width int, text func(*float64) string) {
	l.add(classReclaim, spark(history, width))
	if len(history) > width {
		history = history[len(history)-width:]
	}
	if low, high, any := bounds(history); any && low != high && text != nil {
		l.add(dim, fmt.Sprintf(" %s–%s", text(&low), text(&high)))
	}
}

func (m *Model) coreLines(look Look) []*line {
	if m.Tick.Sample == nil || m.Tick.Sample.Topology == nil {
		return nil
	}
	t := m.Tick.Sample.Topology
	online, err := cpus.Parse(t.CPUs)
	if err != nil || online.IsEmpty() {
		return nil
	}
	of, size := m.pools()
	if len(of) == 0 {
		return m.quotaLines(look, online.Size())
	}
	l := (&line{}).add(heading, fit("cores", labelWidth))
	legend(l, size, online.Size())
	return append([]*line{l}, coreMap(t, of, look.Width, max(2, look.Height/3))...)
}

// quotaLines replace the map on a machine without pools: all pods use all CPUs, and the reclaimed pods are limited
// by a quota or by their scheduling class.
func (m *Model) quotaLines(look Look, total int) []*line {
	if m.Tick.Advice == nil || m.Tick.Advice.Reclaimed == nil || m.Tick.Advice.Reclaimed.MilliCPU == nil {
		return nil
	}
	all := float64(total) * 1000
	reclaimed := min(max(0, float64(*m.Tick.Advice.Reclaimed.MilliCPU)), all) // bounded, because any line may be hostile
	services := all - reclaimed
	what := "offer" // batch is limited by its scheduling class
	isHeld := func(c tick.Cgroup) bool { return c.CPUMaxMilliCPU != nil && *c.CPUMaxMilliCPU != tick.Unlimited }
	if slices.ContainsFunc(m.Tick.Advice.Cgroups, isHeld) {
		what = "quota"
	}
	l := (&line{}).add(heading, fit(what, labelWidth))
	width := barWidth(look)
	part := int(services/all*float64(width) + 0.5)
	l.add(poolShare, strings.Repeat("S", part)).add(poolReclaim, strings.Repeat("R", width-part))
	l.add(plain, "  ").add(poolShare, " S ").add(plain, " services "+Cores(&services))
	l.add(plain, "  ").add(poolReclaim, " R ").add(plain, " reclaimed "+Cores(&reclaimed))
	return []*line{l}
}
