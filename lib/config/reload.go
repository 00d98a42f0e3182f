package config

import (
	"context"
	"log/slog"
	"slices"
	"strings"
)

// ReadFile reads a tool's configuration file: its own settings as [DecodeKeys] does, or configuration objects. Without a path it
// returns neither.
func ReadFile(path string, into map[string]any) (lines map[string]int, objects Objects, err error) {
	if path == "" {
		return nil, objects, nil
	}
	data, err := Load(path)
	if err != nil {
		return nil, objects, err
	}
	if objects, err = ReadObjects(path, data); err != nil || !objects.IsEmpty() {
		return nil, objects, err
	}
	lines, err = DecodeKeys(path, data, into)
	return lines, objects, err
}

// Reload reads a configuration and passes it to apply, and again whenever its file changes. An invalid one is rejected: the first one's
// error is returned, later the previous one stays in force. Without a path the configuration never changes.
func Reload[T any](ctx context.Context, path string, log *slog.Logger, read func() (T, error), apply func(T)) error {
	first := func() error {
		initial, err := read()
		if err == nil {
			apply(initial)
		}
		return err
	}
	if path == "" {
		return first()
	}
	return Watch(ctx, path, log, first, func() {
		next, err := read()
		if err != nil {
			log.Error("configuration refused; the previous settings stay in force", "error", err)
			return
		}
		apply(next)
		log.Info("configuration read again", "path", path)
	})
}

// Reported has the logged problems of a configuration, so that each is logged once while it lasts.
type Reported struct{ problems, unsupported []string }

// Problems logs the new ones. It returns true if all earlier problems are solved.
func (r *Reported) Problems(log *slog.Logger, message string, problems []string) (cleared bool) {
	for _, text := range problems {
		if !slices.Contains(r.problems, text) {
			log.Warn(message, "error", text)
		}
	}
	cleared = len(problems) == 0 && len(r.problems) > 0
	r.problems = problems
	return cleared
}

// Unsupported logs the settings of a ConfigMap that have no effect.
func (r *Reported) Unsupported(log *slog.Logger, settings []string) {
	if len(settings) > 0 && !slices.Equal(r.unsupported, settings) {
		log.Info("settings of the ConfigMap that are not supported", "settings", strings.Join(settings, ", "))
	}
	r.unsupported = settings
}
