package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"polder/lib/kube"
	"polder/lib/stage"
	"polder/report/object"
)

// manager is the field manager of all that is written.
const manager = "polder-report"

// requestLimit bounds one request. A server that does not answer is asked again with newer figures.
const requestLimit = 10 * time.Second

// clusterOptions are the flags of the cluster's targets.
type clusterOptions struct {
	kubeconfig string
	allNodes   bool
	fleet      bool
	noFlush    bool
	withdraw   bool
	taintNode  bool
	prefix     string  // of Koordinator's resources
	minChange  float64 // in percent
	minAge     time.Duration
	growAge    time.Duration
	resync     time.Duration
	staleAfter time.Duration
}

func (o *clusterOptions) flags(f *stage.Flags) {
	f.Category("Cluster, for --to cnr, --to node and --to nodemetric")
	f.Path(&o.kubeconfig, "kubeconfig", "", "the cluster of `FILE` (default: the one whose pod report runs in)")
	f.Float(&o.minChange, "min-change", 5, "write an amount that has grown by at least this many percent; one that has shrunk by 1 percent always is, and at once")
	f.Duration(&o.growAge, "grow-interval", 7*time.Minute, "write more only so long after an object's amounts have moved, either way (0 is at once)")
	f.Duration(&o.minAge, "min-interval", 10*time.Minute, "write an amount that has shrunk by less than 1 percent when the last write is so long ago")
	f.Duration(&o.resync, "resync", 10*time.Minute, "write at least this often, whatever has changed (0 is never)")
	f.Duration(&o.staleAfter, "stale-after", 3*time.Minute, "withdraw an amount that no tick has confirmed for so long")
	f.String(&o.prefix, "resource-prefix", object.Prefix, "node: what comes before Koordinator's batch-cpu, batch-memory, mid-cpu and mid-memory: kubernetes.io, or koordinator.sh as in v0.1")
	f.Bool(&o.allNodes, "all-nodes", "write the objects of every node that ticks name, not of --node alone")
	f.Bool(&o.taintNode, "taint-node", "put evict's taints on the Node, too, where they hold for every pod")
	f.Bool(&o.fleet, "fleet", "write what the centre has to say of every node (collect --fleet, evict --fleet); implies --all-nodes")
	f.Bool(&o.noFlush, "no-flush", "with --fleet: write nothing more when the input ends, for a live one that ends with a lost lease")
	f.Bool(&o.withdraw, "withdraw", "take away what was written to the cluster, from --node or with --all-nodes from all of them, and end")
}

func (o *clusterOptions) check(s *stage.Session) error {
	switch {
	case o.prefix != object.Prefix && o.prefix != object.OldPrefix:
		return stage.Usagef("--resource-prefix %q: want %s or %s", o.prefix, object.Prefix, object.OldPrefix)
	case !(o.minChange >= 0 && o.minChange <= 100):
		return stage.Usagef("--min-change %v: want percent, 0 to 100", o.minChange)
	case o.staleAfter == 0:
		return stage.Usagef("--stale-after 0: want a time span after which nothing is offered any more")
	case o.noFlush && !o.fleet:
		return stage.Usagef("--no-flush goes with --fleet alone: give both")
	case o.fleet && s.IsSet("node"):
		return stage.Usagef("--node and --fleet exclude each other: the centre is for all nodes")
	case o.fleet && o.taintNode:
		return stage.Usagef("--taint-node and --fleet exclude each other: the centre taints nodes for reclaimed pods alone")
	case o.allNodes && s.IsSet("node"):
		return stage.Usagef("--node and --all-nodes exclude each other: give one of them")
	}
	o.allNodes = o.allNodes || o.fleet
	if o.allNodes {
		s.Node = ""
	}
	return nil
}

func (o *clusterOptions) rules() object.Rules {
	return object.Rules{MinChange: o.minChange / 100, MinInterval: o.minAge, Resync: o.resync}
}

// given are the rules that the user has set.
func given(s *stage.Session) object.Given {
	return object.Given{MinChange: s.IsSet("min-change"), MinInterval: s.IsSet("min-interval"), Resync: s.IsSet("resync")}
}

// seen is an object as the cluster has it, with the parts that matter here.
type seen struct {
	name, uid, version string
	object             kube.Object
}

