package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
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
	systemNamespaces       []string
	sloConfig              string
}

func (o *clusterOptions) flags(f *stage.Flags) {
	f.Category("Cluster")
	f.Path(&o.kubeconfig, "kubeconfig", "", "watch the node and its pods in the cluster that `FILE` names")
	f.Bool(&o.inCluster, "in-cluster", "watch them in the cluster that collect runs in\nIt takes the service account of its pod.")
	f.Path(&o.pods, "pods", "", "take the pods from `FILE`, printed by kubectl get pods -o json\nIt is read again when it changes.")
	f.Path(&o.cgroupRoot, "cgroup-root", "", "kubelet's cgroupRoot: kubepods are below this `CGROUP`\nIt changes the default rules of classification.")
	f.Choice(&o.bestEffort, "best-effort", tick.QoSShared, "class of BestEffort pods\nA mark of Katalyst or Koordinator on the pod comes first. Katalyst takes those without one for shared, Koordinator for reclaimed.", tick.QoSShared, tick.QoSReclaimed)
	f.Strings(&o.systemNamespaces, "system-namespace", "pods here may be of class system (default kube-system)\nPods of the system class are neither confined nor evicted. The option may be repeated.")
	f.String(&o.sloConfig, "slo-config", "", "follow Koordinator's ConfigMap `NAMESPACE/NAME`\nIt is usually koordinator-system/slo-controller-config.")
	f.Strings(&o.annotations, "keep-annotation", "pass the pods' annotation `KEY` on, too\nKatalyst's, Koordinator's and polder/evict are passed on without it. The option may be repeated.")
}

// annotationEvict is the key by which evict keeps pods unless it is told another.
const annotationEvict = "polder/evict"

// How long the first tick waits for the cluster. A run that writes one tick alone has no later one that knows more.
const (
	waitOnce = 10 * time.Second
	waitLoop = 2 * time.Second
)

// reading is how pods are read.
func (o *clusterOptions) reading() kubernetes.Reading {
	return kubernetes.Reading{BestEffort: o.bestEffort, Annotations: append([]string{annotationEvict}, o.annotations...), SystemNamespaces: o.systemNamespaces}
}

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
	case o.sloConfig != "" && o.kubeconfig == "" && !o.inCluster:
		return nil, errors.New("--slo-config goes with --kubeconfig or --in-cluster")
	case given == 0:
		return nil, nil
	case given > 1:
		return nil, errors.New("--kubeconfig, --in-cluster and --pods: want one of them")
	}
	slo, err := o.slo()
	if err != nil {
		return nil, err
	}
	reading := o.reading()
	if o.pods != "" {
		return opened(live.OpenFile(ctx, o.pods, node, reading, s.Log, s.Now))
	}
	if api := s.Metrics.API(); api != nil {
		kube.Observe(api)
	}
	c, err := live.Open(ctx, live.Options{
		Kubeconfig: o.kubeconfig, Node: node, UserAgent: "polder-collect/" + stage.Version, Reading: reading, SLO: slo, Now: s.Now, Log: s.Log,
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

// objectName is how the API server has names.
var objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// slo is the name of the ConfigMap, nil where none is given.
func (o *clusterOptions) slo() (*live.SLOConfig, error) {
	if o.sloConfig == "" {
		return nil, nil
	}
	namespace, name, ok := strings.Cut(o.sloConfig, "/")
	if !ok || !objectName.MatchString(namespace) || !objectName.MatchString(name) {
		return nil, fmt.Errorf("--slo-config %q: want NAMESPACE/NAME, as in koordinator-system/slo-controller-config", o.sloConfig)
	}
	return &live.SLOConfig{Namespace: namespace, Name: name}, nil
}

// opened keeps a nil pointer from becoming an interface that is not nil.
func opened(f *live.File, err error) (source.Cluster, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}
