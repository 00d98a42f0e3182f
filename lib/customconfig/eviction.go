package customconfig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Value is one of evict's settings as a configuration object has it.
type Value struct {
	// Setting is its name: that of evict's flag.
	Setting string
	// Path is where it stands, from spec.config on.
	Path []string
	// V is a float64, an int, an int64 of bytes, a bool, a time.Duration or a []string.
	V any
}

// EvictionValues is what an object says to evict.
type EvictionValues struct {
	Values []Value
	// Unused are the paths of fields that are set and that evict has no setting for.
	Unused []string
	// Errs are the fields that are no good.
	Errs []*FieldError
}

// EvictionOf reads what is evict's in an object's spec.config. An absent field, and one that is null, says nothing.
func EvictionOf(kind Kind, config Object) *EvictionValues {
	r := &reader{kind: kind, out: &EvictionValues{}}
	section := sections[kind]
	if v := config[section]; v != nil {
		if o, ok := v.(map[string]any); ok {
			r.object(o, "")
		} else {
			r.wrong("", errors.New("want an object"))
		}
	}
	slices.SortFunc(r.out.Values, func(a, b Value) int {
		return cmp.Or(cmp.Compare(a.Setting, b.Setting), slices.Compare(a.Path, b.Path))
	})
	r.pairs()
	return r.out
}

type reader struct {
	kind Kind
	out  *EvictionValues
}

// object reads one level of the section.
func (r *reader) object(o Object, at string) {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		path, v := join(at, name), o[name]
		if v == nil {
			continue
		}
		child, isObject := v.(map[string]any)
		i := slices.IndexFunc(known[r.kind], func(f field) bool { return f.path == path })
		switch {
		case i >= 0 && known[r.kind][i].read == nil:
			r.thresholds(v, path, known[r.kind][i].settings)
		case i >= 0:
			r.value(v, path, &known[r.kind][i])
		case !inside(r.kind, path):
			r.unused(r.path(path))
		case isObject:
			r.object(child, path)
		default:
			r.wrong(path, errors.New("want an object"))
		}
	}
}

// inside reports whether fields that are read stand below a path.
func inside(kind Kind, path string) bool {
	return slices.ContainsFunc(known[kind], func(f field) bool { return strings.HasPrefix(f.path, path+".") })
}

func (r *reader) value(v any, path string, f *field) {
	value, err := f.read(v)
	if err != nil {
		r.wrong(path, err)
		return
	}
	if list, ok := value.([]string); ok {
		known := []string{}
		for _, name := range list {
			if to := f.rename[name]; to == "" {
				r.unused(append(r.path(path), name))
			} else if !slices.Contains(known, to) {
				known = append(known, to)
			}
		}
		if len(known) == 0 && len(list) > 0 {
			return
		}
		value = known
	}
	for _, setting := range f.settings {
		r.out.Values = append(r.out.Values, Value{setting, r.path(path), value})
	}
}

// thresholds reads factors by resource; the settings are that of CPU and that of memory.
func (r *reader) thresholds(v any, path string, settings []string) {
	o, ok := v.(map[string]any)
	if !ok {
		r.wrong(path, errors.New("want a factor for each resource"))
		return
	}
	for _, resource := range slices.Sorted(maps.Keys(o)) {
		if o[resource] == nil {
			continue
		}
		value, err := factor(o[resource])
		at := append(r.path(path), resource)
		i := slices.Index(reclaimed, strings.TrimPrefix(resource, "resource."))
		switch {
		case i < 0:
			r.unused(at)
		case err != nil:
			r.bad(at, err)
		default:
			r.out.Values = append(r.out.Values, Value{settings[i], at, value})
		}
	}
}

// maxUnused bounds the fields that are named as not used.
const maxUnused = 20

func (r *reader) unused(path []string) {
	if len(r.out.Unused) < maxUnused {
		r.out.Unused = append(r.out.Unused, dotted(path))
	}
}

// pairs checks values against each other.
func (r *reader) pairs() {
	at := map[string]Value{}
	for _, v := range r.out.Values {
		if before, twice := at[v.Setting]; twice && fmt.Sprint(before.V) != fmt.Sprint(v.V) {
			r.bad(v.Path, fmt.Errorf("%v, and %s says %v", v.V, dotted(before.Path), before.V))
		}
		at[v.Setting] = v
	}
	lower, l := at["load-lower-bound-ratio"].V.(float64)
	upper, u := at["load-upper-bound-ratio"].V.(float64)
	if l && u && upper < lower {
		r.bad(at["load-upper-bound-ratio"].Path, fmt.Errorf("%v is under loadLowerBoundRatio %v: a pod would go before the node is tainted", upper, lower))
	}
}

func (r *reader) wrong(path string, err error) { r.bad(r.path(path), err) }

func (r *reader) bad(path []string, err error) {
	if len(r.out.Errs) < maxProblems {
		r.out.Errs = append(r.out.Errs, &FieldError{path, err})
	}
}

func (r *reader) path(path string) []string {
	p := []string{sections[r.kind]}
	if path != "" {
		p = append(p, strings.Split(path, ".")...)
	}
	return p
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}
