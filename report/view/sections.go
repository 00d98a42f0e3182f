package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"polder/lib/clip"
	"polder/lib/phrase"
	"polder/lib/reason"
	"polder/lib/tick"
)

// section is a part of the screen that can be shortened: a heading and rows, of which the first ones matter most.
type section struct {
	heading *line
	rows    []*line
	least   int
	// more is the last row if not all rows have room.
	more func(hidden int) *line
}

// lay gives the height to the sections: first to each its least, from the first to the last, then the rest in turns.
func lay(sections []section, height int, roomy bool) []*line {
	extra := 1 // the heading
	if roomy {
		extra = 2 // a blank line before it
	}
	given := make([]int, len(sections))
	for i, s := range sections {
		if n := min(s.least, len(s.rows), height-extra); n > 0 {
			given[i] = n
			height -= n + extra
		}
	}
	for again := true; again && height > 0; {
		again = false
		for i, s := range sections {
			if given[i] > 0 && given[i] < len(s.rows) && height > 0 {
				given[i]++
				height--
				again = true
			}
		}
	}
	var lines []*line
	for i, s := range sections {
		if given[i] == 0 {
			continue
		}
		if roomy {
			lines = append(lines, &line{})
		}
		lines = append(lines, s.heading)
		rows := s.rows[:given[i]]
		if hidden := len(s.rows) - len(rows); hidden > 0 && s.more != nil && len(rows) > 1 {
			rows = append(slices.Clone(rows[:len(rows)-1]), s.more(hidden+1))
		}
		lines = append(lines, rows...)
	}
	return lines
}

// Widths of the pod table's columns; the name and the CPUs share the rest.
const (
	classWidth = 10
	cpuWidth   = 6
	loadWidth  = 7
	memWidth   = 9
)

var classOrder = []string{tick.QoSDedicated, tick.QoSShared, tick.QoSReclaimed, tick.QoSSystem}

var classStyle = map[string]style{
	tick.QoSDedicated: classDedicated,
	tick.QoSShared:    classShare,
	tick.QoSReclaimed: classReclaim,
	tick.QoSSystem:    classSystem,
}

func (m *Model) podSection(look Look) section {
	if m.Tick.Sample == nil {
		return section{}
	}
	var pods []*tick.Pod
	for i := range m.Tick.Sample.Pods {
		if p := &m.Tick.Sample.Pods[i]; m.Pods == nil || m.Pods(Name(p.Namespace, p.Name)) {
			pods = append(pods, p)
		}
	}
	number := fmt.Sprint(len(pods))
	if m.Searched != "" {
		number = fmt.Sprintf("%d of %d with %q", len(pods), len(m.Tick.Sample.Pods), clip.Clean(m.Searched))
	}
	// By class and name, not by use, because rows that change places are hard to read.
	slices.SortStableFunc(pods, func(a, b *tick.Pod) int {
		return cmp.Or(
			cmp.Compare(slices.Index(classOrder, a.QoS), slices.Index(classOrder, b.QoS)),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		)
	})
	fixed := classWidth + cpuWidth + loadWidth + memWidth + 3
	longest := 0
	for _, p := range pods {
		longest = max(longest, len([]rune(Name(p.Namespace, p.Name))))
	}
	longest = max(longest, len([]rune("pods "+number))) // so that the search is readable
	name := max(12, min(longest, 50, look.Width-fixed-14))
	limits, sets, advised, marks := m.limits(), m.sets(), m.advisedSets(), m.marks()
	s := section{
		heading: (&line{}).add(heading, fit("pods "+number, name+1)+fit("class", classWidth)+
			right("cpu", cpuWidth)+right("load", loadWidth)+right("memory", memWidth)+"  cpus"+cond(len(advised) > 0, " → advised", "")),
		least: 6,
		more:  func(n int) *line { return (&line{}).add(dim, fmt.Sprintf("… and %d more", n)) },
	}
	for _, p := range pods {
		l := &line{}
		mark, marked := marks[p.UID]
		if marked {
			l.add(bad, fit(fitPath(Name(p.Namespace, p.Name), name), name+1))
		} else {
			l.add(plain, fit(fitPath(Name(p.Namespace, p.Name), name), name+1))
		}
		l.add(classStyle[p.QoS], fit(clip.Clean(p.QoS), classWidth))
		l.add(plain, right(Cores(p.UsageMilliCPU), cpuWidth)+right(load(p.Load1), loadWidth)+right(podMemory(p), memWidth)+"  ")
		if marked {
			l.add(bad, mark+" ")
		}
		l.add(plain, confinement(p, limits, sets, advised))
		s.rows = append(s.rows, l)
	}
	return s
}

