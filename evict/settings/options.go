package settings

import (
	"context"
	"errors"
	"sync/atomic"

	"polder/lib/config"
	"polder/lib/evictconfig"
	"polder/lib/stage"
)

// Options are the settings of the command line, and the configuration file.
type Options struct {
	// Config is the path of --config, empty without one.
	Config string
	flags  Settings
}

// AddFlags adds a flag for each setting.
func (o *Options) AddFlags(f *stage.Flags) {
	o.flags = Default()
	AddRows(f, o.flags.Rows())
}

// Resolve merges the defaults, the file and the command line.
func (o *Options) Resolve(s *stage.Session) (*Settings, error) {
	merged := Default()
	rows, flags := merged.Rows(), o.flags.Rows()
	lines, err := merged.readFile(o.Config, rows)
	if err != nil {
		return nil, stage.Usagef("%w", err)
	}
	merged.From = MergeRows(s, rows, flags, o.Config, lines)
	if err := merged.checkAll(); err != nil {
		return nil, stage.Usagef("%w", err)
	}
	return &merged, nil
}

// readFile reads --config, in one of its forms, and returns the line of each setting in it.
func (s *Settings) readFile(path string, rows []evictconfig.Row) (map[string]int, error) {
	lines, objects, err := config.ReadFile(path, Pointers(rows))
	s.objects, s.SLO = objects.Custom, objects.SLO
	return lines, err
}

// checkAll names the source of each invalid setting.
func (s *Settings) checkAll() error {
	errs := CheckRows(s.From, s.check)
	if errs == nil {
		errs = s.checkObjects()
	}
	return errors.Join(errs...)
}

// Live are the settings in force from flags and file: read by every tick, replaced when the file changes.
type Live struct{ atomic.Pointer[Settings] }

// Watch resolves the settings, and again whenever the file changes. A later file that is invalid is rejected, and the settings in force
// stay.
func (o *Options) Watch(ctx context.Context, s *stage.Session, into *Live) error {
	return config.Reload(ctx, o.Config, s.Log, func() (*Settings, error) { return o.Resolve(s) }, into.Store)
}
