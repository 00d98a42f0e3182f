package kubepods

import (
	"strings"
	"testing"
)

const (
	uid  = "5d1c7c1e-0c1b-4a8e-9d53-3f7a5f0f6a11"
	hash = "5f8f5f8f5f8f5f8f5f8f5f8f5f8f5f8f" // a static pod's
)

// The cgroups of both drivers, at the top and below a cgroupRoot.
func TestOf(t *testing.T) {
	for _, top := range []struct{ root, stem string }{
		{"/kubepods", ""},
		{"/node-0/kubepods", ""},
		{"/kubelet.slice/kubepods", ""},
		{"/kubepods.slice", "kubepods"},
		{"/a.slice/a-b.slice/a-b-kubepods.slice", "a-b-kubepods"},
		{"/a.slice/a-podx.slice/a-podx-kubepods.slice", "a-podx-kubepods"},
		{"/docker/0123/kubelet.slice/kubelet-kubepods.slice", "kubelet-kubepods"},
		{"/system.slice/docker-01.scope/kubepods.slice", "kubepods"},
		{"/kubelet-kubepods.slice", "kubelet-kubepods"}, // in a container's own view of the hierarchy
	} {
		burstable, bestEffort := top.root+"/burstable", top.root+"/besteffort"
		podOf := func(tier, uid string) string { return tier + "/pod" + uid }
		if top.stem != "" {
			burstable, bestEffort = top.root+"/"+top.stem+"-burstable.slice", top.root+"/"+top.stem+"-besteffort.slice"
			podOf = func(tier, uid string) string {
				name := tier[strings.LastIndexByte(tier, '/')+1:]
				return tier + "/" + strings.TrimSuffix(name, ".slice") + "-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
			}
		}
		guaranteed := podOf(top.root, uid)
		for cgroup, want := range map[string]Place{
			top.root:                                           {Level: Root},
			burstable:                                          {Level: Tier},
			bestEffort:                                         {Level: Tier},
			top.root + "/other":                                {Level: Tier},
			bestEffort + "/other":                              {Level: Tier},
			guaranteed:                                         {Level: Pod, UID: uid},
			guaranteed + "/cri-containerd-01.scope":            {Level: Container, UID: uid},
			guaranteed + "/0123/init.scope":                    {Level: Nested, UID: uid},
			podOf(burstable, uid):                              {Level: Pod, UID: uid},
			podOf(burstable, hash) + "/crio-01":                {Level: Container, UID: hash},
			podOf(bestEffort, hash):                            {Level: Pod, UID: hash, BestEffort: bestEffort},
			podOf(bestEffort, uid):                             {Level: Pod, UID: uid, BestEffort: bestEffort},
			podOf(bestEffort, uid) + "/01":                     {Level: Container, UID: uid, BestEffort: bestEffort},
			podOf(bestEffort, uid) + "/01/a/b":                 {Level: Nested, UID: uid, BestEffort: bestEffort},
			podOf(guaranteed+"/01/kubepods/besteffort", "1"):   {Level: Nested, UID: uid}, // names that a container chose
			podOf(guaranteed+"/kubepods.slice", "1") + "/pod2": {Level: Nested, UID: uid},
			podOf(bestEffort, uid) + "/pod1":                   {Level: Container, UID: uid, BestEffort: bestEffort},
		} {
			want.Root = top.root
			if got := Of(cgroup); got != want {
				t.Errorf("%s: %+v; want %+v", cgroup, got, want)
			}
			if !Contains(cgroup) {
				t.Errorf("%s is not kubelet's", cgroup)
			}
			wantUID := want.UID
			if want.Level != Pod {
				wantUID = ""
			}
			if got := PodUID(cgroup); got != wantUID {
				t.Errorf("%s is the cgroup of pod %q; want %q", cgroup, got, wantUID)
			}
		}
	}
}

