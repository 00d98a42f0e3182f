package plan

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"polder/lib/clip"
	"polder/lib/cpus"
)

// Kubelet is what a plan must know about the node's kubelet, so that it writes neither a cpuset with CPUs that kubelet
// assigned exclusively nor one that prevents kubelet's next container from starting.
type Kubelet struct {
	// Unknown says why the state is unknown though there is a kubelet; empty if it is known.
	Unknown string
	// Sets means that kubelet writes CPU lists for its containers: any CPU manager policy except "none".
	Sets bool
	// Policy is the policy of the CPU manager.
	Policy string
	// Default is the list that kubelet writes for containers without exclusive CPUs.
	Default cpus.Set
	// Before contains the last few earlier lists: kubelet writes some time after it decides.
	Before []cpus.Set
	// Exclusive are all CPUs that kubelet assigned exclusively; Pods has them by pod UID, Containers by the runtime's
	// container ID in the state files of old kubelets.
	Exclusive        cpus.Set
	Pods, Containers map[string]cpus.Set
	// Roots are the cgroups under which kubelets create their pods.
	Roots []string
}

// level is a cgroup's position relative to kubelet's cgroups.
type level int

const (
	outside level = iota
	above         // above         // an ancestor of kubelet's root
	root          // "/kubepods"
	tier          // "/kubepods/besteffort"
	pod
	container
	nested // created by a container
)

// place returns the level of a cgroup and the pod's UID, in the form of [UIDOf].
func (k *Kubelet) place(cgroup string) (level, string) {
	at, uid := Place(cgroup)
	if at != outside || k == nil {
		return at, uid
	}
	for _, r := range k.Roots {
		if strings.HasPrefix(r, cgroup+"/") {
			return above, ""
		}
	}
	return outside, ""
}

// Place determines the level of a cgroup of kubelet by its path, as kubelet's two drivers form it: "/kubepods/burstable/podUID/ID" and
// "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope", below any cgroup.
func Place(cgroup string) (level, string) {
	at, uid := outside, ""
	for name := range strings.SplitSeq(cgroup, "/") {
		switch at {
		case outside:
			if IsRoot(name) {
				at = root
			}
		case root, tier:
			if at = tier; podOf(name) != "" {
				at, uid = pod, podOf(name)
			}
		case pod:
			at = container
		default:
			at = nested
		}
	}
	return at, uid
}

// IsRoot reports whether a cgroup of this name is one under which kubelet creates its pods.
func IsRoot(name string) bool {
	return name == "kubepods" || name == "kubepods.slice" || strings.HasSuffix(name, "-kubepods.slice")
}

// RootOf returns the root cgroup of the kubelet that manages a cgroup; "/" for a cgroup that no kubelet manages.
func RootOf(cgroup string) string {
	for at := cgroup; len(at) > 1; at = path.Dir(at) {
		if IsRoot(path.Base(at)) {
			return at
		}
	}
	return "/"
}

// IsPod reports whether a cgroup is the one of a pod.
func IsPod(cgroup string) bool {
	at, _ := Place(cgroup)
	return at == pod
}

// podOf returns the UID in the name of a pod's cgroup; empty if there is none.
func podOf(name string) string {
	if uid, ok := strings.CutPrefix(name, "pod"); ok {
		return UIDOf(uid)
	}
	if slice, ok := strings.CutSuffix(name, ".slice"); ok {
		if i := strings.LastIndex(slice, "-pod"); i >= 0 {
			return UIDOf(slice[i+len("-pod"):])
		}
	}
	return ""
}

// UIDOf returns a pod's UID in one form: a slice's name has "_" for "-".
func UIDOf(uid string) string { return strings.ReplaceAll(uid, "_", "-") }

// given returns the CPUs that containers of a cgroup's pod have exclusively.
func (k *Kubelet) given(cgroup, uid string) cpus.Set {
	set := k.Pods[uid]
	for id, own := range k.Containers {
		if id != "" && strings.Contains(cgroup, id) {
			set = set.Union(own)
		}
	}
	return set
}

// refuse returns why a cgroup's lists must not be written at all.
func (k *Kubelet) refuse(cgroup string, version int) error {
	if k == nil {
		return nil
	}
	at, uid := k.place(cgroup)
	switch {
	case at == outside:
		return nil
	case k.Unknown != "":
		return fmt.Errorf("left alone, as all of kubelet's: which CPUs it gave away is not known (%s)", clip.Text(k.Unknown, 300))
	case !k.Sets || at >= container:
		return nil
	case version == 1:
		return fmt.Errorf("left alone: kubelet's CPU manager policy is %q, and on cgroup v1 a narrowed cgroup above its containers keeps the next one from starting; advise the containers' cgroups", clip.Text(k.Policy, shownBytes))
	case !k.Exclusive.IsEmpty() && (at <= root || !k.Pods[uid].IsEmpty()):
		return fmt.Errorf("left alone: containers below have CPUs that kubelet gave them exclusively (%s)", clip.Text(k.below(uid).String(), shownBytes))
	}
	return nil
}

