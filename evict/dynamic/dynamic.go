// Package dynamic takes evict's settings from the configuration objects in force of a tick or a file. It is pure: the caller
// defines which settings exist, and whether a value is valid.
package dynamic

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"polder/lib/customconfig"
	"polder/lib/evictconfig"
	"polder/lib/fields"
	"polder/lib/tick"
)

// Object is what one configuration object contains for evict.
type Object struct {
	// Kind is its key in sample.config, with a mark if it comes from a file.
	Kind   string
	Chosen *customconfig.Chosen
	Values []customconfig.Value
	// Unused are fields that are set but correspond to no setting of evict.
	Unused []string
	// Err is why the whole object cannot be used.
	Err error
}

// From names the object as a setting's source.
func (o *Object) From() string {
	name := "katalyst " + strings.TrimPrefix(o.Kind, ofFile) + " " + fields.Clip(o.Chosen.Namespace+"/"+o.Chosen.Name)
	if o.Chosen.At != "" {
		name += " (" + o.Chosen.At + ")"
	}
	return name
}

const ofFile = "file "

// order is that of rising priority: the present kind takes precedence over the one in Katalyst's guide.
var order = []customconfig.Kind{customconfig.Eviction, customconfig.AdminQoS}

// Objects returns those in force in the order of rising priority: the tick's, then the file's. A kind in the file replaces
// that of the tick. It returns an error if the tick's objects are not in collect's format.
func Objects(raw tick.Raw, file map[string]*customconfig.Chosen) (list []Object, err error) {
	inTick, err := customconfig.Read(raw)
	for _, c := range inTick {
		c.At = "" // a tick's object has none
	}
	for _, source := range []struct {
		mark   string
		chosen map[string]*customconfig.Chosen
	}{{"", inTick}, {ofFile, file}} {
		for _, kind := range order {
			c := source.chosen[kind.Key]
			if c == nil || source.mark == "" && file[kind.Key] != nil {
				continue
			}
			list = append(list, objectOf(source.mark+kind.Key, kind, c))
		}
	}
	return list, err
}

func objectOf(key string, kind customconfig.Kind, c *customconfig.Chosen) Object {
	o := Object{Kind: key, Chosen: c}
	config, err := c.Object()
	if err != nil {
		o.Err = err
		return o
	}
	r := customconfig.EvictionOf(kind, config)
	o.Values, o.Unused = r.Values, r.Unused
	errs := make([]error, len(r.Errs))
	for i, e := range r.Errs {
		errs[i] = e
	}
	o.Err = errors.Join(errs...)
	return o
}

// Memory is the state of one node: the last valid object of each kind.
type Memory map[string]*customconfig.Chosen

// Raw returns the ticks' last valid objects, as a tick contains them; nil if there are none.
func (m Memory) Raw() tick.Raw {
	chosen := map[string]*customconfig.Chosen{}
	for kind, c := range m {
		if c != nil && !strings.HasPrefix(kind, ofFile) {
			chosen[kind] = c
		}
	}
	return customconfig.Over(nil, chosen)
}

// Settle returns the objects in force: each valid one, and instead of an invalid one the last valid one of its kind. check
// reports whether objects can be used together, in that order. Rejected objects are named.
func (m Memory) Settle(objects []Object, check func([]Object) error) (inForce []Object, refused []string) {
	for kind := range m {
		if !slices.ContainsFunc(objects, func(o Object) bool { return o.Kind == kind }) {
			delete(m, kind) // the object was deleted: the last valid one is removed, too
		}
	}
	for _, o := range objects {
		with := func(o Object) []Object { return append(slices.Clip(inForce), o) }
		err := o.Err
		if err == nil {
			err = check(with(o))
		}
		if err == nil {
			m[o.Kind] = o.Chosen
			inForce = with(o)
			continue
		}
		stays := "nothing of it is in force"
		if last := m[o.Kind]; last != nil {
			if before := objectOf(o.Kind, kindOf(o.Kind), last); before.Err == nil && check(with(before)) == nil {
				inForce = with(before)
				stays = "what was in force before stays"
			}
		}
		refused = append(refused, fmt.Sprintf("%s is refused: %s: %s", o.From(), strings.ReplaceAll(err.Error(), "\n", "; "), stays))
	}
	return inForce, refused
}

func kindOf(key string) customconfig.Kind {
	key = strings.TrimPrefix(key, ofFile)
	return order[max(0, slices.IndexFunc(order, func(k customconfig.Kind) bool { return k.Key == key }))]
}

// Setting is a value in force.
type Setting struct {
	customconfig.Value
	// From is the object that contains it.
	From string
}

// insteadOf maps a setting to another one with the same meaning: otherwise the one of lower priority would apply beside the other, or
// override it.
var insteadOf = func() map[string]string {
	instead := map[string]string{}
	for _, row := range new(evictconfig.Settings).Rows() {
		if row.Instead != "" {
			instead[row.Name] = row.Instead
		}
	}
	return instead
}()

// Settings returns the values of objects in the order of rising priority, without those for which given returns true:
// flags and files of flags take precedence over objects.
func Settings(objects []Object, given func(setting string) bool) []Setting {
	type ranked struct {
		Setting
		rank int
	}
	var list []ranked
	rank := map[string]int{} // the highest of each setting, from 1 on
	for i, o := range objects {
		for _, v := range o.Values {
			if given(v.Setting) || insteadOf[v.Setting] != "" && given(insteadOf[v.Setting]) {
				continue
			}
			list = append(list, ranked{Setting{v, o.From()}, i + 1})
			rank[v.Setting] = i + 1
		}
	}
	var out []Setting
	for _, s := range list {
		if rank[s.Setting.Setting] > s.rank || rank[insteadOf[s.Setting.Setting]] > s.rank {
			continue
		}
		out = append(out, s.Setting)
	}
	return out
}
