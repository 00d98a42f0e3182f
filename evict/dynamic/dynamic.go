// Package dynamic takes evict's settings from the configuration objects that a tick, or a file, has as those in force. It is
// pure: what a setting is, and whether its value can be used, is for the caller.
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
	// Kind is its key in sample.config, with a mark where it is of a file.
	Kind   string
	Chosen *customconfig.Chosen
	Values []customconfig.Value
	// Unused are fields that are set and that evict has no setting for.
	Unused []string
	// Err is why the object cannot be used as a whole.
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

// order is that of rising priority: today's kind takes precedence over the guide's.
var order = []customconfig.Kind{customconfig.Eviction, customconfig.AdminQoS}

// Objects are those in force in the order of rising priority: the tick's, then the file's. A kind that the file has stands
// in the place of the tick's. There is an error where the tick's are not what collect writes.
func Objects(raw tick.Raw, file map[string]*customconfig.Chosen) (list []Object, err error) {
	inTick, err := customconfig.Read(raw)
	for _, c := range inTick {
		c.At = "" // a tick's has none
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

// Memory is what is remembered of one node: the last good object of each kind.
type Memory map[string]*customconfig.Chosen

// Raw are the last good objects of the ticks, as a tick has them; nil where there are none.
func (m Memory) Raw() tick.Raw {
	chosen := map[string]*customconfig.Chosen{}
	for kind, c := range m {
		if c != nil && !strings.HasPrefix(kind, ofFile) {
			chosen[kind] = c
		}
	}
	return customconfig.Over(nil, chosen)
}

// Settle returns which objects are in force: each one that is good, and in the place of one that is not the last good one of
// its kind, which stays. check reports whether objects can be used together, in that order. What was refused is named.
func (m Memory) Settle(objects []Object, check func([]Object) error) (inForce []Object, refused []string) {
	for kind := range m {
		if !slices.ContainsFunc(objects, func(o Object) bool { return o.Kind == kind }) {
			delete(m, kind) // it was taken away: the last good one is removed, too
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
	// From is the object that it is of.
	From string
}

// insteadOf names, for a setting that means the same as another one in another way, that one: of the two the one of lower priority would
// otherwise hold beside the other, or over it.
var insteadOf = func() map[string]string {
	instead := map[string]string{}
	for _, row := range new(evictconfig.Settings).Rows() {
		if row.Instead != "" {
			instead[row.Name] = row.Instead
		}
	}
	return instead
}()

// Settings are the values of objects in the order of rising priority, without those that given holds for: flags and files
// of flags take precedence over objects.
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
