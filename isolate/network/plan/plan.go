// Package plan turns the desired shaping of links and the observed state of the kernel into ordered steps. It is pure. A step names only
// links of the machine's own list, and no link whose root qdisc another program has set.
package plan

import (
	"fmt"
	"slices"
	"strings"

	"polder/lib/tick"
)

// Handle is the major number of Polder's qdisc ("po"); the kernel assigns numbers from 0x8000 if none is given.
const Handle = 0x706f

// Minor numbers of the class above all others and of the default class. That of a marked class follows from its mark.
const (
	MinorRoot    = 1
	MinorDefault = 0x100
)

// MarkMask are the bits of a packet's mark that contain its class. kube-proxy uses 0x4000 and 0x8000, Cilium 0xf00, Calico and others the
// upper half.
const MarkMask = 0x3000

// markShift is the position of the lowest of these bits.
const markShift = 12

// maxMarked is how many classes can be marked.
const maxMarked = MarkMask >> markShift

// These bound the rates that are accepted. HTB's rates have 64 bits, in bytes.
const (
	MinBits     = 8_000
	MaxBits     = 1_000_000_000_000_000
	maxLinks    = 16
	maxCgroups  = 10_000
	maxName     = 32
	maxPriority = 7
)

// Class is one class of a link, observed or desired. Rates are in bytes per second, as in the kernel.
type Class struct {
	Minor         uint16
	Rate, Ceiling uint64
	Priority      uint32
}

// Link is a link of the machine.
type Link struct {
	Name  string
	Index int
	// IsLoopback means that packets on this link do not leave the machine.
	IsLoopback bool
	// RootKind and RootMajor describe the root qdisc; major 0 is the kernel's default one.
	RootKind  string
	RootMajor uint16
	// Classes are the classes of Polder's root qdisc; Leaves has the kinds of the qdiscs below them, by minor number.
	Classes []Class
	Leaves  map[uint16]string
}

// IsOurs reports whether the root qdisc has Polder's number.
func (l *Link) IsOurs() bool { return l.RootKind == "htb" && l.RootMajor == Handle }

// Op is the kind of a step.
type Op string

// These are the steps, in the order in which a link is set up. A class from which another one has borrowed may be removed only after
// its packets are directed elsewhere: the kernel drops the packets in its queue.
const (
	AddRoot     Op = "qdisc"
	SetClass    Op = "class"
	AddLeaf     Op = "leaf"
	RemoveClass Op = "removeClass"
	RemoveRoot  Op = "removeQdisc"
)

// Step is one change of a link.
type Step struct {
	Op    Op
	Link  string
	Index int
	// Class is the class that is set or removed, or that gets a leaf; Name is its name.
	Class Class
	Name  string
	// Old describes the previous state.
	Old string
}

// CountedClass is a class of a link for which the kernel counts packets.
type CountedClass struct {
	Link  string
	Index int
	Minor uint16
	Name  string
}

// Mark is a class whose packets are marked, and the cgroups that send them.
type Mark struct {
	Class   string
	Mark    uint32
	Cgroups []string
}

// Target is a marked class of a link.
type Target struct {
	Index int
	Mark  uint32
	// Priority is the packet's new priority: the class's number, by which HTB selects its class without a filter.
	Priority uint32
}

// Problem says what is refused or not changed, and why. A problem that IsPersistent is caused by another program, and reported once.
type Problem struct {
	Link         string
	Text         string
	IsPersistent bool
}

// Plan is what must be done for one advice.
type Plan struct {
	Steps    []Step
	Counted  []CountedClass
	Marks    []Mark
	Targets  []Target
	Problems []Problem
	// Shaped are the links that are, or will be, shaped as desired.
	Shaped []string
	// IsWaiting means that a link is still shaped that the advice does not name.
	IsWaiting bool
}

