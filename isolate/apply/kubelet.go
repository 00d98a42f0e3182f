package apply

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"polder/isolate/plan"
	"polder/lib/cpumanager"
	"polder/lib/cpus"
	"polder/lib/kubepods"
	"polder/lib/tick"
)

// kubeletReading is the last state that was read of kubelet.
type kubeletReading struct {
	state *cpumanager.State
	err   string
}

// rootSearchInterval is the number of rounds after which kubelet's root cgroups are searched again, even if its state is the same: kubelet
// creates them after it has written its state, which it may even have from before the last boot.
const rootSearchInterval = 10

// maxEarlierDefaults is the number of kubelet's earlier default lists that are remembered.
const maxEarlierDefaults = 4

// readKubelet reads which CPUs kubelet assigned. If they changed, the items are made again.
func (a *Applier) readKubelet() {
	if a.Kubelet == nil {
		return
	}
	var current kubeletReading
	var err error
	if current.state, err = a.Kubelet.Read(); err != nil {
		current.err = err.Error()
	}
	if current == a.kubelet {
		a.searchRootsAgain()
		return
	}
	a.kubelet, a.machineChanged = current, true
	switch {
	case err != nil:
		a.Log.Warn("kubelet's CPU manager state was not read; no cpuset of kubelet is written until it is", "error", err)
		unknown := &plan.Kubelet{UnknownReason: current.err}
		if k := a.machine.Kubelet; k != nil { // its exclusive CPUs stay reserved meanwhile
			unknown.Exclusive, unknown.EarlierDefaults = k.Exclusive, append([]cpus.Set{k.Default}, k.EarlierDefaults...)
		}
		a.machine.Kubelet = unknown
	case current.state == nil:
		a.Log.Info("kubelet no longer has a CPU manager state")
		a.machine.Kubelet = nil
	default:
		a.Log.Info("read kubelet's CPU manager state", "policy", current.state.Policy, "exclusiveCPUs", current.state.Exclusive.String())
		k := kubeletOf(current.state)
		if last := a.machine.Kubelet; last != nil {
			k.EarlierDefaults = append([]cpus.Set{last.Default}, last.EarlierDefaults...)
			k.EarlierDefaults = k.EarlierDefaults[:min(len(k.EarlierDefaults), maxEarlierDefaults)]
		}
		a.machine.Kubelet = k
	}
	if k := a.machine.Kubelet; k != nil {
		k.Roots, a.rootSearchIn = a.kubeletRoots(), rootSearchInterval
	}
}

// searchRootsAgain searches kubelet's root cgroups after [rootSearchInterval] rounds. If they changed, the items are made again. Under the
// policy "none" nothing depends on them.
func (a *Applier) searchRootsAgain() {
	k := a.machine.Kubelet
	if k == nil || k.UnknownReason == "" && !k.WritesLists {
		return
	}
	if a.rootSearchIn--; a.rootSearchIn > 0 {
		return
	}
	a.rootSearchIn = rootSearchInterval
	if roots := a.kubeletRoots(); !slices.Equal(roots, k.Roots) {
		k.Roots, a.machineChanged = roots, true
	}
}

func kubeletOf(s *cpumanager.State) *plan.Kubelet {
	k := &plan.Kubelet{
		WritesLists: s.Policy != cpumanager.PolicyNone, Policy: s.Policy, Default: s.Default, Exclusive: s.Exclusive,
		Pods: map[string]cpus.Set{}, Containers: map[string]cpus.Set{},
	}
	for _, g := range s.Assignments {
		if g.PodUID == "" {
			k.Containers[g.Container] = g.CPUs
			continue
		}
		uid := kubepods.NormalUID(g.PodUID)
		k.Pods[uid] = k.Pods[uid].Union(g.CPUs)
	}
	return k
}

// maxRootDepth is the maximum depth at which kubelet's root cgroup is searched: --cgroup-root may put it below other cgroups.
const maxRootDepth = 4

