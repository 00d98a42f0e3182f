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

// Node is the state of one node's settings. The state file contains the exported fields.
type Node struct {
	// Config contains the last valid configuration objects.
	Config dynamic.Memory `json:"config,omitempty"`
	// Awaits is the time since which the cluster's objects are unknown; zero if they are known.
	Awaits time.Time `json:"awaitsConfig,omitzero"`

	fromObjects fromObjects
	Strategies  Strategies `json:"-"`
}

// fromObjects are the settings of a node with its configuration objects applied, kept until one of their sources changes.
type fromObjects struct {
	base  *Settings // from flags and file
	raw   tick.Raw  // the tick's objects
	local customconfig.Local
	of    uint64 // the version of the file, as local counts it

	settings *Settings
	errs     []string
	reported config.Reported
	logged   []string // the fields that evict does not use

	read  bool // by collect, at least once in this run
	tries bool // every rule is in dry run until then
}

// SettingsAt returns the settings for a node at a tick: flags, else --config, else the tick's configuration objects, else the
// defaults. While the cluster's objects are unknown, every rule is in dry run. base are the settings of flags and file.
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

// awaitConfig is how long evict waits for a first reading of the cluster's configuration. If a kind is missing, or the
// permission to read it, there will be no reading.
const awaitConfig = time.Minute

// awaitsConfig reports whether neither collect nor an earlier run of evict has read the node's configuration yet. The
// cluster's configuration may disable a rule.
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

// objectsOver returns the settings without the dry run. It names an invalid object in the errors, and uses the last
// valid one of the node instead.
func (n *Node) objectsOver(base *Settings, t *tick.Tick, log *slog.Logger) (*Settings, []string) {
	c := &n.fromObjects
	if t.Sample == nil { // nothing is measured, and the objects are unknown
		if c.settings == nil {
			return base, nil
		}
		return c.settings, nil
	}
	raw, labels := t.Sample.Config, t.Sample.Labels
	if t.Sample.Unread("config") && !hasObjects(raw) { // unknown is not the same as none
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
		c.errs = append(c.errs, err.Error()+": the previous configuration stays in force")
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

// hasObjects reports whether a tick's configuration contains Katalyst's part: it may contain Koordinator's ConfigMap alone.
func hasObjects(raw tick.Raw) bool {
	var top map[string]tick.Raw
	return len(raw) > 0 && (tick.Unmarshal(raw, &top) != nil || top["katalyst"] != nil)
}

// log logs changes, once.
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
