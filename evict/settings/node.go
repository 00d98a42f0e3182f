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
	Config dynamic.LastValid `json:"config,omitempty"`
	// AwaitsConfigSince is the time since which the cluster's objects are unknown; zero if they are known.
	AwaitsConfigSince time.Time `json:"awaitsConfig,omitzero"`

	fromObjects fromObjects
	Strategies  Strategies `json:"-"`
}

// fromObjects are the settings of a node with its configuration objects applied, kept until one of their sources changes.
type fromObjects struct {
	base        *Settings // from flags and file
	raw         tick.Raw  // the tick's objects
	metadata    tick.NodeMetadata
	local       customconfig.Local
	fileVersion uint64 // the version of the file, as local counts it

	settings     *Settings
	errs         []string
	reported     config.Reported
	loggedUnused []string // the fields that evict does not use

	wasRead  bool // by collect, at least once in this run
	inDryRun bool // every rule is in dry run until then
}

// SettingsAt returns the settings for a node at a tick: flags, else --config, else the tick's configuration objects, else the
// defaults. While the cluster's objects are unknown, every rule is in dry run. base are the settings of flags and file.
func (n *Node) SettingsAt(base *Settings, t *tick.Tick, log *slog.Logger) (*Settings, []string) {
	s, errs := n.withConfigObjects(base, t, log)
	c := &n.fromObjects
	previous := c.inDryRun
	if c.inDryRun = n.awaitsConfig(t); !c.inDryRun {
		if previous {
			log.Info("the dry run of the start has ended", "node", t.Node, "configurationRead", c.wasRead)
		}
		return s, errs
	}
	why := fmt.Sprintf("the cluster's configuration of this node is not read yet: every rule is in dry run until it is read, or until %s",
		n.AwaitsConfigSince.Add(maxConfigWait).UTC().Format(time.RFC3339))
	if !previous {
		log.Warn(why, "node", t.Node)
	}
	dryRun := *s
	dryRun.DryRunRules = []string{everyRule}
	return &dryRun, append(slices.Clip(errs), why)
}

// maxConfigWait is how long evict waits for a first reading of the cluster's configuration. If a kind is missing, or the
// permission to read it, there will be no reading.
const maxConfigWait = time.Minute

// awaitsConfig reports whether neither collect nor an earlier run of evict has read the node's configuration yet. The
// cluster's configuration may disable a rule.
func (n *Node) awaitsConfig(t *tick.Tick) bool {
	c := &n.fromObjects
	switch {
	case t.Sample == nil:
		return c.inDryRun // nothing is measured
	case !t.Sample.IsUnread("config"), customconfig.IsIn(t.Sample.Config):
		c.wasRead, n.AwaitsConfigSince = true, time.Time{}
	}
	if c.wasRead || n.Config.Raw() != nil {
		return false
	}
	if n.AwaitsConfigSince.IsZero() || t.Time.Before(n.AwaitsConfigSince) {
		n.AwaitsConfigSince = t.Time
	}
	return t.Time.Sub(n.AwaitsConfigSince) < maxConfigWait
}

// withConfigObjects returns the settings without the dry run. It names an invalid object in the errors, and uses the last
// valid one of the node instead.
func (n *Node) withConfigObjects(base *Settings, t *tick.Tick, log *slog.Logger) (*Settings, []string) {
	c := &n.fromObjects
	if t.Sample == nil { // nothing is measured, and the objects are unknown
		if c.settings == nil {
			return base, nil
		}
		return c.settings, nil
	}
	c.metadata.Update(t.Sample)
	raw := t.Sample.Config
	if t.Sample.IsUnread("config") && !customconfig.IsIn(raw) { // unknown is not the same as none
		raw = c.raw
		if c.settings == nil {
			raw = n.Config.Raw()
		}
	}
	file, fileErrs := c.local.InForce(base.objects, t.Node, c.metadata.Labels, t.Time)
	if c.settings != nil && c.base == base && c.fileVersion == c.local.Version && bytes.Equal(c.raw, raw) {
		return c.settings, c.errs
	}
	if n.Config == nil {
		n.Config = dynamic.LastValid{}
	}
	previous := c.settings
	c.base, c.fileVersion, c.raw, c.errs = base, c.local.Version, slices.Clone(raw), nil
	for _, err := range fileErrs {
		c.errs = append(c.errs, err.Error())
	}
	objects, err := dynamic.Objects(raw, file)
	if err != nil {
		c.errs = append(c.errs, err.Error()+": the previous configuration stays in force")
		objects, _ = dynamic.Objects(n.Config.Raw(), file)
	}
	inForce, refused := n.Config.Resolve(objects, func(list []dynamic.Object) error {
		_, err := base.withObjects(list)
		return err
	})
	c.errs = append(c.errs, refused...)
	if c.settings, err = base.withObjects(inForce); err != nil { // each step to it was checked
		c.settings, c.errs = base, append(c.errs, err.Error())
	}
	c.log(log.With("node", t.Node), previous, objects)
	return c.settings, c.errs
}

// log logs changes, once.
func (c *fromObjects) log(log *slog.Logger, previous *Settings, objects []dynamic.Object) {
	c.reported.Problems(log, "configuration refused", c.errs)
	var loggedUnused []string
	for _, o := range objects {
		if len(o.Unused) == 0 {
			continue
		}
		text := o.From() + " " + strings.Join(o.Unused, ", ")
		loggedUnused = append(loggedUnused, text)
		if !slices.Contains(c.loggedUnused, text) {
			log.Info("evict ignores fields of a configuration object", "object", o.From(), "fields", strings.Join(o.Unused, ", "))
		}
	}
	c.loggedUnused = loggedUnused
	if previous == nil {
		previous = c.base
	}
	var changed []any
	rows := previous.Rows()
	for i, row := range c.settings.Rows() {
		if now := row.Show(); now != rows[i].Show() {
			changed = append(changed, row.Name, now)
		}
	}
	if changed != nil {
		log.Info("settings changed", changed...)
	}
}
