package main

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"

	"polder/lib/config"
	"polder/lib/customconfig"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// objects are the configuration objects of a file, which stand in the place of the cluster's of the same kinds.
type objects struct {
	file  config.Objects
	log   *slog.Logger
	nodes map[string]*local
	slo   *sloconfig.File // of which the log has what is not supported
}

// local is what they say to one node, and what came of it last.
type local struct {
	customconfig.Local
	slo       sloconfig.Local
	version   uint64
	raw, over tick.Raw
	said      string
}

// over puts them into a tick.
func (o *objects) over(t *tick.Tick) {
	if o.file.None() {
		o.nodes, o.slo = nil, nil
		return
	}
	o.announce()
	if t.Sample == nil {
		return
	}
	if o.nodes == nil {
		o.nodes = map[string]*local{}
	}
	l := o.nodes[t.Node]
	if l == nil {
		l = &local{}
		o.nodes[t.Node] = l
	}
	chosen, errs := l.InForce(o.file.Custom, t.Node, t.Sample.Labels, t.Time)
	strategies, wrong := l.slo.InForce(o.file.SLO, t.Sample.Labels, t.Sample.Annotations)
	if version := l.Version + l.slo.Version; l.over == nil || l.version != version || !bytes.Equal(l.raw, t.Sample.Config) {
		l.raw, l.version = slices.Clone(t.Sample.Config), version
		l.over = sloconfig.Over(customconfig.Over(l.raw, chosen), strategies)
	}
	var said strings.Builder
	for _, err := range slices.Concat(errs, wrong) {
		said.WriteString(err.Error() + "\n")
	}
	if said.String() != "" && said.String() != l.said {
		what := "configuration refused"
		if len(errs) == 0 { // the file is good, and holds
			what = "something is wrong with the ConfigMap, or with what the node says beside it"
		}
		o.log.Warn(what, "node", t.Node, "error", said.String())
	}
	l.said = said.String()
	t.Sample.Config = l.over
}

// announce says once what a ConfigMap sets and nothing acts on.
func (o *objects) announce() {
	if o.slo == o.file.SLO {
		return
	}
	if o.slo = o.file.SLO; o.slo != nil && len(o.slo.Unsupported) > 0 {
		o.log.Info("settings of the ConfigMap that are not supported", "settings", strings.Join(o.slo.Unsupported, ", "))
	}
}
