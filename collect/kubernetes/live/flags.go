package live

import (
	"time"

	"polder/collect/kubernetes"
	"polder/lib/stage"
	"polder/lib/tick"
)

// How long the first tick waits for the cluster. A run that writes one tick alone has no later one that knows more.
const (
	WaitOnce = 10 * time.Second
	WaitLoop = 2 * time.Second
)

// ReadingFlags are the flags that say how pods are read, whether they are of one node or of all.
type ReadingFlags struct {
	bestEffort       string
	annotations      []string
	systemNamespaces []string
}

// Add adds the flags.
func (r *ReadingFlags) Add(f *stage.Flags) {
	f.Choice(&r.bestEffort, "best-effort", tick.QoSShared, "class of BestEffort pods\nA mark of Katalyst or Koordinator on the pod comes first. Katalyst takes those without one for shared, Koordinator for reclaimed.", tick.QoSShared, tick.QoSReclaimed)
	f.Strings(&r.systemNamespaces, "system-namespace", "pods here may be of class system (default kube-system)\nPods of the system class are neither confined nor evicted. The option may be repeated.")
	f.Strings(&r.annotations, "keep-annotation", "pass the pods' annotation `KEY` on, too\nKatalyst's, Koordinator's and polder/evict are passed on without it. The option may be repeated.")
}

// annotationEvict is the key by which evict does not evict pods, unless a flag names another one.
const annotationEvict = "polder/evict"

// Reading is how pods are read.
func (r *ReadingFlags) Reading() kubernetes.Reading {
	return kubernetes.Reading{
		BestEffort: r.bestEffort, Annotations: append([]string{annotationEvict}, r.annotations...),
		SystemNamespaces: r.systemNamespaces,
	}
}