// Names that only resemble kubelet's, and ancestors of its root.
func TestOutside(t *testing.T) {
	for _, cgroup := range []string{
		"", "/", "/node-0", "/batch/podium", "/pod" + uid, "/batch.slice/pod" + uid, "/besteffort/pod" + uid,
		"/kubepodsx/pod" + uid, "/my-kubepods/pod" + uid, "/kubepods-old",
		"/batch.slice/my-kubepods-job.service", "/batch.slice/batch-kubepodsx.slice",
		"/batch.slice/my-kubepods.slice/my-kubepods-pod1.slice", // systemd puts this slice below my.slice
		"/batch.slice/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice",
		"/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice",
		"/other.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice",
		"kubepods/besteffort/pod" + uid, "kubepods-besteffort.slice/kubepods-besteffort-pod1.slice", // not paths from the root
	} {
		if got := Of(cgroup); got != (Place{}) {
			t.Errorf("%q: %+v; want outside", cgroup, got)
		}
		if uid := PodUID(cgroup); Contains(cgroup) || uid != "" {
			t.Errorf("%q is kubelet's, with pod %q", cgroup, uid)
		}
	}
}

// Cgroups between kubelet's that kubelet did not create are above pods for those who must not write there, and no pods.
func TestStrangeNames(t *testing.T) {
	const slice = "/kubepods.slice/kubepods-besteffort.slice"
	for _, cgroup := range []string{
		"/kubepods/pod", "/kubepods/besteffort-0", "/kubepods/", "/kubepods/kubepods-pod1.slice", slice + "/", slice + "/other.slice",
		slice + "/pod1", slice + "/kubepods-pod1.slice", slice + "/kubepods-besteffort-pod.slice", slice + "/kubepods-besteffort-pod1-2.slice",
		"/kubepods.slice/kubepods-besteffort-pod1.slice", slice + "/kubepods-besteffort-pod1.slice.d",
	} {
		if got := Of(cgroup); got.Level != Tier || got.BestEffort != "" || got.UID != "" {
			t.Errorf("%s: %+v; want no pod", cgroup, got)
		}
	}
}

func TestRoots(t *testing.T) {
	for cgroupRoot, want := range map[string][2]string{
		"":                   {"/kubepods", "/kubepods.slice"},
		"/":                  {"/kubepods", "/kubepods.slice"},
		"/a":                 {"/a/kubepods", "/a.slice/a-kubepods.slice"},
		"a/b":                {"/a/b/kubepods", "/a.slice/a-b.slice/a-b-kubepods.slice"},
		"/node-1/kube.slice": {"/node-1/kube.slice/kubepods", "/node_1.slice/node_1-kube.slice/node_1-kube-kubepods.slice"},
	} {
		cgroupfs, systemd := Roots(cgroupRoot)
		if cgroupfs != want[0] || systemd != want[1] {
			t.Errorf("%q: %s and %s; want %v", cgroupRoot, cgroupfs, systemd, want)
		}
		for _, root := range want {
			tier := TierBelow(root, "besteffort")
			if at := Of(tier); at != (Place{Level: Tier, Root: root}) {
				t.Errorf("%s: %+v", tier, at)
			}
		}
	}
	for root, want := range map[string]string{
		"/a/kubepods": "/a/kubepods/burstable", "/kubepods.slice": "/kubepods.slice/kubepods-burstable.slice",
	} {
		if got := TierBelow(root, "burstable"); got != want {
			t.Errorf("below %s: %s; want %s", root, got, want)
		}
	}
}

func FuzzOf(f *testing.F) {
	for _, seed := range []string{
		"/kubepods/besteffort/pod1/c", "/kubepods.slice/kubepods-pod1_2.slice/c.scope/x", "/a.slice/a-kubepods.slice", "//", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, cgroup string) {
		p := Of(cgroup)
		if p.Level == Above || (p.Level == Outside) != (p.Root == "") || (p.Level >= Pod) != (p.UID != "") {
			t.Fatalf("%q: %+v", cgroup, p)
		}
		for _, above := range []string{p.Root, p.BestEffort} {
			if !strings.HasPrefix(cgroup, above) || above != "" && Of(above).Root != p.Root {
				t.Fatalf("%q: %+v is not above it", cgroup, p)
			}
		}
		below := Of(cgroup + "/kubepods/besteffort/pod1")
		if p.Level >= Pod && (below.Root != p.Root || below.UID != p.UID || below.Level <= p.Level && p.Level != Nested) {
			t.Fatalf("%q: names below change %+v to %+v", cgroup, p, below)
		}
	})
}
