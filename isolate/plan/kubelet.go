package plan

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"polder/lib/clip"
	"polder/lib/cpus"
)

// Kubelet is what a plan must know of the node's kubelet, so that no cpuset is written that it gave away, and none that
// keeps its next container from starting.
type Kubelet struct {
	// Unknown is why nothing is known though there is a kubelet; empty where all is known.
	Unknown string
	// Sets means that kubelet gives its containers CPU lists of its own making: any CPU manager policy but "none".
	Sets bool
	// Policy is the CPU manager's.
	Policy string
	// Default is the list that it gives to containers without CPUs of their own.
	Default cpus.Set
	// Before are the last few earlier ones: kubelet writes some time after it has decided.
	Before []cpus.Set
	// Exclusive is all that it gave to containers for themselves; Pods has it by the pods' UIDs, Containers by the runtime's
	// ids in the files of old kubelets.
	Exclusive        cpus.Set
	Pods, Containers map[string]cpus.Set
	// Roots are the cgroups that kubelets have their pods under.
	Roots []string
}

// level is where a cgroup stands towards kubelet's.
type level int

const (
	outside level = iota
	above         // has kubelet's root below it
	root          // "/kubepods"
	tier          // "/kubepods/besteffort"
	pod
	container
	nested // one that a container made
)

// place is the level of a cgroup and the pod's UID, in the form of [UIDOf].
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

// Place tells a cgroup of kubelet's by its path, as its two drivers make them: "/kubepods/burstable/podUID/ID" and
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

// IsRoot reports whether a cgroup of this name is the one under which kubelet has its pods.
func IsRoot(name string) bool {
	return name == "kubepods" || name == "kubepods.slice" || strings.HasSuffix(name, "-kubepods.slice")
}

// RootOf is the cgroup under which the kubelet of a cgroup has its pods; "/" for one that is no kubelet's.
func RootOf(cgroup string) string {
	for at := cgroup; len(at) > 1; at = path.Dir(at) {
		if IsRoot(path.Base(at)) {
			return at
		}
	}
	return "/"
}

// IsPod reports whether a cgroup is a pod's own.
func IsPod(cgroup string) bool {
	at, _ := Place(cgroup)
	return at == pod
}

// podOf is the UID in the name of a pod's cgroup; empty where it is none.
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

// UIDOf is a pod's UID in one form: a slice's name has "_" for "-".
func UIDOf(uid string) string { return strings.ReplaceAll(uid, "_", "-") }

// given are the CPUs that containers of a cgroup's pod have for themselves.
func (k *Kubelet) given(cgroup, uid string) cpus.Set {
	set := k.Pods[uid]
	for id, own := range k.Containers {
		if id != "" && strings.Contains(cgroup, id) {
			set = set.Union(own)
		}
	}
	return set
}

// refuse returns why a cgroup's lists may not be written at all.
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

// restrict takes from a desired set what kubelet gave to others. An error beside true names what was left out.
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

// Taken returns why a container's list must be left alone as it is now: its pod has CPUs of its own from kubelet, and the
// container runs on them. The state names containers by their names and a cgroup only has the id, so the CPUs tell:
// those that share the pod and have none of its CPUs may be moved.
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

// ByKubelet reports whether a container's list is the one that kubelet gives to all containers without CPUs of their own:
// it writes that again whenever the list changes, or has just done so with an earlier one.
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

// ResetByKubelet reports whether a value is one that kubelet gives a cgroup above its containers again and again: the weight of its tiers,
// and under the systemd driver all that systemd knows of a tier's or a pod's CPU. Kubelet asks it for no quota, and for no list: where a
// new container makes a slice want another controller, systemd writes that there is none. Of a container's own scope systemd writes once,
// while it starts, that its memory has no limit.
func ResetByKubelet(f File, text string) bool {
	at, _ := Place(f.Cgroup)
	if at == container && strings.HasSuffix(f.Cgroup, ".scope") {
		return (f.Name == "memory.max" || f.Name == "memory.high") && text == "max"
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
	}
	return false
}

// PutBack reports whether a list that was written earlier must not stay: it narrows a cgroup above containers that would
// not start any more.
func (k *Kubelet) PutBack(f File, version int) bool {
	if k == nil || k.Unknown != "" || !k.Sets || version != 1 || !isList(f.Name) {
		return false
	}
	at, _ := k.place(f.Cgroup)
	return at != outside && at < container
}

// First is the text that a restore may put back: a container's list as kubelet has it by now, another one without the CPUs
// that kubelet gave away since. The error is why nothing may be put back.
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
	case f.Name != fileCPUs || at >= above && at < container: // as wide as it was, for those below
		return first, nil
	case at == container && k.Sets && !k.Default.IsEmpty(): // which kubelet believes it has
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