// kubeletRoots finds the cgroups under which kubelets create their pods. Those of another user than the hierarchy's owner are skipped:
// whoever may create cgroups in a part that is delegated could create one named like kubelet's, and the cgroups above it, which other
// batch shares, would not be narrowed.
func (a *Applier) kubeletRoots() []string {
	var roots []string
	top := plan.File{Controller: "cpuset", Cgroup: "/"}
	owner, errOwner := a.stat(top)
	var walk func(f plan.File, depth int)
	walk = func(f plan.File, depth int) {
		if depth > maxRootDepth {
			return
		}
		for _, child := range a.children(f) {
			switch st, err := a.stat(child); {
			case err == nil && errOwner == nil && st.Uid != owner.Uid:
			case kubepods.Of(child.Cgroup).Level == kubepods.Root:
				roots = append(roots, child.Cgroup)
			default:
				walk(child, depth+1)
			}
		}
	}
	walk(top, 0)
	return roots
}

// narrowedLists returns the settings that restore the original values of lists that were narrowed before kubelet's CPU manager was enabled,
// and that would now prevent its containers from starting.
func (a *Applier) narrowedLists() []plan.Setting {
	k := a.machine.Kubelet
	if k == nil {
		return nil
	}
	var out []plan.Setting
	for _, f := range sortedFiles(a.records) {
		rec := a.records[f]
		version := a.machine.Versions[f.Controller]
		if !k.MustRestore(f, version) || len(rec.Written) == 0 || rec.Original == "" || rec.Inode != a.inode(f) {
			continue
		}
		observed, err := a.Hierarchy.ReadFile(f.Controller, f.Cgroup, f.Name)
		if err != nil || !rec.isOurs(f.Name, observed) {
			continue
		}
		if s, err := plan.RestoreSetting(f, rec.Key, rec.Original, version); err == nil {
			out = append(out, s)
		}
	}
	return out
}

func sortedFiles[V any](files map[plan.File]V) []plan.File {
	return slices.SortedFunc(maps.Keys(files), func(x, y plan.File) int {
		return cmp.Or(cmp.Compare(x.Cgroup, y.Cgroup), cmp.Compare(x.Controller, y.Controller), cmp.Compare(x.Name, y.Name),
			cmp.Compare(x.Device, y.Device))
	})
}

// hasExclusiveCPUs reports whether a container must not be changed because it runs on CPUs that kubelet assigned exclusively.
func (a *Applier) hasExclusiveCPUs(it *item, r *round) bool {
	reason := it.ExclusiveReason()
	if reason == "" {
		return false
	}
	r.fail(tick.IsolationError{Cgroup: it.Cgroup, Key: it.Key, Error: reason})
	return true
}

// A container runtime creates a cgroup of version 1 without CPUs and then copies its parent's list. If the parent was
// narrowed in between, the copy fails and the container does not start. So a narrowing waits while a child has no list
// yet, for at most maxChildWait, because some cgroups never get one.
const (
	maxChildWait  = 5 * time.Millisecond
	childWaitStep = 200 * time.Microsecond
)

func (a *Applier) waitForChildren(w plan.Write, old string) {
	if w.Controller != "cpuset" || a.machine.Versions["cpuset"] != 1 || !isNarrower(old, w.New) {
		return
	}
	for waited := time.Duration(0); waited < a.maxChildWait && a.hasUnfinishedChild(w.File); waited += childWaitStep {
		time.Sleep(childWaitStep)
	}
}

func isNarrower(old, newText string) bool {
	x, errX := cpus.Parse(old)
	y, errY := cpus.Parse(newText)
	return errX == nil && errY == nil && !x.IsSubsetOf(y)
}

// hasUnfinishedChild reports whether a child of the cgroup has no list yet, because a container runtime is creating it.
func (a *Applier) hasUnfinishedChild(f plan.File) bool {
	return slices.ContainsFunc(a.children(f), func(child plan.File) bool {
		text, err := a.Hierarchy.ReadFile(child.Controller, child.Cgroup, child.Name)
		return err == nil && text == ""
	})
}
