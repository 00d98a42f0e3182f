package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"polder/advise/settings"
	"polder/lib/config"
	"polder/lib/stage"
)

// liveSettings is the settings in force, replaced when the configuration file changes.
type liveSettings struct {
	path      string
	flag      string                    // the flag with the path
	fromFlags settings.Settings         // from the command line or environment variables: they take precedence over the file
	isSet     func(setting string) bool // nil means none
	changed   atomic.Pointer[loaded]
	running   atomic.Pointer[policyKind] // the policy, which does not change while the tool runs
}

// loaded is what the command line and the file set.
type loaded struct {
	settings.Settings
	kind    policyKind
	sources map[string]string // the source of each setting that is not a default, by its name
	lines   map[string]int    // of the settings in the file
	objects config.Objects    // none if the file has settings
	path    string
}

// load reads the file.
func (l *liveSettings) load() (*loaded, error) {
	next := &loaded{Settings: settings.Defaults(), path: l.path, sources: map[string]string{}}
	rows := next.Rows()
	if err := next.read(rows); err != nil {
		return nil, fmt.Errorf("--%s: %w", l.flag, err)
	}
	for name := range next.lines {
		next.sources[name] = name + " in " + l.path
	}
	flagRows := l.fromFlags.Rows()
	for i, r := range rows {
		if l.hasFlag(r.Name) {
			r.Copy(flagRows[i])
			next.sources[r.Name] = "--" + r.Name
		}
	}
	index := slices.IndexFunc(policies, func(k policyKind) bool { return k.Name == next.Policy }) // the setting's bounds are these names
	next.kind = policies[index]
	if err := l.rejectForeign(next, rows); err != nil {
		return nil, err
	}
	return next, nil
}

// hasFlag reports whether the command line has a setting.
func (l *liveSettings) hasFlag(name string) bool { return l.isSet != nil && l.isSet(name) }

// read reads the file into the rows' values, or into objects.
func (l *loaded) read(rows []settings.Row) (err error) {
	into := map[string]any{}
	for _, r := range rows {
		into[r.Name] = r.Value
	}
	l.lines, l.objects, err = config.ReadFile(l.path, into)
	return err
}

// rejectForeign rejects settings that the policy does not have, because they would have no effect.
func (l *liveSettings) rejectForeign(next *loaded, rows []settings.Row) error {
	for _, source := range []struct {
		isPresent func(name string) bool
		name      func(name string) string
	}{
		{l.hasFlag, func(name string) string { return "--" + name }},
		{next.inFile, func(name string) string { return fmt.Sprintf("--%s: %s: %s", l.flag, next.position(name), name) }},
	} {
		for _, r := range rows {
			if source.isPresent(r.Name) && r.Policy != "" && r.Policy != next.Policy {
				return fmt.Errorf("%s: this setting is of policy %s, and the policy is %s: remove it", source.name(r.Name), r.Policy, next.Policy)
			}
		}
	}
	return nil
}

func (l *loaded) inFile(name string) bool { return l.lines[name] > 0 }

// position returns the place of a setting in the file.
func (l *loaded) position(name string) string { return fmt.Sprintf("%s:%d", l.path, l.lines[name]) }

// watch loads the file, and again when it changes. It rejects a later file that is invalid, and the settings in force stay.
func (l *liveSettings) watch(ctx context.Context, s *stage.Session) error {
	return config.Reload(ctx, l.path, s.Log, func() (*loaded, error) {
		next, err := l.load()
		if runs := l.running.Load(); err == nil && runs != nil && next.kind.Name != runs.Name {
			err = fmt.Errorf("--config: %s: policy %s: policy %s is running, a change needs a restart", l.path, next.kind.Name, runs.Name)
		}
		if err == nil {
			next.warn(s.Log)
		}
		return next, err
	}, l.changed.Store)
}
