package source

import (
	"fmt"
	"path/filepath"
	"slices"

	"polder/lib/cgroup"
	"polder/lib/kernfile"
	"polder/lib/kubepods"
	"polder/lib/tick"
)

// findBatch updates the list of the cgroups that contain reclaimed pods and nothing else, outermost first. The root and kubelet's cgroups
// are never in it, nor a cgroup whose contents could not be read.
func (t *tree) findBatch() {
	t.batch = t.batch[:0]
	if root := t.nodes["/"]; root != nil {
		t.containsOnlyBatch(root, t.kubelets())
	}
	slices.Sort(t.batch) // a cgroup comes before what is below it
}

// containsOnlyBatch reports whether a cgroup contains at least one reclaimed pod, and nothing else. It adds such cgroups to the list.
func (t *tree) containsOnlyBatch(n *node, kubelets []string) bool {
	if n.isPod() {
		return n.isBatch()
	}
	only := len(n.children)+len(n.unnamed) > 0 && !n.hasOthers
	for _, child := range n.children {
		if !t.containsOnlyBatch(child, kubelets) {
			only = false
		}
	}
	if !only || n.parent == nil || isRelatedTo(n.path, kubelets) {
		return false
	}
	other, err := t.containsOther(n)
	if err != nil && !cgroup.IsGone(err) {
		t.errs = append(t.errs, fmt.Errorf("check whether %s contains only reclaimed pods: %w", n.path, err))
	}
	if other || err != nil {
		return false
	}
	t.batch = append(t.batch, n.path)
	return true
}

// containsOther reports whether a cgroup has, or may have, processes of its own, or, in the hierarchy of the cpu controller, children that
// are not nodes.
func (t *tree) containsOther(n *node) (bool, error) {
	if t.h.Version("cpu") == 0 {
		return true, nil // no scheduling class can be set either
	}
	names, err := t.h.Children("cpu", n.path)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(names, func(name string) bool {
		return n.children[name] == nil && !slices.Contains(n.unnamed, name)
	}) {
		return true, nil
	}
	dir, _, err := t.h.Dir("cpu", n.path)
	if err != nil {
		return false, err
	}
	processes, err := kernfile.Read(filepath.Join(dir, "cgroup.procs"), nil)
	if err != nil {
		return false, err
	}
	return len(processes) > 0 || t.h.MayHideTasks("cpu", n.path), nil
}

// hasNewBatch is [Collector.HasNewBatch].
func (t *tree) hasNewBatch() bool {
	kubelets := t.kubelets()
	isOutside := func(parent string) bool {
		return !slices.ContainsFunc(kubelets, func(root string) bool { return tick.IsWithin(parent, root) })
	}
	if t.watcher == nil || !t.watcher.HasChange(isOutside) {
		return false
	}
	t.newBatch = false
	t.update(false)
	return t.newBatch
}

// isCovered reports whether a new reclaimed pod has the scheduling class of a cgroup above it from its start, or is kubelet's.
func (t *tree) isCovered(n *node) bool {
	if t.isKubelets(n.path) {
		return true
	}
	for above := n.parent; above != nil; above = above.parent {
		if above.isBatch() || slices.Contains(t.batch, above.path) {
			return true
		}
	}
	return false
}

// kubelets are the cgroups that kubelet writes, whichever of its drivers made them, without those below them.
func (t *tree) kubelets() []string {
	cgroupfs, systemd := kubepods.Roots(t.env.CgroupRoot)
	return []string{cgroupfs, systemd}
}

// isKubelets reports whether a cgroup is below those of the kubelet with the configured cgroupRoot.
func (t *tree) isKubelets(cgroup string) bool {
	return slices.ContainsFunc(t.kubelets(), func(root string) bool { return tick.IsBelow(cgroup, root) })
}

// isRelatedTo reports whether a cgroup is one of the others, above one of them, or below one.
func isRelatedTo(path string, others []string) bool {
	return slices.ContainsFunc(others, func(other string) bool {
		return tick.IsWithin(path, other) || tick.IsWithin(other, path)
	})
}
