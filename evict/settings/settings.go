// Package settings resolves which of evict's settings are in force on a node, and their sources: the command line, --config, the
// configuration objects of the cluster, or the default. lib/evictconfig defines the settings.
package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"polder/evict/dynamic"
	"polder/evict/pick"
	"polder/evict/rule"
	"polder/lib/customconfig"
	"polder/lib/evictconfig"
	"polder/lib/sloconfig"
	"polder/lib/stage"
)

// Settings are the settings in force.
type Settings struct {
	evictconfig.Settings

	// From has the source of each setting, by its name.
	From map[string]string
	// SLO is a --config in the form of Koordinator's ConfigMap, objects are those of a --config in Katalyst's form.
	SLO     *sloconfig.File
	objects *customconfig.File
}

// FromDefault is the source of a setting with its default value.
const FromDefault = "default"

// fromFlag is the source of a setting of the command line.
const fromFlag = "flag"

// everyRule in dry-run-rules means all rules.
const everyRule = "*"

// Default returns the default settings.
func Default() Settings { return Settings{Settings: evictconfig.Defaults()} }

// Limits returns the limits of the selection of victims.
func (s *Settings) Limits() pick.Limits {
	l := pick.Limits{
		PerRule: s.PerRule, PerTick: s.Burst, PerRuleUntilCovered: pick.Unlimited, PerHour: s.PerHour, PerNamespace: s.PerNamespace,
		OptOut: s.OptOut,
	}
	if s.From[pick.LimitPerRule] != FromDefault {
		l.PerRuleUntilCovered = s.PerRule
	}
	return l
}

// IsDryRun reports whether a rule is in dry run: measured and reported, but without effect.
func (s *Settings) IsDryRun(rule string) bool {
	return slices.Contains(s.DryRunRules, rule) || slices.Contains(s.DryRunRules, everyRule)
}

// Selected returns the rules that are measured.
func (s *Settings) Selected() ([]*rule.Rule, error) { return rule.Select(s.Rules) }

// check calls report for every invalid setting.
func (s *Settings) check(report func(name string, err error)) {
	s.Settings.Check(report)
	if _, err := rule.Select(s.Rules); err != nil {
		report("rules", err)
	}
	if _, err := rule.Select(slices.DeleteFunc(slices.Clone(s.DryRunRules), func(name string) bool { return name == everyRule })); err != nil {
		report("dry-run-rules", fmt.Errorf("%w (%q means all)", err, everyRule))
	}
}

// withObjects returns the settings with values of objects in the place of defaults.
func (s *Settings) withObjects(objects []dynamic.Object) (*Settings, error) {
	list := dynamic.Settings(objects, func(setting string) bool { return s.From[setting] != FromDefault })
	if len(list) == 0 {
		return s, nil
	}
	merged := *s
	merged.From = maps.Clone(s.From)
	paths := map[string]string{}
	rows := merged.Rows()
	for _, x := range list {
		i := slices.IndexFunc(rows, func(row evictconfig.Row) bool { return row.Name == x.Setting })
		if i < 0 || !rows[i].Set(x.V) {
			return nil, fmt.Errorf("%s: evict has no setting %s with the value %v", strings.Join(x.Path, "."), x.Setting, x.V)
		}
		merged.From[x.Setting] = x.From
		paths[x.Setting] = strings.Join(x.Path, ".")
	}
	var errs []error
	merged.check(func(setting string, why error) {
		if paths[setting] != "" {
			setting = paths[setting]
		}
		errs = append(errs, fmt.Errorf("%s: %w", setting, why))
	})
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	return &merged, nil
}

// checkObjects checks each of a file's objects with the flags that are given beside it.
func (s *Settings) checkObjects() (errs []error) {
	if s.objects == nil {
		return nil
	}
	for kind, list := range s.objects.Objects() {
		for _, c := range list {
			objects, _ := dynamic.Objects(nil, map[string]*customconfig.Chosen{kind.Key: c})
			if _, err := s.withObjects(objects); err != nil {
				errs = append(errs, fmt.Errorf("%s: %s %s/%s: %w", c.At, kind.Name, c.Namespace, c.Name, err))
			}
		}
	}
	return errs
}

// forSessionNode returns the settings with the file's objects applied for --node, whose labels only ticks contain.
func (s *Settings) forSessionNode(session *stage.Session) *Settings {
	var local customconfig.Local
	file, _ := local.InForce(s.objects, session.Node, nil, session.Now())
	objects, _ := dynamic.Objects(nil, file)
	if merged, err := s.withObjects(objects); err == nil {
		return merged
	}
	return s
}

// fileStrategies returns the strategies of --config for --node, whose labels only ticks contain; nil without such a file.
func (s *Settings) fileStrategies() *sloconfig.Strategies {
	var local sloconfig.Local
	file, _ := local.InForce(s.SLO, nil, nil)
	if file == nil {
		return nil
	}
	read, _ := sloconfig.Read(sloconfig.Overlay(nil, file)) // as the file's reader has encoded them
	return read
}