// Make compares the desired state with the observed one. waiting and release are links that isolate shapes and that this advice does not
// name: waiting ones stay shaped, and their classes keep the marks of the same number. release are those that no advice has named for long:
// Polder's qdiscs there are removed, so that the kernel restores its own.
func Make(desired *tick.Network, links []Link, waiting, release []string) Plan {
	m := planner{links: map[string]*Link{}}
	for i := range links {
		m.links[links[i].Name] = &links[i]
	}
	valid := m.check(desired)
	m.assignMarks(valid)
	isAdvised := map[string]bool{}
	for _, d := range valid {
		isAdvised[d.Link] = true
		m.link(d)
	}
	if desired != nil {
		for i := range desired.Links { // an invalid advice releases no link
			isAdvised[desired.Links[i].Link] = true
		}
	}
	for _, name := range waiting {
		if l := m.links[name]; l != nil && l.IsOurs() {
			m.plan.IsWaiting = true
			m.keepMarked(l)
		}
	}
	for _, name := range release {
		if l := m.links[name]; l != nil && l.IsOurs() && !l.IsLoopback && !isAdvised[name] {
			m.plan.Steps = append(m.plan.Steps, Step{Op: RemoveRoot, Link: name, Index: l.Index, Old: "htb"})
		}
	}
	return m.plan
}

type planner struct {
	links map[string]*Link
	marks map[string]uint32
	plan  Plan
}

func (m *planner) refuse(link, format string, args ...any) {
	m.plan.Problems = append(m.plan.Problems, Problem{Link: link, Text: "refused: " + fmt.Sprintf(format, args...)})
}

// check returns the links that may be shaped.
func (m *planner) check(desired *tick.Network) (valid []*tick.NetworkLink) {
	if desired == nil {
		return nil
	}
	seen, cgroups := map[string]bool{}, 0
	for i := range desired.Links {
		d := &desired.Links[i]
		l := m.links[d.Link]
		switch {
		case len(valid) == maxLinks:
			m.refuse("", "more than %d links", maxLinks)
			return valid
		case l == nil:
			m.refuse("", "the machine has no link %.40q", d.Link)
			continue
		case seen[d.Link]:
			m.refuse(d.Link, "the link is named twice")
			continue
		case l.IsLoopback:
			m.refuse(d.Link, "no packet leaves the machine through the loopback link")
			continue
		}
		seen[d.Link] = true
		if err := checkLink(d); err != nil {
			m.refuse(d.Link, "%v", err)
			continue
		}
		for _, c := range d.Classes {
			cgroups += len(c.Cgroups)
		}
		if cgroups > maxCgroups {
			m.refuse(d.Link, "more than %d cgroups", maxCgroups)
			continue
		}
		if l.RootMajor != 0 && !l.IsOurs() {
			m.plan.Problems = append(m.plan.Problems, Problem{
				Link: d.Link, IsPersistent: true,
				Text: fmt.Sprintf("not changed: its root qdisc is %s %x:, which another program has set (tc qdisc del dev %s root restores the kernel's default)", l.RootKind, l.RootMajor, d.Link),
			})
			continue
		}
		valid = append(valid, d)
	}
	return valid
}

// checkLink returns what is wrong with a link's desired classes: such a link is not changed at all.
func checkLink(d *tick.NetworkLink) error {
	if d.RateBitsPerSecond < MinBits || d.RateBitsPerSecond > MaxBits {
		return fmt.Errorf("rate %d bit/s: want %d to %d", d.RateBitsPerSecond, MinBits, int64(MaxBits))
	}
	names, defaults, sum := map[string]bool{}, 0, int64(0)
	for _, c := range d.Classes {
		switch {
		case !isName(c.Class):
			return fmt.Errorf("class %.40q: want a name of 1 to %d letters, digits and dashes", c.Class, maxName)
		case names[c.Class]:
			return fmt.Errorf("class %s is named twice", c.Class)
		case c.RateBitsPerSecond < MinBits || c.RateBitsPerSecond > d.RateBitsPerSecond:
			return fmt.Errorf("class %s: rate %d bit/s: want %d to the link's %d", c.Class, c.RateBitsPerSecond, MinBits, d.RateBitsPerSecond)
		case c.CeilingBitsPerSecond < c.RateBitsPerSecond || c.CeilingBitsPerSecond > d.RateBitsPerSecond:
			return fmt.Errorf("class %s: ceiling %d bit/s: want the class's rate %d to the link's %d", c.Class, c.CeilingBitsPerSecond, c.RateBitsPerSecond, d.RateBitsPerSecond)
		case c.Priority < 0 || c.Priority > maxPriority:
			return fmt.Errorf("class %s: priority %d: want 0 to %d", c.Class, c.Priority, maxPriority)
		case c.Default && len(c.Cgroups) > 0:
			return fmt.Errorf("class %s: the default class has all other packets, and no cgroups", c.Class)
		}
		names[c.Class] = true
		if c.Default {
			defaults++
		}
		if sum += c.RateBitsPerSecond; sum > d.RateBitsPerSecond { // checked one by one: the sum of all may overflow
			return fmt.Errorf("the classes' rates are more than the link's %d bit/s", d.RateBitsPerSecond)
		}
	}
	switch {
	case defaults != 1:
		return fmt.Errorf("%d default classes: want one", defaults)
	case len(d.Classes)-defaults > maxMarked:
		return fmt.Errorf("%d classes beside the default one: want %d at most", len(d.Classes)-defaults, maxMarked)
	}
	return nil
}

