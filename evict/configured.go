package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"polder/evict/dynamic"
	"polder/lib/customconfig"
	"polder/lib/stage"
	"polder/lib/tick"
)

// configured are the settings of one node with what its configuration objects say, kept until one of the things changes
// that they are made of.
type configured struct {
	base  *settings // flags and file
	raw   tick.Raw  // the tick's objects
	local customconfig.Local
	of    uint64 // the file's, as local counts them

	settings *settings
	errs     []string
	said     []string // in the log

	read  bool // by collect, at least once in this run
	tries bool // every rule is only tried until it is
}

// settingsFor are the settings for a node at a tick: flags, else --config, else the tick's configuration objects, else the
// defaults. While it is not known yet which objects the cluster has, every rule is only tried.
func (e *engine) settingsFor(n *node, t *tick.Tick) (*settings, []string) {
	s, errs := e.configuredFor(n, t)
	c := &n.configured
	before := c.tries
	if c.tries = n.awaitsConfig(t); !c.tries {
		if before {
			e.session.Log.Info("the rules act from now on", "node", n.name, "configurationRead", c.read)
		}
		return s, errs
	}
	why := fmt.Sprintf("it is not known yet what configures this node: every rule is only tried until that is read, or %s", n.Awaits.Add(awaitConfig).UTC().Format(time.RFC3339))
	if !before {
		e.session.Log.Warn(why, "node", n.name)
	}
	tried := *s
	tried.DryRunRules = []string{everyRule}
	return &tried, append(slices.Clip(errs), why)
}

// awaitConfig is how long a first reading of the cluster's configuration is waited for. Where a kind is missing, or the
// permission to read it, there is none to come.
const awaitConfig = time.Minute

// awaitsConfig reports whether collect has not read yet what configures the node, nor an earlier run of evict. What the
// cluster says then may be that a rule is not to act.
func (n *node) awaitsConfig(t *tick.Tick) bool {
	c := &n.configured
	switch {
	case t.Sample == nil:
		return c.tries // nothing is measured
	case !unread(t.Sample), told(t.Sample.Config):
		c.read, n.Awaits = true, time.Time{}
	}
	if c.read || n.Config.Raw() != nil {
		return false
	}
	if n.Awaits.IsZero() || t.Time.Before(n.Awaits) {
		n.Awaits = t.Time
	}
	return t.Time.Sub(n.Awaits) < awaitConfig
}

// configuredFor are the settings without that. An object that cannot be used is named in the errors, and the last good one
// of the node stays.
func (e *engine) configuredFor(n *node, t *tick.Tick) (*settings, []string) {
	base := e.settings.Load()
	c := &n.configured
	if t.Sample == nil { // nothing is measured, and nothing is known of the objects
		if c.settings == nil {
			return base, nil
		}
		return c.settings, nil
	}
	raw, labels := t.Sample.Config, t.Sample.Labels
	if unread(t.Sample) && !told(raw) { // not known is not none
		raw = c.raw
		if c.settings == nil {
			raw = n.Config.Raw()
		}
	}
	file, wrong := c.local.InForce(base.objects, t.Node, labels, t.Time)
	if c.settings != nil && c.base == base && c.of == c.local.Version && bytes.Equal(c.raw, raw) {
		return c.settings, c.errs
	}
	if n.Config == nil {
		n.Config = dynamic.Memory{}
	}
	before := c.settings
	c.base, c.of, c.raw, c.errs = base, c.local.Version, slices.Clone(raw), nil
	for _, err := range wrong {
		c.errs = append(c.errs, err.Error())
	}
	objects, err := dynamic.Objects(raw, file)
	if err != nil {
		c.errs = append(c.errs, err.Error()+", what was in force stays")
		objects, _ = dynamic.Objects(n.Config.Raw(), file)
	}
	inForce, refused := n.Config.Settle(objects, func(list []dynamic.Object) error {
		_, err := base.with(list)
		return err
	})
	c.errs = append(c.errs, refused...)
	if c.settings, err = base.with(inForce); err != nil { // each step to it was checked
		c.settings, c.errs = base, append(c.errs, err.Error())
	}
	e.logConfigured(n, before, objects)
	return c.settings, c.errs
}

