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
	// Key is its key in sample.config, with filePrefix if it comes from a file.
	Key    string
	Chosen *customconfig.Chosen
	Values []customconfig.Value
	// Unused are fields that are set but correspond to no setting of evict.
	Unused []string
	// Err is why the whole object cannot be used.
	Err error
}

// From names the object as a setting's source.
func (o *Object) From() string {
	name := "katalyst " + strings.TrimPrefix(o.Key, filePrefix) + " " + fields.Clip(o.Chosen.Namespace+"/"+o.Chosen.Name)
	if o.Chosen.At != "" {
		name += " (" + o.Chosen.At + ")"
	}
	return name
}

const filePrefix = "file "

// kindsByPriority has the kinds in the order of rising priority: the present kind takes precedence over the one in Katalyst's guide.
var kindsByPriority = []customconfig.Kind{customconfig.Eviction, customconfig.AdminQoS}

// Objects returns the objects in force in the order of rising priority: the tick's, then the file's. A kind in the file replaces
// that of the tick. It returns an error if the tick's objects are not in collect's format.
func Objects(raw tick.Raw, file map[string]*customconfig.Chosen) (list []Object, err error) {
	fromTick, err := customconfig.Read(raw)
	for _, c := range fromTick {
		c.At = "" // a tick's object has none
	}
	for _, source := range []struct {
		prefix string
		chosen map[string]*customconfig.Chosen
	}{{"", fromTick}, {filePrefix, file}} {
		for _, kind := range kindsByPriority {
			c := source.chosen[kind.Key]
			if c == nil || source.prefix == "" && file[kind.Key] != nil {
				continue
			}
			list = append(list, newObject(source.prefix+kind.Key, kind, c))
		}
	}
	return list, err
}

func newObject(key string, kind customconfig.Kind, c *customconfig.Chosen) Object {
	o := Object{Key: key, Chosen: c}
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

// LastValid is the state of one node: the last valid object of each kind.
type LastValid map[string]*customconfig.Chosen

// Raw returns the ticks' last valid objects, as a tick contains them; nil if there are none.
func (m LastValid) Raw() tick.Raw {
	chosen := map[string]*customconfig.Chosen{}
	for kind, c := range m {
		if c != nil && !strings.HasPrefix(kind, filePrefix) {
			chosen[kind] = c
		}
	}
	return customconfig.Overlay(nil, chosen)
}

// Resolve returns the objects in force: each valid one, and instead of an invalid one the last valid one of its kind. check
// reports whether objects can be used together, in that order. Rejected objects are named.
func (m LastValid) Resolve(objects []Object, check func([]Object) error) (inForce []Object, refused []string) {
	for kind := range m {
		if !slices.ContainsFunc(objects, func(o Object) bool { return o.Key == kind }) {
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
			m[o.Key] = o.Chosen
			inForce = with(o)
			continue
		}
		consequence := "none of its values is in force"
		if last := m[o.Key]; last != nil {
			if previous := newObject(o.Key, kindOf(o.Key), last); previous.Err == nil && check(with(previous)) == nil {
				inForce = with(previous)
				consequence = "the last valid one stays in force"
			}
		}
		refused = append(refused, fmt.Sprintf("%s is refused: %s: %s", o.From(), strings.ReplaceAll(err.Error(), "\n", "; "), consequence))
	}
	return inForce, refused
}

func kindOf(key string) customconfig.Kind {
	key = strings.TrimPrefix(key, filePrefix)
	return kindsByPriority[max(0, slices.IndexFunc(kindsByPriority, func(k customconfig.Kind) bool { return k.Key == key }))]
}

// Setting is a value in force.
type Setting struct {
	customconfig.Value
	// From is the object that contains it.
	From string
}

// aliasOf maps a setting to another one with the same meaning: otherwise the one of lower priority would apply beside the other, or
// override it.
var aliasOf = func() map[string]string {
	aliases := map[string]string{}
	for _, row := range new(evictconfig.Settings).Rows() {
		if row.ReplacedBy != "" {
			aliases[row.Name] = row.ReplacedBy
		}
	}
	return aliases
}()

// Settings returns the values of objects in the order of rising priority, without those for which isGiven returns true:
// flags and files of flags take precedence over objects.
func Settings(objects []Object, isGiven func(setting string) bool) []Setting {
	type ranked struct {
		Setting
		rank int
	}
	var list []ranked
	rank := map[string]int{} // the highest of each setting, from 1 on
	for i, o := range objects {
		for _, v := range o.Values {
			if isGiven(v.Setting) || aliasOf[v.Setting] != "" && isGiven(aliasOf[v.Setting]) {
				continue
			}
			list = append(list, ranked{Setting{v, o.From()}, i + 1})
			rank[v.Setting] = i + 1
		}
	}
	var out []Setting
	for _, s := range list {
		if rank[s.Setting.Setting] > s.rank || rank[aliasOf[s.Setting.Setting]] > s.rank {
			continue
		}
		out = append(out, s.Setting)
	}
	return out
}
