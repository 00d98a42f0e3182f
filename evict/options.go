package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"polder/evict/act"
	"polder/evict/fleet"
	"polder/evict/pick"
	"polder/evict/rule"
	"polder/lib/config"
	"polder/lib/customconfig"
	"polder/lib/sloconfig"
	"polder/lib/stage"
)

// settings are what the configuration file can set; a flag of the same name on the command line wins.
type settings struct {
	rule.Settings         `yaml:",inline"`
	Rules                 []string       `yaml:"rules"`
	DryRunRules           []string       `yaml:"dry-run-rules"`
	PerRule               int            `yaml:"per-rule"`
	Burst                 int            `yaml:"burst"`
	PerHour               int            `yaml:"per-hour"`
	PerNamespace          int            `yaml:"per-namespace"`
	OptOut                []string       `yaml:"opt-out"`
	TaintTransitionPeriod time.Duration  `yaml:"taint-transition-period"`
	Fleet                 fleet.Settings `yaml:",inline"`

	// from says where each setting is from, by its flag's name; objects are those of a --config in Katalyst's form.
	from    map[string]string
	objects *customconfig.File
	// slo is a --config that is Koordinator's ConfigMap.
	slo *sloconfig.File
}

func defaults() settings {
	return settings{
		Settings:              rule.Defaults(),
		PerRule:               1,
		Burst:                 3,
		PerHour:               60,
		PerNamespace:          pick.Unlimited,
		OptOut:                []string{pick.OptOut},
		TaintTransitionPeriod: 5 * time.Minute,
		Fleet:                 fleet.Defaults(),
	}
}

// limits are those of the choice.
func (s *settings) limits() pick.Limits {
	l := pick.Limits{PerRule: s.PerRule, Burst: s.Burst, PerCovered: pick.Unlimited, PerHour: s.PerHour, PerNamespace: s.PerNamespace, OptOut: s.OptOut}
	if s.from[pick.LimitPerRule] != fromDefault {
		l.PerCovered = s.PerRule
	}
	return l
}

// everyRule as a name in dry-run-rules means all.
const everyRule = "*"

// tries reports whether a rule is only tried: measured and named, and nothing comes of it.
func (s *settings) tries(rule string) bool {
	return slices.Contains(s.DryRunRules, rule) || slices.Contains(s.DryRunRules, everyRule)
}

// options are the command line.
type options struct {
	action string
	config string
	// checked is the configuration file to look at only.
	checked string
	// kubeconfig is empty for the cluster of the pod that evict runs in.
	kubeconfig          string
	list, thaw, explain bool
	// fleet makes evict the centre's.
	fleet bool
	given settings
}

func (o *options) flags(f *stage.Flags) {
	o.given = defaults()
	f.Category("Evict")
	f.Choice(&o.action, "action", act.Log, "what happens to a victim", act.Log, act.EvictPods, act.DeletePods, act.FreezePods, act.KillPods)
	f.Path(&o.kubeconfig, "kubeconfig", "", "for --action evict and delete: the cluster of `FILE` (default: the one whose pod evict runs in)")
	f.Path(&o.config, "config", "", "read the settings below from `FILE` (YAML, keys named as the flags, or Katalyst's configuration objects or Koordinator's ConfigMap as kubectl takes them), again when it changes; flags on the command line win")
	f.Bool(&o.list, "list", "print every rule with its settings and where they come from, and end")
	f.Path(&o.checked, "check-config", "", "read `FILE` as --config does, print what would be in force or what is wrong with it, and end (status 0 or 2)")
	f.Bool(&o.explain, "explain", "do nothing; at the end of the input print for each node's last tick every rule's value against its threshold, and every candidate with its rank and why it goes or not")
	f.Bool(&o.fleet, "fleet", "decide about nodes whose agent is not ready, by the ticks of collect --fleet, and measure no rule")
	f.Bool(&o.thaw, "thaw", "let run again what --action freeze froze, by the record in --state, and end")
	for _, k := range keys {
		k.flag(f, &o.given)
	}
}

// check calls bad for every setting that cannot be used.
func (s *settings) check(bad func(key string, err error)) {
	s.Check(bad)
	s.Fleet.Check(bad)
	if _, err := rule.Select(s.Rules); err != nil {
		bad("rules", err)
	}
	if _, err := rule.Select(slices.DeleteFunc(slices.Clone(s.DryRunRules), func(name string) bool { return name == everyRule })); err != nil {
		bad("dry-run-rules", fmt.Errorf("%w, or %q for all", err, everyRule))
	}
	for _, limit := range []struct {
		name  string
		value int
	}{{pick.LimitPerRule, s.PerRule}, {pick.LimitBurst, s.Burst}, {pick.LimitPerHour, s.PerHour}, {pick.LimitPerNamespace, s.PerNamespace}} {
		if limit.value < pick.Unlimited {
			bad(limit.name, fmt.Errorf("%d: want a number of pods, or -1 for no limit", limit.value))
		}
	}
	if s.TaintTransitionPeriod < 0 {
		bad("taint-transition-period", fmt.Errorf("%s: a time span cannot be negative", s.TaintTransitionPeriod))
	}
}

// resolve puts the defaults, the file and the command line together. It also says where each setting is from.
func (o *options) resolve(s *stage.Session) (*settings, map[string]string, error) {
	merged := defaults()
	var data []byte
	own := false // the file has the flags' names
	if o.config != "" {
		var err error
		if data, err = config.Load(o.config); err != nil {
			return nil, nil, stage.Usagef("%w", err)
		}
		objects, err := config.ReadObjects(o.config, data)
		if own = objects.None(); err == nil && own {
			err = config.Decode(o.config, data, &merged)
		}
		if err != nil {
			return nil, nil, stage.Usagef("%w", err)
		}
		merged.objects, merged.slo = objects.Custom, objects.SLO
	}
	from := map[string]string{}
	for _, k := range keys {
		switch {
		case s.IsSet(k.name):
			k.copy(&merged, &o.given)
			from[k.name] = "flag"
		case own && config.Line(data, k.name) > 0:
			from[k.name] = fmt.Sprintf("%s:%d", o.config, config.Line(data, k.name))
		default:
			from[k.name] = "default"
		}
	}
	var errs []error
	merged.check(func(key string, why error) {
		if from[key] == "flag" || from[key] == "default" {
			errs = append(errs, fmt.Errorf("--%s: %w", key, why))
		} else {
			errs = append(errs, fmt.Errorf("%s: %s: %w", from[key], key, why))
		}
	})
	merged.from = from
	if errs == nil {
		errs = merged.checkObjects()
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, stage.Usagef("%w", err)
	}
	return &merged, from, nil
}

// live are the settings in force: read by every tick, replaced when the file changes.
type live struct{ atomic.Pointer[settings] }

// watch reads the file again whenever it changes. A bad one is refused and the settings in force stay.
func (o *options) watch(ctx context.Context, s *stage.Session, into *live) error {
	if o.config == "" {
		return nil
	}
	return config.Watch(ctx, o.config, s.Log, func() {
		merged, _, err := o.resolve(s)
		if err != nil {
			s.Log.Error("configuration refused, the settings before stay in force", "error", err)
			return
		}
		into.Store(merged)
		s.Log.Info("configuration read again", "path", o.config)
	})
}