func isName(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-')
	})
}

// assignMarks gives each class except the default one a mark. A class of the same name has the same mark on all links.
func (m *planner) assignMarks(links []*tick.NetworkLink) {
	m.marks = map[string]uint32{}
	cgroups := map[string][]string{}
	for _, d := range links {
		for _, c := range d.Classes {
			if !c.Default {
				m.marks[c.Class] = 0
				cgroups[c.Class] = append(cgroups[c.Class], c.Cgroups...)
			}
		}
	}
	var names []string
	for name := range m.marks {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i >= maxMarked {
			delete(m.marks, name)
			m.refuse("", "class %s: more than %d classes beside the default ones", name, maxMarked)
			continue
		}
		m.marks[name] = uint32(i+1) << markShift
		slices.Sort(cgroups[name])
		m.plan.Marks = append(m.plan.Marks, Mark{Class: name, Mark: m.marks[name], Cgroups: slices.Compact(cgroups[name])})
	}
}

// minorOf returns the minor number of a marked class, which is the same on all links.
func minorOf(mark uint32) uint16 { return MinorDefault + uint16(mark>>markShift) }

func targetOf(l *Link, mark uint32) Target {
	return Target{Index: l.Index, Mark: mark, Priority: Handle<<16 | uint32(minorOf(mark))}
}

// keepMarked keeps the packets of a link marked that is shaped, though the advice does not name it.
func (m *planner) keepMarked(l *Link) {
	for _, mark := range m.plan.Marks {
		if slices.ContainsFunc(l.Classes, func(c Class) bool { return c.Minor == minorOf(mark.Mark) }) {
			m.plan.Targets = append(m.plan.Targets, targetOf(l, mark.Mark))
		}
	}
}

// link adds the steps for one link.
func (m *planner) link(d *tick.NetworkLink) {
	l := m.links[d.Link]
	step := func(op Op, c Class, name, old string) {
		m.plan.Steps = append(m.plan.Steps, Step{Op: op, Link: d.Link, Index: l.Index, Class: c, Name: name, Old: old})
	}
	if !l.IsOurs() {
		step(AddRoot, Class{}, "", l.RootKind)
	}
	rate := uint64(d.RateBitsPerSecond) / 8
	desired := map[uint16]bool{}
	set := func(c Class, name string) {
		desired[c.Minor] = true
		i := slices.IndexFunc(l.Classes, func(o Class) bool { return o.Minor == c.Minor })
		if !l.IsOurs() || i < 0 {
			step(SetClass, c, name, "")
		} else if l.Classes[i] != c {
			step(SetClass, c, name, l.Classes[i].String())
		}
	}
	set(Class{MinorRoot, rate, rate, 0}, "all")
	m.plan.Shaped = append(m.plan.Shaped, d.Link)
	for _, c := range d.Classes {
		minor := uint16(MinorDefault)
		if !c.Default {
			mark, ok := m.marks[c.Class]
			if !ok {
				continue
			}
			m.plan.Targets = append(m.plan.Targets, targetOf(l, mark))
			minor = minorOf(mark)
		}
		class := Class{minor, uint64(c.RateBitsPerSecond) / 8, uint64(c.CeilingBitsPerSecond) / 8, uint32(c.Priority)}
		set(class, c.Class)
		m.plan.Counted = append(m.plan.Counted, CountedClass{d.Link, l.Index, minor, c.Class})
		if !l.IsOurs() || l.Leaves[minor] == "" { // a leaf of another kind belongs to another program
			step(AddLeaf, class, c.Class, "")
		}
	}
	if l.IsOurs() {
		for _, c := range l.Classes {
			if !desired[c.Minor] {
				step(RemoveClass, c, "", c.String())
			}
		}
	}
}

// String describes a class for messages.
func (c Class) String() string {
	return fmt.Sprintf("rate %d bit/s, ceiling %d bit/s, priority %d", c.Rate*8, c.Ceiling*8, c.Priority)
}
