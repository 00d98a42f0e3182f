// Package kubepods tells from a cgroup's path what it is to kubelet, and where kubelet's cgroups are. Kubelet has two cgroup drivers.
// The cgroupfs driver creates
//
//	/kubepods                                 the root, above all pods
//	/kubepods/burstable                       a tier; the other one is besteffort. Guaranteed pods are directly below the root
//	/kubepods/burstable/podUID                a pod
//	/kubepods/burstable/podUID/ID             a container
//
// and the systemd driver, where each slice's name begins with that of the slice above, and a dash in a name is written as "_",
//
//	/kubepods.slice
//	/kubepods.slice/kubepods-burstable.slice
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope
//
// With --cgroup-root=/a/b (kubelet's cgroupRoot) the root is /a/b/kubepods, or /a.slice/a-b.slice/a-b-kubepods.slice.
//
// Names are compared as wholes, from the top: what a container creates below its own cgroup is [Nested] whatever its name, and a cgroup
// such as /batch.slice/my-kubepods-job.service is [Outside]. A path alone cannot tell kubelet's root below a cgroupRoot from another
// cgroup of that name: a program that may create cgroups outside kubelet's can create /user.slice/kubepods. So decisions about other
// pods must not depend on the existence of such a path.
package kubepods

import "strings"

// Level is a cgroup's position relative to kubelet's cgroups. A greater level is further below.
type Level int

// These are the levels.
const (
	Outside Level = iota
	// Above is an ancestor of a root. [Of] never returns it: the path of an ancestor does not tell what is below.
	Above
	Root
	// Tier is kubelet's cgroup of the burstable or BestEffort pods, or any other cgroup between the root and pods.
	Tier
	Pod
	Container
	// Nested is a cgroup that a container created.
	Nested
)

// Place is what a cgroup is to kubelet.
type Place struct {
	Level Level
	// Root is the path of the root at or above the cgroup; empty outside.
	Root string
	// BestEffort is the path of the tier of the BestEffort pods, if the cgroup is one of their pods or below one; otherwise empty.
	BestEffort string
	// UID is the pod's, if the cgroup is a pod or below one; otherwise empty.
	UID string
}

const (
	rootName   = "kubepods"
	bestEffort = "besteffort"
	slice      = ".slice"
)

// Of determines what a cgroup is to kubelet by its path from the root of the hierarchy.
func Of(cgroup string) Place {
	var p Place
	var above, tier string // the name of the cgroup above, and the path of the BestEffort tier
	path, isAbsolute := strings.CutPrefix(cgroup, "/")
	if !isAbsolute {
		return p
	}
	end := 0
	for name := range strings.SplitSeq(path, "/") {
		end += len("/") + len(name)
		switch p.Level {
		case Outside:
			if isRoot(above, name) {
				p.Level, p.Root = Root, cgroup[:end]
			}
		case Root, Tier:
			short := shortName(above, name)
			if uid, isPod := strings.CutPrefix(short, "pod"); isPod && uid != "" {
				p.Level, p.UID, p.BestEffort = Pod, uid, tier
				if strings.HasSuffix(name, slice) {
					p.UID = NormalUID(uid)
				}
				break
			}
			if p.Level == Root && short == bestEffort {
				tier = cgroup[:end]
			}
			p.Level = Tier
		case Pod:
			p.Level = Container
		default:
			p.Level = Nested
		}
		above = name
	}
	return p
}

// isRoot reports whether a cgroup is a root by its name and that of the cgroup above, which is empty at the top. A slice is always below
// the slice after which it is named, except at the top of a container's own view of the hierarchy.
func isRoot(above, name string) bool {
	if name == rootName {
		return true
	}
	stem, isSlice := strings.CutSuffix(name, slice)
	if !isSlice {
		return false
	}
	if parent, isBelow := strings.CutSuffix(above, slice); isBelow {
		return stem == parent+"-"+rootName
	}
	return stem == rootName || above == "" && strings.HasSuffix(stem, "-"+rootName)
}

// shortName returns the name that a cgroup has with the cgroupfs driver, also if the one above and its own are slices; empty if a slice
// is not named after the one above.
func shortName(above, name string) string {
	parent, isBelow := strings.CutSuffix(above, slice)
	if !isBelow {
		return name
	}
	short, isNamed := strings.CutPrefix(strings.TrimSuffix(name, slice), parent+"-")
	if !isNamed || !strings.HasSuffix(name, slice) || strings.Contains(short, "-") {
		return ""
	}
	return short
}

// Contains reports whether a cgroup is a kubelet's root or below one.
func Contains(cgroup string) bool { return Of(cgroup).Level != Outside }

// PodUID returns the UID of the pod whose own cgroup this is; empty for all other cgroups.
func PodUID(cgroup string) string {
	if p := Of(cgroup); p.Level == Pod {
		return p.UID
	}
	return ""
}

// NormalUID returns a pod's UID as [Of] reads it from a slice: a UID that itself contains "_" differs from the original.
func NormalUID(uid string) string { return strings.ReplaceAll(uid, "_", "-") }

// Roots returns the paths of the root of a kubelet with this cgroupRoot, by each of its drivers. An empty cgroupRoot is the
// root of the hierarchy.
func Roots(cgroupRoot string) (cgroupfs, systemd string) {
	prefix := ""
	for name := range strings.SplitSeq(strings.Trim(cgroupRoot+"/"+rootName, "/"), "/") {
		cgroupfs += "/" + name
		stem, isSlice := strings.CutSuffix(name, slice)
		if !isSlice {
			stem = strings.ReplaceAll(name, "-", "_")
		}
		prefix += stem
		systemd += "/" + prefix + slice
		prefix += "-"
	}
	return cgroupfs, systemd
}

// TierBelow returns the path of the tier of this name, "burstable" or "besteffort", below a root.
func TierBelow(root, name string) string {
	if stem, isSlice := strings.CutSuffix(root[strings.LastIndexByte(root, '/')+1:], slice); isSlice {
		name = stem + "-" + name + slice
	}
	return root + "/" + name
}
