// Package plan turns the desired shaping of links and the observed state of the kernel into ordered steps. It is pure. Only links of the
// machine's own list are named in a step, and none of whose root qdisc another program has set.
package plan

import (
	"fmt"
	"slices"
	"strings"

	"polder/lib/tick"
)

// Handle is the major number of the qdisc that is ours ("po"); the kernel gives numbers from 0x8000 on to whoever names none.
const Handle = 0x706f

// Minor numbers of classes: that of all classes together, and that of the default class. A marked class has its mark behind it.
const (
	MinorRoot    = 1
	MinorDefault = 0x100
)

// MarkMask are the bits of a packet's mark that name its class. kube-proxy has 0x4000 and 0x8000, Cilium 0xf00, Calico and others the upper
// half.
const MarkMask = 0x3000

// markShift is the place of the lowest of them.
const markShift = 12

// maxMarked is how many classes can be marked.
const maxMarked = MarkMask >> markShift

// Bounds of what is believed. HTB's rates are 64 bits wide, in bytes.
const (
	LeastBits   = 8_000
	MostBits    = 1_000_000_000_000_000
	maxLinks    = 16
	maxCgroups  = 10_000
	maxName     = 32
	maxPriority = 7
)

// Class is one class of a link as the kernel has it, or shall have it. Rates are in bytes per second, as the kernel's.
type Class struct {
	Minor         uint16
	Rate, Ceiling uint64
	Priority      uint32
}

// Link is a link of the machine.
type Link struct {
	Name  string
	Index int
	// Loopback means that nothing leaves the machine there.
	Loopback bool
	// RootKind and RootMajor are of the root qdisc; major 0 is the one that the kernel sets by itself.
	RootKind  string
	RootMajor uint16
	// Classes are those of our root qdisc, and Leaves the kinds of the qdiscs below its classes, by minor number.
	Classes []Class
	Leaves  map[uint16]string
}

// IsOurs reports whether the root qdisc bears our number.
func (l *Link) IsOurs() bool { return l.RootKind == "htb" && l.RootMajor == Handle }

// Op is what a step does.
type Op string

// The steps, in the order in which a link is built. A class that another one has borrowed from may be removed only after its packets go
// elsewhere: the kernel drops what waits in it.
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
	// Class is the one that is set or removed, or that gets a leaf; Name its name.
	Class Class
	Name  string
	// Old is what was there, in words.
	Old string
}

// Named is a class of a link that the kernel counts for.
type Named struct {
	Link  string
	Index int
	Minor uint16
	Name  string
}

// Mark is a class that packets are marked with, and the cgroups whose packets are.
type Mark struct {
	Class   string
	Mark    uint32
	Cgroups []string
}

// Target is a marked class of a link.
type Target struct {
	Index int
	Mark  uint32
	// Priority is what the packet's priority becomes: the class's number, which HTB takes for its class without any filter.
	Priority uint32
}

// Problem is what is refused or left alone, and why. One that is Lasting is another program's, and reported once.
type Problem struct {
	Link    string
	Text    string
	Lasting bool
}

// Plan is what is to be done for one advice.
type Plan struct {
	Steps    []Step
	Named    []Named
	Marks    []Mark
	Targets  []Target
	Problems []Problem
	// Held are the links that are, or will be, shaped as desired.
	Held []string
}

// Make compares the desired state with the observed one. due are links that isolate shapes and that no advice has named for long: what is
// ours there is given back to the kernel.
func Make(desired *tick.Network, links []Link, due []string) Plan {
	m := maker{links: map[string]*Link{}}
	for i := range links {
		m.links[links[i].Name] = &links[i]
	}
	sound := m.check(desired)
	m.assignMarks(sound)
	named := map[string]bool{}
	for _, d := range sound {
		named[d.Link] = true
		m.link(d)
	}
	if desired != nil {
		for i := range desired.Links { // an advice that is refused gives nothing back
			named[desired.Links[i].Link] = true
		}
	}
	for _, name := range due {
		if l := m.links[name]; l != nil && l.IsOurs() && !l.Loopback && !named[name] {
			m.plan.Steps = append(m.plan.Steps, Step{Op: RemoveRoot, Link: name, Index: l.Index, Old: "htb"})
		}
	}
	return m.plan
}

