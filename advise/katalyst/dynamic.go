package katalyst

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"polder/advise/policy"
	"polder/lib/customconfig"
	"polder/lib/tick"
)

// dynamic is what a tick's configuration contains, as far as this policy uses it.
type dynamic struct {
	raw    tick.Raw // its source
	used   tick.Raw // the part of it that this policy uses
	object string   // "AdminQoSConfiguration katalyst-system/default"

	isOff      bool                 // nothing is reclaimed
	reserve    customconfig.Amounts // kept free for the shared pods
	floor      customconfig.Amounts // kept by the reclaimed side (only CPU)
	withheld   customconfig.Amounts // not offered
	minimum    customconfig.Amounts // offered at least
	negligible customconfig.Amounts // too little to be offered
	overlap    *bool                // shared pods also run on the reclaim pool's CPUs; nil if it is not configured

	reasons []string // values that are invalid, or not used
}

// lastConfig is the last configuration that was read, in the format of the state file.
type lastConfig struct {
	// Config has the part that this policy uses; nil if there was none. WasConfigRead reports whether any was read.
	Config        tick.Raw `json:"config,omitempty"`
	WasConfigRead bool     `json:"configRead,omitempty"`
	// AwaitsConfigSince is since when a first reading has been missing.
	AwaitsConfigSince time.Time `json:"awaitsConfig,omitzero"`
}

const (
	// maxConfigWait is how long there is no decision before a first reading of the cluster's configuration, which may disable reclaim. As
	// in evict, it is bounded because there is never a reading without the permission to read a kind.
	maxConfigWait = time.Minute
	// maxConfigBytes bounds the configuration in the state: collect accepts half as much.
	maxConfigBytes = 256 << 10
)

// observeConfig updates the configuration in force. While it cannot be read the last one stays, and text says so. isAwaited reports
// whether none was read yet and it is too early to decide without.
func (n *node) observeConfig(t *tick.Tick) (text string, isAwaited bool) {
	s := t.Sample
	if !s.IsUnread("config") || customconfig.IsIn(s.Config) {
		n.AwaitsConfigSince = time.Time{}
		if next := n.dynamic.refreshed(s.Config); next != n.dynamic || !n.WasConfigRead {
			n.dynamic, n.Config = next, next.used
			n.WasConfigRead = len(n.Config) <= maxConfigBytes
			if !n.WasConfigRead {
				n.Config = nil
			}
		}
		return "", false
	}
	if n.WasConfigRead {
		n.dynamic = n.dynamic.refreshed(n.Config)
		return "the cluster's configuration could not be read: the last settings stay in force", false
	}
	n.dynamic = n.dynamic.refreshed(nil)
	if n.AwaitsConfigSince.IsZero() || t.Time.Before(n.AwaitsConfigSince) {
		n.AwaitsConfigSince = t.Time
	}
	if until := n.AwaitsConfigSince.Add(maxConfigWait); t.Time.Before(until) {
		const format = "the cluster's configuration of this node is not read yet, and is awaited until %s"
		return fmt.Sprintf(format, until.UTC().Format(time.RFC3339)), true
	}
	return "the cluster's configuration was never read: the settings without it are in force", false
}

// source names a field and its object.
func (d *dynamic) source(field string) string { return d.object + ": " + field }

// refreshed returns the content of a configuration: d if the configuration has not changed.
func (d *dynamic) refreshed(raw tick.Raw) *dynamic {
	if d == nil || !bytes.Equal(d.raw, raw) {
		return readDynamic(raw)
	}
	return d
}

// readDynamic takes the valid values of a configuration; its reasons name the others.
func readDynamic(raw tick.Raw) *dynamic {
	d := &dynamic{raw: slices.Clone(raw)}
	objects, err := customconfig.Read(raw)
	if err != nil {
		d.reasons = append(d.reasons, err.Error())
	}
	admin := objects[customconfig.AdminQoS.Key]
	if admin == nil {
		return d
	}
	d.used = customconfig.Overlay(nil, map[string]*customconfig.Chosen{customconfig.AdminQoS.Key: admin})
	d.object = customconfig.AdminQoS.Name + " " + unquoted(admin.Namespace+"/"+admin.Name)
	if admin.At != "" {
		d.object += " (" + unquoted(admin.At) + ")"
	}
	config, err := admin.Object()
	if err != nil {
		d.reasons = append(d.reasons, fmt.Sprintf("%s: ignored", d.source(err.Error())))
	}
	r := customconfig.ReclaimedOf(config)
	for _, field := range r.Unused {
		d.reasons = append(d.reasons, d.source(unquoted(field))+" is not used by this policy")
	}
	for _, err := range r.Errs {
		d.reasons = append(d.reasons, fmt.Sprintf("%s: ignored", d.source(strings.TrimPrefix(err.Error(), "reclaimedResourceConfig."))))
	}
	d.isOff, d.overlap = r.IsDisabled, r.AllowsOverlap
	d.reserve, d.floor = r.Amounts[customconfig.FieldReserve], r.Amounts[customconfig.FieldFloor]
	d.withheld, d.minimum, d.negligible = r.Amounts[customconfig.FieldWithhold], r.Amounts[customconfig.FieldMinimum],
		r.Amounts[customconfig.FieldIgnoreBelow]
	if d.floor.Bytes != nil {
		d.reasons = append(d.reasons, d.source(customconfig.FieldFloor)+".memory is not used by this policy")
	}
	return d
}

// unquoted returns untrusted text for a reason, without quotation marks.
func unquoted(text string) string { return strings.Trim(policy.Quote(text), `"`) }

// isNull reports whether there is no value. A null in a map is decoded as an empty value.
func isNull(raw tick.Raw) bool { return len(raw) == 0 || string(raw) == "null" }
