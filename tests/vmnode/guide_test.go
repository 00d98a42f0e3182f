package vmnode

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"polder/tests/vmnode/wire"
)

// Names of the reclaimed resources, in the CustomNodeResource and in the node's status.
const (
	reclaimedCPU    = "katalyst.kubewharf.io/reclaimed_millicpu"
	reclaimedMemory = "katalyst.kubewharf.io/reclaimed_memory"
	onNode          = "resource."
)

const reserveBytes = 5 << 30

// numbers are the expected results of the guide's steps: the offer with no pods, with a shared pod of one hog, and with two more,
// and the pools of the last two.
type numbers struct {
	all               string
	offers            [3]string
	shared, reclaimed [2]string
}

var (
	guideOf48 = numbers{
		all: "0-47", offers: [3]string{"44k", "42k", "40k"},
		shared:    [2]string{"11,22-23,35,46-47", "10-11,22-23,34-35,46-47"},
		reclaimed: [2]string{"0-10,12-21,24-34,36-45", "0-9,12-21,24-33,36-45"},
	}
	// guideOfSixteen has QEMU's own numbering: the threads of a core are neighbours.
	guideOfSixteen = numbers{
		all: sixteenCPUs, offers: [3]string{"12k", "10k", "8k"},
		shared:    [2]string{"6-7,12-15", "4-7,12-15"},
		reclaimed: [2]string{"0-5,8-11", "0-3,8-11"},
	}
)

// The guide from "Reporting reclaimed resource" to the shrinking cpusets, with its own YAML: pods that the real scheduler
// binds and the real kubelet runs, kubectl exec for the load, and every number read where the guide reads it. Its two parts
// use the same shared pod and run here as one. Then its evictions, on the same node.
func TestKubernetesGuide(t *testing.T) {
	t.Parallel() // with one of the smaller machines: either one mostly waits, for a load average or for kubelet
	w := newWorld(t)
	w.reads("guide")
	w.walk(guideOf48)
	w.Kubectl("delete", "pod", "shared-normal-pod", "reclaimed-normal-pod")
	w.startPipe(fastShrink, fastLoad+slowEnd)
	w.awaitOffer("44k")
	w.overcommitDemo()
	w.loadDemo()
	w.stopPipe()
	w.allTyped()
}

// walk is the guide up to its evictions.
func (w *world) walk(g numbers) {
	w.Helper()
	capacity := w.memoryCapacity()
	w.startPipe("--batch-memory cap", "")

	// With no pods: all but 4 CPUs and 5Gi.
	w.awaitOffer(g.offers[0])
	if got, want := w.offer().Status.ResourceAllocatable[reclaimedMemory], strconv.FormatInt(capacity-reserveBytes, 10); got != want {
		w.Errorf("reclaimed memory is %s, want %s: %d and 5Gi less", got, want, capacity)
	}
	w.log("nothing runs: the offer is %s", g.offers[0])

	shared := w.runPod("shared-normal-pod")
	w.log("at its start it may run on %s", w.cpus(shared))
	w.awaitOffer(g.offers[1])
	w.awaitCPUs(shared, g.shared[0])
	w.log("shared-normal-pod has its pool, the offer is %s", g.offers[1])

	// It requests reclaimed resources: without the offer in the node's status the scheduler would not bind it.
	reclaimed := w.runPod("reclaimed-normal-pod")
	w.awaitCPUs(reclaimed, g.reclaimed[0])
	w.awaitCPUs(shared, g.shared[0])
	w.awaitOffer(g.offers[1])
	w.log("reclaimed-normal-pod has its pool")
	w.awaitLimits(reclaimed, capacity)

	w.exec("shared-normal-pod", "stress -c 2")
	w.awaitOffer(g.offers[2])
	w.awaitCPUs(shared, g.shared[1])
	w.awaitCPUs(reclaimed, g.reclaimed[1])
	w.log("with two more hogs the offer is %s, and the pools have moved", g.offers[2])
	if w.page != nil {
		w.shows("kubectl get kcnr")
	}

	w.stopPipe()
	w.judgeTicks(g.all)
	w.on("isolate --restore --if-exists --journal " + journal)
	for _, cgroup := range []string{shared, reclaimed} {
		w.awaitCPUs(cgroup, g.all)
	}
	for file, want := range map[string]string{
		filepath.Dir(reclaimed) + "/cpu.max": "max 100000", reclaimed + "/memory.max": "max",
		filepath.Dir(filepath.Dir(reclaimed)) + "/memory.high": "max", filepath.Dir(filepath.Dir(reclaimed)) + "/memory.max": "max",
	} {
		if got := strings.TrimSpace(w.on("cat " + file)); got != want {
			w.Errorf("after isolate --restore %s is %s; want %s", file, got, want)
		}
	}
	w.on("report --withdraw --to cnr,node --kubeconfig " + kubeconfig("report"))
	if left := w.nodeOffer(); left != "" && left != "0" {
		w.Errorf("the node's status still offers %s", left)
	}
	w.log("everything restored")
}