// unread reports whether collect could not read the configuration objects.
func unread(s *tick.Sample) bool {
	return s != nil && slices.ContainsFunc(s.Errors, func(e tick.SourceError) bool { return e.Source == "config" })
}

// told reports whether a tick's configuration says what there is of Katalyst's objects: of Koordinator's ConfigMap it may say
// something all the same.
func told(raw tick.Raw) bool {
	var top map[string]tick.Raw
	return len(raw) > 0 && (tick.Unmarshal(raw, &top) != nil || top["katalyst"] != nil)
}

// with are the settings with what objects say over the defaults.
func (s *settings) with(objects []dynamic.Object) (*settings, error) {
	list := dynamic.Settings(objects, func(setting string) bool { return s.from[setting] != fromDefault })
	if len(list) == 0 {
		return s, nil
	}
	merged := *s
	merged.from = maps.Clone(s.from)
	at := map[string]string{}
	for _, x := range list {
		i := slices.IndexFunc(keys, func(k key) bool { return k.name == x.Setting })
		if i < 0 || !keys[i].set(&merged, x.V) {
			return nil, fmt.Errorf("%s: there is no setting %s of %v", strings.Join(x.Path, "."), x.Setting, x.V)
		}
		merged.from[x.Setting] = x.From
		at[x.Setting] = strings.Join(x.Path, ".")
	}
	var errs []error
	merged.check(func(setting string, why error) {
		if at[setting] != "" {
			setting = at[setting]
		}
		errs = append(errs, fmt.Errorf("%s: %w", setting, why))
	})
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	return &merged, nil
}

// fromDefault is the source of a setting that nobody has set.
const fromDefault = "default"

// checkObjects checks each of a file's objects with the flags that are given beside it.
func (s *settings) checkObjects() (errs []error) {
	if s.objects == nil {
		return nil
	}
	for kind, list := range s.objects.Objects() {
		for _, c := range list {
			objects, _ := dynamic.Objects(nil, map[string]*customconfig.Chosen{kind.Key: c})
			if _, err := s.with(objects); err != nil {
				errs = append(errs, fmt.Errorf("%s: %s %s/%s: %w", c.At, kind.Name, c.Namespace, c.Name, err))
			}
		}
	}
	return errs
}

// ofNode are the settings with what the file's objects say to --node, whose labels are known to ticks alone, and their
// sources.
func (s *settings) ofNode(session *stage.Session) (*settings, map[string]string) {
	var local customconfig.Local
	file, _ := local.InForce(s.objects, session.Node, nil, session.Now())
	objects, _ := dynamic.Objects(nil, file)
	if merged, err := s.with(objects); err == nil {
		return merged, merged.from
	}
	return s, s.from
}

// writeSources writes the settings that are no defaults, with their sources.
func writeSources(b *strings.Builder, s *settings) {
	var set []string
	for _, name := range names(keys) {
		if s.from[name] != fromDefault {
			set = append(set, name)
		}
	}
	if set != nil {
		b.WriteString("\nsettings that are no defaults\n")
		sources := maps.Clone(s.from)
		for name, from := range sources {
			sources[name] = clean(from)
		}
		writeKeys(b, s, sources, set)
	}
}

// logConfigured says what has changed, once.
func (e *engine) logConfigured(n *node, before *settings, objects []dynamic.Object) {
	c := &n.configured
	for _, text := range c.errs {
		if !slices.Contains(c.said, text) {
			e.session.Log.Warn("configuration refused", "node", n.name, "error", text)
		}
	}
	said := slices.Clone(c.errs)
	for _, o := range objects {
		if len(o.Unused) == 0 {
			continue
		}
		text := o.From() + " " + strings.Join(o.Unused, ", ")
		said = append(said, text)
		if !slices.Contains(c.said, text) {
			e.session.Log.Info("fields that evict does not use", "node", n.name, "object", o.From(), "fields", strings.Join(o.Unused, ", "))
		}
	}
	c.said = said
	if before == nil {
		before = c.base
	}
	var changed []any
	for _, k := range keys {
		if now := k.show(c.settings); now != k.show(before) {
			changed = append(changed, k.name, now)
		}
	}
	if changed != nil {
		e.session.Log.Info("settings changed", append([]any{"node", n.name}, changed...)...)
	}
}
