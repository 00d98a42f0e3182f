// Package schemata reads, writes and checks the lines of the schemata files in /sys/fs/resctrl, as in "L3:0=ff;1=c0"
// and "MB:0=20;1=70" (Documentation/filesystems/resctrl.rst). Its parsers accept any text as input.
package schemata

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"polder/lib/clip"
)

// These are the supported resources. With CDP, code and data prioritization, L3 is two resources and has no line of its own.
const (
	L3     = "L3"
	L3Code = "L3CODE"
	L3Data = "L3DATA"
	MB     = "MB"
)

// Line is a resource's allocation in each domain that it names.
type Line struct {
	Resource string
	Values   []Value // sorted by ID, each ID once
}

// Value is the allocation in one domain: a mask of the cache's ways, or memory bandwidth in the machine's unit.
type Value struct {
	ID   int64
	Part uint64
}

// maxDomains bounds the domains of a line: the largest machine has some hundred caches.
const maxDomains = 1024

// Uniform returns the line with the same allocation of the resource in all domains.
func Uniform(resource string, ids []int64, part uint64) Line {
	l := Line{Resource: resource, Values: make([]Value, len(ids))}
	for i, id := range ids {
		l.Values[i] = Value{ID: id, Part: part}
	}
	slices.SortFunc(l.Values, byID)
	l.Values = slices.CompactFunc(l.Values, func(a, b Value) bool { return a.ID == b.ID })
	return l
}

func byID(a, b Value) int { return cmp.Compare(a.ID, b.ID) }

// masks reports whether a resource's allocations are masks, in hexadecimal digits; false for an unknown one.
func masks(resource string) (mask, known bool) {
	switch resource {
	case L3, L3Code, L3Data:
		return true, true
	case MB:
		return false, true
	}
	return false, false
}

// Parse parses one line of a supported resource. The kernel pads names and numbers with blanks.
func Parse(text string) (Line, error) {
	name, rest, found := strings.Cut(text, ":")
	l := Line{Resource: strings.TrimSpace(name)}
	mask, known := masks(l.Resource)
	if !found || !known {
		return Line{}, fmt.Errorf("%q is not a line of L3, L3CODE, L3DATA or MB", clip.Text(text, 60))
	}
	base := 10
	if mask {
		base = 16
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(rest), ";"), ";") {
		id, value, found := strings.Cut(part, "=")
		v := Value{}
		var err error
		if v.ID, err = strconv.ParseInt(strings.TrimSpace(id), 10, 32); !found || err != nil || v.ID < 0 {
			return Line{}, fmt.Errorf("%q in %q: want a domain's number, =, and its part", clip.Text(part, 60), clip.Text(text, 60))
		}
		if v.Part, err = strconv.ParseUint(strings.TrimSpace(value), base, 64); err != nil {
			return Line{}, fmt.Errorf("%q in %q: the part is not a number to the base %d", clip.Text(part, 60), clip.Text(text, 60), base)
		}
		if len(l.Values) == maxDomains {
			return Line{}, fmt.Errorf("%q names more than %d domains", clip.Text(text, 60), maxDomains)
		}
		l.Values = append(l.Values, v)
	}
	slices.SortFunc(l.Values, byID)
	for i := 1; i < len(l.Values); i++ {
		if l.Values[i].ID == l.Values[i-1].ID {
			return Line{}, fmt.Errorf("%q names domain %d twice", clip.Text(text, 60), l.Values[i].ID)
		}
	}
	return l, nil
}

// ParseFile parses a whole file. It omits lines of other resources, and lines without numbers ("uninitialized" in a group
// that is being pseudo-locked). The last line of a resource counts: so a copy of the file can be appended to.
func ParseFile(text string) []Line {
	var out []Line
	for one := range strings.SplitSeq(text, "\n") {
		l, err := Parse(one)
		if err != nil {
			continue
		}
		if i := slices.IndexFunc(out, func(o Line) bool { return o.Resource == l.Resource }); i >= 0 {
			out[i] = l
			continue
		}
		out = append(out, l)
	}
	return out
}

// Find returns a resource's line of a file.
func Find(lines []Line, resource string) (Line, bool) {
	i := slices.IndexFunc(lines, func(l Line) bool { return l.Resource == resource })
	if i < 0 {
		return Line{}, false
	}
	return lines[i], true
}

// String returns the line in the kernel's format, without a newline.
func (l Line) String() string {
	base := 10
	if mask, _ := masks(l.Resource); mask {
		base = 16
	}
	out := append([]byte(l.Resource), ':')
	for i, v := range l.Values {
		if i > 0 {
			out = append(out, ';')
		}
		out = strconv.AppendInt(out, v.ID, 10)
		out = append(out, '=')
		out = strconv.AppendUint(out, v.Part, base)
	}
	return string(out)
}

// IDs returns the domains that the line names.
func (l Line) IDs() []int64 {
	ids := make([]int64, len(l.Values))
	for i, v := range l.Values {
		ids[i] = v.ID
	}
	return ids
}

// Part returns the line's allocation in a domain; false if the line does not name the domain.
func (l Line) Part(id int64) (uint64, bool) {
	i, found := slices.BinarySearchFunc(l.Values, Value{ID: id}, byID)
	if !found {
		return 0, false
	}
	return l.Values[i].Part, true
}

// Contains reports whether the line has the same allocation as want in each domain that want names.
func (l Line) Contains(want Line) bool {
	return l.Resource == want.Resource && !slices.ContainsFunc(want.Values, func(v Value) bool {
		part, found := l.Part(v.ID)
		return !found || part != v.Part
	})
}

// Select returns the line limited to the domains that other names.
func (l Line) Select(other Line) Line {
	return l.Filter(func(v Value) bool {
		_, named := other.Part(v.ID)
		return named
	})
}

// Merge returns the line with the domains of other that it does not name itself. Both are of the same resource.
func (l Line) Merge(other Line) Line {
	out := Line{Resource: other.Resource, Values: slices.Clone(l.Values)}
	for _, v := range other.Values {
		if _, named := l.Part(v.ID); !named {
			out.Values = append(out.Values, v)
		}
	}
	slices.SortFunc(out.Values, byID)
	return out
}

// Filter returns the line limited to the domains whose value keep accepts.
func (l Line) Filter(keep func(Value) bool) Line {
	out := Line{Resource: l.Resource}
	for _, v := range l.Values {
		if keep(v) {
			out.Values = append(out.Values, v)
		}
	}
	return out
}

// Mask parses a mask as the kernel's files contain it: only hexadecimal digits.
func Mask(text string) (uint64, error) {
	m, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a mask in hexadecimal digits", clip.Text(text, 60))
	}
	return m, nil
}

// Contiguous reports whether the mask's bits are one block; the empty mask is not.
func Contiguous(mask uint64) bool {
	return mask != 0 && bits.Len64(mask)-bits.TrailingZeros64(mask) == bits.OnesCount64(mask)
}
