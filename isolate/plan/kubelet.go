package plan

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"polder/lib/clip"
	"polder/lib/cpus"
	"polder/lib/kubepods"
	"polder/lib/tick"
)

// Kubelet is what a plan must know about the node's kubelet, so that it writes neither a cpuset with CPUs that kubelet
// assigned exclusively nor one that prevents kubelet's next container from starting.
type Kubelet struct {
	// UnknownReason says why the state is unknown though there is a kubelet; empty if it is known.
	UnknownReason string
	// WritesLists means that kubelet writes CPU lists for its containers: any CPU manager policy except "none".
	WritesLists bool
	// Policy is the policy of the CPU manager.
	Policy string
	// Default is the list that kubelet writes for containers without exclusive CPUs.
	Default cpus.Set
	// EarlierDefaults contains the last few earlier lists: kubelet writes some time after it decides.
	EarlierDefaults []cpus.Set
	// Exclusive are all CPUs that kubelet assigned exclusively; Pods has them by pod UID, in the form of [kubepods.NormalUID], Containers
	// by the runtime's container ID in the state files of old kubelets.
	Exclusive        cpus.Set
	Pods, Containers map[string]cpus.Set
	// Roots are the cgroups under which kubelets create their pods.
	Roots []string
}

// placeOf returns what a cgroup is to kubelet, with [kubepods.Above] for the ancestors of its roots.
func (k *Kubelet) placeOf(cgroup string) kubepods.Place {
	p := kubepods.Of(cgroup)
	if p.Level == kubepods.Outside && k != nil && slices.ContainsFunc(k.Roots, func(r string) bool { return tick.IsBelow(r, cgroup) }) {
		p.Level = kubepods.Above
	}
	return p
}

// isAbovePods reports whether a cgroup is kubelet's root or a tier.
func isAbovePods(cgroup string) bool {
	at := kubepods.Of(cgroup).Level
	return at == kubepods.Root || at == kubepods.Tier
}

// exclusiveOfPod returns the CPUs that a pod's containers have exclusively.
func (k *Kubelet) exclusiveOfPod(p kubepods.Place) cpus.Set { return k.Pods[kubepods.NormalUID(p.UID)] }

// exclusiveOf returns the CPUs that containers of a cgroup's pod have exclusively.
func (k *Kubelet) exclusiveOf(cgroup string, p kubepods.Place) cpus.Set {
	set := k.exclusiveOfPod(p)
	for id, containerCPUs := range k.Containers {
		if id != "" && strings.Contains(cgroup, id) {
			set = set.Union(containerCPUs)
		}
	}
	return set
}

// refusal returns why a cgroup's lists must not be written at all.
func (k *Kubelet) refusal(cgroup string, version int) error {
	if k == nil {
		return nil
	}
	p := k.placeOf(cgroup)
	switch {
	case p.Level == kubepods.Outside:
		return nil
	case k.UnknownReason != "":
		return fmt.Errorf("not written, like all of kubelet's cpusets: the CPUs that it assigned exclusively are unknown (%s)", clip.Text(k.UnknownReason, 300))
	case !k.WritesLists || p.Level >= kubepods.Container:
		return nil
	case version == 1:
		return fmt.Errorf("not written: kubelet's CPU manager policy is %q, and on cgroup v1 the next container could not start below a narrowed cgroup; advise the containers' cgroups", clip.Text(k.Policy, maxShownBytes))
	}
	below := k.exclusiveOfPod(p)
	if p.Level <= kubepods.Root {
		below = k.Exclusive
	}
	if below.IsEmpty() {
		return nil
	}
	return fmt.Errorf("not written: kubelet assigned CPUs exclusively to containers below (%s)", clip.Text(below.String(), maxShownBytes))
}

// restrict removes from a desired set the CPUs that kubelet assigned to others. An error beside true names the removed CPUs.
func (k *Kubelet) restrict(s *Setting) (bool, error) {
	if k == nil || k.Exclusive.IsEmpty() || s.Name != fileCPUs {
		return true, nil
	}
	exclusive := s.set.Intersection(k.Exclusive)
	if exclusive.IsEmpty() {
		return true, nil
	}
	s.set = s.set.Difference(exclusive)
	if s.set.IsEmpty() {
		return false, fmt.Errorf("not written: kubelet assigned all of CPUs %s exclusively to containers", clip.Text(exclusive.String(), maxShownBytes))
	}
	return true, fmt.Errorf("CPUs %s left out: kubelet assigned them exclusively to containers", clip.Text(exclusive.String(), maxShownBytes))
}

// ExclusiveReason returns why a container's list must not be changed as it is now: its pod has exclusive CPUs from kubelet, and the
// container runs on them. Kubelet's state has containers by name but a cgroup has only the ID, so the CPUs identify it:
// other containers of the pod, which have none of its CPUs, may be moved.
func (s *Setting) ExclusiveReason() string {
	if s.exclusive.IsEmpty() {
		return ""
	}
	if s.Name == fileMems {
		return "not written: kubelet assigned CPUs " + clip.Text(s.exclusive.String(), maxShownBytes) + " exclusively to containers of this pod"
	}
	observed, err := cpus.Parse(s.Observed)
	if err == nil && !observed.IsEmpty() && observed.Intersection(s.exclusive).IsEmpty() {
		return ""
	}
	return "not written: kubelet assigned CPUs " + clip.Text(s.exclusive.String(), maxShownBytes) +
		" exclusively to this container or to another one of its pod (it has " + ListText(s.Observed) + ")"
}

