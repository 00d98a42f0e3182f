package apply

import (
	"fmt"
	"path"
	"time"

	"polder/isolate/journal"
	"polder/isolate/plan"
	"polder/lib/kubepods"
	"polder/lib/tick"
)

// kubeletPeriod is the interval at which kubelet updates the cgroups above its pods (periodicQOSCgroupUpdateInterval). It also
// updates them before it creates a pod's cgroup. Under the systemd driver each update removes the quota.
const kubeletPeriod = time.Minute

// maxPodDelay is the maximum time between that update and the creation of the pod's cgroup.
const maxPodDelay = 10 * time.Second

// contest counts external changes of one file, and distinguishes kubelet's own updates from those of another program.
type contest struct {
	journal.Contest

	lastReset   time.Time       // time of the last reset as kubelet does it
	podsAtReset map[string]bool // cgroups of the pods and containers that existed at that time
	mayAwaitPod bool            // that reset counted as external, but kubelet may have made it for a pod that appears later
}

// isKubeletUpdate reports whether a reset, seen at this tick's time beside these pods, is one of kubelet's own updates: either at least
// its period has passed since the last reset, or a pod or container was started since. A program that resets the value more often is
// another writer.
func (c *contest) isKubeletUpdate(at time.Time, pods map[string]bool) bool {
	since := at.Sub(c.lastReset)
	isUpdate := c.lastReset.IsZero() || since < 0 || since >= kubeletPeriod/2 || c.hasNewPod(pods)
	c.lastReset, c.podsAtReset, c.mayAwaitPod = at, pods, !isUpdate
	return isUpdate
}

// hasNewPod reports whether one of the pods or containers did not exist at the last reset.
func (c *contest) hasNewPod(pods map[string]bool) bool {
	for name := range pods {
		if !c.podsAtReset[name] {
			return true
		}
	}
	return false
}

// reconsider no longer counts a reset as external if the pod for which kubelet made it appears just afterwards.
func (c *contest) reconsider(at time.Time, pods map[string]bool) {
	switch since := at.Sub(c.lastReset); {
	case since < 0 || since > maxPodDelay:
		c.mayAwaitPod = false
	case c.hasNewPod(pods):
		c.Discount()
		c.podsAtReset, c.mayAwaitPod = pods, false
	}
}

// isContested reports whether a value is left to another program that keeps changing it.
func (a *Applier) isContested(it *item, r *round) bool {
	f := it.file
	if a.DryRun || !f.hasLastApplied {
		return false
	}
	report := func(format string, args ...any) {
		r.fail(tick.IsolationError{Cgroup: it.Cgroup, Key: it.Key, Error: fmt.Sprintf(format, args...)})
	}
	switch {
	case plan.Same(it.Name, it.Observed, f.lastApplied):
		f.RecordUnchanged()
	case a.machine.Kubelet.IsDefaultList(it.File, it.Observed): // once, because its assignment changed: no contest
		report("set by kubelet from %s to its default %s", plan.ListText(f.lastApplied), plan.ListText(it.Observed))
		f.lastApplied = it.Observed
	case plan.IsKubeletReset(it.File, it.Observed) && f.isKubeletUpdate(a.now, a.kubeletPods(it.File)):
		report("reset by kubelet from %s to %s, as it does about once a minute and with each new pod", plan.ListText(f.lastApplied),
			plan.ListText(it.Observed))
		f.lastApplied = it.Observed
	default:
		f.RecordChange()
		report("changed externally from %s to %s", plan.ListText(f.lastApplied), plan.ListText(it.Observed))
		f.lastApplied = it.Observed
	}
	reason := f.YieldReason(a.Contest)
	if reason == "" {
		return false
	}
	report("%s", reason)
	return true
}

// kubeletPods returns the cgroups of the pods and containers of the kubelet that manages this cgroup.
func (a *Applier) kubeletPods(f plan.File) map[string]bool {
	pods := map[string]bool{}
	var visit func(cgroup string)
	visit = func(cgroup string) {
		names, err := a.Hierarchy.Children(f.Controller, cgroup)
		if err != nil {
			return // removed meanwhile
		}
		for _, name := range names {
			switch child := path.Join(cgroup, name); kubepods.Of(child).Level {
			case kubepods.Tier:
				visit(child)
			case kubepods.Pod:
				pods[child] = true
				visit(child)
			case kubepods.Container:
				pods[child] = true
			}
		}
	}
	visit(kubepods.Of(f.Cgroup).Root)
	return pods
}
