package settings

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"polder/evict/rule"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Strategies are Koordinator's for one node, kept until the words change that they are made of.
type Strategies struct {
	// Good are the last good ones: what was in force stays while it is not known what is.
	Good *sloconfig.Strategies

	raw    tick.Raw
	unread bool
	local  sloconfig.Local
	of     uint64 // the file's, as local counts them
	errs   []string
	looked bool

	// What was logged last: the errors, the strategies, and which of Koordinator's rules are on with them.
	loggedErrs  []string
	logged      *sloconfig.Strategies
	loggedRules string
}

// Read takes them from --config, else from a tick with a sample. Without either the rules are off.
func (k *Strategies) Read(s *Settings, t *tick.Tick) (*sloconfig.Strategies, []string) {
	raw, unread := t.Sample.Config, t.Sample.Unread("config")
	file, wrong := k.local.InForce(s.SLO, t.Sample.Labels, t.Sample.Annotations)
	if k.looked && k.of == k.local.Version && k.unread == unread && bytes.Equal(k.raw, raw) {
		return k.Good, k.errs
	}
	k.raw, k.unread, k.of, k.errs, k.looked = slices.Clone(raw), unread, k.local.Version, nil, true
	for _, err := range wrong {
		k.errs = append(k.errs, err.Error())
	}
	if file != nil {
		raw = sloconfig.Over(nil, file)
	}
	switch read, err := sloconfig.Read(raw); {
	case err == nil:
		k.Good = read
	case !errors.Is(err, sloconfig.ErrNone):
		k.errs = append(k.errs, err.Error()+": what was in force stays")
	case !unread:
		k.Good = nil
	}
	return k.Good, k.errs
}

// Log says what has changed, once.
func (k *Strategies) Log(log *slog.Logger) {
	for _, text := range k.errs {
		if !slices.Contains(k.loggedErrs, text) {
			log.Warn("configuration refused", "error", text)
		}
	}
	k.loggedErrs = k.errs
	s := k.Good
	if k.logged == s {
		return
	}
	k.logged = s
	var on, off []string
	from := ""
	for _, r := range rule.All {
		if s == nil || r.Strategy == nil {
			continue
		}
		from = StrategySource(s)
		switch why, fault := r.Off(s); {
		case why == "":
			on = append(on, r.Name)
		case fault:
			off = append(off, r.Name+": "+why)
		}
	}
	text := fmt.Sprint(from, on, off)
	if text == k.loggedRules || k.loggedRules == "" && on == nil && off == nil {
		return
	}
	k.loggedRules = text
	log.Info("Koordinator's rules", "from", cmp.Or(from, "nowhere"), "on", cmp.Or(strings.Join(on, ", "), "none"))
	for _, why := range off {
		log.Warn("a rule of Koordinator's is off", "rule", why)
	}
}

// StrategyKeys are the keys of resource-threshold-config that rules read, each once.
func StrategyKeys() (keys []string) {
	for _, r := range rule.All {
		for _, key := range r.Thresholds {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