func podMemory(p *tick.Pod) string {
	if p.Memory == nil {
		return missing
	}
	if p.Memory.WorkingSetBytes != nil {
		return Bytes(p.Memory.WorkingSetBytes)
	}
	return Bytes(p.Memory.UsageBytes)
}

// marks are the states of the evictions, by the pod's UID.
func (m *Model) marks() map[string]string {
	marks := map[string]string{}
	if m.Tick.Eviction != nil {
		for _, e := range m.Tick.Eviction.Evictions {
			marks[e.UID] = StateWord(e.State)
		}
	}
	return marks
}

// StateWord is the state of an eviction in words.
func StateWord(state string) string {
	switch state {
	case tick.StateWouldEvict:
		return "would be evicted"
	case tick.StateRequested, tick.StateCreated:
		return "being evicted"
	case tick.StateSucceeded:
		return "evicted"
	case tick.StateFailed:
		return "not evicted"
	}
	return clip.Clean(state)
}

// Places shows for the pods of a tick where each may run, how much, and in which scheduling class.
func Places(t *tick.Tick) func(*tick.Pod) string {
	m := &Model{Tick: t}
	limits, sets, advised := m.limits(), m.sets(), m.advisedSets()
	return func(p *tick.Pod) string { return confinement(p, limits, sets, advised) }
}

// confinement returns where a pod may run, how much, and in which scheduling class. CPUs that are advised but not written come after an
// arrow.
func confinement(p *tick.Pod, limits, sets, advised map[string]string) string {
	var parts []string
	if held := limits[p.Cgroup]; held != "" {
		parts = append(parts, held)
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if held := limits[c.Cgroup]; held != "" && c.Cgroup != p.Cgroup {
			parts = append(parts, held)
		}
		set := cmp.Or(sets[c.Cgroup], c.CPUSetCPUs)
		if next := advised[c.Cgroup]; next != "" && next != set {
			set = strings.TrimSpace(set + " → " + next)
		}
		if set != "" {
			parts = append(parts, clip.Clean(set))
		}
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), " ")
}

func (m *Model) pressureSection(look Look) section {
	e := m.Tick.Eviction
	if e == nil {
		return section{}
	}
	h := (&line{}).add(heading, "pressure")
	for _, t := range e.Taints {
		h.add(plain, "  ").add(bad, "taint "+clip.Clean(shortKey(t.Key)+":"+t.Effect))
	}
	if e.DryRun {
		h.add(dim, "  (dry run)")
	}
	s := section{heading: h, least: 3}
	if e.Refused != "" {
		s.rows = append(s.rows, (&line{}).add(warn, "refused: "+clip.Clean(e.Refused)))
	}
	for _, x := range e.Evictions {
		l := (&line{}).add(bad, "▓ "+Name(x.Namespace, x.Name)+" "+StateWord(x.State)).add(plain, ": "+clip.Clean(x.Message))
		if x.Error != "" {
			l.add(bad, " ("+clip.Clean(x.Error)+")")
		}
		s.rows = append(s.rows, l)
	}
	for _, p := range nearest(e.Pressures) {
		s.rows = append(s.rows, pressureRow(look, p, m.Tick))
	}
	return s
}

// finding is a rule's finding with the number of further parts of its scope, which are farther from their thresholds.
type finding struct {
	tick.PressureFinding
	further int
}

