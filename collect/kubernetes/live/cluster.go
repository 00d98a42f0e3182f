// Package live keeps a cluster's objects current: by watches of its API server, or by a file that has its pods.
package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"polder/collect/kubernetes"
	"polder/lib/customconfig"
	"polder/lib/kube"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Options select the cluster and the node.
type Options struct {
	// Kubeconfig is a file's path; empty means the service account of this process's pod.
	Kubeconfig string
	Node       string
	UserAgent  string
	Reading    kubernetes.Reading
	SLO        *SLOConfig // nil where Koordinator's ConfigMap is not watched
	Now        func() time.Time
	Log        *slog.Logger
}

// Cluster is one watch each of the node's pods, of the node, and of the configuration objects. It is not safe for concurrent use.
type Cluster struct {
	registry
	node string

	pods  *kube.Watch[*kubernetes.Pod]
	nodes *kube.Watch[*kubernetes.Node]

	config inForce
	slo    *slo // nil where it is not watched
	both   both
}

// Open begins to watch and does not wait. The watches end with ctx.
func Open(ctx context.Context, o Options) (*Cluster, error) {
	client, err := kube.Open(kube.Options{Kubeconfig: o.Kubeconfig, UserAgent: o.UserAgent, QPS: 5})
	if err != nil {
		return nil, err
	}
	c := &Cluster{registry: openRegistry(ctx, client, o.Now), node: o.Node}
	c.log = o.Log
	c.pods = kube.Start(ctx, client, kube.Selection{Resource: kube.Pods, Fields: "spec.nodeName=" + o.Node}, o.Now, o.Reading.Pod)
	c.nodes = kube.Start(ctx, client, kube.Selection{Resource: kube.Nodes, Fields: "metadata.name=" + o.Node}, o.Now, kubernetes.NodeOf)
	if o.SLO != nil {
		c.slo = openSLO(ctx, client, *o.SLO, o.Now, o.Log)
	}
	return c, nil
}

// Wait waits until everything was read once, or ctx ends.
func (c *Cluster) Wait(ctx context.Context) {
	if c.pods.WaitSynced(ctx) == nil && c.nodes.WaitSynced(ctx) == nil && (c.slo == nil || c.slo.watch.WaitSynced(ctx) == nil) {
		c.wait(ctx)
	}
}

// PodsVersion changes whenever Pods does.
func (c *Cluster) PodsVersion() uint64 { return c.pods.Version() }

// Pods are the node's pods, in no order.
func (c *Cluster) Pods() []*kubernetes.Pod { return c.pods.List() }

// PodsError is the current error of the list.
func (c *Cluster) PodsError() error { return c.listError("the pod list", c.pods.State()) }

// Node is the node object, nil where it was never read, with its current error.
func (c *Cluster) Node() (*kubernetes.Node, error) {
	state := c.nodes.State()
	if err := c.listError("the node object", state); err != nil {
		return c.nodeObject(), err
	}
	n := c.nodeObject()
	if n == nil {
		return nil, fmt.Errorf("the cluster has no node %s (set its name there with --node)", c.node)
	}
	return n, nil
}

func (c *Cluster) nodeObject() *kubernetes.Node {
	for _, n := range c.nodes.List() {
		if n.Name == c.node {
			return n
		}
	}
	return nil
}

// SaveConfig returns what LoadConfig continues from in a later run; nil while not all of it has been read, because a part would mean
// that the rest is not in force.
func (c *Cluster) SaveConfig() map[string]*customconfig.Chosen {
	if !c.config.whole {
		return nil
	}
	return c.config.last
}

// LoadConfig restores the configuration that an earlier run had in force, until this one has read it.
func (c *Cluster) LoadConfig(last map[string]*customconfig.Chosen) {
	if last != nil {
		c.config.last, c.config.whole = last, true
		c.config.resolved = false
	}
}

// Config is the configuration in force for the node, nil where there is none, with its current errors.
func (c *Cluster) Config() (tick.Raw, error) {
	katalyst, errs := c.resolve()
	if c.slo == nil {
		return katalyst, errors.Join(errs...)
	}
	koordinator, wrong := c.slo.resolve(c)
	if katalyst == nil && c.targets.State().Synced && len(c.config.last) == 0 && len(c.config.verdicts) == 0 {
		katalyst = noKatalyst // known to be none, even if the ConfigMap has errors
	}
	return c.both.overlay(katalyst, koordinator), errors.Join(append(errs, wrong...)...)
}

var noKatalyst = tick.Raw(`{"katalyst":{}}`)

// SaveStrategies returns what LoadStrategies continues from in a later run; nil where Koordinator's ConfigMap is not watched.
func (c *Cluster) SaveStrategies() *sloconfig.Saved {
	if c.slo == nil {
		return nil
	}
	return c.slo.save()
}

// LoadStrategies restores what an earlier run had of Koordinator's ConfigMap.
func (c *Cluster) LoadStrategies(saved *sloconfig.Saved) {
	if c.slo != nil {
		c.slo.load(saved)
	}
}
