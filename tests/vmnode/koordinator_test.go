package vmnode

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"polder/lib/cpus"
	"polder/tests/vm/qemu"
	"polder/tests/vmnode/wire"
)

const (
	batchPod = "be-pod-demo"
	service  = "service"

	sixteenCPUs = "0-15"

	// tier is kubelet's cgroup of the BestEffort pods, which contains the batch pods.
	tier = "/sys/fs/cgroup/kubepods/besteffort"
)

// sixteen has enough CPUs and memory for the requests of the guide's batch pod and a service.
var sixteen = qemu.Machine{Sockets: 2, CoresPerSocket: 4, ThreadsPerCore: 2, MemoryMiB: 16 << 10}

// Koordinator's guides on a node of 16 CPUs, whose numbers do not matter: the batch resources in the node's status, against which the
// scheduler binds the pod; batch pods suppressed as a service's load rises and falls, by CPU sets and by quota; and the eviction by CPU
// satisfaction, step by step as in its own guide, up to the event that it prints.
func TestKoordinatorGuide(t *testing.T) {
	t.Parallel() // as TestKubernetesGuide
	w := newWorldOn(t, sixteen, "policy=koordinator")
	w.ApplyFile("../../deploy/kubernetes/koordinator/priorityclasses.yaml")
	w.KnowsPriorityClasses("koord-batch")
	w.create("slo-controller-config")
	w.on("echo 1 > " + tier + "/cpu.idle") // as another program left it
	w.start(flags{
		collect: "--slo-config koordinator-system/slo-controller-config",
		advise:  "--policy koordinator",
		report:  "--to node,nodemetric",
	})
	w.batchResources()
	w.create(batchPod)
	w.awaitContainer(batchPod)
	w.awaitContainer(service)
	w.log("both pods run")
	w.hogsOf(batchPod, "STOP")
	w.schedIdle()
	w.ownCgroups()

	w.suppressed("cpuset")
	w.configure(`"cpuSuppressPolicy": "cfsQuota"`)
	w.suppressed("cfsQuota")
	w.configure(`"cpuSuppressPolicy": "cpuset"`)
	w.satisfaction()
	w.stopPipe()
	w.on("isolate --restore --if-exists --journal " + journal)
	if got := w.cpus(tier); got != sixteenCPUs {
		w.Errorf("after isolate --restore the tier has the CPUs %s", got)
	}
}

// batchResources waits for the output that the guide's kubectl shows.
func (w *world) batchResources() {
	w.Helper()
	var text string
	w.await("the node offers batch resources", func() string {
		text = w.Kubectl("describe", "node", wire.Node)
		for _, name := range []string{"kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"} {
			if n := len(regexp.MustCompile(`(?m)^  `+name+`: +[1-9][0-9]*$`).FindAllString(text, -1)); n != 2 {
				return fmt.Sprintf("%s stands there %d times:\n%s", name, n, text)
			}
		}
		return ""
	})
	from, to := strings.Index(text, "Capacity:"), strings.Index(text, "System Info:")
	w.printed("kubectl describe node "+wire.Node, text[from:to])
	var metrics string
	w.await("the NodeMetric has the node's use", func() string {
		metrics, _ = w.TryKubectl("", "get", "nodemetrics", wire.Node, "-o", "yaml")
		if !regexp.MustCompile(`(?m)^    nodeUsage:\n      resources:\n        cpu: \d+m?\n        memory: (?:"\d+"|\d+Ki)$`).MatchString(metrics) {
			return "so far: " + metrics
		}
		return ""
	})
	w.printed("kubectl get nodemetrics "+wire.Node+" -o yaml", metrics)
}

// ownCgroups waits until the batch pod's cgroups match its batch requests and limits: kubelet ignores them.
func (w *world) ownCgroups() {
	w.Helper()
	cgroup := w.cgroupOf(batchPod)
	// The weight of 4 * 1024 shares, by Koordinator's conversion.
	for file, want := range map[string]string{"cpu.max": "400000 100000", "cpu.weight": "157", "memory.max": strconv.Itoa(4 << 30)} {
		w.await(file+" is the batch limit", func() string {
			if got := strings.TrimSpace(w.on("cat " + cgroup + "/" + file)); got != want {
				return "so far: " + got
			}
			return ""
		})
	}
}

