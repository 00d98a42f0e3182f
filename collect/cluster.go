package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"polder/collect/kubernetes"
	"polder/collect/kubernetes/live"
	"polder/collect/source"
	"polder/lib/kube"
	"polder/lib/stage"
)

// clusterOptions are the flags that select a cluster and what is read of it.
type clusterOptions struct {
	kubeconfig, pods string
	inCluster        bool
	cgroupRoot       string
	reading          live.ReadingFlags
	sloConfig        string
}

func (o *clusterOptions) flags(f *stage.Flags) {
	f.Category("Cluster")
	f.Path(&o.kubeconfig, "kubeconfig", "", "watch the node and its pods in the cluster that `FILE` names")
	f.Bool(&o.inCluster, "in-cluster", "watch them in the cluster that collect runs in\nIt takes the service account of its pod.")
	f.Path(&o.pods, "pods", "", "take the pods from `FILE`, printed by kubectl get pods -o json\nIt is read again when it changes.")
	f.Path(&o.cgroupRoot, "cgroup-root", "", "kubelet's cgroupRoot: kubepods are below this `CGROUP`\nIt changes the default rules of classification.")
	f.String(&o.sloConfig, "slo-config", "", "follow Koordinator's ConfigMap `NAMESPACE/NAME`\nIt is usually koordinator-system/slo-controller-config.")
	o.reading.Add(f)
}

// given reports whether a flag names a cluster or a file of pods.
func (o *clusterOptions) given() bool { return o.kubeconfig != "" || o.inCluster || o.pods != "" }

// open begins to watch the cluster. It returns nil where none is given.
func (o *clusterOptions) open(ctx context.Context, s *stage.Session, node string, once bool) (source.Cluster, error) {
	given := 0
	for _, is := range []bool{o.kubeconfig != "", o.inCluster, o.pods != ""} {
		if is {
			given++
		}
	}
	switch {
	case o.sloConfig != "" && o.kubeconfig == "" && !o.inCluster:
		return nil, stage.Usagef("--slo-config needs --kubeconfig or --in-cluster")
	case given == 0:
		return nil, nil
	case given > 1:
		return nil, stage.Usagef("--kubeconfig, --in-cluster and --pods: want one of them")
	}
	slo, err := o.slo()
	if err != nil {
		return nil, stage.Usagef("%w", err)
	}
	reading := o.reading.Reading()
	if o.pods != "" { // no usage error: the program that writes the file may just be writing it
		return opened(live.OpenFile(ctx, o.pods, node, reading, s.Log, s.Now))
	}
	if api := s.Metrics.API(); api != nil {
		kube.Observe(api)
	}
	c, err := live.Open(ctx, live.Options{
		Kubeconfig: o.kubeconfig, Node: node, UserAgent: "polder-collect/" + stage.Version, Reading: reading, SLO: slo, Now: s.Now, Log: s.Log,
	})
	if err != nil {
		return nil, stage.Usagef("%w", err)
	}
	wait := live.WaitLoop
	if once {
		wait = live.WaitOnce
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	c.Wait(waiting)
	return bounded{c}, nil
}

// bounded is a cluster of which a tick has room for all that tenants write of their pods.
type bounded struct{ source.Cluster }

// Pods are asked for when they or the cgroups have changed, not for each tick.
func (b bounded) Pods() []*kubernetes.Pod { return kubernetes.Within(b.Cluster.Pods()) }

// objectName is the form of the names that the API server accepts.
var objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// slo parses --slo-config. It returns nil where the flag is not set.
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
	return bounded{f}, nil
}
