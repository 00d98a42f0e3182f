package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"polder/evict/act"
	"polder/evict/pick"
	"polder/evict/rule"
	"polder/lib/config"
	"polder/lib/stage"
)

// settings are what the configuration file can set; a flag of the same name on the command line wins.
type settings struct {
	rule.Settings         `yaml:",inline"`
	Rules                 []string      `yaml:"rules"`
	Burst                 int           `yaml:"burst"`
	OptOut                []string      `yaml:"opt-out"`
	TaintTransitionPeriod time.Duration `yaml:"taint-transition-period"`
}

func defaults() settings {
	return settings{
		Settings:              rule.Defaults(),
		Burst:                 3,
		OptOut:                []string{pick.OptOut},
		TaintTransitionPeriod: 5 * time.Minute,
	}
}

// options are the command line.
type options struct {
	action string
	config string
	// kubeconfig is empty for the cluster of the pod that evict runs in.
	kubeconfig string
	list, thaw bool
	given      settings
}

func (o *options) flags(f *stage.Flags) {
	o.given = defaults()
	f.Category("Evict")
	f.Choice(&o.action, "action", act.Log, "what happens to a victim", act.Log, act.EvictPods, act.DeletePods, act.FreezePods, act.KillPods)
	f.Path(&o.kubeconfig, "kubeconfig", "", "for --action evict and delete: the cluster of `FILE` (default: the one whose pod evict runs in)")
	f.Path(&o.config, "config", "", "read the settings below from `FILE` (YAML, keys named as the flags), again when it changes; flags on the command line win")
	f.Bool(&o.list, "list", "print every rule with its settings and where they come from, and end")
	f.Bool(&o.thaw, "thaw", "let run again what --action freeze froze, by the record in --state, and end")
	for _, k := range keys {
		k.flag(f, &o.given)
	}
}

// check calls bad for every setting that cannot be used.
func (s *settings) check(bad func(key string, err error)) {
	s.Check(bad)
	if _, err := rule.Select(s.Rules); err != nil {
		bad("rules", err)
	}
	if s.Burst < pick.Unlimited {
		bad("burst", fmt.Errorf("%d: want a number of pods, or -1 for no limit", s.Burst))
	}
	if s.TaintTransitionPeriod < 0 {
		bad("taint-transition-period", fmt.Errorf("%s: a time span cannot be negative", s.TaintTransitionPeriod))
	}
}

// resolve puts the defaults, the file and the command line together. It also says where each setting is from.
func (o *options) resolve(s *stage.Session) (*settings, map[string]string, error) {
	merged := defaults()
	var data []byte
	if o.config != "" {
		if err := config.Read(o.config, &merged); err != nil {
			return nil, nil, stage.Usagef("%w", err)
		}
		data, _ = os.ReadFile(o.config) // for the lines in complaints
	}
	from := map[string]string{}
	for _, k := range keys {
		switch {
		case s.IsSet(k.name):
			k.copy(&merged, &o.given)
			from[k.name] = "flag"
		case data != nil && config.Line(data, k.name) > 0:
			from[k.name] = fmt.Sprintf("%s:%d", o.config, config.Line(data, k.name))
		default:
			from[k.name] = "default"
		}
	}
	var err error
	merged.check(func(key string, why error) {
		switch {
		case err != nil: // the first one is enough
		case from[key] == "flag" || from[key] == "default":
			err = fmt.Errorf("--%s: %w", key, why)
		default:
			err = fmt.Errorf("%s: %s: %w", from[key], key, why)
		}
	})
	if err != nil {
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
