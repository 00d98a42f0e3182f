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

// Kubelet's tiers as the systemd driver creates them.
const (
	systemdTier      = "/kubepods.slice/kubepods-besteffort.slice"
	systemdBurstable = "/kubepods.slice/kubepods-burstable.slice"
)

// driver describes the systemd driver's cgroups in one version of cgroups: where the controllers are mounted, the files'
// names, and how a quota of 160 milli-CPU and no quota are written.
type driver struct {
	cpu, cpuset       string
	quotaFile, weight string
	quota, none       string
}

var (
	driverOnV2 = driver{
		cpu: cgroupMount, cpuset: cgroupMount, quotaFile: "cpu.max", weight: "cpu.weight",
		quota: "16000 100000", none: "max 100000",
	}
	driverOnV1 = driver{
		cpu: cgroupMount + "/cpu,cpuacct", cpuset: cgroupMount + "/cpuset", quotaFile: "cpu.cfs_quota_us", weight: "cpu.shares",
		quota: "16000", none: "-1",
	}
)

// tier is the directory of the BestEffort tier's CPU.
func (d driver) tier() string { return d.cpu + systemdTier }

// taken is in isolate's report of each reset of the quota.
func (d driver) taken() string { return " from " + d.quota + " to " + d.none }

// four is small: nothing needs more when the test does not follow the guide.
var four = qemu.Machine{Sockets: 1, CoresPerSocket: 4, ThreadsPerCore: 1, MemoryMiB: ample}

// suppressedConfig limits batch pods to a percentage of the machine, whatever services use, and makes them idle.
const suppressedConfig = `
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  resource-threshold-config: |
    {"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": %[1]d, "cpuSuppressMinPercent": %[1]d}}
  resource-qos-config: |
    {"clusterStrategy": {"beClass": {"cpuQOS": {"enable": true, "schedIdle": 1}}}}
`

// Most clusters make kubelet use systemd for its cgroups. The guide runs there too, with the numbers of a smaller machine, and then
// batch pods are limited by a quota, which that driver resets again and again.
func TestSystemdDriver(t *testing.T) {
	t.Parallel() // as TestKubernetesGuide
	w := newWorldOf(t, Options{Machine: sixteen, Systemd: true}, "policy=katalyst")
	w.walk(guideOfSixteen)
	w.Kubectl("delete", "pod", "shared-normal-pod", "reclaimed-normal-pod")
	w.values = []string{"policy=koordinator"}
	pod, pipe := w.quotaUnderSystemd(driverOnV2, sixteen.CPUs())
	w.start(pipe)
	w.limitedUnderSystemd(driverOnV2, pod)
	w.opposed(driverOnV2) // once is enough: counting changes of a file does not depend on the version
}

// The same quota where systemd has mounted cgroup v1: each cgroup is a directory in each hierarchy there, and systemd's names of
// the CPU's files differ.
func TestSystemdDriverOnVersion1(t *testing.T) {
	t.Parallel() // as TestKubernetesGuide
	w := newWorldOf(t, Options{Machine: four, Systemd: true, Version1: true}, "policy=koordinator")
	w.quotaUnderSystemd(driverOnV1, four.CPUs())
}

