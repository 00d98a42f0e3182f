// Package cluster writes ticks to objects of the cluster: CustomNodeResources, Nodes, NodeMetrics, and the status of
// KatalystCustomConfigs. Package object decides what is written, package reconcile when and how.
package cluster

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"polder/lib/clip"
	"polder/lib/kube"
	"polder/lib/stage"
	"polder/report/object"
	"polder/report/reconcile"
)

// manager is the field manager of all writes.
const manager = "polder-report"

// requestLimit bounds one request. The next request to a server that does not answer has newer figures.
const requestLimit = 10 * time.Second

// Access is the targets' shared connection to the cluster.
type Access struct {
	AllNodes bool

	kubeconfig string
	shared     *connection
}

// Options are the flags of the targets that write to the cluster.
type Options struct {
	Access
	To        []string // what --to names
	TaintNode bool
	Withdraw  bool

	prefix     string  // of Koordinator's resources
	minChange  float64 // in percent
	minAge     time.Duration
	growAge    time.Duration
	resync     time.Duration
	staleAfter time.Duration
}

// Open opens the target of the name.
func (o *Options) Open(ctx context.Context, s *stage.Session, name string) (Target, error) {
	switch name {
	case NodeMetric:
		return openNodeMetric(ctx, s, &o.Access)
	case KCC:
		return openKCC(ctx, s, &o.Access, o.resync, false)
	case NodeTaints:
		return openPublisher(ctx, s, o, nodeTaintsKind)
	case nodeKind.target:
		return openPublisher(ctx, s, o, nodeKindOf(o.prefix))
	}
	return openPublisher(ctx, s, o, cnrKind)
}

// NodeTaints is the target of --taint-node.
const NodeTaints = "node-taints"

// wants reports whether --to names the target.
func (o *Options) wants(name string) bool { return slices.Contains(o.To, name) }

// Flags adds the flags.
func (o *Options) Flags(f *stage.Flags) {
	f.Category("Cluster, for --to cnr, node and nodemetric")
	f.Path(&o.kubeconfig, "kubeconfig", "", "the cluster of `FILE` (default the one that report runs in)")
	f.Float(&o.minChange, "min-change", 5, "write an amount that has grown by this many percent\nAn amount that has shrunk by 1 percent is written at once.")
	f.Duration(&o.growAge, "grow-interval", 7*time.Minute, "offer more this long after the last change (0: at once)\nIt is the object's last change of an amount, up or down.")
	f.Duration(&o.minAge, "min-interval", 10*time.Minute, "write a loss below 1 percent this long after a write")
	f.Duration(&o.resync, "resync", 10*time.Minute, "write at least this often, even without a change (0: never)")
	f.Duration(&o.staleAfter, "stale-after", 3*time.Minute, "withdraw an amount that no tick has confirmed for this long")
	f.Choice(&o.prefix, "resource-prefix", object.Prefix, "node: prefix\n"+
		"It stands before Koordinator's batch-cpu, batch-memory, mid-cpu and mid-memory. Koordinator v0.1 had koordinator.sh.", object.Prefix, object.OldPrefix)
	f.Bool(&o.AllNodes, "all-nodes", "write the objects of every node that ticks name")
	f.Bool(&o.TaintNode, "taint-node", "put evict's taints on the Node, too, where they hold for all pods")
	f.Bool(&o.Withdraw, "withdraw", "remove what was written to the cluster, and end\nThat is for --node, or with --all-nodes for all of them.")
}

// Check returns an error for flags that exclude each other.
func (o *Options) Check(s *stage.Session) error {
	switch {
	case !(o.minChange >= 0 && o.minChange <= 100):
		return stage.Usagef("--min-change %v: want percent, 0 to 100", o.minChange)
	case o.staleAfter == 0:
		return stage.Usagef("--stale-after 0: want a time span after which nothing is offered any more")
	case o.AllNodes && s.IsSet("node"):
		return stage.Usagef("--node and --all-nodes exclude each other: give one of them")
	}
	if o.AllNodes {
		s.Node = ""
	}
	return nil
}

func (o *Options) rules() object.Rules {
	return object.Rules{MinChange: o.minChange / 100, MinInterval: o.minAge, Resync: o.resync}
}

// given shows which rules the user has set.
func given(s *stage.Session) object.Given {
	return object.Given{MinChange: s.IsSet("min-change"), MinInterval: s.IsSet("min-interval"), Resync: s.IsSet("resync")}
}

// seen is an object of the cluster, with the parts that are needed here.
type seen struct {
	name, uid, version string
	object             kube.Object
}

func see(o kube.Object) *seen {
	metadata, _ := o["metadata"].(kube.Object)
	text := func(key string) string { s, _ := metadata[key].(string); return s }
	x := &seen{name: text("name"), uid: text("uid"), version: text("resourceVersion"), object: kube.Object{}}
	x.object["metadata"] = kube.Object{"annotations": metadata["annotations"], "ownerReferences": metadata["ownerReferences"]}
	if _, ok := o["spec"].(kube.Object); ok { // to a patch an empty one is not the same as none
		x.object["spec"] = part(o, "spec", "taints")
	}
	if _, ok := o["status"].(kube.Object); ok {
		keys := []string{"capacity", "allocatable", "resourceCapacity", "resourceAllocatable", "resources", "topologyZone"}
		if o["kind"] == object.CNRKind { // a Node has many, which change all the time
			keys = append(keys, "conditions")
		}
		x.object["status"] = part(o, "status", keys...)
	}
	return x
}

