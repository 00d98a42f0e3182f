package source

import (
	"errors"

	"polder/collect/kubernetes"
	"polder/lib/customconfig"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Cluster is the observed state of the cluster. Its lists change concurrently with the rounds; a version shows that they have.
// An error is about the value that is returned with it.
type Cluster interface {
	PodsVersion() uint64
	Pods() []*kubernetes.Pod
	PodsError() error
	// Node is nil where it is not known.
	Node() (*kubernetes.Node, error)
	// Config is the configuration in force for the node, nil where there is none.
	Config() (tick.Raw, error)
	SaveConfig() map[string]*customconfig.Chosen
	LoadConfig(map[string]*customconfig.Chosen)
	SaveStrategies() *sloconfig.Saved
	LoadStrategies(*sloconfig.Saved)
}

// Node is the node object of the cluster. Its values replace the machine's own.
var Node = Source{
	Name: "node",
	Doc:  "capacity, allocatable, labels and annotations of the node object",
	New:  func(e *Env) Reader { return &nodeReader{cluster: e.Cluster} },
}

type nodeReader struct{ cluster Cluster }

func (n *nodeReader) Read(r *Round) error {
	if n.cluster == nil {
		return nil
	}
	node, err := n.cluster.Node()
	if node == nil {
		if err != nil {
			r.Sample.Allocatable = nil // the node object says that, and was never read
		}
		return err
	}
	s := r.Sample
	if node.Capacity != nil {
		s.Capacity = node.Capacity
	}
	s.Allocatable = node.Allocatable // absent there means that it is unknown
	s.Labels, s.Annotations = node.Labels, node.Annotations
	if len(node.Problems) == 0 {
		return err
	}
	errs := []error{}
	if err != nil {
		errs = append(errs, err)
	}
	for _, problem := range node.Problems {
		errs = append(errs, errors.New(problem))
	}
	return errors.Join(errs...)
}

// Config is the configuration from the cluster's objects, as resolved for this node.
var Config = Source{
	Name: "config",
	Doc:  "the configuration that Katalyst's custom configuration objects and Koordinator's ConfigMap put in force",
	New:  func(e *Env) Reader { return &configReader{cluster: e.Cluster} },
}

type configReader struct{ cluster Cluster }

func (c *configReader) Read(r *Round) (err error) {
	if c.cluster != nil {
		r.Sample.Config, err = c.cluster.Config()
	}
	return err
}

func (c *configReader) Save(s *State) {
	if c.cluster != nil {
		s.Config, s.Strategies = c.cluster.SaveConfig(), c.cluster.SaveStrategies()
	}
}

func (c *configReader) Load(*State) {} // see Collector.Load: it stays valid over a reboot
