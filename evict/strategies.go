package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"polder/evict/rule"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// strategies are Koordinator's for one node, kept until the words change that they are made of.
type strategies struct {
	raw    tick.Raw
	unread bool
	local  sloconfig.Local
	of     uint64 // the file's, as local counts them
	// good are the last good ones: what was in force stays while it is not known what is.
	good   *sloconfig.Strategies
	errs   []string
	looked bool
}

// read takes them from --config, else from a tick with a sample. Without either the rules are off.
func (k *strategies) read(s *settings, t *tick.Tick) (*sloconfig.Strategies, []string) {
	raw, unread := t.Sample.Config, unread(t.Sample)
	file, wrong := k.local.InForce(s.slo, t.Sample.Labels, t.Sample.Annotations)
	if k.looked && k.of == k.local.Version && k.unread == unread && bytes.Equal(k.raw, raw) {
		return k.good, k.errs
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
		k.good = read
	case !errors.Is(err, sloconfig.ErrNone):
		k.errs = append(k.errs, err.Error()+": what was in force stays")
	case !unread:
		k.good = nil
	}
	return k.good, k.errs
}

// strategyKeys are the keys of resource-threshold-config that rules read, each once.
func strategyKeys() (keys []string) {
	for _, r := range rule.All {
		for _, key := range r.Thresholds {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// writeThresholds writes what a node's strategy says to some of Koordinator's rules.
func writeThresholds(b *strings.Builder, s *sloconfig.Strategies, keys []string) {
	values := map[string]tick.Raw{}
	if raw, err := tick.Marshal(s.Threshold); err == nil {
		_ = tick.Unmarshal(raw, &values)
	}
	width := 0
	for _, key := range keys {
		width = max(width, len(key))
	}
	for _, key := range keys {
		fmt.Fprintf(b, "  %-*s %s\n", width, key, clean(cmp.Or(strings.Trim(string(values[key]), `"`), "not set")))
	}
}

// source says where the strategies are from.
func source(s *sloconfig.Strategies) string {
	from := sloconfig.KeyThreshold + " of " + s.From
	if entry := s.Entries[sloconfig.KeyThreshold]; entry != "" {
		from += ", node entry " + entry
	}
	return clean(from)
}

// strategies are those of --config for --node, whose labels are known to ticks alone; nil without such a file.
func (s *settings) strategies() *sloconfig.Strategies {
	var local sloconfig.Local
	file, _ := local.InForce(s.slo, nil, nil)
	if file == nil {
		return nil
	}
	read, _ := sloconfig.Read(sloconfig.Over(nil, file)) // as the file's reader has written them
	return read
}

// announce says once what a ConfigMap of --config sets and nothing acts on.
func (e *engine) announce(s *settings) {
	if e.slo == s.slo {
		return
	}
	if e.slo = s.slo; e.slo != nil && len(e.slo.Unsupported) > 0 {
		e.session.Log.Info("settings of the ConfigMap that are not supported", "settings", strings.Join(e.slo.Unsupported, ", "))
	}
}

// logStrategies says what has changed, once.
func (e *engine) logStrategies(n *node, s *sloconfig.Strategies, errs []string) {
	for _, text := range errs {
		if !slices.Contains(n.said.strategies, text) {
			e.session.Log.Warn("configuration refused", "node", n.name, "error", text)
		}
	}
	n.said.strategies = errs
	if n.said.strategy == s {
		return
	}
	n.said.strategy = s
	var on, off []string
	from := ""
	for _, r := range rule.All {
		if s == nil || r.Strategy == nil {
			continue
		}
		from = source(s)
		switch why, fault := r.Off(s); {
		case why == "":
			on = append(on, r.Name)
		case fault:
			off = append(off, r.Name+": "+why)
		}
	}
	text := fmt.Sprint(from, on, off)
	if text == n.said.koordinator || n.said.koordinator == "" && on == nil && off == nil {
		return
	}
	n.said.koordinator = text
	e.session.Log.Info("Koordinator's rules", "node", n.name, "from", cmp.Or(from, "nowhere"), "on", cmp.Or(strings.Join(on, ", "), "none"))
	for _, why := range off {
		e.session.Log.Warn("a rule of Koordinator's is off", "node", n.name, "rule", why)
	}
}