// nearest are the findings that are met, and of the others of each rule, scope and level the part that is nearest to its threshold. Those
// that are met come first.
func nearest(all []tick.PressureFinding) []finding {
	type key struct {
		rule, scope string
		hard        bool
	}
	var met, others []finding
	at := map[key]int{}
	for _, p := range all {
		k := key{p.Rule, p.Scope, p.Hard}
		i, known := at[k]
		switch {
		case p.Met:
			met = append(met, finding{p, 0})
		case !known:
			at[k] = len(others)
			others = append(others, finding{p, 0})
		case closeness(p) > closeness(others[i].PressureFinding):
			others[i] = finding{p, others[i].further + 1}
		default:
			others[i].further++
		}
	}
	return append(met, others...)
}

// closeness is how near a value is to its threshold: 1 at the threshold.
func closeness(p tick.PressureFinding) float64 {
	part, whole := p.Value, p.Threshold
	if p.Below {
		part, whole = whole, part
	}
	switch {
	case part <= 0:
		return 0
	case whole <= 0:
		return math.Inf(1)
	}
	return part / whole
}

func pressureRow(look Look, p finding, t *tick.Tick) *line {
	name := shortKey(p.Scope)
	if p.Part != "" {
		name += " " + p.Part
	}
	level := "soft"
	if p.Hard {
		level = "hard"
	}
	near := closeness(p.PressureFinding)
	st := good
	switch {
	case p.Met:
		st = bad
	case near > 1:
		st = warn
	}
	l := (&line{}).add(plain, fit(clip.Clean(name), 31)+" ").add(dim, fit(level, 5))
	// What is right of the bar takes up to 35 columns, "5x offered" among them.
	l.bar(1, max(7, min(look.Width/8, look.Width-73)), segment{min(near, 1), "█", st})
	l.add(st, " "+right(amount(p.PressureFinding, p.Value), 9))
	l.add(dim, cond(p.Below, " min ", " max ")).add(plain, amount(p.PressureFinding, p.Threshold))
	if times := timesOffered(t, p.PressureFinding); times != "" {
		l.add(dim, times)
	}
	switch since, err := time.Parse(time.RFC3339Nano, p.Since); {
	case p.Met && err == nil:
		l.add(bad, "  met").add(plain, " for "+Span(t.Time.Sub(since)))
	case p.Met:
		l.add(bad, "  met")
	case p.further > 0:
		l.add(dim, fmt.Sprintf("  +%d farther off", p.further))
	}
	return l
}

// timesOffered returns a threshold as a multiple of the offer, for rules that compare requests with the offer; it is empty for others.
func timesOffered(t *tick.Tick, p tick.PressureFinding) string {
	if t.Advice == nil || t.Advice.Reclaimed == nil || strings.Contains(p.Scope, "|") { // of one NUMA node
		return ""
	}
	var offer *int64
	switch shortKey(p.Scope) {
	case "reclaimed_millicpu":
		offer = t.Advice.Reclaimed.MilliCPU
	case "reclaimed_memory":
		offer = t.Advice.Reclaimed.MemoryBytes
	}
	if offer == nil || *offer <= 0 {
		return ""
	}
	return fmt.Sprintf(" %.3gx offered", p.Threshold/float64(*offer))
}

// amount is a finding's value or threshold with its unit.
func amount(p tick.PressureFinding, v float64) string {
	switch p.Unit() {
	case tick.UnitMilliCPU:
		return Cores(&v) + " CPU"
	case tick.UnitPercent:
		return phrase.Decimal(v, 1) + " %"
	case tick.UnitPages:
		return phrase.Decimal(v, 0) + " pages/s"
	case tick.UnitBytes:
		return Bytes(&v)
	}
	return load(&v)
}

