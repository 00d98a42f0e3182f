package kubernetes

import (
	"fmt"
	"slices"

	"polder/lib/fields"
	"polder/lib/qos"
	"polder/lib/tick"
)

// Node is what is kept of the node object.
type Node struct {
	Name                  string
	Capacity, Allocatable *tick.Resources
	// Labels and Annotations are those that are passed on; selectors are matched against AllLabels.
	Labels, Annotations, AllLabels map[string]string
	// Problems are the errors in the object.
	Problems []string
}

// NodeOf reads a node object.
func NodeOf(o object) *Node {
	n := &Node{Name: fields.Text(o, "metadata", "name"), AllLabels: fields.TextMap(o, "metadata", "labels")}
	complain := func(problem string) {
		if len(n.Problems) < maxProblems {
			n.Problems = append(n.Problems, problem)
		}
	}
	own := marks{n.AllLabels, fields.TextMap(o, "metadata", "annotations")}.passedOn(nodeRanks{}, complain)
	n.Labels, n.Annotations = own.labels, own.annotations
	n.Capacity = nodeResources(o, "capacity", complain)
	n.Allocatable = nodeResources(o, "allocatable", complain)
	return n
}

// nodeNames are the resources that are read from a node object: its own, and those published under Koordinator's names. Those under
// Katalyst's names are Polder's own output, and no input.
var nodeNames = slices.Concat([]string{"cpu", "memory"}, qos.BatchCPU, qos.BatchMemory, midCPU, midMemory)

func nodeResources(o object, which string, complain func(string)) *tick.Resources {
	all := fields.Child(o, "status", which)
	own := object{}
	for _, name := range nodeNames {
		if v, ok := all[name]; ok {
			own[name] = v
		}
	}
	l := readList(own, fmt.Sprintf("status.%s", which), complain)
	return l.resources()
}