type maker struct {
	links map[string]*Link
	marks map[string]uint32
	plan  Plan
}

func (m *maker) refuse(link, format string, args ...any) {
	m.plan.Problems = append(m.plan.Problems, Problem{Link: link, Text: "refused: " + fmt.Sprintf(format, args...)})
}

// check returns the links that are fit to be shaped.
func (m *maker) check(desired *tick.Network) (sound []*tick.NetworkLink) {
	if desired == nil {
		return nil
	}
	seen, cgroups := map[string]bool{}, 0
	for i := range desired.Links {
		d := &desired.Links[i]
		l := m.links[d.Link]
		switch {
		case len(sound) == maxLinks:
			m.refuse("", "more than %d links", maxLinks)
			return sound
		case l == nil:
			m.refuse("", "the machine has no link %.40q", d.Link)
			continue
		case seen[d.Link]:
			m.refuse(d.Link, "the link is named twice")
			continue
		case l.Loopback:
			m.refuse(d.Link, "nothing leaves the machine by the loopback")
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
				Link: d.Link, Lasting: true,
				Text: fmt.Sprintf("left alone: its root qdisc is %s %x:, which another program has set (tc qdisc del dev %s root gives the link back to the kernel)", l.RootKind, l.RootMajor, d.Link),
			})
			continue
		}
		sound = append(sound, d)
	}
	return sound
}

// checkLink returns what is wrong with a link's desired classes: nothing of such a link is changed.
func checkLink(d *tick.NetworkLink) error {
	if d.RateBitsPerSecond < LeastBits || d.RateBitsPerSecond > MostBits {
		return fmt.Errorf("rate %d bit/s: want %d to %d", d.RateBitsPerSecond, LeastBits, int64(MostBits))
	}
	names, defaults, sum := map[string]bool{}, 0, int64(0)
	for _, c := range d.Classes {
		switch {
		case !isName(c.Class):
			return fmt.Errorf("class %.40q: want a name of 1 to %d letters, digits and dashes", c.Class, maxName)
		case names[c.Class]:
			return fmt.Errorf("class %s is named twice", c.Class)
		case c.RateBitsPerSecond < LeastBits || c.RateBitsPerSecond > d.RateBitsPerSecond:
			return fmt.Errorf("class %s: rate %d bit/s: want %d to the link's %d", c.Class, c.RateBitsPerSecond, LeastBits, d.RateBitsPerSecond)
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

// assignMarks gives each class that is not the default one a mark. A class of the same name has the same mark on all links.
func (m *maker) assignMarks(links []*tick.NetworkLink) {
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

// link adds the steps for one link.
func (m *maker) link(d *tick.NetworkLink) {
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
	m.plan.Held = append(m.plan.Held, d.Link)
	for _, c := range d.Classes {
		minor := uint16(MinorDefault)
		if !c.Default {
			mark, ok := m.marks[c.Class]
			if !ok {
				continue
			}
			minor += uint16(mark >> markShift)
			m.plan.Targets = append(m.plan.Targets, Target{Index: l.Index, Mark: mark, Priority: Handle<<16 | uint32(minor)})
		}
		class := Class{minor, uint64(c.RateBitsPerSecond) / 8, uint64(c.CeilingBitsPerSecond) / 8, uint32(c.Priority)}
		set(class, c.Class)
		m.plan.Named = append(m.plan.Named, Named{d.Link, l.Index, minor, c.Class})
		if !l.IsOurs() || l.Leaves[minor] == "" { // a leaf of another kind is another program's
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

// String is a class in words.
func (c Class) String() string {
	return fmt.Sprintf("rate %d bit/s, ceiling %d bit/s, priority %d", c.Rate*8, c.Ceiling*8, c.Priority)
}
