package main

import (
	"context"
	"errors"
	"time"

	"polder/collect/kubernetes"
	"polder/collect/kubernetes/live"
	"polder/collect/source"
	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
)

// clusterOptions are the flags that say what is known of a cluster.
type clusterOptions struct {
	kubeconfig, pods       string
	inCluster              bool
	cgroupRoot, bestEffort string
	annotations            []string
}

func (o *clusterOptions) flags(f *stage.Flags) {
	f.Category("Cluster")
	f.Path(&o.kubeconfig, "kubeconfig", "", "watch the node and its pods in the cluster that `FILE` names")
	f.Bool(&o.inCluster, "in-cluster", "watch them in the cluster that collect runs in, as its pod's service account")
	f.Path(&o.pods, "pods", "", "take the pods from `FILE`, as kubectl get pods -o json prints them, read again when it changes")
	f.Path(&o.cgroupRoot, "cgroup-root", "", "kubelet's cgroupRoot: kubepods are below this `CGROUP` (changes the default rules of classification)")
	f.Choice(&o.bestEffort, "best-effort", tick.QoSShared, "class of Kubernetes' BestEffort pods without a dialect's mark: Katalyst takes them for shared, Koordinator for reclaimed", tick.QoSShared, tick.QoSReclaimed)
	f.Strings(&o.annotations, "keep-annotation", "pass the pods' annotation `KEY` on too, beside the dialects' and polder/evict; may be repeated")
}

// annotationEvict is the key by which evict keeps pods unless it is told another.
const annotationEvict = "polder/evict"

// How long the first tick waits for the cluster. A run that writes one tick alone has no later one that knows more.
const (
	waitOnce = 10 * time.Second
	waitLoop = 2 * time.Second
)

// given reports whether there is a cluster to ask.
func (o *clusterOptions) given() bool { return o.kubeconfig != "" || o.inCluster || o.pods != "" }

// open begins to watch the cluster, nil where none is given.
func (o *clusterOptions) open(ctx context.Context, s *stage.Session, node string, once bool) (source.Cluster, error) {
	given := 0
	for _, is := range []bool{o.kubeconfig != "", o.inCluster, o.pods != ""} {
		if is {
			given++
		}
	}
	switch {
	case given == 0:
		return nil, nil
	case given > 1:
		return nil, errors.New("--kubeconfig, --in-cluster and --pods: want one of them")
	}
	reading := kubernetes.Reading{BestEffort: o.bestEffort, Annotations: append([]string{annotationEvict}, o.annotations...)}
	if o.pods != "" {
		return opened(live.OpenFile(ctx, o.pods, node, reading, s.Log, s.Now))
	}
	if api := s.Metrics.API(); api != nil {
		kube.Observe(api)
	}
	c, err := live.Open(ctx, live.Options{
		Kubeconfig: o.kubeconfig, Node: node, UserAgent: "polder-collect/" + stage.Version, Reading: reading, Now: s.Now, Log: s.Log,
	})
	if err != nil {
		return nil, err
	}
	wait := waitLoop
	if once {
		wait = waitOnce
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	c.Wait(waiting)
	return c, nil
}

// opened keeps a nil pointer from becoming an interface that is not nil.
func opened(f *live.File, err error) (source.Cluster, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}
