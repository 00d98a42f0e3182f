package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"polder/lib/kube"
	"polder/lib/stage"
	"polder/report/object"
)

// fleetJob is one write of the fleet controller's decision about a node.
type fleetJob struct {
	node              string
	want              object.FleetDecision
	haveNode, haveCNR *seen
	missing           string // what must be written
	at                time.Time
	// Whether the objects are as our own write has left them.
	wroteNode, wroteCNR bool
}

// writeDecision writes the desired state of a node's objects. The mark comes before the withdrawal, because the node's own report may still
// run: it must not restore what is removed. Only that report restores the offer later.
func (w *writer) writeDecision(ctx context.Context, j *fleetJob) (bool, error) {
	if j.haveCNR == nil {
		created, err := w.apply(ctx, j.node, object.CNR(j.node, j.haveNode.uid))
		if err != nil {
			return false, err
		}
		j.haveCNR, j.wroteCNR = created, true
	}
	errs := []error{w.patchCNR(ctx, j, j.want.Patch, "status")}
	if j.want.Taints == nil {
		return true, errs[0]
	}
	errs = append(errs, w.patchCNR(ctx, j, taintPatch(object.FleetTaintsOf, j.want.Taints, j.at)))
	if err := w.mark(ctx, j); err != nil {
		return true, errors.Join(append(errs, err)...)
	}
	if j.want.Withdraws() {
		if nothing := object.Nothing(); !object.NodeHolds(j.haveNode.object, nothing) {
			now, err := w.patch(ctx, kube.Nodes, j.node, kube.MergePatch, object.NodePatch(nothing), "status")
			errs = append(errs, err)
			if err == nil {
				j.haveNode, j.wroteNode = now, true
			}
		}
		errs = append(errs, w.patchCNR(ctx, j, object.CNRWithdrawal, "status"))
	}
	return true, errors.Join(errs...)
}

func (w *writer) patchCNR(ctx context.Context, j *fleetJob, patch func(kube.Object) object.Patch, subresources ...string) error {
	now, err := w.patchWithRetry(ctx, kube.CustomNodeResources, j.node, j.haveCNR, patch, subresources...)
	j.wroteCNR = j.wroteCNR || now != nil
	j.haveCNR = cmp.Or(now, j.haveCNR)
	return err
}

func (w *writer) mark(ctx context.Context, j *fleetJob) error {
	patch := j.want.MarkPatch(j.haveNode.object)
	if patch == nil {
		return nil
	}
	now, err := w.patch(ctx, kube.Nodes, j.node, kube.MergePatch, patch)
	if err != nil {
		return err
	}
	j.haveNode, j.wroteNode = now, true
	return nil
}

// RunWithdraw removes what the fleet controller wrote: taints, marks and the conditions of the agents. Each node's own report then offers
// again.
func (o *FleetOptions) RunWithdraw(ctx context.Context, s *stage.Session) error {
	o.AllNodes = true
	client, err := o.open()
	if err != nil {
		return err
	}
	limit := 20 * withdrawWithin
	ctx, done := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %s", limit))
	defer done()
	w := &writer{client: client, log: s.Log}
	var all error
	for _, r := range []kube.Resource{kube.CustomNodeResources, kube.Nodes} {
		objects, err := listSeen(ctx, client, r, s.Now)
		if err != nil {
			all = errors.Join(all, fmt.Errorf("withdraw %s: %w", Fleet, explain(r, err)))
			continue
		}
		for _, have := range objects {
			changed, err := w.withdrawDecision(ctx, r, have, s.DryRun)
			switch {
			case client.IsAbsent(ctx, r, err):
			case err != nil:
				all = errors.Join(all, fmt.Errorf("withdraw %s of %s %s: %w", Fleet, r, have.name, explain(r, err)))
			case changed && s.DryRun:
				s.Log.Info("would be withdrawn", "target", Fleet, "resource", r.String(), "node", have.name)
			case changed:
				s.Log.Info("withdrawn", "target", Fleet, "resource", r.String(), "node", have.name)
			}
		}
	}
	return all
}

// listSeen lists the objects of a kind, of which there are none where the cluster does not have the kind.
func listSeen(ctx context.Context, client *kube.Client, r kube.Resource, now func() time.Time) ([]*seen, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	all := selection(r, "")
	all.RetryUnknown = time.Minute
	w := kube.Start(ctx, client, all, now, see)
	for start := time.Now(); ; {
		short, done := context.WithTimeout(ctx, forbidden)
		err := w.WaitSynced(short)
		done()
		switch {
		case err == nil:
			return w.List(), nil
		case ctx.Err() != nil, isFinal(err, start):
			return nil, err
		}
	}
}

// withdrawDecision withdraws one object's part; it reports whether there was any.
func (w *writer) withdrawDecision(ctx context.Context, r kube.Resource, have *seen, dryRun bool) (bool, error) {
	if r == kube.Nodes {
		patch := object.FleetDecision{}.MarkPatch(have.object)
		if patch == nil || dryRun {
			return patch != nil, nil
		}
		_, err := w.patch(ctx, r, have.name, kube.MergePatch, patch)
		return true, err
	}
	taints := taintPatch(object.FleetTaintsOf, nil, time.Time{})
	if dryRun {
		return taints(have.object) != nil || object.WithoutConditions(have.object) != nil, nil
	}
	first, err := w.patchWithRetry(ctx, r, have.name, have, taints)
	if err != nil {
		return true, err
	}
	second, err := w.patchWithRetry(ctx, r, have.name, cmp.Or(first, have), object.WithoutConditions, "status")
	return first != nil || second != nil, err
}
