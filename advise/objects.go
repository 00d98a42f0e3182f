package main

import (
	"bytes"
	"log/slog"
	"slices"

	"polder/lib/customconfig"
	"polder/lib/tick"
)

// objects are the configuration objects of a file, which stand in the place of the cluster's of the same kinds.
type objects struct {
	file  *customconfig.File // nil where there is none
	log   *slog.Logger
	nodes map[string]*local
}

// local is what they say to one node, and what came of it last.
type local struct {
	customconfig.Local
	version   uint64
	raw, over tick.Raw
	said      string
}

// over puts them into a tick.
func (o *objects) over(t *tick.Tick) {
	if o.file == nil {
		o.nodes = nil
		return
	}
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
	chosen, errs := l.InForce(o.file, t.Node, t.Sample.Labels, t.Time)
	if l.over == nil || l.version != l.Version || !bytes.Equal(l.raw, t.Sample.Config) {
		l.raw, l.version = slices.Clone(t.Sample.Config), l.Version
		l.over = customconfig.Over(l.raw, chosen)
	}
	said := ""
	for _, err := range errs {
		said += err.Error() + "\n"
	}
	if said != "" && said != l.said {
		o.log.Warn("configuration refused", "node", t.Node, "error", said)
	}
	l.said = said
	t.Sample.Config = l.over
}