// schedIdle turns the idle class on and off again: it applies to the batch pods' cgroups, and kubelet, which writes its tier's weight at
// each start, restarts while it is on.
func (w *world) schedIdle() {
	w.Helper()
	set := func(on int) {
		w.Kubectl("patch", "cm", "-n", "koordinator-system", "slo-controller-config", "-p",
			fmt.Sprintf(`{"data":{"resource-qos-config":"{\"clusterStrategy\":{\"beClass\":{\"cpuQOS\":{\"enable\":true,\"schedIdle\":%d}}}}"}}`, on))
	}
	cgroup := filepath.Dir(w.cgroupOf(batchPod))
	idle := func(what, want string) {
		w.await(what, func() string {
			got := strings.Fields(w.on("cat " + tier + "/cpu.idle " + tier + "/cpu.weight " + cgroup + "/cpu.idle"))
			if strings.Join(got, " ") != "0 1 "+want {
				return fmt.Sprintf("the tier's cpu.idle and cpu.weight, and the pod's cpu.idle are %v: %v", got, w.reasons())
			}
			return ""
		})
	}
	set(1)
	idle("the pod is idle and the tier is not", "1")
	w.restartKubelet()
	idle("the pod is idle and the tier is not, after kubelet's start", "1")
	set(0)
	idle("the pod is idle no more", "0")
	w.log("idle class turned on and off, kubelet started meanwhile")
}

// hogsOf sends a signal to three of a pod's hogs. A busy CPU of the guest costs one of the host's few: until the guide's last steps the
// others are load enough.
func (w *world) hogsOf(pod, signal string) {
	w.Helper()
	w.on(fmt.Sprintf("kill -%s $(sort -n %s/cgroup.procs | sed -n 2,4p)", signal, w.cgroupOf(pod))) // the first one is the hogs' parent
}

// restartKubelet kills kubelet, which is restarted at once, and waits until it has written the weights of its tiers.
func (w *world) restartKubelet() {
	w.Helper()
	const begun = "Starting Kubelet Plugin Manager" // after its cgroups
	before := w.logged(begun)
	w.on("killall -KILL kubelet")
	w.await("kubelet starts", func() string {
		if w.logged(begun) == before {
			return w.on("tail -n 3 /var/log/kubelet.log")
		}
		return ""
	})
	if n := w.logged("Failed to start ContainerManager"); n != 0 {
		w.Errorf("kubelet could not write its cgroups %d times", n)
	}
	w.log("kubelet is restarted")
}

// logged is how many lines of kubelet's log contain a text.
func (w *world) logged(text string) int {
	w.Helper()
	return w.count(text, "/var/log/kubelet.log")
}

// configure changes one of the thresholds, by the patch that the guide recommends.
func (w *world) configure(setting string) {
	w.Helper()
	data, err := testdata.ReadFile("testdata/slo-controller-config.yaml")
	if err != nil {
		w.Fatal(err)
	}
	patch := filepath.Join(w.Dir(), "configmap.yaml")
	if err := os.WriteFile(patch, []byte(strings.Replace(string(data), `"enable": true,`, `"enable": true, `+setting+`,`, 1)), 0o600); err != nil {
		w.Fatal(err)
	}
	w.Kubectl("patch", "cm", "-n", "koordinator-system", "slo-controller-config", "--patch-file", patch)
	w.log("the ConfigMap has %s", setting)
}

// share is the CPU limit of all batch pods together, in milli-CPU.
func (w *world) share(policy string) int {
	w.Helper()
	if policy == "cpuset" {
		set, err := cpus.Parse(w.cpus(tier))
		if err != nil {
			w.Fatal(err)
		}
		return set.Size() * 1000
	}
	var quota, period int
	text := w.on("cat " + tier + "/cpu.max")
	if _, err := fmt.Sscan(text, &quota, &period); err != nil {
		return 16 * 1000 // max
	}
	return quota * 1000 / period
}

