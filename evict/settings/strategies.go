package settings

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"polder/evict/rule"
	"polder/lib/config"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Strategies are Koordinator's for one node, kept until their source text changes.
type Strategies struct {
	sloconfig.InForce

	metadata    tick.NodeMetadata
	local       sloconfig.Local
	fileVersion uint64   // the version of the file, as local counts it
	fileRaw     tick.Raw // that of the file, as a tick contains it
	errs        []string

	// What was logged last: errors, the strategies, and which of Koordinator's rules they enable.
	reported    config.Reported
	logged      *sloconfig.Strategies
	loggedRules string
}

// Read reads them from --config, else from a tick with a sample. Without either the rules are off.
func (k *Strategies) Read(s *Settings, t *tick.Tick) (*sloconfig.Strategies, []string) {
	k.metadata.Update(t.Sample)
	raw := t.Sample.Config
	file, fileErrs := k.local.InForce(s.SLO, k.metadata.Labels, k.metadata.Annotations)
	if file != nil {
		if k.fileVersion != k.local.Version {
			k.fileVersion, k.fileRaw = k.local.Version, sloconfig.Overlay(nil, file)
		}
		raw = k.fileRaw
	}
	k.errs = nil
	for _, err := range fileErrs {
		k.errs = append(k.errs, err.Error())
	}
	if err := k.UpdateRaw(raw, t.Sample.IsUnread("config")); err != nil && !errors.Is(err, sloconfig.ErrNotRead) {
		k.errs = append(k.errs, err.Error()+": the previous configuration stays in force")
	}
	return k.Last, k.errs
}

// Log logs changes, once.
func (k *Strategies) Log(log *slog.Logger) {
	k.reported.Problems(log, "configuration refused", k.errs)
	s := k.Last
	if k.logged == s {
		return
	}
	k.logged = s
	var on, off []string
	from := ""
	for _, r := range rule.All {
		if s == nil || r.Strategy == nil {
			continue
		}
		from = StrategySource(s)
		switch why, isError := r.WhyOff(s); {
		case why == "":
			on = append(on, r.Name)
		case isError:
			off = append(off, r.Name+": "+why)
		}
	}
	text := fmt.Sprint(from, on, off)
	if text == k.loggedRules || k.loggedRules == "" && on == nil && off == nil {
		return
	}
	k.loggedRules = text
	log.Info("Koordinator's rules", "from", cmp.Or(from, "none"), "on", cmp.Or(strings.Join(on, ", "), "none"))
	for _, why := range off {
		log.Warn("a Koordinator rule is off", "rule", why)
	}
}

// StrategyKeys are the keys of resource-threshold-config that rules read, each once.
func StrategyKeys() (keys []string) {
	for _, r := range rule.All {
		for _, key := range r.Thresholds {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
