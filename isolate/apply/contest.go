package apply

import (
	"fmt"
	"path"
	"time"

	"polder/isolate/journal"
	"polder/isolate/plan"
	"polder/lib/clip"
	"polder/lib/tick"
)

// kubeletPeriod is the interval at which kubelet updates the cgroups above its pods (periodicQOSCgroupUpdateInterval). It also
// updates them before it creates a pod's cgroup. Under the systemd driver each update removes the quota.
const kubeletPeriod = time.Minute

// podLimit is the maximum time between that update and the creation of the pod's cgroup.
const podLimit = 10 * time.Second

// contest counts external changes of one file, and tells kubelet's own updates from those of another program.
type contest struct {
	journal.Contest

	reset time.Time       // time of the last reset as kubelet does it
	pods  map[string]bool // cgroups of the pods and containers that existed at that time
	early bool            // that reset counted as external, but kubelet may have made it for a pod that appears later
}

// isKubelets reports whether a reset, seen at this tick's time beside these pods, is one of kubelet's own updates: either at least
// its period has passed since the last reset, or a pod or container was started since. A program that resets the value more often is
// another writer.
func (c *contest) isKubelets(at time.Time, pods map[string]bool) bool {
	since := at.Sub(c.reset)
	own := c.reset.IsZero() || since < 0 || since >= kubeletPeriod/2 || c.started(pods)
	c.reset, c.pods, c.early = at, pods, !own
	return own
}

// started reports whether one of the pods or containers did not exist at the last reset.
func (c *contest) started(pods map[string]bool) bool {
	for name := range pods {
		if !c.pods[name] {
			return true
		}
	}
	return false
}

// reconsider no longer counts a reset as external if the pod for which kubelet made it appears just afterwards.
func (c *contest) reconsider(at time.Time, pods map[string]bool) {
	switch since := at.Sub(c.reset); {
	case since < 0 || since > podLimit:
		c.early = false
	case c.started(pods):
		c.Forgive()
		c.pods, c.early = pods, false
	}
}

// foreign reports whether a value must be left alone because another program keeps changing it.
func (a *Applier) foreign(it *item, r *round) bool {
	f := it.file
	if a.DryRun || !f.known {
		return false
	}
	report := func(format string, args ...any) {
		r.fail(tick.IsolationError{Cgroup: it.Cgroup, Key: it.Key, Error: fmt.Sprintf(format, args...)})
	}
	switch {
	case plan.Same(it.Name, it.Present, f.agreed):
		f.Calm()
	case a.machine.Kubelet.ByKubelet(it.File, it.Present): // once, because its assignment changed: no contest
		report("set by kubelet from %s to its own %s", shown(f.agreed), shown(it.Present))
		f.agreed = it.Present
	case plan.ResetByKubelet(it.File, it.Present) && f.isKubelets(a.now, a.podsBeside(it.File)):
		report("reset by kubelet from %s to %s, as it does about once a minute and with each new pod", shown(f.agreed), shown(it.Present))
		f.agreed = it.Present
	default:
		f.Change()
		report("changed by someone else from %s to %s", shown(f.agreed), shown(it.Present))
		f.agreed = it.Present
	}
	why := f.LeftAlone(a.Contest)
	if why == "" {
		return false
	}
	report("%s", why)
	return true
}

// shown returns a file's text for a message. Only the text of a list can be empty.
func shown(text string) string {
	if text == "" {
		return "no list"
	}
	return clip.Text(text, shownBytes)
}

// podsBeside returns the cgroups of the pods and containers of the kubelet that manages this cgroup.
func (a *Applier) podsBeside(f plan.File) map[string]bool {
	pods := map[string]bool{}
	root := plan.RootOf(f.Cgroup)
	var look func(cgroup string)
	look = func(cgroup string) {
		names, err := a.Hierarchy.Children(f.Controller, cgroup)
		if err != nil {
			return // removed meanwhile
		}
		for _, name := range names {
			switch child := path.Join(cgroup, name); {
			case plan.IsPod(child):
				pods[child] = true
				look(child)
			case plan.IsPod(cgroup):
				pods[child] = true
			case cgroup == root: // a tier
				look(child)
			}
		}
	}
	look(root)
	return pods
}
