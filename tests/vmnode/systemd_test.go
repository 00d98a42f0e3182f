package vmnode

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/vm/qemu"
)

const (
	systemdTier = "/kubepods.slice/kubepods-besteffort.slice"
	cgroupMount = "/sys/fs/cgroup"
	// taken is in what isolate says of each reset of the quota.
	taken = " to max 100000"
)

// four is small: nothing here needs more.
var four = qemu.Machine{Sockets: 1, CoresPerSocket: 4, ThreadsPerCore: 1, MemoryMiB: 2048}

// suppressedConfig holds batch pods to a fifth of four CPUs, whatever services use, and makes them idle.
const suppressedConfig = `
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  resource-threshold-config: |
    {"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 20, "cpuSuppressMinPercent": 20}}
  resource-qos-config: |
    {"clusterStrategy": {"beClass": {"cpuQOS": {"enable": true, "schedIdle": 1}}}}
`

const suppressedQuota = "80000 100000"

// Most clusters have kubelet ask systemd for its cgroups. Each time that kubelet updates its tier, once a minute and before each new
// pod, systemd takes the quota off: isolate writes it again and never gives up. What is undone is as kubelet and systemd made it.
func TestSystemdDriver(t *testing.T) {
	t.Parallel() // as TestKubernetesGuide
	w := newWorldOf(t, Options{Machine: four, Systemd: true}, "policy=koordinator")
	w.Apply(suppressedConfig)
	w.Apply(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"batch","namespace":"default","labels":{"koordinator.sh/qosClass":"BE"}},
		"spec":{"containers":[{"name":"c","image":"registry.local/stress:1","imagePullPolicy":"Never","command":["stress","-c","1"]}]}}`)
	w.awaitContainer("batch")
	container := w.cgroupOf("batch")
	pod := filepath.Dir(container)
	if !strings.HasPrefix(pod, cgroupMount+systemdTier+"/kubepods-besteffort-pod") || !strings.HasPrefix(filepath.Base(container), "cri-containerd-") {
		t.Fatalf("the container's cgroup is %s: systemd did not make it", container)
	}
	w.say("the batch pod runs in %s", container)
	first := w.kernelValues(cgroupMount+systemdTier, pod, container)
	w.start(flags{
		collect: "--slo-config koordinator-system/slo-controller-config",
		advise:  "--policy koordinator",
		isolate: "--stale-after 10m", // a slow host is not a silent advise
		report:  "--to node,nodemetric",
	})
	w.heldUnderSystemd(pod)

	for n := 1; n <= 7; n++ { // more than isolate takes from an opponent: --contest is 5
		seen := w.resets()
		// It waits for its volume, and costs no more than its cgroup.
		w.Apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"waits-%d","namespace":"default"},"spec":{"terminationGracePeriodSeconds":0,
			"containers":[{"name":"c","image":"registry.local/pause:1","imagePullPolicy":"Never","volumeMounts":[{"name":"v","mountPath":"/v"}]}],
			"volumes":[{"name":"v","configMap":{"name":"nobody-makes-it"}}]}}`, n))
		w.await("kubelet takes the quota off for a new pod", func() string { return w.resetsBeyond(seen) })
	}
	w.say("seven new pods")
	seen := w.resets()
	w.await("kubelet takes the quota off with its update of each minute", func() string { return w.resetsBeyond(seen) })
	w.say("kubelet's own update")
	w.heldUnderSystemd(pod)
	w.stopPipe()
	w.judgeResets()
	w.on("isolate --restore --if-exists --journal " + journal)
	if got := w.kernelValues(cgroupMount+systemdTier, pod, container); got != first {
		t.Errorf("after isolate --restore:\n%s\nwant\n%s", got, first)
	}
}

// heldUnderSystemd waits until the batch pod is held: by its tier's quota, and by the idle class of its own cgroup.
func (w *world) heldUnderSystemd(pod string) {
	w.Helper()
	throttled := w.throttled()
	w.await("the tier has its quota and the pod is idle", func() string {
		quota := strings.TrimSpace(w.on("cat " + cgroupMount + systemdTier + "/cpu.max"))
		idle := strings.Join(strings.Fields(w.on(fmt.Sprintf("cat %s/cpu.idle %s%s/cpu.idle", pod, cgroupMount, systemdTier))), " ")
		if quota != suppressedQuota || idle != "1 0" {
			return fmt.Sprintf("cpu.max %s, cpu.idle of pod and tier %s: %v", quota, idle, w.reasons())
		}
		return ""
	})
	w.await("the batch pod is throttled", func() string {
		if got := w.throttled(); got <= throttled {
			return fmt.Sprintf("%d periods", got)
		}
		return ""
	})
	tk := w.lastTick()
	if tk.Sample == nil {
		return // not written to its end
	}
	for _, p := range tk.Sample.Pods {
		if p.Name == "batch" && (p.QoS != tick.QoSReclaimed || p.Missing != "" || cgroupMount+p.Cgroup != pod || len(p.Containers) != 1) {
			w.Errorf("the sample has the batch pod as %+v", p)
		}
	}
}

// throttled is how often the tier has used its quota up.
func (w *world) throttled() int {
	w.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(w.on("sed -n 's/^nr_throttled //p' " + cgroupMount + systemdTier + "/cpu.stat")))
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// count is how many lines of a file have a text.
func (w *world) count(text, file string) int {
	w.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(w.on("grep -c '" + text + "' " + file + " || true")))
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// resets is in how many ticks isolate says that the quota was taken off.
func (w *world) resets() int { return w.count(taken, ticksFile) }

func (w *world) resetsBeyond(seen int) string {
	if n := w.resets(); n <= seen {
		return fmt.Sprintf("%d resets so far: %v", n, w.on("tail -n 1 /var/log/isolate.log"))
	}
	return ""
}

// kernelValues is what a cgroup has of what isolate may change, a line a file.
func (w *world) kernelValues(cgroups ...string) string {
	w.Helper()
	return w.on("cd / && grep -s '' " + strings.Join(cgroups, "/cpu.max ") + "/cpu.max " +
		strings.Join(cgroups, "/cpu.idle ") + "/cpu.idle " + strings.Join(cgroups, "/cpu.weight ") + "/cpu.weight " +
		strings.Join(cgroups, "/cpuset.cpus ") + "/cpuset.cpus || true")
}

// judgeResets looks through all ticks: each time that the tier has lost its quota it has it again in the same tick. One reset in a few is
// seen before its pod, and counts for --contest until that comes; had more counted, isolate would have left the quota alone.
func (w *world) judgeResets() {
	w.Helper()
	reset, known := 0, 0
	for _, tk := range w.ticks() {
		if tk.Isolation == nil {
			continue
		}
		for _, e := range tk.Isolation.Errors {
			if e.Cgroup != systemdTier {
				w.say("isolate: %s %s: %s", e.Cgroup, e.Key, e.Error)
				continue
			}
			reset++
			if strings.Contains(e.Error, "reset by kubelet") {
				known++
			}
			if !slices.ContainsFunc(tk.Isolation.Writes, func(by tick.Write) bool {
				return by.Cgroup == e.Cgroup && by.Key == e.Key && by.New == suppressedQuota
			}) {
				w.Errorf("%s: %s; the quota is not written again: %+v", tk.Time.Format(time.TimeOnly), e.Error, tk.Isolation)
			}
		}
	}
	w.say("kubelet reset the quota %d times, %d of them are told from a contest", reset, known)
	if known < 2 {
		w.Errorf("%d resets of %d are told from a contest", known, reset)
	}
}
