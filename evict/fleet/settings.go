package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"polder/evict/fleet/health"
	"polder/evict/settings"
	"polder/lib/config"
	"polder/lib/evictconfig"
	"polder/lib/stage"
)

// settingsInForce are the settings in force, and their sources by name.
type settingsInForce struct {
	health.Settings
	sources map[string]string
}

// settingsOptions are the settings of the command line, and the configuration file.
type settingsOptions struct {
	config string // the path of --config, empty without one
	flags  health.Settings
}

func (c *settingsOptions) addFlags(f *stage.Flags) {
	c.flags = evictconfig.FleetDefaults()
	settings.AddRows(f, c.flags.Rows())
}

// resolve merges the defaults, the file and the command line.
func (c *settingsOptions) resolve(s *stage.Session) (*settingsInForce, error) {
	x := &settingsInForce{Settings: evictconfig.FleetDefaults()}
	rows := x.Rows()
	var lines map[string]int
	if c.config != "" {
		data, err := config.Load(c.config)
		if err == nil {
			lines, err = config.DecodeKeys(c.config, data, settings.Pointers(rows))
		}
		if err != nil {
			return nil, stage.Usagef("%w", err)
		}
	}
	x.sources = settings.MergeRows(s, rows, c.flags.Rows(), c.config, lines)
	if err := errors.Join(settings.CheckRows(x.sources, x.Check)...); err != nil {
		return nil, stage.Usagef("%w", err)
	}
	return x, nil
}

// watch resolves the settings, and again whenever the file changes. A later file that is invalid is rejected, and the settings in force
// stay.
func (c *settingsOptions) watch(ctx context.Context, s *stage.Session, into *atomic.Pointer[settingsInForce]) error {
	return config.Reload(ctx, c.config, s.Log, func() (*settingsInForce, error) { return c.resolve(s) }, into.Store)
}

// list prints the rule and its settings.
func (x *settingsInForce) list(s *stage.Session) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: a node's agent is not ready\n  scope %s\n", health.Rule, health.Scope)
	settings.WriteRows(&b, x.Rows(), x.sources)
	fmt.Fprintf(&b, "\n  %s\n", strings.ReplaceAll(strings.TrimSpace(decision), "\n", "\n  "))
	_, err := fmt.Fprint(s.Out, b.String())
	return err
}