// suppressed lets the service's load rise and fall: the batch pods' share shrinks by as much at once, and grows again.
func (w *world) suppressed(policy string) {
	w.Helper()
	const most = 16 * 42 * 10 // of 16 CPUs
	calm := 0
	w.await("batch pods are suppressed by "+policy, func() string {
		if calm = w.share(policy); calm < 3000 || calm > most+999 {
			return fmt.Sprintf("they have %d, want 3000 to %d: %v", calm, most, w.reasons())
		}
		return ""
	})
	w.level(policy)
	load := w.exec(service, "stress -c 3")
	w.await("the batch pods' share shrinks", func() string {
		if got := w.share(policy); got > calm-2000 {
			return fmt.Sprintf("it is %d, and was %d without the load: %v", got, calm, w.reasons())
		}
		return ""
	})
	w.log("%s: without load %d, with 3 busy threads %d", policy, calm, w.share(policy))
	w.stop(load, service, 3)
	w.await("the batch pods' share grows again", func() string {
		if got := w.share(policy); got < calm-1000 {
			return fmt.Sprintf("it is %d, and was %d before the load: %v", got, calm, w.reasons())
		}
		return ""
	})
	w.log("%s: after the load %d", policy, w.share(policy))
}

// level checks the other effects of a policy: with quotas the batch pods have all CPUs, and no quota of their own; with CPU sets
// their cgroups are within the tier's.
func (w *world) level(policy string) {
	w.Helper()
	cgroup := w.cgroupOf(batchPod)
	w.await("the batch pod's cgroup follows "+policy, func() string {
		max, set := strings.TrimSpace(w.on("cat "+cgroup+"/cpu.max")), w.cpus(cgroup)
		tierMax := strings.TrimSpace(w.on("cat " + tier + "/cpu.max"))
		switch {
		case policy == "cfsQuota" && (max != "max 100000" || set != sixteenCPUs):
			return fmt.Sprintf("cpu.max %s, CPUs %s", max, set)
		case policy == "cpuset" && (max != "400000 100000" || tierMax != "max 100000" || set != w.cpus(tier)):
			return fmt.Sprintf("cpu.max %s, the tier's %s, CPUs %s", max, tierMax, set)
		}
		return ""
	})
}

// satisfaction is the guide's last steps: a service uses the CPUs, and the batch pod is evicted.
func (w *world) satisfaction() {
	w.Helper()
	w.await("CPU sets again", func() string {
		if got := w.share("cpuset"); got > 9000 {
			return fmt.Sprint(got)
		}
		return ""
	})
	w.printed("kubectl get pod "+batchPod, w.Kubectl("get", "pod", batchPod))
	w.hogsOf(batchPod, "CONT")
	w.exec(service, "stress -c 6")
	w.await(batchPod+" is evicted", func() string {
		if !w.exists(batchPod) {
			return ""
		}
		return "it is there; the last pressures: " + w.pressures()
	})
	if _, err := w.TryKubectl("", "get", "pod", batchPod); err == nil || !strings.Contains(err.Error(), `Error from server (NotFound): pods "`+batchPod+`" not found`) {
		w.Errorf("kubectl get pod %s: %v", batchPod, err)
	}
	// The guide's own release is 1200 of 4000: the difference from half to 80 percent. The mean over a minute may still be over half, and
	// what batch may use is less than half where a busy machine makes the guest's own programs use more: the ticks have it.
	most := 0.0
	for _, tk := range w.ticks() {
		if tk.Eviction == nil {
			continue
		}
		for _, f := range tk.Eviction.Pressures {
			if f.Scope == "be.cpu.satisfaction.percent" && f.Met {
				most = max(most, 4000*(80-f.Value)/100)
			}
		}
	}
	want := regexp.MustCompile(`(?m)^\S+ +Warning +evictPodSuccess +pod/` + batchPod + ` +evict Pod:` + batchPod +
		`, reason: EvictPodByBECPUSatisfaction, message: killAndEvictBEPodsRelease for node\(` + wire.Node + `\), need realase CPU : (\d+)$`)
	var events string
	w.await("the event", func() string {
		events = w.Kubectl("get", "event")
		m := want.FindStringSubmatch(events)
		if m == nil {
			return "so far: " + events
		}
		if release, err := strconv.Atoi(m[1]); err != nil || release < 800 || float64(release) > most {
			w.Errorf("the release is %s, want 800 to %.0f", m[1], most)
		}
		if !regexp.MustCompile(`(?m)^\S+ +Normal +Killing +pod/` + batchPod + ` +Stopping container stress$`).MatchString(events) {
			return "kubelet's own event is missing:\n" + events
		}
		return ""
	})
	w.printed("kubectl get event", events)
	w.stillThere(service)
}

func (w *world) reasons() []string {
	w.Helper()
	if a := w.lastTick().Advice; a != nil {
		return a.Reasons
	}
	return nil
}
