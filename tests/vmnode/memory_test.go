package vmnode

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/vm/qemu"
)

const memoryRule = "memory-pressure-eviction-plugin"

// The guide's "Memory" on a node of 2 GiB with 8 CPUs: the pods' requests and stress's memory are smaller by the same
// factor. The pressure is the kernel's own. The configuration is the guide's, unchanged.
func TestKubernetesMemory(t *testing.T) {
	t.Parallel() // as TestKubernetesGuide
	w := newWorldOn(t, qemu.Small)
	w.reads("memory")
	w.create("memory-config")
	// The reserve is 5Gi by default. A reclaimed pod's grace period is a second by default, and an eviction counts as failed
	// after ten, whatever happens later; an emulated kubelet takes longer.
	w.startPipe("--reserve-memory 256Mi", "--memory-reclaimed-grace-period 10m")
	w.await("the node offers something", func() string {
		if offer := w.nodeOffer(); offer == "" || offer == "0" {
			return "it offers " + strconv.Quote(offer)
		}
		return ""
	})
	for _, pods := range []string{reclaimedLarge, sharedLarge} {
		w.createHundredth(pods)
		for _, n := range []string{"-1", "-2"} {
			w.awaitContainer(pods + n)
			w.on("echo 20000 100000 > " + w.cgroupOf(pods+n) + "/cpu.max") // as in hogs
		}
	}
	w.log("the pods run")
	w.awaitPressure("the configuration is in force", func(f *tick.PressureFinding) bool {
		return f.Rule == memoryRule && f.Part == "kswapd" && f.Threshold == 2000
	})
	w.noEviction()
	w.usageDemo()
	w.kswapdDemo()
	w.stopPipe()
	w.allTyped()
}

// usageDemo is the guide's "Memory Usage Eviction": the rule evicts the reclaimed pod that uses most.
func (w *world) usageDemo() {
	w.Helper()
	for _, pod := range []string{"reclaimed-large-pod-1", "reclaimed-large-pod-2"} {
		w.on("echo max 100000 > " + w.cgroupOf(pod) + "/cpu.max")
	}
	w.exec("reclaimed-large-pod-1", "stress --vm 1 --vm-bytes 64M --vm-hang 1000 --verbose")
	w.await("64 MiB are in use", func() string {
		if got := strings.TrimSpace(w.on("cat " + w.cgroupOf("reclaimed-large-pod-1") + "/memory.current")); len(got) < 8 || (len(got) == 8 && got < "67108864") {
			return got + " bytes"
		}
		return ""
	})
	// The kernel's setting keeps a fifth of the memory free, and a pod takes half of what is free: the page cache cannot
	// compensate for it.
	w.on("echo 2000 > /proc/sys/vm/watermark_scale_factor")
	m := w.meminfo()
	size := fmt.Sprintf("%dK", m["MemFree"]+m["Cached"]-m["MemTotal"]/10)
	w.page.here["175G"] = size
	w.exec("reclaimed-large-pod-2", "stress --vm 1 --vm-bytes "+size+" --vm-hang 1000 --verbose")
	w.awaitGone("reclaimed-large-pod-2")
	w.awaitTaint("MemoryPressure")
	w.awaitEvents("reclaimed-large-pod-2", memoryRule, "memory")
	// The other reclaimed pod may have been next: kswapd was active, too, while the first one terminated.
	w.stillThere("shared-large-pod-1", "shared-large-pod-2")
}

// kswapdDemo is the guide's "Kswapd Eviction". Memory that a process takes once gives kswapd work only while there is page cache to
// reclaim, so a reader fills that again and again, from a file without blocks: no disk limits it.
func (w *world) kswapdDemo() {
	w.Helper()
	w.on("echo 500 > /proc/sys/vm/watermark_scale_factor")
	take := max(w.meminfo()["MemFree"]-400<<10, 64<<10)
	w.on(fmt.Sprintf(`
		# A copy: a container's file system that is in use cannot be taken down.
		cp $(find /run/containerd -path '*/rootfs/bin/stress' | head -n 1) /root/stress
		setsid /root/stress --vm 1 --vm-bytes %dK --vm-hang 1000 </dev/null >/dev/null 2>&1 &
		dd if=/dev/zero of=/root/zeros bs=1 count=1 seek=20G 2>/dev/null
		setsid sh -c 'while :; do cat /root/zeros >/dev/null; done' </dev/null >/dev/null 2>&1 & echo $! >/run/reader`, take))
	w.awaitGone("reclaimed-large-pod-1")
	w.await("a shared pod is evicted", func() string {
		if names := w.victims(); len(names) < 3 {
			return fmt.Sprintf("%v went; the last pressures: %s", names, w.pressures())
		}
		return ""
	})
	w.on("kill $(cat /run/reader); killall cat || true")
	w.awaitEvents("reclaimed-large-pod-1", memoryRule, "memory")
	names := w.victims()
	w.awaitEvents(names[2], memoryRule, "memory")
	if names[0] != "reclaimed-large-pod-2" || names[1] != "reclaimed-large-pod-1" || !strings.HasPrefix(names[2], sharedLarge) {
		w.Errorf("they were evicted in the order %v, want reclaimed-large-pod-2, reclaimed-large-pod-1, then a shared one", names)
	}
}

// victims are the pods that the memory rule chose, in order. A shared one is chosen for kswapd alone.
func (w *world) victims() []string {
	w.Helper()
	var names []string
	seen := map[string]bool{}
	for _, tk := range w.ticks() {
		if tk.Eviction == nil {
			continue
		}
		kswapd := false
		for _, f := range tk.Eviction.Pressures {
			kswapd = kswapd || f.Rule == memoryRule && f.Part == "kswapd" && f.Met
		}
		for _, e := range tk.Eviction.Evictions {
			if e.Rule != memoryRule || seen[e.Name] {
				continue
			}
			seen[e.Name] = true
			names = append(names, e.Name)
			if strings.HasPrefix(e.Name, sharedLarge) && !kswapd {
				w.Errorf("%s: %s is evicted while kswapd's rate is not over the threshold: %s", tk.Time.Format(time.TimeOnly), e.Name, e.Message)
			}
		}
	}
	return names
}

// createHundredth creates one of the examples' pairs of pods with a hundredth of the CPU, and a MiB for 100 of memory, and with minutes of
// grace period: an eviction counts as failed after one and a half times that, and an emulated kubelet on a busy host takes
// long.
func (w *world) createHundredth(name string) {
	w.Helper()
	data, err := testdata.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		w.Fatal(err)
	}
	text := strings.NewReplacer("12k", "120", "24k", "240", `"12"`, "120m", `"24"`, "240m", "24Gi", "240Mi", "48Gi", "480Mi",
		"  schedulerName:", "  terminationGracePeriodSeconds: 600\n  schedulerName:").Replace(string(data))
	if _, err := w.TryKubectl(text, "create", "-f", "-"); err != nil {
		w.Fatal(err)
	}
}

// meminfo is the kernel's, in KiB.
func (w *world) meminfo() map[string]int {
	w.Helper()
	values := map[string]int{}
	for line := range strings.Lines(w.on("cat /proc/meminfo")) {
		var name string
		var n int
		if _, err := fmt.Sscan(line, &name, &n); err == nil {
			values[strings.TrimSuffix(name, ":")] = n
		}
	}
	return values
}