func (k *Kubelet) below(uid string) cpus.Set {
	if uid == "" {
		return k.Exclusive
	}
	return k.Pods[uid]
}

// restrict removes from a desired set the CPUs that kubelet assigned to others. An error beside true names the removed CPUs.
func (k *Kubelet) restrict(s *Setting) (bool, error) {
	if k == nil || k.Exclusive.IsEmpty() || s.Name != fileCPUs {
		return true, nil
	}
	taken := s.set.Intersection(k.Exclusive)
	if taken.IsEmpty() {
		return true, nil
	}
	s.set = s.set.Difference(taken)
	if s.set.IsEmpty() {
		return false, fmt.Errorf("not written: kubelet gave all of CPUs %s to containers exclusively", clip.Text(taken.String(), shownBytes))
	}
	return true, fmt.Errorf("CPUs %s left out: kubelet gave them to containers exclusively", clip.Text(taken.String(), shownBytes))
}

// Taken returns why a container's list must not be changed as it is now: its pod has exclusive CPUs from kubelet, and the
// container runs on them. Kubelet's state has containers by name but a cgroup has only the ID, so the CPUs identify it:
// other containers of the pod, which have none of its CPUs, may be moved.
func (s *Setting) Taken() string {
	if s.given.IsEmpty() {
		return ""
	}
	if s.Name == fileMems {
		return "left alone: kubelet gave CPUs " + clip.Text(s.given.String(), shownBytes) + " to containers of this pod exclusively"
	}
	present, err := cpus.Parse(s.Present)
	if err == nil && !present.IsEmpty() && present.Intersection(s.given).IsEmpty() {
		return ""
	}
	return "left alone: kubelet gave " + clip.Text(s.given.String(), shownBytes) + " to this container exclusively, or to another of its pod (it has " + orNone(s.Present) + ")"
}

func orNone(list string) string {
	if list == "" {
		return "no list"
	}
	return clip.Text(list, shownBytes)
}

// ByKubelet reports whether a container's list is the one that kubelet writes for all containers without exclusive CPUs.
// Kubelet writes it again whenever the list changes, or has just written an earlier one.
func (k *Kubelet) ByKubelet(f File, text string) bool {
	if k == nil || !k.Sets || f.Name != fileCPUs || k.Default.IsEmpty() {
		return false
	}
	if at, _ := Place(f.Cgroup); at != container {
		return false
	}
	set, err := cpus.Parse(text)
	return err == nil && (set.Equals(k.Default) || slices.ContainsFunc(k.Before, set.Equals))
}

// ResetByKubelet reports whether a value is one that kubelet repeatedly writes to a cgroup above its containers: the weight of its tiers,
// and under the systemd driver everything that systemd manages of a tier's or a pod's CPU, memory and disk. Kubelet sets no quota, no
// list and no memory limit there: when a new container makes a slice need another controller, systemd writes that controller's defaults.
// In a container's own scope systemd writes once, during start, that its memory is unlimited.
func ResetByKubelet(f File, text string) bool {
	at, _ := Place(f.Cgroup)
	if at == container && strings.HasSuffix(f.Cgroup, ".scope") {
		return isUnlimited(f.Name, text)
	}
	slice := strings.HasSuffix(f.Cgroup, ".slice")
	if at != root && at != tier && !(at == pod && slice) {
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
		return err == nil && bytes >= noLimitBytes
	}
	return false
}

// PutBack reports whether a list that was written earlier must be restored: it narrows a cgroup above containers that
// could no longer start.
func (k *Kubelet) PutBack(f File, version int) bool {
	if k == nil || k.Unknown != "" || !k.Sets || version != 1 || !isList(f.Name) {
		return false
	}
	at, _ := k.place(f.Cgroup)
	return at != outside && at < container
}

// First returns the text that a restore may write: for a container kubelet's present list, for other cgroups the list
// without the CPUs that kubelet has assigned since. The error says why nothing may be restored.
func (k *Kubelet) First(f File, first, present string) (string, error) {
	if k == nil || !isList(f.Name) || Same(f.Name, first, present) {
		return first, nil
	}
	at, uid := k.place(f.Cgroup)
	if at != outside && k.Unknown != "" {
		return "", fmt.Errorf("which CPUs kubelet gave away is not known (%s)", clip.Text(k.Unknown, 300))
	}
	s := Setting{File: f, Present: present}
	if at >= container {
		s.given = k.given(f.Cgroup, uid)
	}
	if why := s.Taken(); why != "" {
		return "", errors.New(why)
	}
	switch {
	case f.Name != fileCPUs || at >= above && at < container: // the original width, for the cgroups below
		return first, nil
	case at == container && k.Sets && !k.Default.IsEmpty(): // the list that kubelet assumes it has
		return k.Default.String(), nil
	}
	set, err := cpus.Parse(first)
	if err != nil || set.Intersection(k.Exclusive).IsEmpty() {
		return first, nil
	}
	if set = set.Difference(k.Exclusive); set.IsEmpty() {
		return "", fmt.Errorf("kubelet gave all of CPUs %s to containers exclusively", clip.Text(first, shownBytes))
	}
	return set.String(), nil
}
