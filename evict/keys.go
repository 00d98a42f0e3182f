package main

import (
	"fmt"
	"slices"
	"time"

	"polder/evict/pick"
	"polder/evict/rule"
	"polder/lib/stage"
)

// key is one setting: a flag and a key of the configuration file.
type key struct {
	name string
	flag func(*stage.Flags, *settings)
	copy func(to, from *settings)
	// set sets it to a value of its own type, or reports false.
	set  func(s *settings, v any) bool
	show func(*settings) string
}

func newKey[T any](name, usage, form string, add func(f *stage.Flags, into *T, name string, value T, usage string), field func(*settings) *T) key {
	return key{
		name: name,
		flag: func(f *stage.Flags, s *settings) { p := field(s); add(f, p, name, *p, usage) },
		copy: func(to, from *settings) { *field(to) = *field(from) },
		set: func(s *settings, v any) bool {
			x, ok := v.(T)
			if n, is := v.(int64); is && !ok { // an amount of memory
				x, ok = any(rule.Bytes(n)).(T)
			}
			if ok {
				*field(s) = x
			}
			return ok
		},
		show: func(s *settings) string { return fmt.Sprintf(form, *field(s)) },
	}
}

// keys are all settings, in the order of the manual.
var keys = slices.Concat(engineKeys, ruleKeys, fleetKeys)

// engineKeys are those of the choice, whatever the rule.
var engineKeys = []key{
	newKey("rules", "measure these rules alone (comma-separated names; default all)", "%v", words, func(s *settings) *[]string { return &s.Rules }),
	newKey("dry-run-rules", "try these rules only: they are measured, their findings and who would go are in the tick, marked as such, and nobody goes (comma-separated names, * is all)", "%v", words, func(s *settings) *[]string { return &s.DryRunRules }),
	newKey("per-rule", "evict at most this many pods at one tick for one rule (-1 is no limit)", "%d", (*stage.Flags).Int, func(s *settings) *int { return &s.PerRule }),
	newKey("burst", "evict at most this many pods at one tick, over all rules (-1 is no limit)", "%d", (*stage.Flags).Int, func(s *settings) *int { return &s.Burst }),
	newKey("per-hour", "evict at most this many pods of the node in an hour (-1 is no limit)", "%d", (*stage.Flags).Int, func(s *settings) *int { return &s.PerHour }),
	newKey("per-namespace", "evict at most this many pods of one namespace in an hour (-1 is no limit)", "%d", (*stage.Flags).Int, func(s *settings) *int { return &s.PerNamespace }),
	newKey("opt-out", "keep pods with this annotation, KEY or KEY=VALUE (can be given several times; default "+pick.OptOut+")", "%v", words, func(s *settings) *[]string { return &s.OptOut }),
	newKey("taint-transition-period", "keep a taint this long after the last tick that called for it", "%s", (*stage.Flags).Duration, func(s *settings) *time.Duration { return &s.TaintTransitionPeriod }),
}

// words is a flag that can be given several times; its default stands in the usage.
func words(f *stage.Flags, into *[]string, name string, _ []string, usage string) {
	f.Strings(into, name, usage)
}
