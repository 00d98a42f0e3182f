package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"polder/lib/kube"
	"polder/lib/tick"
	"polder/report/object"
	"polder/report/reconcile"
)

// kind is a kind of objects to which figures are written.
type kind struct {
	target   string
	resource kube.Resource
	prefix   string // of Koordinator's resources
	// figures are the parts of the advice that the object has; the second argument is its present offer.
	figures func(object.Figures, object.Offer) object.Figures
	// holds reports whether the object has the figures.
	holds func(kube.Object, object.Figures) bool
	// write writes them to the object, which may be nil, and returns the object after that.
	write func(context.Context, *writer, job) (*seen, error)
	// show is what would be written.
	show func(node string, f object.Figures, at time.Time) kube.Object
}

// of is the target of the kind.
func (k kind) of() string {
	if k.target == NodeTaints {
		return "node"
	}
	return k.target
}

// writer has what writes need.
type writer struct {
	client *kube.Client
	log    *slog.Logger
}

// job is one write.
type job struct {
	node    string
	uid     string // the node's
	have    *seen
	figures object.Figures
	at      time.Time
	after   *seen // what the write returned
}

var nodeKind = nodeKindOf(object.Prefix)

// nodeKindOf is the kind of the node's status, in which Koordinator's resources have the prefix.
func nodeKindOf(prefix string) kind {
	return kind{
		target:   "node",
		resource: kube.Nodes,
		prefix:   prefix,
		figures: func(f object.Figures, published object.Offer) object.Figures {
			f = f.LimitByTaint(published)
			return object.Figures{
				Reclaimed: f.Reclaimed, Mid: f.Mid, Dialect: f.Dialect,
				ReducedByTaint: f.ReducedByTaint, IsIntended: f.IsIntended, Note: f.Note,
			}
		},
		holds: func(o kube.Object, f object.Figures) bool { return object.NodeHolds(o, f.Resources(prefix)) },
		write: func(ctx context.Context, w *writer, j job) (*seen, error) {
			if j.have == nil {
				return nil, nil
			}
			return w.patch(ctx, kube.Nodes, j.node, kube.MergePatch, object.NodePatch(j.figures.Resources(prefix)), "status")
		},
		show: func(_ string, f object.Figures, _ time.Time) kube.Object {
			return object.NodePatch(f.Resources(prefix))
		},
	}
}

var cnrKind = kind{
	target:   "cnr",
	resource: kube.CustomNodeResources,
	figures: func(f object.Figures, _ object.Offer) object.Figures {
		f.Mid, f.Dialect = object.Amounts{}, "" // the names in it are the same for every policy
		return f
	},
	holds: object.CNRHolds,
	write: writeCNR,
	show: func(node string, f object.Figures, at time.Time) kube.Object {
		o := object.CNR(node, "")
		if !f.Empty() {
			o = object.CNRStatus(node, f)
		}
		if len(f.Taints) > 0 {
			o["spec"] = kube.Object{"taints": object.TaintsOf(o).Want(f.Taints, at).List()}
		}
		return o
	},
}

// nodeTaintsKind is the kind of the node's spec. It is separate from the status, because a role without the one must not delay the other.
var nodeTaintsKind = kind{
	target:   NodeTaints,
	resource: kube.Nodes,
	figures:  func(f object.Figures, _ object.Offer) object.Figures { return f.NodeTaints() },
	holds: func(o kube.Object, f object.Figures) bool {
		have := object.NodeTaintsOf(o)
		return f.Taints == nil || have.Want(f.Taints, time.Time{}).Equal(have)
	},
	write: func(ctx context.Context, w *writer, j job) (*seen, error) {
		if j.have == nil {
			return nil, nil
		}
		return w.taint(ctx, kube.Nodes, j, j.have, object.NodeTaintsOf)
	},
	show: func(node string, f object.Figures, at time.Time) kube.Object {
		o := kube.Object{"apiVersion": "v1", "kind": "Node", "metadata": kube.Object{"name": node}}
		o["spec"] = kube.Object{"taints": object.NodeTaintsOf(o).Want(f.Taints, at).List()}
		return o
	},
}

func (w *writer) patch(ctx context.Context, r kube.Resource, name, kind string, patch any, subresources ...string) (*seen, error) {
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	o, err := w.client.Patch(ctx, r, "", name, kind, body, manager, subresources...)
	if err != nil {
		return nil, err
	}
	return see(o), nil
}

// apply is a server-side apply. It also replaces fields of another manager, because the figures are this node's, and
// we are its agent. That is logged, because there may be two agents.
func (w *writer) apply(ctx context.Context, node string, o kube.Object, subresources ...string) (*seen, error) {
	o, err := w.force(ctx, node, o, subresources...)
	if err != nil {
		return nil, err
	}
	return see(o), nil
}

