package plan

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"polder/lib/tick"
)

// names are links that the machine has, and others that advice may name.
var names = []string{"lo", "eth0", "eth1", "wlan0", "veth1234", "tun0"}

func drawLinks(t *rapid.T) []Link {
	var links []Link
	for i, name := range names[:rapid.IntRange(0, len(names)).Draw(t, "links")] {
		l := Link{Name: name, Index: i + 1, IsLoopback: name == "lo", Leaves: map[uint16]string{}}
		switch rapid.SampledFrom([]string{"kernel", "foreign", "ours", "htb of another number", "another kind of our number"}).Draw(t, "root") {
		case "kernel":
			l.RootKind = "noqueue"
		case "foreign":
			l.RootKind, l.RootMajor = "fq", 0x8001
		case "htb of another number":
			l.RootKind, l.RootMajor = "htb", 1
		case "another kind of our number":
			l.RootKind, l.RootMajor = "prio", Handle
		case "ours":
			l.RootKind, l.RootMajor = "htb", Handle
			for _, minor := range []uint16{MinorRoot, MinorDefault, MinorDefault + 1, MinorDefault + 2, 7} {
				if rapid.Bool().Draw(t, "class") {
					l.Classes = append(l.Classes, Class{minor, rapid.Uint64Range(1000, 1e9).Draw(t, "rate"), 1e9, 0})
				}
				if rapid.Bool().Draw(t, "leaf") {
					l.Leaves[minor] = rapid.SampledFrom([]string{"fq_codel", "sfq"}).Draw(t, "kind")
				}
			}
		}
		links = append(links, l)
	}
	return links
}

// drawRate draws a valid rate, or any number.
func drawRate(t *rapid.T, label string) int64 {
	if rapid.IntRange(0, 3).Draw(t, label+"?") > 0 {
		return rapid.Int64Range(MinBits, 1e10).Draw(t, label)
	}
	return rapid.SampledFrom([]int64{0, -1, 1, math.MinInt64, math.MaxInt64, MaxBits, MaxBits + 1, 1 << 35}).Draw(t, label)
}

func drawDesired(t *rapid.T) *tick.Network {
	if rapid.IntRange(0, 9).Draw(t, "none") == 0 {
		return nil
	}
	d := &tick.Network{}
	for range rapid.IntRange(0, 4).Draw(t, "links") {
		l := tick.NetworkLink{Link: rapid.SampledFrom(append([]string{"", "eth0; rm -rf /", "../eth0", strings.Repeat("x", 100)}, names...)).Draw(t, "link"), RateBitsPerSecond: drawRate(t, "rate")}
		for range rapid.IntRange(0, 5).Draw(t, "classes") {
			c := tick.NetworkClass{
				Class:             rapid.SampledFrom([]string{"services", "batch", "mid", "a", "b", "", "a b", "../x", strings.Repeat("y", 50)}).Draw(t, "class"),
				RateBitsPerSecond: drawRate(t, "class rate"), Default: rapid.IntRange(0, 2).Draw(t, "default") == 0,
				Priority: rapid.SampledFrom([]int64{0, 7, 8, -1, math.MaxInt64}).Draw(t, "priority"),
			}
			c.CeilingBitsPerSecond = c.RateBitsPerSecond
			if rapid.Bool().Draw(t, "ceiling") {
				c.CeilingBitsPerSecond = drawRate(t, "ceiling")
			}
			if !c.Default {
				c.Cgroups = rapid.SliceOfN(rapid.SampledFrom([]string{"/b", "/", "x", "/b/../..", "/c"}), 0, 3).Draw(t, "cgroups")
			}
			l.Classes = append(l.Classes, c)
		}
		d.Links = append(d.Links, l)
	}
	return d
}

// kernel simulates a machine that accepts each write, and rejects what the real one rejects.
type kernel struct {
	t     *rapid.T
	links []Link
}

func (k *kernel) do(s Step) {
	i := slices.IndexFunc(k.links, func(l Link) bool { return l.Name == s.Link && l.Index == s.Index })
	if i < 0 {
		k.t.Fatalf("%+v is on a link that the machine has not", s)
	}
	l := &k.links[i]
	if l.IsLoopback {
		k.t.Fatalf("%+v is on the loopback", s)
	}
	if l.RootMajor != 0 && !l.IsOurs() {
		k.t.Fatalf("%+v is on a link with a qdisc of another program, %s %x", s, l.RootKind, l.RootMajor)
	}
	at := slices.IndexFunc(l.Classes, func(c Class) bool { return c.Minor == s.Class.Minor })
	switch s.Op {
	case AddRoot:
		l.RootKind, l.RootMajor, l.Classes, l.Leaves = "htb", Handle, nil, map[uint16]string{}
	case RemoveRoot:
		l.RootKind, l.RootMajor, l.Classes, l.Leaves = "noqueue", 0, nil, map[uint16]string{}
	case SetClass:
		hasRoot := slices.ContainsFunc(l.Classes, func(c Class) bool { return c.Minor == MinorRoot })
		if s.Class.Minor != MinorRoot && !hasRoot || s.Class.Rate == 0 || s.Class.Rate > s.Class.Ceiling {
			k.t.Fatalf("the kernel would refuse %+v", s)
		}
		if at < 0 {
			l.Classes = append(l.Classes, s.Class)
		} else {
			l.Classes[at] = s.Class
		}
	case AddLeaf:
		if at < 0 || l.Leaves[s.Class.Minor] != "" {
			k.t.Fatalf("the kernel would refuse %+v", s)
		}
		l.Leaves[s.Class.Minor] = "fq_codel"
	case RemoveClass:
		l.Classes = slices.Delete(l.Classes, at, at+1)
		delete(l.Leaves, s.Class.Minor)
	}
}

