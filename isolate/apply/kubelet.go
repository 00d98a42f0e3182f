package apply

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"time"

	"polder/isolate/plan"
	"polder/lib/cpumanager"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// kubeletSeen is the last state that was read of kubelet.
type kubeletSeen struct {
	state *cpumanager.State
	err   string
}

// keepDefaults is the number of kubelet's earlier default lists that are remembered.
const keepDefaults = 4

// readKubelet reads which CPUs kubelet assigned. If they changed, the program is made again.
func (a *Applier) readKubelet() {
	if a.Kubelet == nil {
		return
	}
	var now kubeletSeen
	var err error
	if now.state, err = a.Kubelet.Read(); err != nil {
		now.err = err.Error()
	}
	if now == a.kubelet {
		return
	}
	a.kubelet, a.rootChanged = now, true
	switch {
	case err != nil:
		a.Log.Warn("no cpuset of kubelet's is written until its state can be read", "error", err)
		unknown := &plan.Kubelet{Unknown: now.err}
		if k := a.machine.Kubelet; k != nil { // its exclusive CPUs stay reserved meanwhile
			unknown.Exclusive, unknown.Before = k.Exclusive, append([]cpus.Set{k.Default}, k.Before...)
		}
		a.machine.Kubelet = unknown
	case now.state == nil:
		a.Log.Info("there is no kubelet any more")
		a.machine.Kubelet = nil
	default:
		a.Log.Info("kubelet's CPU manager", "policy", now.state.Policy, "exclusiveCPUs", now.state.Exclusive.String())
		k := kubeletOf(now.state)
		if was := a.machine.Kubelet; was != nil {
			k.Before = append([]cpus.Set{was.Default}, was.Before...)
			k.Before = k.Before[:min(len(k.Before), keepDefaults)]
		}
		a.machine.Kubelet = k
	}
	if k := a.machine.Kubelet; k != nil {
		k.Roots = a.kubeletRoots()
	}
}

func kubeletOf(s *cpumanager.State) *plan.Kubelet {
	k := &plan.Kubelet{
		Sets: s.Policy != cpumanager.PolicyNone, Policy: s.Policy, Default: s.Default, Exclusive: s.Exclusive,
		Pods: map[string]cpus.Set{}, Containers: map[string]cpus.Set{},
	}
	for _, g := range s.Given {
		if g.PodUID == "" {
			k.Containers[g.Container] = g.CPUs
			continue
		}
		uid := plan.UIDOf(g.PodUID)
		k.Pods[uid] = k.Pods[uid].Union(g.CPUs)
	}
	return k
}

// rootDepth is the maximum depth at which kubelet's root cgroup is searched: --cgroup-root may put it below other cgroups.
const rootDepth = 4

// kubeletRoots finds the cgroups under which kubelets create their pods.
func (a *Applier) kubeletRoots() []string {
	var roots []string
	var walk func(f plan.File, depth int)
	walk = func(f plan.File, depth int) {
		if depth > rootDepth || a.childless(f) {
			return
		}
		names, err := a.Hierarchy.Children(f.Controller, f.Cgroup)
		if err != nil {
			return
		}
		for _, name := range names {
			child := plan.File{Controller: f.Controller, Cgroup: path.Join(f.Cgroup, name)}
			if plan.IsRoot(name) {
				roots = append(roots, child.Cgroup)
			} else {
				walk(child, depth+1)
			}
		}
	}
	walk(plan.File{Controller: "cpuset", Cgroup: "/"}, 0)
	return roots
}

// widenBack restores the original values of lists that were narrowed before kubelet's CPU manager was enabled, and that
// would now prevent its containers from starting.
func (a *Applier) widenBack() []plan.Setting {
	k := a.machine.Kubelet
	if k == nil {
		return nil
	}
	var out []plan.Setting
	for _, f := range sortedFiles(a.records) {
		rec := a.records[f]
		version := a.machine.Versions[f.Controller]
		if !k.PutBack(f, version) || len(rec.Wrote) == 0 || rec.First == "" || rec.Inode != a.inode(f) {
			continue
		}
		present, err := a.Hierarchy.ReadFile(f.Controller, f.Cgroup, f.Name)
		if err != nil || !rec.ours(f.Name, present) {
			continue
		}
		if s, err := plan.Restore(f, rec.Key, rec.First, version); err == nil {
			out = append(out, s)
		}
	}
	return out
}

func sortedFiles(records map[plan.File]*record) []plan.File {
	return slices.SortedFunc(maps.Keys(records), func(x, y plan.File) int {
		return cmp.Or(cmp.Compare(x.Cgroup, y.Cgroup), cmp.Compare(x.Controller, y.Controller), cmp.Compare(x.Name, y.Name),
			cmp.Compare(x.Device, y.Device))
	})
}

// taken reports whether a container must not be changed because it runs on CPUs that kubelet assigned exclusively.
func (a *Applier) taken(it *item, r *round) bool {
	why := it.Taken()
	if why == "" {
		return false
	}
	r.fail(tick.IsolationError{Cgroup: it.Cgroup, Key: it.Key, Error: why})
	return true
}

// A container runtime creates a cgroup of version 1 without CPUs and then copies its parent's list. If the parent was
// narrowed in between, the copy fails and the container does not start. So a narrowing waits while a child has no list
// yet, for at most awaitFor, because some cgroups never get one.
const (
	awaitFor  = 5 * time.Millisecond
	awaitStep = 200 * time.Microsecond
)

func (a *Applier) awaitChildren(w plan.Write, old string) {
	if w.Controller != "cpuset" || a.machine.Versions["cpuset"] != 1 || !narrows(old, w.New) {
		return
	}
	for waited := time.Duration(0); waited < a.awaitFor && a.beingMade(w.File); waited += awaitStep {
		time.Sleep(awaitStep)
	}
}

func narrows(old, now string) bool {
	x, errX := cpus.Parse(old)
	y, errY := cpus.Parse(now)
	return errX == nil && errY == nil && !x.IsSubsetOf(y)
}

// beingMade reports whether a child of the cgroup has no list yet, because a container runtime is creating it.
func (a *Applier) beingMade(f plan.File) bool {
	if a.childless(f) {
		return false
	}
	names, err := a.Hierarchy.Children(f.Controller, f.Cgroup)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(names, func(name string) bool {
		text, err := a.Hierarchy.ReadFile(f.Controller, path.Join(f.Cgroup, name), f.Name)
		return err == nil && text == ""
	})
}
