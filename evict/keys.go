package main

import (
	"fmt"
	"slices"
	"time"

	"polder/evict/pick"
	"polder/lib/stage"
)

// key is one setting: a flag and a key of the configuration file.
type key struct {
	name string
	flag func(*stage.Flags, *settings)
	copy func(to, from *settings)
	show func(*settings) string
}

func newKey[T any](name, usage, form string, add func(f *stage.Flags, into *T, name string, value T, usage string), field func(*settings) *T) key {
	return key{
		name: name,
		flag: func(f *stage.Flags, s *settings) { p := field(s); add(f, p, name, *p, usage) },
		copy: func(to, from *settings) { *field(to) = *field(from) },
		show: func(s *settings) string { return fmt.Sprintf(form, *field(s)) },
	}
}

// keys are all settings, in the order of the manual.
var keys = slices.Concat(engineKeys, ruleKeys)

// engineKeys are those of the choice, whatever the rule.
var engineKeys = []key{
	newKey("rules", "measure these rules alone (comma-separated names; default all)", "%v", words, func(s *settings) *[]string { return &s.Rules }),
	newKey("burst", "evict at most this many pods at one tick, over all rules (-1 is no limit)", "%d", (*stage.Flags).Int, func(s *settings) *int { return &s.Burst }),
	newKey("opt-out", "keep pods with this annotation, KEY or KEY=VALUE (can be given several times; default "+pick.OptOut+")", "%v", words, func(s *settings) *[]string { return &s.OptOut }),
	newKey("taint-transition-period", "keep a taint this long after the last tick that called for it", "%s", (*stage.Flags).Duration, func(s *settings) *time.Duration { return &s.TaintTransitionPeriod }),
}

// words is a flag that can be given several times; its default stands in the usage.
func words(f *stage.Flags, into *[]string, name string, _ []string, usage string) {
	f.Strings(into, name, usage)
}