func see(o kube.Object) *seen {
	metadata, _ := o["metadata"].(kube.Object)
	text := func(key string) string { s, _ := metadata[key].(string); return s }
	x := &seen{name: text("name"), uid: text("uid"), version: text("resourceVersion"), object: kube.Object{}}
	x.object["metadata"] = kube.Object{"annotations": metadata["annotations"], "ownerReferences": metadata["ownerReferences"]}
	if _, ok := o["spec"].(kube.Object); ok { // an empty one is not the same to a patch as none
		x.object["spec"] = part(o, "spec", "taints")
	}
	if _, ok := o["status"].(kube.Object); ok {
		keys := []string{"capacity", "allocatable", "resourceCapacity", "resourceAllocatable", "resources", "topologyZone"}
		if o["kind"] == object.CNRKind { // a Node's are many, and never still
			keys = append(keys, "conditions")
		}
		x.object["status"] = part(o, "status", keys...)
	}
	return x
}

// part is an object's part with the keys alone: a node's status has a hundred image names.
func part(o kube.Object, name string, keys ...string) kube.Object {
	all, _ := o[name].(kube.Object)
	some := kube.Object{}
	for _, k := range keys {
		if v, ok := all[k]; ok {
			some[k] = v
		}
	}
	return some
}

// cluster is the connection that the targets share.
type cluster struct {
	client      *kube.Client
	nodes, cnrs *kube.Watch[*seen]
	stop        context.CancelFunc
	users       int
}

// connect opens the cluster for one more target.
func (o *options) connect(ctx context.Context, s *stage.Session) (*cluster, error) {
	if o.shared == nil {
		if api := s.Metrics.API(); api != nil {
			kube.Observe(api)
		}
		client, err := o.cluster.open()
		if err != nil {
			return nil, err
		}
		ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
		o.shared = &cluster{client: client, stop: stop}
		o.shared.nodes = kube.Start(ctx, client, selection(kube.Nodes, s.Node), s.Now, see)
		if o.wants("cnr") || o.cluster.fleet {
			o.shared.cnrs = kube.Start(ctx, client, selection(kube.CustomNodeResources, s.Node), s.Now, see)
		}
	}
	o.shared.users++
	return o.shared, nil
}

func (o *clusterOptions) open() (*kube.Client, error) {
	options := kube.Options{Kubeconfig: o.kubeconfig, UserAgent: manager, Timeout: requestLimit}
	if o.allNodes {
		options.QPS = -1 // the number of writes at a time is bounded, and the server knows how to defend itself
	}
	client, err := kube.Open(options)
	if err != nil {
		return nil, stage.Usagef("%w", err)
	}
	return client, nil
}

// selection is the one object of the node's name, or all of them.
func selection(r kube.Resource, node string) kube.Selection {
	s := kube.Selection{Resource: r}
	if node != "" {
		s.Fields = "metadata.name=" + node
	}
	return s
}

func (c *cluster) leave() {
	if c.users--; c.users == 0 {
		c.stop()
	}
}

// The permissions that report needs, for its errors.
const permissions = "report's role needs nodes: get, list, watch; nodes/status: patch; customnoderesources: get, list, watch, create, patch; customnoderesources/status: patch; with --taint-node or --fleet also nodes: patch; for --to nodemetric nodes: get; nodemetrics: create; nodemetrics/status: patch; for --to kcc katalystcustomconfigs: get; katalystcustomconfigs/status: patch"

// longestError is about what a person reads.
const longestError = 600

// explain says what to do about an error of the API server.
func explain(r kube.Resource, err error) error {
	text := err.Error()
	if len(text) > longestError {
		text = strings.ToValidUTF8(text[:longestError], "") + "…"
	}
	ours := map[kube.Resource]string{kube.CustomNodeResources: object.CNRKind, kube.NodeMetrics: object.NodeMetricKind}[r]
	switch cnr := ours != ""; {
	case cnr && kube.IsNotFound(err):
		return fmt.Errorf("%s (does the cluster have the kind %s? Install the CRDs: kubectl apply --server-side -f deploy/kubernetes/crds)", text, ours)
	case kube.IsForbidden(err):
		return fmt.Errorf("%s (%s)", text, permissions)
	case cnr && (kube.IsInvalid(err) || strings.Contains(text, "field not declared in schema")):
		return fmt.Errorf("%s (is the CRD of another release? Install this one's: kubectl apply --server-side -f deploy/kubernetes/crds)", text)
	}
	return fmt.Errorf("%s", text)
}

// hopeless reports whether asking again soon is no use: somebody has to do something first.
func hopeless(err error) bool {
	return kube.IsNotFound(err) || kube.IsForbidden(err) || kube.IsInvalid(err) || strings.Contains(err.Error(), "field not declared in schema")
}
