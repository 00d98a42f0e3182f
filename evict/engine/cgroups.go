package engine

import (
	"maps"

	"polder/evict/act"
	"polder/evict/pick"
	"polder/lib/cgroup"
	"polder/lib/stage"
	"polder/lib/tick"
)

// dropEndedByReboot drops what a reboot has ended: processes that were frozen or killed, and measurements since then. What counts and
// delays evictions (the hourly limit, the cooldowns, the taints, requests to the API server) stays. If the state does not contain its
// boot ID, both are dropped.
func (n *node) dropEndedByReboot(boot stage.Boot, action string) {
	if boot == stage.SameBoot {
		return
	}
	n.EncodedWindows, n.Queue, n.Continuity = nil, nil, pick.Continuity{}
	maps.DeleteFunc(n.InProgress, func(_ string, l *pick.Ongoing) bool {
		switch {
		case l == nil:
			return true
		case boot == stage.UnknownBoot && action == act.FreezePods:
			return false // check each one: a pod that is frozen and forgotten stays frozen forever
		}
		return l.Inode != 0 || l.Frozen || !l.EndedAt.IsZero() || action == act.FreezePods || action == act.KillPods
	})
}

// cgroups are the cgroups on which the actions freeze and kill act.
type cgroups struct {
	*cgroup.Hierarchy
	action string
}

func (c *cgroups) inode(path string) uint64 {
	if c == nil || path == "" {
		return 0
	}
	return act.InodeOf(c.Hierarchy, c.action, path)
}

// dropReplaced drops the evictions in progress of pods whose cgroup was replaced, or should be frozen and is not: they would count as
// released although their processes run.
func (e *engine) dropReplaced(n *node) {
	if e.cgroups == nil {
		return
	}
	for uid, l := range n.InProgress {
		inode := e.cgroups.inode(l.Cgroup)
		why := ""
		switch {
		case inode == 0: // removed: the sample shows that, too
		case l.Inode != 0 && inode != l.Inode:
			why = "another cgroup has that name now"
		case l.Frozen:
			if frozen, err := act.Frozen(e.cgroups.Hierarchy, l.Cgroup); err == nil && !frozen {
				why = "it is no longer frozen"
			}
		case l.Inode == 0 && e.cgroups.action == act.KillPods && l.Eviction.State != tick.StateFailed:
			why = "its inode is not in the state file, so the cgroup may be a later one"
		}
		if isAwaited := l.Awaited && !l.Frozen && l.EndedAt.IsZero(); why != "" && !isAwaited { // the one in progress reports its own outcome
			e.session.Log.Info("an eviction of an earlier run is no longer tracked", "pod", l.Eviction.Name, "uid", uid, "cgroup", l.Cgroup, "reason", why)
			delete(n.InProgress, uid)
		}
	}
}
