package live

import (
	"time"

	"polder/collect/kubernetes"
	"polder/lib/stage"
	"polder/lib/tick"
)

// How long the first tick waits for the cluster. It may be longer in a run that writes only one tick.
const (
	WaitOnce = 10 * time.Second
	WaitLoop = 2 * time.Second
)

// ReadingFlags are the flags that set how pods are read, whether they are of one node or of all.
type ReadingFlags struct {
	bestEffort       string
	annotations      []string
	systemNamespaces []string
}

// Add adds the flags.
func (r *ReadingFlags) Add(f *stage.Flags) {
	f.Choice(&r.bestEffort, "best-effort", tick.QoSShared, "class of BestEffort pods\nA label or annotation of Katalyst or Koordinator comes first. Without one Katalyst counts them as shared, Koordinator as reclaimed.", tick.QoSShared, tick.QoSReclaimed)
	f.Strings(&r.systemNamespaces, "system-namespace", "pods here may be of class system (default kube-system)\nPods of the system class are neither confined nor evicted. The option may be repeated.")
	f.Strings(&r.annotations, "keep-annotation", "also pass on the pods' annotation `KEY`\nKatalyst's, Koordinator's and polder/evict are always passed on. The option may be repeated.")
}

// Reading returns the settings by which pods are read.
func (r *ReadingFlags) Reading() kubernetes.Reading {
	return kubernetes.Reading{
		BestEffort: r.bestEffort, Annotations: append([]string{tick.AnnotationEvict}, r.annotations...),
		SystemNamespaces: r.systemNamespaces,
	}
}