// shortKey is a name without its domain.
func shortKey(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

func (m *Model) writeSection(look Look) section {
	iso := m.Tick.Isolation
	if iso == nil && len(m.writes) == 0 {
		return section{}
	}
	dry := iso != nil && iso.DryRun
	h := (&line{}).add(heading, cond(dry, "would write", "writes"))
	if dry || !m.partial { // a dry run's are those of the tick
		h.add(plain, fmt.Sprintf(" %d", m.writesTotal))
	}
	s := section{heading: h, least: 3}
	if iso != nil {
		if iso.Fallback {
			h.add(bad, "  fallback was applied")
		}
		if iso.Refused != "" {
			s.rows = append(s.rows, (&line{}).add(warn, "refused: "+clip.Clean(iso.Refused)))
		}
		h.add(dim, fmt.Sprintf("  %d as advised", iso.Unchanged))
	}
	name := max(16, look.Width*2/5)
	for _, w := range slices.Backward(m.writes) {
		l := (&line{}).add(dim, w.at.UTC().Format("15:04:05")+" ").add(plain, fit(fitPath(clip.Clean(w.Cgroup), name), name+1))
		l.add(dim, clip.Clean(shortName(w.Key))+" ").add(plain, written(w.Old, w.Key, w.OldMilliCPU))
		l.add(dim, " → ").add(plain, written(w.New, w.Key, w.NewMilliCPU))
		s.rows = append(s.rows, l)
	}
	if len(s.rows) == 0 {
		s.rows = append(s.rows, (&line{}).add(dim, cond(dry, "nothing would have to be written", "nothing had to be written yet")))
	}
	return s
}

// written is a value of a write in CPUs, like the rest of the screen. Where the stream has only the kernel's text, that is shown with its
// unit of microseconds.
func written(text, key string, milliCPU *int64) string {
	switch {
	case milliCPU != nil && *milliCPU == tick.Unlimited:
		return "no limit"
	case milliCPU != nil:
		v := float64(*milliCPU)
		return Cores(&v)
	case (key == "cpuMaxMilliCPU" || key == "cpuBurstMilliCPU") && text != "" && text[0] >= '0' && text[0] <= '9':
		return clip.Clean(text) + " us"
	}
	return clip.Clean(text)
}

// shortName is the kernel's name of a key of the advice.
func shortName(key string) string {
	for _, n := range [][2]string{
		{"cpusetCPUs", "cpus"},
		{"cpusetMems", "mems"},
		{"cpuMaxMilliCPU", "quota"},
		{"cpuWeight", "weight"},
		{"cpuWeightFactor", "weight"},
		{"cpuIdle", "idle"},
	} {
		if key == n[0] {
			return n[1]
		}
	}
	return key
}

// maxReason bounds the bytes of a reason that are used: no screen has more columns.
const maxReason = 2000

func (m *Model) reasonSection() section {
	if m.Tick.Advice == nil {
		return section{}
	}
	s := section{heading: (&line{}).add(heading, "why"), least: 2}
	for _, r := range m.Tick.Advice.Reasons {
		s.rows = append(s.rows, (&line{}).add(plain, Amounts(clip.Clean(clip.Bytes(r, maxReason)))))
	}
	return s
}

func (m *Model) errorSection() section {
	s := section{heading: (&line{}).add(heading, "errors"), least: 2}
	add := func(from, text string) {
		s.rows = append(s.rows, (&line{}).add(warn, from+" ").add(plain, clip.Clean(text)))
	}
	if sample := m.Tick.Sample; sample != nil {
		for _, e := range sample.Errors {
			add("collect", e.Source+": "+e.Error)
		}
	}
	if iso := m.Tick.Isolation; iso != nil {
		for _, e := range iso.Errors {
			add("isolate", e.Cgroup+" "+e.Key+": "+e.Error)
		}
	}
	if n := m.Tick.Network; n != nil {
		for _, e := range n.Errors {
			add("isolate", e.Cgroup+" "+e.Key+": "+e.Error)
		}
	}
	if ev := m.Tick.Eviction; ev != nil {
		// Rates need two readings, so that the first one lacks them without a fault.
		first := m.Tick.Sample != nil && m.Tick.Sample.IntervalSeconds == nil
		waiting := false
		for _, e := range ev.Errors {
			if first && reason.IsNotMeasured(e) {
				waiting = true
				continue
			}
			add("evict", e)
		}
		if waiting {
			s.rows = append(s.rows, (&line{}).add(dim, "evict: the first reading has no rates; the next one will"))
		}
	}
	return s
}
