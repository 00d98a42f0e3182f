package settings

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"polder/evict/dynamic"
	"polder/lib/config"
	"polder/lib/customconfig"
	"polder/lib/tick"
)

// Node is what is remembered of the settings of one node. The exported fields are kept in the state file.
type Node struct {
	// Config are the configuration objects that were good last.
	Config dynamic.Memory `json:"config,omitempty"`
	// Awaits is the time since which it is not known what the cluster's objects are; zero where it is.
	Awaits time.Time `json:"awaitsConfig,omitzero"`

	fromObjects fromObjects
	Strategies  Strategies `json:"-"`
}

// fromObjects are the settings of a node with what its configuration objects contain, kept until one of the things changes that they are
// made of.
type fromObjects struct {
	base  *Settings // flags and file
	raw   tick.Raw  // the tick's objects
	local customconfig.Local
	of    uint64 // the file's, as local counts them

	settings *Settings
	errs     []string
	reported config.Reported
	logged   []string // the fields that evict does not use

	read  bool // by collect, at least once in this run
	tries bool // every rule is in dry run until it is
}

// SettingsAt are the settings for a node at a tick: flags, else --config, else the tick's configuration objects, else the defaults.
// While it is not known yet which objects the cluster has, every rule is in dry run. base are the settings of flags and file.
func (n *Node) SettingsAt(base *Settings, t *tick.Tick, log *slog.Logger) (*Settings, []string) {
	s, errs := n.objectsOver(base, t, log)
	c := &n.fromObjects
	before := c.tries
	if c.tries = n.awaitsConfig(t); !c.tries {
		if before {
			log.Info("the rules act from now on", "node", t.Node, "configurationRead", c.read)
		}
		return s, errs
	}
	why := fmt.Sprintf("it is not known yet what configures this node: every rule is in dry run until that is read, or %s",
		n.Awaits.Add(awaitConfig).UTC().Format(time.RFC3339))
	if !before {
		log.Warn(why, "node", t.Node)
	}
	tried := *s
	tried.DryRunRules = []string{EveryRule}
	return &tried, append(slices.Clip(errs), why)
}

// awaitConfig is how long a first reading of the cluster's configuration is waited for. Where a kind is missing, or the
// permission to read it, there is none to come.
const awaitConfig = time.Minute

// awaitsConfig reports whether collect has not read yet what configures the node, nor an earlier run of evict. What the
// cluster has then may be that a rule is not to act.
func (n *Node) awaitsConfig(t *tick.Tick) bool {
	c := &n.fromObjects
	switch {
	case t.Sample == nil:
		return c.tries // nothing is measured
	case !t.Sample.Unread("config"), hasObjects(t.Sample.Config):
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

// objectsOver are the settings without that. An object that cannot be used is named in the errors, and the last good one
// of the node stays.
func (n *Node) objectsOver(base *Settings, t *tick.Tick, log *slog.Logger) (*Settings, []string) {
	c := &n.fromObjects
	if t.Sample == nil { // nothing is measured, and nothing is known of the objects
		if c.settings == nil {
			return base, nil
		}
		return c.settings, nil
	}
	raw, labels := t.Sample.Config, t.Sample.Labels
	if t.Sample.Unread("config") && !hasObjects(raw) { // not known is not none
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
	c.log(log.With("node", t.Node), before, objects)
	return c.settings, c.errs
}

// hasObjects reports whether a tick's configuration has what there is of Katalyst's objects: of Koordinator's ConfigMap it may have
// something all the same.
func hasObjects(raw tick.Raw) bool {
	var top map[string]tick.Raw
	return len(raw) > 0 && (tick.Unmarshal(raw, &top) != nil || top["katalyst"] != nil)
}

// log logs what has changed, once.
func (c *fromObjects) log(log *slog.Logger, before *Settings, objects []dynamic.Object) {
	c.reported.Problems(log, "configuration refused", c.errs)
	var logged []string
	for _, o := range objects {
		if len(o.Unused) == 0 {
			continue
		}
		text := o.From() + " " + strings.Join(o.Unused, ", ")
		logged = append(logged, text)
		if !slices.Contains(c.logged, text) {
			log.Info("fields that evict does not use", "object", o.From(), "fields", strings.Join(o.Unused, ", "))
		}
	}
	c.logged = logged
	if before == nil {
		before = c.base
	}
	var changed []any
	rows := before.Rows()
	for i, row := range c.settings.Rows() {
		if now := row.Show(); now != rows[i].Show() {
			changed = append(changed, row.Name, now)
		}
	}
	if changed != nil {
		log.Info("settings changed", changed...)
	}
}
