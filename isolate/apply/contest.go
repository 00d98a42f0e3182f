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

// kubeletPeriod is how often kubelet updates the cgroups above its pods (periodicQOSCgroupUpdateInterval). It also does so before it
// makes a pod's cgroup. Under the systemd driver each update takes the quota off.
const kubeletPeriod = time.Minute

// podLimit is how long kubelet takes at most from that update to the pod's cgroup.
const podLimit = 10 * time.Second

// contest is that over the value of one file, with what tells kubelet's own updates from an opponent's.
type contest struct {
	journal.Contest

	reset time.Time       // when the value was last as kubelet resets it
	pods  map[string]bool // the cgroups of pods and containers that were there then
	early bool            // that reset counted, and the pod for which kubelet made it may be still to come
}

// isKubelets reports whether a reset, seen at this time of the ticks beside these pods, is one of kubelet's own updates: it comes no
// sooner after the last reset than they do, or a pod or container has been started since. Who resets the value faster than that is an
// opponent.
func (c *contest) isKubelets(at time.Time, pods map[string]bool) bool {
	since := at.Sub(c.reset)
	own := c.reset.IsZero() || since < 0 || since >= kubeletPeriod/2 || c.started(pods)
	c.reset, c.pods, c.early = at, pods, !own
	return own
}

// started reports whether a pod or container is among them that was not there at the last reset.
func (c *contest) started(pods map[string]bool) bool {
	for name := range pods {
		if !c.pods[name] {
			return true
		}
	}
	return false
}

// reconsider takes back a reset that counted where the pod comes just after it for which kubelet made it.
func (c *contest) reconsider(at time.Time, pods map[string]bool) {
	switch since := at.Sub(c.reset); {
	case since < 0 || since > podLimit:
		c.early = false
	case c.started(pods):
		c.Forgive()
		c.pods, c.early = pods, false
	}
}

// foreign reports whether a value is to be left alone because someone else keeps changing it.
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
	case a.machine.Kubelet.ByKubelet(it.File, it.Present): // once, for what it gave away has changed: no contest
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

// shown is a file's text for a message. What is empty is a list.
func shown(text string) string {
	if text == "" {
		return "no list"
	}
	return clip.Text(text, shownBytes)
}

// podsBeside are the cgroups of pods and containers that the kubelet has whose cgroup this is.
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
