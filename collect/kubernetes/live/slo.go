package live

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"polder/lib/config"
	"polder/lib/fields"
	"polder/lib/kube"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// SLOConfig names Koordinator's ConfigMap.
type SLOConfig struct{ Namespace, Name string }

func (n SLOConfig) String() string { return n.Namespace + "/" + n.Name }

// slo is what Koordinator's ConfigMap sets for the node. It is resolved again only where something has changed.
type slo struct {
	name  SLOConfig
	what  string                         // the same in messages
	watch *kube.Watch[map[string]string] // its data
	log   *slog.Logger

	resolved       bool
	sourceVersions [2]uint64 // the versions of the ConfigMap and of the node that it was made from

	lastValid sloconfig.LastValid
	config    *sloconfig.ConfigMap // of the first version in of; nil until it was read
	raw       tick.Raw             // what is in force, of an earlier run until it is resolved in this one
	errs      []error

	reported config.Reported
}

func openSLO(ctx context.Context, client *kube.Client, name SLOConfig, now func() time.Time, log *slog.Logger) *slo {
	one := kube.Selection{Resource: kube.ConfigMaps, Namespace: name.Namespace, Fields: "metadata.name=" + name.Name}
	data := func(o kube.Object) map[string]string { return fields.TextMap(o, "data") }
	return &slo{name: name, what: "the ConfigMap " + name.String(), watch: kube.Start(ctx, client, one, now, data), log: log, lastValid: sloconfig.LastValid{}}
}

// resolve returns what is in force, nil where that is not known, and the errors.
func (s *slo) resolve(c *Cluster) (tick.Raw, []error) {
	state := s.watch.State()
	listError := c.listError(s.what, state)
	if !state.Synced {
		return s.raw, []error{listError}
	}
	if sourceVersions := [2]uint64{s.watch.Version(), c.nodes.Version()}; !s.resolved || sourceVersions != s.sourceVersions {
		s.resolveNow(c, s.config == nil || sourceVersions[0] != s.sourceVersions[0])
		s.resolved, s.sourceVersions = true, sourceVersions
	}
	if listError == nil {
		return s.raw, s.errs
	}
	return s.raw, append(slices.Clip(s.errs), listError)
}

// resolveNow decides again, and reads the ConfigMap where it has changed.
func (s *slo) resolveNow(c *Cluster, changed bool) {
	if changed {
		list := s.watch.List()
		if len(list) > 0 {
			s.config = s.lastValid.Parse(s.name.String(), list[0])
		} else { // the cluster has none
			s.config = s.lastValid.Parse(s.name.String()+" (absent)", nil)
		}
		s.announce(len(list) > 0)
	}
	s.errs = nil
	node := c.nodeObject()
	if node == nil { // the selection needs its labels
		s.errs = []error{fmt.Errorf("the ConfigMap %s is not resolved: the node object is not known", s.name)}
		if s.raw != nil {
			s.errs[0] = fmt.Errorf("%w: the previous configuration stays in force", s.errs[0])
		}
		return
	}
	strategies, errs := s.config.Resolve(node.AllLabels, node.Annotations)
	for _, err := range errs {
		s.errs = append(s.errs, fmt.Errorf("%s: %w", s.name, err))
	}
	raw, err := tick.Marshal(strategies)
	if err != nil {
		s.errs = append(s.errs, err)
		return
	}
	s.raw = raw
	s.complain()
}

// announce logs the settings of the ConfigMap that are not supported.
func (s *slo) announce(exists bool) {
	if !exists {
		s.log.Info("the cluster has no such ConfigMap: the defaults apply, which enable nothing", "configMap", s.name)
	}
	s.reported.Unsupported(s.log.With("configMap", s.name), s.config.Unsupported)
}

// complain logs each error once.
func (s *slo) complain() {
	problems := make([]string, len(s.errs))
	for i, err := range s.errs {
		problems[i] = err.Error()
	}
	if s.reported.Problems(s.log, "the ConfigMap, or an annotation or label of the node that overrides it, is invalid", problems) {
		s.log.Info("the ConfigMap is valid again", "configMap", s.name)
	}
}

// save returns what load continues from in a later run.
func (s *slo) save() *sloconfig.Saved {
	return &sloconfig.Saved{Name: s.name.String(), LastValid: maps.Clone(s.lastValid), InForce: s.raw}
}

// load restores what an earlier run had, if it was of the same ConfigMap.
func (s *slo) load(saved *sloconfig.Saved) {
	if saved == nil || saved.Name != s.name.String() {
		return
	}
	if _, err := sloconfig.Read(sloconfig.Overlay(nil, saved.InForce)); err == nil {
		s.raw = saved.InForce
	}
	if saved.LastValid != nil {
		s.lastValid = maps.Clone(saved.LastValid)
	}
	s.resolved, s.config = false, nil
}

// both caches the dialects' configurations merged into one.
type both struct{ katalyst, koordinator, raw tick.Raw }

func (b *both) overlay(katalyst, koordinator tick.Raw) tick.Raw {
	if !same(b.katalyst, katalyst) || !same(b.koordinator, koordinator) {
		*b = both{katalyst, koordinator, sloconfig.Overlay(katalyst, koordinator)}
	}
	return b.raw
}

// same reports whether two texts are the same memory.
func same(a, b tick.Raw) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