// part is an object's part with these keys only: a node's status has a hundred image names.
func part(o kube.Object, name string, keys ...string) kube.Object {
	all, _ := o[name].(kube.Object)
	selected := kube.Object{}
	for _, k := range keys {
		if v, ok := all[k]; ok {
			selected[k] = v
		}
	}
	return selected
}

// connection is the connection that the targets share.
type connection struct {
	client      *kube.Client
	nodes, cnrs *kube.Watch[*seen]
	stop        context.CancelFunc
	users       int
}

// connect opens the cluster for one more target; cnrs reports whether one of all the targets needs the CustomNodeResources.
func (a *Access) connect(ctx context.Context, s *stage.Session, cnrs bool) (*connection, error) {
	if a.shared == nil {
		if api := s.Metrics.API(); api != nil {
			kube.Observe(api)
		}
		client, err := a.open()
		if err != nil {
			return nil, err
		}
		ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
		a.shared = &connection{client: client, stop: stop}
		a.shared.nodes = kube.Start(ctx, client, selection(kube.Nodes, s.Node), s.Now, see)
		if cnrs {
			a.shared.cnrs = kube.Start(ctx, client, selection(kube.CustomNodeResources, s.Node), s.Now, see)
		}
	}
	a.shared.users++
	return a.shared, nil
}

func (a *Access) open() (*kube.Client, error) {
	options := kube.Options{Kubeconfig: a.kubeconfig, UserAgent: manager, Timeout: requestLimit}
	if a.AllNodes {
		options.QPS = -1 // the writes at a time are bounded, and the server limits requests itself
	}
	client, err := kube.Open(options)
	if err != nil {
		return nil, stage.Usagef("%w", err)
	}
	return client, nil
}

// queueOf are the options of a target's queue, whose keys are nodes.
func queueOf(ctx context.Context, s *stage.Session, name string) reconcile.Options {
	return reconcile.Options{Name: name, Label: "node", Limit: maxNodes, Context: ctx, Log: s.Log, Now: s.Now, DryRun: s.DryRun}
}

// nodeName is the form of a node's name in a cluster; any other text would be another path on the server.
var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// checkNode returns an error for an invalid node name.
func checkNode(name string) error {
	if !nodeName.MatchString(name) {
		return fmt.Errorf("%.80q is not a name of a node in a cluster", name)
	}
	return nil
}

// selection selects the object of the node's name, or all objects.
func selection(r kube.Resource, node string) kube.Selection {
	s := kube.Selection{Resource: r}
	if node != "" {
		s.Fields = "metadata.name=" + node
	}
	return s
}

// byName reads the objects of a watch and reports whether they have changed since the version.
func byName(w *kube.Watch[*seen], version *uint64, into *map[string]*seen) bool {
	v := w.Version()
	if v == *version && *into != nil {
		return false
	}
	*version, *into = v, map[string]*seen{}
	for _, x := range w.List() {
		(*into)[x.name] = x
	}
	return true
}

// whyNotWritable returns why a node's object cannot be written, nil where it can.
func (c *connection) whyNotWritable(nodes map[string]*seen, node string, objects *kube.Watch[*seen]) error {
	for _, w := range []*kube.Watch[*seen]{c.nodes, objects} {
		if s := w.State(); !s.Synced {
			r := kube.Nodes
			if w == c.cnrs {
				r = kube.CustomNodeResources
			}
			return explain(r, fmt.Errorf("list %s of %s: %w", r, c.client.Server(), s.Err))
		}
	}
	if nodes[node] == nil {
		return fmt.Errorf("the cluster has no node %s: set its name there with --node", strconv.Quote(node))
	}
	return nil
}

func (c *connection) release() {
	if c.users--; c.users == 0 {
		c.stop()
	}
}

// The permissions that report needs, for its errors.
const permissions = "report's role needs nodes: get, list, watch; nodes/status: patch; customnoderesources: get, list, watch, create, patch; customnoderesources/status: patch; with --taint-node and for report fleet also nodes: patch; for --to nodemetric nodes: get; nodemetrics: create; nodemetrics/status: patch; for --to kcc katalystcustomconfigs: get; katalystcustomconfigs/status: patch"

// longestError bounds an error to what a person would read.
const longestError = 600

// explain returns what to do about an error of the API server.
func explain(r kube.Resource, err error) error {
	text := clip.Text(err.Error(), longestError)
	ours := map[kube.Resource]string{kube.CustomNodeResources: object.CNRKind, kube.NodeMetrics: object.NodeMetricKind}[r]
	switch cnr := ours != ""; {
	case cnr && kube.IsNotFound(err):
		return fmt.Errorf("%s (does the cluster have the kind %s? Install the CRDs: kubectl apply --server-side -f deploy/kubernetes/crds)", text, ours)
	case kube.IsForbidden(err):
		return fmt.Errorf("%s (%s)", text, permissions)
	case cnr && (kube.IsInvalid(err) || kube.IsUnknownField(err)):
		return fmt.Errorf("%s (is the CRD of another release? Install this one's: kubectl apply --server-side -f deploy/kubernetes/crds)", text)
	}
	return fmt.Errorf("%s", text)
}