func (w *writer) force(ctx context.Context, node string, o kube.Object, subresources ...string) (kube.Object, error) {
	applied, err := w.client.Apply(ctx, kube.CustomNodeResources, "", node, o, manager, false, subresources...)
	if !kube.IsConflict(err) {
		return applied, err
	}
	w.log.Warn("replacing fields that another program has written: is there a second agent?", "target", "cnr", "node", node, "error", err)
	return w.client.Apply(ctx, kube.CustomNodeResources, "", node, o, manager, true, subresources...)
}

func writeCNR(ctx context.Context, w *writer, j job) (*seen, error) {
	have := j.have
	if have == nil && j.figures.Empty() && len(j.figures.Taints) == 0 {
		return nil, nil
	}
	if have == nil || j.uid != "" && !j.figures.Empty() && !owned(have, j.uid) {
		made, err := w.apply(ctx, j.node, object.CNR(j.node, j.uid))
		if err != nil {
			return have, err
		}
		have = made
	}
	// The figures come first, so that they do not wait for taints that the server refuses.
	now, err := w.status(ctx, j, have)
	if err != nil && !kube.IsInvalid(err) {
		return have, err
	}
	patched, taintsErr := w.taint(ctx, kube.CustomNodeResources, j, cmp.Or(now, have), object.TaintsOf)
	return cmp.Or(patched, now, have), errors.Join(err, taintsErr)
}

// status writes the status; it returns nil where nothing had to be written.
func (w *writer) status(ctx context.Context, j job, have *seen) (*seen, error) {
	if !j.figures.Empty() {
		return w.apply(ctx, j.node, object.CNRStatus(j.node, j.figures), "status")
	}
	return w.patchWithRetry(ctx, kube.CustomNodeResources, j.node, have, object.CNRWithdrawal, "status")
}

// taint merges the taints; it returns nil where nothing had to be written.
func (w *writer) taint(ctx context.Context, r kube.Resource, j job, have *seen, of func(kube.Object) object.Taints) (*seen, error) {
	if j.figures.Taints == nil {
		return nil, nil
	}
	return w.patchWithRetry(ctx, r, j.node, have, taintPatch(of, j.figures.Taints, j.at))
}

// taintPatch sets our taints in an object; it is nil where the object has them.
func taintPatch(of func(kube.Object) object.Taints, taints []tick.Taint, at time.Time) func(kube.Object) object.Patch {
	return func(o kube.Object) object.Patch {
		present := of(o)
		if desired := present.Want(taints, at); !desired.Equal(present) {
			return desired.Patch()
		}
		return nil
	}
}

// Backoff before a patch that lost a conflict is retried: doubled each time, because even a busy writer pauses.
const (
	minConflictBackoff = 5 * time.Millisecond
	maxConflictBackoff = 500 * time.Millisecond
)

// patchWithRetry patches an object with the function's result, again after each conflict, within the limit of a request. It
// returns nil where nothing had to be written.
func (w *writer) patchWithRetry(
	ctx context.Context, r kube.Resource, name string, have *seen, patch func(kube.Object) object.Patch, subresources ...string,
) (*seen, error) {
	ctx, done := context.WithTimeout(ctx, requestLimit)
	defer done()
	var current *seen
	fruitless := false
	for backoff := minConflictBackoff; ; backoff = min(2*backoff, maxConflictBackoff) {
		p := patch(have.object)
		if len(p) == 0 {
			return current, nil
		}
		now, err := w.patch(ctx, r, name, kube.JSONPatch, p, subresources...)
		if !kube.IsConflict(err) && !kube.IsInvalid(err) {
			return now, err
		}
		select { // before the object is read again, so that it is fresh
		case <-ctx.Done():
			return nil, err
		case <-time.After(reconcile.Jitter(backoff)):
		}
		o, failed := w.client.Get(ctx, r, "", name)
		if failed != nil {
			return nil, errors.Join(err, failed)
		}
		current = see(o)
		// Twice, because the object may have differed in between.
		fits := kube.IsInvalid(err) && p.Fits(current.object)
		if fits && fruitless {
			return nil, err
		}
		have, fruitless = current, fits
	}
}

// owned reports whether the object is deleted with the node of that UID.
func owned(x *seen, uid string) bool {
	metadata, _ := x.object["metadata"].(kube.Object)
	owners, _ := metadata["ownerReferences"].([]any)
	for _, o := range owners {
		if owner, _ := o.(kube.Object); owner["uid"] == uid {
			return true
		}
	}
	return false
}
