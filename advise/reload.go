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

// live is the settings in force, replaced when the configuration file changes.
type live struct {
	path    string
	flag    string                    // the flag with the path
	given   settings.Settings         // from the command line or environment variables: they take precedence over the file
	isGiven func(setting string) bool // nil means none
	changed atomic.Pointer[loaded]
	runs    atomic.Pointer[kind] // the policy, which does not change while the tool runs
}

// loaded is what the command line and the file set.
type loaded struct {
	settings.Settings
	kind    kind
	from    map[string]string // the source of each setting that is not a default, by its name
	lines   map[string]int    // of the settings in the file
	objects config.Objects    // none if the file has settings
	path    string
}

// load reads the file.
func (l *live) load() (*loaded, error) {
	next := &loaded{Settings: settings.Defaults(), path: l.path, from: map[string]string{}}
	rows := next.Rows()
	if err := next.read(rows); err != nil {
		return nil, fmt.Errorf("--%s: %w", l.flag, err)
	}
	for name := range next.lines {
		next.from[name] = name + " in " + l.path
	}
	given := l.given.Rows()
	for i, r := range rows {
		if l.has(r.Name) {
			r.Copy(given[i])
			next.from[r.Name] = "--" + r.Name
		}
	}
	at := slices.IndexFunc(policies, func(k kind) bool { return k.Name == next.Policy }) // the setting's bounds are these names
	next.kind = policies[at]
	if err := l.refuseAlien(next, rows); err != nil {
		return nil, err
	}
	return next, nil
}

// has reports whether the command line has a setting.
func (l *live) has(name string) bool { return l.isGiven != nil && l.isGiven(name) }

// read reads the file into the rows' values, or into objects.
func (l *loaded) read(rows []settings.Row) (err error) {
	into := map[string]any{}
	for _, r := range rows {
		into[r.Name] = r.Value
	}
	l.lines, l.objects, err = config.ReadFile(l.path, into)
	return err
}

// refuseAlien rejects settings that the policy does not have, because they would have no effect.
func (l *live) refuseAlien(next *loaded, rows []settings.Row) error {
	for _, where := range []struct {
		has  func(name string) bool
		name func(name string) string
	}{
		{l.has, func(name string) string { return "--" + name }},
		{next.inFile, func(name string) string { return fmt.Sprintf("--%s: %s: %s", l.flag, next.at(name), name) }},
	} {
		for _, r := range rows {
			if where.has(r.Name) && r.Policy != "" && r.Policy != next.Policy {
				return fmt.Errorf("%s: a setting of policy %s, and the policy is %s: leave it out", where.name(r.Name), r.Policy, next.Policy)
			}
		}
	}
	return nil
}

func (l *loaded) inFile(name string) bool { return l.lines[name] > 0 }

// at returns the place of a setting in the file.
func (l *loaded) at(name string) string { return fmt.Sprintf("%s:%d", l.path, l.lines[name]) }

// watch loads the file again when it changes. It rejects an invalid file, and the settings in force stay.
func (l *live) watch(ctx context.Context, s *stage.Session) error {
	return config.Reload(ctx, l.path, s.Log, func() (*loaded, error) {
		next, err := l.load()
		if runs := l.runs.Load(); err == nil && runs != nil && next.kind.Name != runs.Name {
			err = fmt.Errorf("--config: %s: policy %s: policy %s runs, and another one needs a restart", l.path, next.kind.Name, runs.Name)
		}
		return next, err
	}, l.changed.Store)
}
