package policy

import (
	"iter"
	"strings"

	"polder/lib/kubepods"
	"polder/lib/tick"
)

// maxPath is the longest path that the kernel accepts (PATH_MAX).
const maxPath = 4096

// IsCgroup reports whether a path of the sample can be that of a cgroup on which a value is set: never the root.
func IsCgroup(path string) bool { return len(path) > 1 && len(path) <= maxPath && path[0] == '/' }

// IsRunningBatch reports whether a pod is batch and has a cgroup: also if the cluster has deleted it, because its processes still run.
func IsRunningBatch(p *tick.Pod) bool {
	return p.IsBatch() && p.Missing != tick.MissingCgroup && !p.Ended() && IsCgroup(p.Cgroup)
}

// HasOnlyBatch reports whether a cgroup contains some pod, and no service.
func HasOnlyBatch(s *tick.Sample, cgroup string) bool {
	hasPod, hasService := podsWithin(s, cgroup)
	return hasPod && !hasService
}

func podsWithin(s *tick.Sample, cgroup string) (hasPod, hasService bool) {
	for i := range s.Pods {
		if p := &s.Pods[i]; tick.IsWithin(p.Cgroup, cgroup) {
			if hasPod = true; p.QoS != tick.QoSReclaimed {
				return true, true
			}
		}
	}
	return hasPod, false
}

// BatchCgroups returns the cgroups above batch pods that contain no other pod, outermost first, without kubelet's: a value set there
// affects only batch. The pods in them may have ended.
func BatchCgroups(s *tick.Sample) (list []string) {
	for _, cgroup := range s.BatchCgroups {
		if !IsCgroup(cgroup) || kubepods.Contains(cgroup) {
			continue
		}
		if _, hasService := podsWithin(s, cgroup); !hasService {
			list = append(list, cgroup)
		}
	}
	return list
}

// OutermostBatch yields each running batch pod with the outermost cgroup above it that contains only batch: one of [BatchCgroups], or
// kubelet's of the BestEffort pods, or else the pod's own. Pods of one such cgroup do not follow each other.
func OutermostBatch(s *tick.Sample) iter.Seq2[string, *tick.Pod] {
	candidates := map[string]bool{}
	for _, cgroup := range BatchCgroups(s) {
		candidates[cgroup] = true
	}
	if t := s.Tier(tick.TierBestEffort); t != nil && IsCgroup(t.Cgroup) && HasOnlyBatch(s, t.Cgroup) {
		candidates[t.Cgroup] = true
	}
	for i := range s.Pods {
		if p := &s.Pods[i]; IsRunningBatch(p) {
			candidates[p.Cgroup] = true
		}
	}
	return func(yield func(string, *tick.Pod) bool) {
		for i := range s.Pods {
			p := &s.Pods[i]
			if !IsRunningBatch(p) {
				continue
			}
			outermost := p.Cgroup
			for end := len(outermost); end > 0; end = strings.LastIndexByte(p.Cgroup[:end], '/') {
				if candidates[p.Cgroup[:end]] {
					outermost = p.Cgroup[:end]
				}
			}
			if !yield(outermost, p) {
				return
			}
		}
	}
}