// checkShaped checks a shaped link: its classes' rates do not exceed the link's, and none is below the minimum.
func checkShaped(t *rapid.T, l *Link) {
	if !l.IsOurs() {
		t.Fatalf("%s is not shaped", l.Name)
	}
	var all Class
	sum, hasDefault := uint64(0), false
	for _, c := range l.Classes {
		switch c.Minor {
		case MinorRoot:
			all = c
			continue
		case MinorDefault:
			hasDefault = true
		}
		sum += c.Rate
		if c.Rate < MinBits/8 || c.Rate > c.Ceiling || c.Priority > maxPriority {
			t.Fatalf("%s: class %+v", l.Name, c)
		}
	}
	for _, c := range l.Classes {
		if c.Ceiling > all.Ceiling {
			t.Fatalf("%s: class %+v beyond the link's %+v", l.Name, c, all)
		}
	}
	if !hasDefault || sum > all.Rate || all.Rate != all.Ceiling {
		t.Fatalf("%s: classes %+v: want a default one, and no more than all together", l.Name, l.Classes)
	}
}

// Whatever an advice contains: no step names a missing link, the loopback, or a link with a qdisc of another program; the kernel accepts
// each step; the resulting classes are valid; and the same advice again changes nothing.
func TestAnyAdvice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := &kernel{t, drawLinks(t)}
		before := slices.Clone(k.links)
		desired := drawDesired(t)
		due := rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(t, "due")
		p := Make(desired, k.links, nil, due)
		touched := map[string]bool{}
		for _, s := range p.Steps {
			touched[s.Link] = true
			k.do(s)
		}
		for i := range k.links {
			l := &k.links[i]
			shaped := slices.Contains(p.Shaped, l.Name)
			if shaped {
				checkShaped(t, l)
			}
			if touched[l.Name] && !shaped && (l.RootMajor != 0 || !slices.Contains(due, l.Name) || !before[i].IsOurs()) {
				t.Fatalf("%s is changed and neither shaped nor restored", l.Name)
			}
		}
		checkMarks(t, &p, k.links)
		again := Make(desired, k.links, nil, nil)
		if len(again.Steps) > 0 {
			t.Fatalf("the same again: %+v", again.Steps)
		}
	})
}

// checkMarks checks that marks are within Polder's bits, differ, and lead to existing classes.
func checkMarks(t *rapid.T, p *Plan, links []Link) {
	seen := map[uint32]bool{}
	for _, m := range p.Marks {
		if m.Mark == 0 || m.Mark&^uint32(MarkMask) != 0 || seen[m.Mark] {
			t.Fatalf("marks %+v", p.Marks)
		}
		seen[m.Mark] = true
	}
	for _, target := range p.Targets {
		i := slices.IndexFunc(links, func(l Link) bool { return l.Index == target.Index })
		minor := uint16(target.Priority)
		if i < 0 || !seen[target.Mark] || target.Priority>>16 != Handle || !slices.ContainsFunc(links[i].Classes, func(c Class) bool { return c.Minor == minor }) {
			t.Fatalf("target %+v leads nowhere", target)
		}
	}
}

// These are the steps for the advice that advise makes.
func TestStepDescriptions(t *testing.T) {
	desired := &tick.Network{Links: []tick.NetworkLink{{Link: "eth0", RateBitsPerSecond: 1e9, Classes: []tick.NetworkClass{
		{Class: "services", RateBitsPerSecond: 9e8, CeilingBitsPerSecond: 1e9, Default: true},
		{Class: "batch", RateBitsPerSecond: 1e8, CeilingBitsPerSecond: 5e8, Priority: 7, Cgroups: []string{"/b"}},
	}}}}
	p := Make(desired, []Link{{Name: "eth0", Index: 3, RootKind: "fq_codel"}}, nil, nil)
	var got []string
	for _, s := range p.Steps {
		got = append(got, string(s.Op)+" "+s.Name)
	}
	if want := "qdisc ,class all,class services,leaf services,class batch,leaf batch"; strings.Join(got, ",") != want {
		t.Errorf("steps %q; want %q", strings.Join(got, ","), want)
	}
	if len(p.Problems) > 0 || len(p.Targets) != 1 || p.Targets[0] != (Target{3, 0x1000, 0x706f0101}) {
		t.Errorf("problems %+v, targets %+v", p.Problems, p.Targets)
	}
}
