package customconfig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"polder/lib/evictconfig"
)

// sections are the names of evict's part of spec.config, by kind.
var sections = map[string]string{Eviction.Name: "evictionPluginsConfig", AdminQoS.Name: "evictionConfig"}

// resourcePrefix is the prefix of the reclaimed pods' resources in the guide's release. Later releases have "resource."
// before it.
const resourcePrefix = "katalyst.kubewharf.io/"

// Value is one of evict's settings as a configuration object has it.
type Value struct {
	// Setting is its name: that of evict's flag.
	Setting string
	// Path is the field's, from spec.config on.
	Path []string
	// V is of the setting's type.
	V any
}

// EvictionValues are an object's values for evict.
type EvictionValues struct {
	Values []Value
	// Unused are the paths of fields that are set and for which evict has no setting.
	Unused []string
	// Errs are the fields that are invalid.
	Errs []*FieldError
}

// Field is a field for which evict has settings.
type Field struct {
	Path     string // from spec.config on
	Settings []Setting
}

// Setting is a setting that a field sets, and how.
type Setting struct {
	evictconfig.Row
	evictconfig.Field
}

// Fields returns the fields of a kind, in the order of evict's settings.
func Fields(kind Kind) []Field {
	var list []Field
	for _, row := range new(evictconfig.Settings).Rows() {
		for _, f := range row.Fields {
			if f.Kind != kind.Name {
				continue
			}
			path := sections[kind.Name] + "." + f.Path
			i := slices.IndexFunc(list, func(f Field) bool { return f.Path == path })
			if i < 0 {
				i, list = len(list), append(list, Field{Path: path})
			}
			list[i].Settings = append(list[i].Settings, Setting{row, f})
		}
	}
	return list
}

// fieldsOf are the fields of each kind, by kind and path.
var fieldsOf = func() map[Kind]map[string]Field {
	byPath := map[Kind]map[string]Field{}
	for _, kind := range Kinds {
		byPath[kind] = map[string]Field{}
		for _, f := range Fields(kind) {
			byPath[kind][f.Path] = f
		}
	}
	return byPath
}()

// EvictionOf reads evict's part of an object's spec.config. A field that is absent or null sets nothing.
func EvictionOf(kind Kind, config Object) *EvictionValues {
	r := &reader{fields: fieldsOf[kind], out: &EvictionValues{}}
	section := sections[kind.Name]
	if v := config[section]; v != nil {
		if o, ok := v.(map[string]any); ok {
			r.object(o, []string{section})
		} else {
			r.addError([]string{section}, errors.New("want an object"))
		}
	}
	slices.SortFunc(r.out.Values, func(a, b Value) int {
		return cmp.Or(cmp.Compare(a.Setting, b.Setting), slices.Compare(a.Path, b.Path))
	})
	r.checkPairs()
	return r.out
}

type reader struct {
	fields map[string]Field // by path
	out    *EvictionValues
}

// object reads one level of the section.
func (r *reader) object(o Object, at []string) {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		path, v := appendKey(at, name), o[name]
		if v == nil {
			continue
		}
		child, isObject := v.(map[string]any)
		f, isField := r.fields[strings.Join(path, ".")]
		switch {
		case isField && f.Settings[0].Resource != "":
			r.resources(v, path, f.Settings)
		case isField:
			r.value(v, path, f.Settings)
		case !r.inside(path):
			r.unused(path)
		case isObject:
			r.object(child, path)
		default:
			r.addError(path, errors.New("want an object"))
		}
	}
}

// inside reports whether there are known fields below a path.
func (r *reader) inside(path []string) bool {
	prefix := strings.Join(path, ".") + "."
	for p := range r.fields {
		if strings.HasPrefix(p, prefix) {
			return true
		}
	}
	return false
}

func (r *reader) value(v any, path []string, settings []Setting) {
	value, err := settings[0].Read(v)
	if err != nil {
		r.addError(path, err)
		return
	}
	if list, ok := value.([]string); ok {
		known := []string{}
		for _, name := range list {
			if to := settings[0].Names[name]; to == "" {
				r.unused(appendKey(path, name))
			} else if !slices.Contains(known, to) {
				known = append(known, to)
			}
		}
		if len(known) == 0 && len(list) > 0 {
			return
		}
		value = known
	}
	for _, s := range settings {
		r.out.Values = append(r.out.Values, Value{s.Name, path, value})
	}
}

// resources reads values by resource, each of which is a separate setting.
func (r *reader) resources(v any, path []string, settings []Setting) {
	o, ok := v.(map[string]any)
	if !ok {
		r.addError(path, errors.New("want a factor for each resource"))
		return
	}
	for _, resource := range slices.Sorted(maps.Keys(o)) {
		if o[resource] == nil {
			continue
		}
		at := appendKey(path, resource)
		i := slices.IndexFunc(settings, func(s Setting) bool { return resourcePrefix+s.Resource == strings.TrimPrefix(resource, "resource.") })
		if i < 0 {
			r.unused(at)
			continue
		}
		value, err := settings[i].Read(o[resource])
		if err != nil {
			r.addError(at, err)
			continue
		}
		r.out.Values = append(r.out.Values, Value{settings[i].Name, at, value})
	}
}

// maxUnused bounds the fields that are reported as unused.
const maxUnused = 20

func (r *reader) unused(path []string) {
	if len(r.out.Unused) < maxUnused {
		r.out.Unused = append(r.out.Unused, dotted(path))
	}
}

// checkPairs checks values against each other.
func (r *reader) checkPairs() {
	at := map[string]Value{}
	for _, v := range r.out.Values {
		if before, isDuplicate := at[v.Setting]; isDuplicate && fmt.Sprint(before.V) != fmt.Sprint(v.V) {
			r.addError(v.Path, fmt.Errorf("%v, and %s is %v", v.V, dotted(before.Path), before.V))
		}
		at[v.Setting] = v
	}
	for _, p := range evictconfig.Pairs {
		lower, upper := at[p.Lower], at[p.Upper]
		if lower.Path == nil || upper.Path == nil {
			continue
		}
		if err := p.Check(lower.V, upper.V, lower.Path[len(lower.Path)-1]); err != nil {
			r.addError(upper.Path, err)
		}
	}
}

func (r *reader) addError(path []string, err error) {
	if len(r.out.Errs) < maxProblems {
		r.out.Errs = append(r.out.Errs, &FieldError{path, err})
	}
}

// appendKey returns a path with one more key.
func appendKey(path []string, name string) []string { return append(slices.Clip(path), name) }
