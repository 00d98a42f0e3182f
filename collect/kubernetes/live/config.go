package live

import (
	"errors"
	"fmt"
	"time"

	"polder/collect/kubernetes"
	"polder/lib/kube"
	"polder/lib/tick"
)

// inForce is the result of the last resolution.
type inForce struct {
	resolved bool
	of       [4]uint64 // the versions that it is made of
	next     time.Time // when to look again though nothing has changed; zero: never

	last map[string]*kubernetes.Chosen // what is in force, by kind's key
	raw  tick.Raw
	errs []error
}

// follow begins to watch the kinds that targets name. A kind that was named once stays watched.
func (c *Cluster) follow() {
	for _, t := range c.targets.List() {
		for _, kind := range kubernetes.Kinds {
			if t.Resource == kind.Resource && c.kinds[kind] == nil {
				r := kube.AdminQoSConfigurations
				if kind == kubernetes.Eviction {
					r = kube.EvictionConfigurations
				}
				c.kinds[kind] = kube.Start(c.ctx, c.client, kube.Selection{Resource: r, AskAgain: askAgain}, c.now, kubernetes.CandidateOf)
			}
		}
	}
}

// versions are those of all lists that the result depends on. What was read first counts as a change, as it may be empty.
func (c *Cluster) versions() [4]uint64 {
	v := [4]uint64{c.targets.Version(), c.nodes.Version()}
	for i, kind := range kubernetes.Kinds {
		if w := c.kinds[kind]; w != nil {
			v[2+i] = w.Version() + 1
		}
	}
	return v
}

// resolve works only where something has changed.
func (c *Cluster) resolve() (tick.Raw, error) {
	now := c.now()
	r := &c.config
	if of := c.versions(); !r.resolved || of != r.of || !r.next.IsZero() && !now.Before(r.next) {
		c.follow()
		c.resolveNow(now)
		r.resolved, r.of = true, of
	}
	return r.raw, errors.Join(append(r.errs[:len(r.errs):len(r.errs)], c.configTrouble()...)...)
}

// resolveNow decides anew.
func (c *Cluster) resolveNow(now time.Time) {
	r := &c.config
	r.errs, r.next = nil, time.Time{}
	if !c.targets.State().Synced {
		r.write() // what an earlier run had
		return
	}
	in := kubernetes.Configs{Targets: c.targets.List(), Candidates: map[kubernetes.Kind][]*kubernetes.Candidate{}}
	var labels map[string]string
	node := c.nodeObject()
	if node != nil {
		labels = node.AllLabels
	}
	for kind, w := range c.kinds {
		switch s := w.State(); {
		case s.Absent:
			r.errs = append(r.errs, fmt.Errorf("a KatalystCustomConfig is for %s, which the cluster does not have: what was in force stays", kind.Resource))
		case s.Synced && node != nil:
			in.Candidates[kind] = w.List()
		}
	}
	last := map[string]*kubernetes.Chosen{}
	for _, kind := range kubernetes.Kinds {
		chosen, next, err := in.Resolve(kind, c.node, labels, r.last[kind.Key], now)
		if err != nil {
			r.errs = append(r.errs, err)
		}
		if !next.IsZero() && (r.next.IsZero() || next.Before(r.next)) {
			r.next = next
		}
		if chosen != nil {
			last[kind.Key] = chosen
		}
	}
	r.last = last
	r.write()
}

func (r *inForce) write() {
	r.raw = nil
	if len(r.last) == 0 {
		return
	}
	raw, err := tick.Marshal(map[string]any{"katalyst": r.last})
	if err != nil {
		r.errs = append(r.errs, err)
		return
	}
	r.raw = raw
}

// configTrouble says which of the lists are not current.
func (c *Cluster) configTrouble() (errs []error) {
	if err := c.trouble("the list of KatalystCustomConfigs", c.targets.State()); err != nil {
		return []error{err} // the others are read by the same server
	}
	for _, kind := range kubernetes.Kinds {
		if w := c.kinds[kind]; w != nil {
			if err := c.trouble("the list of "+kind.Resource, w.State()); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}
