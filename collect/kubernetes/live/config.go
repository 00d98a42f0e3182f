package live

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"polder/lib/customconfig"
	"polder/lib/tick"
)

// inForce is the result of the last resolution.
type inForce struct {
	resolved bool
	of       [4]uint64 // the versions that it was made from
	next     time.Time // when to resolve again although nothing has changed; zero: never

	last map[string]*customconfig.Chosen // what is in force, by kind's key
	// verdicts are on the KatalystCustomConfigs.
	verdicts []customconfig.Verdict
	// whole means that everything was read once, by this or an earlier run.
	whole bool
	raw   tick.Raw
	errs  []error
}

// versions are those of all lists on which the result depends. A list's first reading counts as a change, because the list may be empty.
func (c *Cluster) versions() [4]uint64 {
	v := [4]uint64{c.targets.Version(), c.nodes.Version()}
	for i, kind := range customconfig.Kinds {
		if w := c.kinds[kind]; w != nil {
			v[2+i] = w.Version() + 1
		}
	}
	return v
}

// resolve decides again only if something has changed.
func (c *Cluster) resolve() (tick.Raw, []error) {
	now := c.now()
	r := &c.config
	if of := c.versions(); !r.resolved || of != r.of || !r.next.IsZero() && !now.Before(r.next) {
		c.follow()
		c.resolveNow(now)
		r.resolved, r.of = true, of
	}
	return r.raw, append(slices.Clip(r.errs), c.configErrors()...)
}

// resolveNow always decides again.
func (c *Cluster) resolveNow(now time.Time) {
	r := &c.config
	r.errs, r.next = nil, time.Time{}
	if !c.targets.State().Synced {
		r.write() // with the configuration of an earlier run
		return
	}
	in := c.configs()
	var labels map[string]string
	node := c.nodeObject()
	if node != nil {
		labels = node.AllLabels
	}
	for _, kind := range in.Absent {
		r.errs = append(r.errs, fmt.Errorf("a KatalystCustomConfig is for %s, which the cluster does not have: the previous configuration stays in force", kind.Resource))
	}
	r.verdicts = c.verdicts(&in)
	r.whole = r.whole || node != nil && c.isRead()
	if node == nil {
		in.Candidates = nil // the selection needs its labels
	}
	var errs []error
	r.last, r.next, errs = in.InForce(c.node, labels, r.last, now)
	r.errs = append(r.errs, errs...)
	r.write()
}

func (r *inForce) write() {
	r.raw = nil
	if !r.whole && len(r.verdicts) > 0 { // a part would mean that the rest is not in force
		r.errs = append(r.errs, errors.New("not all configuration objects of this node were read yet"))
		return
	}
	if len(r.last) == 0 && len(r.verdicts) == 0 {
		return
	}
	katalyst := map[string]any{}
	for key, chosen := range r.last {
		katalyst[key] = chosen
	}
	if len(r.verdicts) > 0 {
		katalyst[customconfig.VerdictsKey] = r.verdicts
	}
	raw, err := tick.Marshal(map[string]any{"katalyst": katalyst})
	if err != nil {
		r.errs = append(r.errs, err)
		return
	}
	r.raw = raw
}