// quotaUnderSystemd limits batch pods by their tier's quota. Each time that kubelet updates its tier, once a minute and before each new
// pod, systemd resets it: isolate writes it again and never gives up, as it does where another program resets it. Restoring results in the
// values of kubelet and systemd. It returns the batch pod's cgroup, and how it started the pipe.
func (w *world) quotaUnderSystemd(d driver, cpus int) (pod string, pipe flags) {
	w.Helper()
	w.AccountFor("collect", w.values...)            // with the chart's namespaces
	w.Apply(fmt.Sprintf(suppressedConfig, 16/cpus)) // a busy CPU of the guest costs one of the host's few
	w.Apply(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"batch","namespace":"default","labels":{"koordinator.sh/qosClass":"BE"}},
		"spec":{"containers":[{"name":"c","image":"registry.local/stress:1","imagePullPolicy":"Never","command":["stress","-c","1"]}]}}`)
	w.Apply(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"default"},
		"spec":{"containers":[{"name":"c","image":"registry.local/pause:1","imagePullPolicy":"Never","resources":{"requests":{"cpu":"10m"}}}]}}`)
	w.awaitContainer("batch")
	w.awaitContainer("web")
	container := w.cgroupOf("batch")
	pod = filepath.Dir(container)
	service := filepath.Dir(w.cgroupOf("web"))
	for path, begin := range map[string]string{
		pod: d.tier() + "/kubepods-besteffort-pod", service: d.cpu + systemdBurstable + "/kubepods-burstable-pod", container: pod + "/cri-containerd-",
	} {
		if !strings.HasPrefix(path, begin) {
			w.Fatalf("the cgroup %s does not begin with %s: systemd did not make it", path, begin)
		}
	}
	w.log("the batch pod runs in %s", container)
	first := w.kernelValues(d, pod, container)
	pipe = flags{
		collect: "--slo-config koordinator-system/slo-controller-config",
		advise:  "--policy koordinator",
		isolate: "--stale-after 10m", // a slow host is not a silent advise
		report:  "--to node,nodemetric",
	}
	w.start(pipe)
	w.limitedUnderSystemd(d, pod)
	w.classified(d, map[string]string{pod: tick.QoSReclaimed, service: tick.QoSShared})

	for n := 1; n <= 7; n++ { // more than isolate tolerates from an opponent: --contest is 5
		seen := w.resets(d)
		// It waits for its volume, and costs no more than its cgroup.
		w.Apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"waits-%d","namespace":"default"},"spec":{"terminationGracePeriodSeconds":0,
			"containers":[{"name":"c","image":"registry.local/pause:1","imagePullPolicy":"Never","volumeMounts":[{"name":"v","mountPath":"/v"}]}],
			"volumes":[{"name":"v","configMap":{"name":"nobody-makes-it"}}]}}`, n))
		w.await("kubelet resets the quota for a new pod", func() string { return w.resetsBeyond(d, seen) })
		w.log("new pod %d", n)
	}
	seen := w.resets(d)
	w.await("kubelet resets the quota with its update of each minute", func() string { return w.resetsBeyond(d, seen) })
	w.log("kubelet's own update")
	w.limitedUnderSystemd(d, pod)
	w.restartKubelet()
	w.on("systemctl daemon-reload")
	w.limitedUnderSystemd(d, pod)
	w.stopPipe()
	w.judgeResets(d)
	w.on("isolate --restore --if-exists --journal " + journal)
	if got := w.kernelValues(d, pod, container); got != first {
		w.Errorf("after isolate --restore:\n%s\nwant\n%s", got, first)
	}
	return pod, pipe
}

// limitedUnderSystemd waits until the batch pod is limited: by its tier's quota, and by the idle class of its own cgroup.
func (w *world) limitedUnderSystemd(d driver, pod string) {
	w.Helper()
	throttled := w.throttled(d)
	w.await("the tier has its quota and the pod is idle", func() string {
		quota := strings.TrimSpace(w.on("cat " + d.tier() + "/" + d.quotaFile))
		idle := strings.Join(strings.Fields(w.on("cat "+pod+"/cpu.idle "+d.tier()+"/cpu.idle")), " ")
		if quota != d.quota || idle != "1 0" {
			return fmt.Sprintf("%s %s, cpu.idle of pod and tier %s: %v", d.quotaFile, quota, idle, w.reasons())
		}
		return ""
	})
	w.await("the batch pod is throttled", func() string {
		if got := w.throttled(d); got <= throttled {
			return fmt.Sprintf("%d periods", got)
		}
		return ""
	})
}

// classified waits for a tick in which the pods have the classes and slices of the cluster, and runs collect for the
// same without a cluster, where only the slices' names show them.
func (w *world) classified(d driver, pods map[string]string) {
	w.Helper()
	lacking := func(tk *tick.Tick, source ...string) string {
		if tk.Sample == nil {
			return "no sample"
		}
		for path, class := range pods {
			cgroup := strings.TrimPrefix(path, d.cpu)
			i := slices.IndexFunc(tk.Sample.Pods, func(p tick.Pod) bool { return p.Cgroup == cgroup })
			if i < 0 {
				return "no pod in " + cgroup
			}
			if p := tk.Sample.Pods[i]; p.QoS != class || p.Missing != "" || len(p.Containers) == 0 || !slices.Contains(source, p.QoSSource) {
				return fmt.Sprintf("%s: class %q by %q, missing %q, %d containers", cgroup, p.QoS, p.QoSSource, p.Missing, len(p.Containers))
			}
		}
		return ""
	}
	w.await("the sample has the pods", func() string { return lacking(w.lastTick(), tick.QoSFromKoordinator, tick.QoSFromKubernetes) })
	alone := new(tick.Tick)
	if err := tick.Unmarshal([]byte(w.on("collect --once")), alone); err != nil {
		w.Fatal(err)
	}
	if lack := lacking(alone, tick.QoSFromRule); lack != "" {
		w.Errorf("without a cluster: %s", lack)
	}
}

// opposed runs a program that resets the quota far more often than kubelet does, until isolate leaves it to that program.
func (w *world) opposed(d driver) {
	w.Helper()
	w.on(fmt.Sprintf(`setsid sh -c 'while :; do echo "%s" >%s/%s; sleep 1; done' </dev/null >/dev/null 2>&1 & echo $! >/run/opponent`,
		d.none, d.tier(), d.quotaFile))
	w.await("isolate leaves the quota to an opponent", func() string {
		if w.count("left to the other writer: changed externally", ticksFile) == 0 {
			return w.on("tail -n 1 /var/log/isolate.log")
		}
		return ""
	})
	w.on("kill $(cat /run/opponent)")
	w.log("the opponent has the quota")
}

// throttled is how often the tier has used up its quota.
func (w *world) throttled(d driver) int {
	w.Helper()
	_, rest, _ := strings.Cut(w.on("cat "+d.tier()+"/cpu.stat"), "nr_throttled ")
	text, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(text)
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// count is how many lines of a file contain a text.
func (w *world) count(text, file string) int {
	w.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(w.on("grep -c '" + text + "' " + file + " || true")))
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// resets is in how many ticks isolate reports that the quota was reset.
func (w *world) resets(d driver) int { return w.count(d.taken(), ticksFile) }

func (w *world) resetsBeyond(d driver, seen int) string {
	if n := w.resets(d); n <= seen {
		return fmt.Sprintf("%d resets so far: %v", n, w.on("tail -n 1 /var/log/isolate.log"))
	}
	return ""
}

// kernelValues are the files of the tier and the cgroups below it that isolate may change, a line a file.
func (w *world) kernelValues(d driver, cgroups ...string) string {
	w.Helper()
	var files []string
	for _, cgroup := range append([]string{d.tier()}, cgroups...) {
		for _, file := range []string{d.quotaFile, d.weight, "cpu.idle"} {
			files = append(files, cgroup+"/"+file)
		}
		files = append(files, d.cpuset+strings.TrimPrefix(cgroup, d.cpu)+"/cpuset.cpus")
	}
	return w.on("grep -s '' " + strings.Join(files, " ") + " || true")
}

// judgeResets checks all ticks: each time that the tier has lost its quota it is written again in the same tick, though systemd may
// reset it once more before isolate reads it back. A few resets are seen before their pod, and count for --contest until that comes; had
// more counted, isolate would have left the quota alone.
func (w *world) judgeResets(d driver) {
	w.Helper()
	reset, known := 0, 0
	for _, tk := range w.ticks() {
		if tk.Isolation == nil {
			continue
		}
		for _, e := range tk.Isolation.Errors {
			if e.Cgroup != systemdTier {
				w.log("isolate: %s %s: %s", e.Cgroup, e.Key, e.Error)
				continue
			}
			reset++
			if strings.Contains(e.Error, "reset by kubelet") {
				known++
			}
			isWritten := slices.ContainsFunc(tk.Isolation.Writes, func(by tick.Write) bool {
				return by.Cgroup == e.Cgroup && by.Key == e.Key && by.New == d.quota
			})
			isResetAtOnce := slices.ContainsFunc(tk.Isolation.Errors, func(other tick.IsolationError) bool {
				return other.Cgroup == e.Cgroup && strings.HasPrefix(other.Error, fmt.Sprintf("wrote %q", d.quota))
			})
			if !isWritten && !isResetAtOnce {
				w.Errorf("%s: %s; the quota is not written again: %+v", tk.Time.Format(time.TimeOnly), e.Error, tk.Isolation)
			}
		}
	}
	w.log("kubelet reset the quota %d times, %d of them are recognized as no contest", reset, known)
	if known < 2 {
		w.Errorf("%d resets of %d are recognized as no contest", known, reset)
	}
}