// ListText returns the text of a file for messages, clipped. Only the text of a list can be empty.
func ListText(list string) string {
	if list == "" {
		return "no list"
	}
	return clip.Text(list, maxShownBytes)
}

// IsDefaultList reports whether a container's list is the one that kubelet writes for all containers without exclusive CPUs.
// Kubelet writes it again whenever the list changes, or has just written an earlier one.
func (k *Kubelet) IsDefaultList(f File, text string) bool {
	if k == nil || !k.WritesLists || f.Name != fileCPUs || k.Default.IsEmpty() {
		return false
	}
	if kubepods.Of(f.Cgroup).Level != kubepods.Container {
		return false
	}
	set, err := cpus.Parse(text)
	return err == nil && (set.Equals(k.Default) || slices.ContainsFunc(k.EarlierDefaults, set.Equals))
}

// IsKubeletReset reports whether a value is one that kubelet repeatedly writes to a cgroup above its containers: the weight of its tiers,
// and under the systemd driver everything that systemd manages of a tier's or a pod's CPU, memory and disk. Kubelet sets no quota, no
// list and no memory limit there: when a new container makes a slice need another controller, systemd writes that controller's defaults.
// In a container's own scope systemd writes once, during start, that its memory is unlimited.
func IsKubeletReset(f File, text string) bool {
	at := kubepods.Of(f.Cgroup).Level
	if at == kubepods.Container && strings.HasSuffix(f.Cgroup, ".scope") {
		return isUnlimited(f.Name, text)
	}
	slice := strings.HasSuffix(f.Cgroup, ".slice")
	if !isAbovePods(f.Cgroup) && !(at == kubepods.Pod && slice) {
		return false
	}
	switch f.Name {
	case WeightFile(1), WeightFile(2):
		return true
	case fileQuota:
		return text == "-1"
	case fileMax:
		return strings.HasPrefix(text, "max ")
	case fileIdle:
		return text == "0"
	case fileCPUs, fileMems:
		return slice && text == ""
	case fileMin, fileLow:
		return slice && text == "0"
	case "memory.max", "memory.high", "memory.limit_in_bytes":
		return slice && isUnlimited(f.Name, text)
	case "io.weight":
		return slice && defaultOf(text) == "100"
	}
	return false
}

// isUnlimited reports whether a memory limit's text is the kernel's for "no limit".
func isUnlimited(name, text string) bool {
	switch name {
	case "memory.max", "memory.high":
		return text == "max"
	case "memory.limit_in_bytes":
		bytes, err := strconv.ParseInt(text, 10, 64)
		return err == nil && bytes >= minUnlimitedBytes
	}
	return false
}

// MustRestore reports whether a list that was written earlier must be restored: it narrows a cgroup above containers that
// could no longer start.
func (k *Kubelet) MustRestore(f File, version int) bool {
	if k == nil || k.UnknownReason != "" || !k.WritesLists || version != 1 || !isList(f.Name) {
		return false
	}
	at := k.placeOf(f.Cgroup).Level
	return at != kubepods.Outside && at < kubepods.Container
}

// RestoreText returns the text that a restore may write: for a container kubelet's present list, for other cgroups the list
// without the CPUs that kubelet has assigned since. The error says why nothing may be restored.
func (k *Kubelet) RestoreText(f File, original, observed string) (string, error) {
	if k == nil || !isList(f.Name) || Same(f.Name, original, observed) {
		return original, nil
	}
	p := k.placeOf(f.Cgroup)
	if p.Level != kubepods.Outside && k.UnknownReason != "" {
		return "", fmt.Errorf("the CPUs that kubelet assigned exclusively are unknown (%s)", clip.Text(k.UnknownReason, 300))
	}
	s := Setting{File: f, Observed: observed}
	if p.Level >= kubepods.Container {
		s.exclusive = k.exclusiveOf(f.Cgroup, p)
	}
	if reason := s.ExclusiveReason(); reason != "" {
		return "", errors.New(reason)
	}
	switch {
	case f.Name != fileCPUs || p.Level >= kubepods.Above && p.Level < kubepods.Container: // the original width, for the cgroups below
		return original, nil
	case p.Level == kubepods.Container && k.WritesLists && !k.Default.IsEmpty(): // the list that kubelet assumes it has
		return k.Default.String(), nil
	}
	set, err := cpus.Parse(original)
	if err != nil || set.Intersection(k.Exclusive).IsEmpty() {
		return original, nil
	}
	if set = set.Difference(k.Exclusive); set.IsEmpty() {
		return "", fmt.Errorf("kubelet assigned all of CPUs %s exclusively to containers", clip.Text(original, maxShownBytes))
	}
	return set.String(), nil
}
