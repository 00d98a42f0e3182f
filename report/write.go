package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"polder/lib/kube"
	"polder/report/object"
)

// kind is a kind of objects that figures are written to.
type kind struct {
	target   string
	resource kube.Resource
	// figures are those that the object is about.
	figures func(object.Figures) object.Figures
	// holds reports whether the object has them.
	holds func(kube.Object, object.Figures) bool
	// write makes the object, which may be nil, have them, and returns it as it is then.
	write func(context.Context, *writer, job) (*seen, error)
	// show is what would be written.
	show func(node string, f object.Figures, at time.Time) kube.Object
}

// writer is what writes need.
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
}

var nodeKind = kind{
	target:   "node",
	resource: kube.Nodes,
	figures:  func(f object.Figures) object.Figures { return object.Figures{Reclaimed: f.Reclaimed} },
	holds:    func(o kube.Object, f object.Figures) bool { return object.NodeHolds(o, f.Reclaimed) },
	write: func(ctx context.Context, w *writer, j job) (*seen, error) {
		if j.have == nil {
			return nil, nil
		}
		return w.patch(ctx, kube.Nodes, j.node, object.NodePatch(j.figures.Reclaimed), "status")
	},
	show: func(_ string, f object.Figures, _ time.Time) kube.Object { return object.NodePatch(f.Reclaimed) },
}

var cnrKind = kind{
	target:   "cnr",
	resource: kube.CustomNodeResources,
	figures:  func(f object.Figures) object.Figures { return f },
	holds:    object.CNRHolds,
	write:    writeCNR,
	show: func(node string, f object.Figures, at time.Time) kube.Object {
		o := object.CNR(node, "")
		if !f.Empty() {
			o = object.CNRStatus(node, f)
		}
		if len(f.Taints) > 0 {
			o["spec"] = object.TaintsOf(o).Want(f.Taints, at).Patch("")["spec"]
		}
		return o
	},
}

func (w *writer) patch(ctx context.Context, r kube.Resource, name string, patch kube.Object, subresources ...string) (*seen, error) {
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	o, err := w.client.Patch(ctx, r, "", name, kube.MergePatch, body, manager, subresources...)
	if err != nil {
		return nil, err
	}
	return see(o), nil
}

// apply is a server-side apply. Fields that another manager holds are ours all the same: the figures are this node's, and
// we are its agent. But it is said, for there may be two.
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
	w.log.Warn("taking over fields that somebody else has written: is there a second agent?", "target", "cnr", "node", node, "error", err)
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
	// The figures first, and they are not held up by taints that the server will not have.
	now, err := w.status(ctx, j, have)
	if err != nil && !kube.IsInvalid(err) {
		return have, err
	}
	tainted, taintsErr := w.taint(ctx, j, cmp.Or(now, have))
	return cmp.Or(tainted, now, have), errors.Join(err, taintsErr)
}

// status writes the status; it returns nil where there was nothing to write.
func (w *writer) status(ctx context.Context, j job, have *seen) (*seen, error) {
	if !j.figures.Empty() {
		return w.apply(ctx, j.node, object.CNRStatus(j.node, j.figures), "status")
	}
	patch := object.CNRWithdrawal(have.object, have.version)
	if patch == nil {
		return nil, nil
	}
	return w.patch(ctx, kube.CustomNodeResources, j.node, patch, "status")
}

// taintTries is how often taints are merged with what others write at the same time, before a pause.
const taintTries = 3

// taint merges the taints; it returns nil where there was nothing to write.
func (w *writer) taint(ctx context.Context, j job, have *seen) (*seen, error) {
	if j.figures.Taints == nil {
		return nil, nil
	}
	for try := 1; ; try++ {
		present := object.TaintsOf(have.object)
		wanted := present.Want(j.figures.Taints, j.at)
		if wanted.Equal(present) {
			return nil, nil
		}
		now, err := w.patch(ctx, kube.CustomNodeResources, j.node, wanted.Patch(have.version))
		if !kube.IsConflict(err) || try == taintTries {
			return now, err
		}
		o, err := w.client.Get(ctx, kube.CustomNodeResources, "", j.node)
		if err != nil {
			return nil, err
		}
		have = see(o)
	}
}

// owned reports whether the object goes with the node of that UID.
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
