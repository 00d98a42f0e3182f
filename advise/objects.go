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

// objects are the configuration objects of a file, which replace the cluster's of the same kinds.
type objects struct {
	file     config.Objects
	log      *slog.Logger
	nodes    map[string]*nodeObjects
	reported config.Reported
}

// nodeObjects is what they contain for one node, and the last result of resolving them.
type nodeObjects struct {
	customconfig.Local
	slo      sloconfig.Local
	metadata tick.NodeMetadata

	version     uint64
	raw, merged tick.Raw
	reported    config.Reported
}

// override puts them into a tick.
func (o *objects) override(t *tick.Tick) {
	if o.file.IsEmpty() {
		o.nodes, o.reported = nil, config.Reported{}
		return
	}
	if o.file.SLO != nil {
		o.reported.Unsupported(o.log, o.file.SLO.Unsupported)
	}
	if t.Sample == nil {
		return
	}
	if o.nodes == nil {
		o.nodes = map[string]*nodeObjects{}
	}
	l := o.nodes[t.Node]
	if l == nil {
		if len(o.nodes) >= tick.MaxNodes { // a stream may contain ever new names; what is dropped is resolved again
			clear(o.nodes)
		}
		l = &nodeObjects{}
		o.nodes[strings.Clone(t.Node)] = l
	}
	l.metadata.Update(t.Sample)
	chosen, errs := l.InForce(o.file.Custom, t.Node, l.metadata.Labels, t.Time)
	strategies, sloErrs := l.slo.InForce(o.file.SLO, l.metadata.Labels, l.metadata.Annotations)
	if version := l.Version + l.slo.Version; l.merged == nil || l.version != version || !bytes.Equal(l.raw, t.Sample.Config) {
		l.raw, l.version = slices.Clone(t.Sample.Config), version
		l.merged = sloconfig.Overlay(customconfig.Overlay(l.raw, chosen), strategies)
	}
	var problems []string
	for _, err := range slices.Concat(errs, sloErrs) {
		problems = append(problems, err.Error())
	}
	message := "configuration refused"
	if len(errs) == 0 { // the file is valid, and in force
		message = "the ConfigMap, or an annotation of the node that overrides it, is invalid"
	}
	l.reported.Problems(o.log.With("node", t.Node), message, problems)
	t.Sample.Config = l.merged
}