// awaitLimits waits until the reclaimed pod's limits are in force, which kubelet ignores: 2k of
// reclaimed_millicpu on the pod, 1Gi of reclaimed_memory on its container; and until batch as a whole is limited, at kubelet's tier.
func (w *world) awaitLimits(container string, capacity int64) {
	w.Helper()
	pod := filepath.Dir(container)
	for file, want := range map[string]string{pod + "/cpu.max": "200000 100000", container + "/memory.max": strconv.Itoa(1 << 30)} {
		w.await(file+" is as written", func() string {
			if got := strings.TrimSpace(w.on("cat " + file)); got != want {
				return "so far: " + got
			}
			return ""
		})
	}
	w.await("batch's memory is capped", func() string {
		var high, most int64
		text := w.on("cd " + filepath.Dir(pod) + " && cat memory.high memory.max")
		if _, err := fmt.Sscan(text, &high, &most); err != nil || high > capacity-reserveBytes || most <= high {
			return fmt.Sprintf("memory.high and memory.max are %q", text)
		}
		return ""
	})
	w.log("its limits are in force, and batch's memory is capped")
}

// memoryCapacity is the node's memory in bytes, as kubelet reports it.
func (w *world) memoryCapacity() int64 {
	w.Helper()
	var n struct {
		Status struct{ Capacity map[string]string }
	}
	w.Get("/api/v1/nodes/"+wire.Node, &n)
	var kib int64
	if _, err := fmt.Sscanf(n.Status.Capacity["memory"], "%dKi", &kib); err != nil {
		w.Fatalf("the node's memory is %q: %v", n.Status.Capacity["memory"], err)
	}
	return kib << 10
}

// nodeOffer is the reclaimed CPU in the node's status, which the scheduler uses.
func (w *world) nodeOffer() string {
	w.Helper()
	var n struct {
		Status struct{ Allocatable map[string]string }
	}
	w.Get("/api/v1/nodes/"+wire.Node, &n)
	return n.Status.Allocatable[onNode+reclaimedCPU]
}

// awaitOffer waits until the CustomNodeResource and the node offer so much CPU.
func (w *world) awaitOffer(want string) {
	w.Helper()
	w.await("the offer is "+want, func() string {
		o := w.offer()
		got := fmt.Sprintf("allocatable %s, capacity %s, in the node's status %s", o.Status.ResourceAllocatable[reclaimedCPU], o.Status.ResourceCapacity[reclaimedCPU], w.nodeOffer())
		if got == fmt.Sprintf("allocatable %[1]s, capacity %[1]s, in the node's status %[1]s", want) {
			if table := w.Kubectl("get", "kcnr"); !strings.Contains(table, " "+want+" ") {
				return fmt.Sprintf("kubectl get kcnr has no %s:\n%s", want, table)
			}
			return ""
		}
		return got
	})
}

// awaitCPUs waits until a cgroup's processes may run on exactly these CPUs.
func (w *world) awaitCPUs(cgroup, want string) {
	w.Helper()
	w.await(cgroup+" has "+want, func() string {
		if got := w.cpus(cgroup); got != want {
			return "it has " + got
		}
		return ""
	})
}
