package node

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/lib/tick/ticktest"
	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
)

// watched is a whole pipe in the node, with the ticks that it writes.
type watched struct {
	*Node
	t *testing.T

	mu     sync.Mutex
	last   *tick.Tick
	ticks  int
	errors map[string]int // of the sample and of isolate, by text
	absent int            // ticks without the pod that is to be in all of them
	always string
}

// pipe starts the five tools in the node, as a user's shell does.
func (n *Node) pipe(t *testing.T) *watched {
	t.Helper()
	w := &watched{Node: n, t: t, errors: map[string]int{}}
	line := fmt.Sprintf(`PATH=%s:$PATH
collect --interval 100ms %s --node %[3]s | advise | isolate --node %[3]s --journal /run/isolate |
evict --node %[3]s --action evict %[4]s | report --node %[3]s --grow-interval 0s --to cnr,node %[5]s`,
		binaries.Dir(t), n.account("collect"), n.Name, n.account("evict"), n.account("report"))
	cmd := n.Command(context.Background(), "sh", "-c", line)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<22)
		for lines.Scan() {
			w.take(lines.Bytes())
		}
	}()
	t.Cleanup(func() {
		n.Enter("pkill", "-TERM", "-x", "collect") // the others end at the end of their input
		select {
		case <-done:
			if err := cmd.Wait(); err != nil {
				t.Errorf("the pipe: %v", err)
			}
		case <-time.After(controlplane.Soon):
			t.Error("the pipe does not end")
		}
	})
	return w
}

func (w *watched) take(line []byte) {
	if err := ticktest.Validate(line); err != nil {
		w.t.Errorf("%v: %s", err, line)
		return
	}
	x := new(tick.Tick)
	if err := tick.Unmarshal(line, x); err != nil {
		w.t.Errorf("%v: %s", err, line)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = x
	w.ticks++
	for _, e := range x.Sample.Errors {
		if strings.Contains(e.Error, "API server ") {
			continue // it may be late on a busy machine: these tests are of the node
		}
		w.errors[e.Source+": "+e.Error]++
	}
	if x.Isolation != nil {
		for _, e := range x.Isolation.Errors {
			w.errors["isolate: "+e.Error]++
		}
	}
	if w.always != "" && podIn(x, w.always) == nil {
		w.absent++
	}
}

func podIn(x *tick.Tick, name string) *tick.Pod {
	for i := range x.Sample.Pods {
		if p := &x.Sample.Pods[i]; p.Name == name {
			return p
		}
	}
	return nil
}

// until waits for a tick for which condition returns "".
func (w *watched) until(what string, condition func(*tick.Tick) string) {
	w.t.Helper()
	w.Eventually(controlplane.Soon, what, func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.last == nil {
			return "no tick has come"
		}
		return condition(w.last)
	})
}

// ran returns what is wrong unless a pod's only container runs in the cgroup, as in the sample.
func ran(name, cgroup string) func(*tick.Tick) string {
	return func(x *tick.Tick) string {
		p := podIn(x, name)
		switch {
		case p == nil:
			return "the pod is not in the sample"
		case p.Missing != "" || len(p.Containers) != 1:
			return fmt.Sprintf("missing %q, containers %+v", p.Missing, p.Containers)
		case p.Containers[0].Cgroup != cgroup:
			return fmt.Sprintf("the container's cgroup is %s; want %s", p.Containers[0].Cgroup, cgroup)
		}
		return ""
	}
}

// tiers checks that the sample has kubelet's cgroups, and the guaranteed service's usage above it and in no tier.
func (w *watched) tiers(x *tick.Tick) string {
	want := map[string]string{"kubepods": "/kubepods", "burstable": "/kubepods/burstable", "besteffort": "/kubepods/besteffort"}
	for _, tier := range x.Sample.Tiers {
		if want[tier.Name] != tier.Cgroup {
			return fmt.Sprintf("tier %s is %s; want %s", tier.Name, tier.Cgroup, want[tier.Name])
		}
		delete(want, tier.Name)
		if cpus := w.ReadCgroup("cpuset", tier.Cgroup, "cpuset.effective_cpus"); tier.CPUSetCPUs != cpus || tier.CPUMaxMilliCPU == nil || *tier.CPUMaxMilliCPU != tick.Unlimited {
			return fmt.Sprintf("tier %s has the CPUs %s and the quota %v; want %s and none", tier.Name, tier.CPUSetCPUs, tier.CPUMaxMilliCPU, cpus)
		}
		if tier.UsageMilliCPU == nil || (*tier.UsageMilliCPU > 10) != (tier.Name == "kubepods") {
			return fmt.Sprintf("tier %s uses %v", tier.Name, tier.UsageMilliCPU)
		}
	}
	if len(want) > 0 {
		return fmt.Sprintf("there is no %v", want)
	}
	return ""
}

// TestPipeOnANode: the whole pipe beside a kubelet finds the guide's pods and their real cgroups, limits the reclaimed one and
// offers the rest; a restarted container and pods that are created and deleted in the middle of ticks are no errors.
func TestPipeOnANode(t *testing.T) {
	n := sharedNode(t)
	w := n.pipe(t)
	w.until("an offer", func(x *tick.Tick) string {
		if x.Advice == nil || x.Advice.Reclaimed == nil || x.Advice.Reclaimed.MilliCPU == nil {
			return "no advice"
		}
		return ""
	})
	n.Eventually(controlplane.Soon, "kubectl get kcnr", func() string {
		if out := n.Kubectl("get", "kcnr", "--no-headers"); !strings.HasPrefix(out, n.Name+" ") {
			return "so far: " + out
		}
		return ""
	})

	// The guide's service, bound by the scheduler and run by kubelet.
	n.Apply(Guide("shared-normal-pod"))
	n.AwaitRunning("shared-normal-pod")
	cgroup := n.ContainerCgroup("shared-normal-pod", "stress")
	w.until("the service in the sample", ran("shared-normal-pod", cgroup))
	w.mu.Lock()
	p := *podIn(w.last, "shared-normal-pod")
	w.always = "shared-normal-pod"
	w.mu.Unlock()
	if p.QoS != tick.QoSShared || p.QoSSource != tick.QoSFromKatalyst || p.Namespace != "default" || p.Requests == nil || p.Requests.MilliCPU == nil || *p.Requests.MilliCPU != 2000 {
		t.Errorf("the guide's service is %+v", p)
	}
	if p.KubernetesQOS != "Guaranteed" {
		t.Errorf("the service's class in Kubernetes is %q; want Guaranteed", p.KubernetesQOS)
	}
	w.until("kubelet's tiers", w.tiers)
	if got := n.Kubectl("get", "pod", "shared-normal-pod", "-o", "jsonpath={.metadata.uid} {.status.containerStatuses[0].containerID}"); got != p.UID+" containerd://"+p.Containers[0].ID {
		t.Errorf("the cluster has %s; the sample has pod %s, container %s", got, p.UID, p.Containers[0].ID)
	}

	// A reclaimed pod is limited: on two CPUs by its class.
	n.Apply(n.plain("batch-0", "{}"))
	n.Kubectl("annotate", "pod", "batch-0", "katalyst.kubewharf.io/qos_level=reclaimed_cores")
	n.AwaitRunning("batch-0")
	batch := n.ContainerCgroup("batch-0", "main")
	w.until("the batch pod in the sample", ran("batch-0", batch))
	n.Eventually(controlplane.Soon, "the batch pod's idle class", func() string {
		if idle := n.ReadCgroup("cpu", filepath.Dir(batch), "cpu.idle"); idle != "1" {
			return "cpu.idle is " + idle
		}
		return ""
	})

	// Its container ends and kubelet starts another.
	first := strings.Fields(n.ReadCgroup("cpuset", cgroup, "cgroup.procs"))[0]
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	restarts := func() string {
		return n.Kubectl("get", "pod", "shared-normal-pod", "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}")
	}
	var restarted string
	n.Eventually(controlplane.Soon, "a new container", func() string {
		restarted = restarts()
		if count, ready, _ := strings.Cut(restarted, " "); count == "0" || ready != "true" { // more than 1 where the runtime was too slow for kubelet
			return "so far: " + restarted
		}
		return ""
	})
	if n.ContainerCgroup("shared-normal-pod", "stress") == cgroup {
		t.Fatal("the container's cgroup is the old one")
	}
	w.until("the new container in the sample", func(x *tick.Tick) string { // which may have been restarted once more meanwhile
		return ran("shared-normal-pod", n.ContainerCgroup("shared-normal-pod", "stress"))(x)
	})
	restarted = restarts()

	// Pods are created and deleted in the middle of ticks.
	for wave := range 3 {
		name := fmt.Sprint("brief-", wave)
		var yaml strings.Builder
		for i := range 4 {
			yaml.WriteString(n.plain(fmt.Sprintf("%s-%d", name, i), "{}"))
		}
		n.Apply(yaml.String())
		n.awaitWave(name, 4)
		w.until("the wave in the sample", func(x *tick.Tick) string {
			for i := range 4 {
				if p := podIn(x, fmt.Sprintf("%s-%d", name, i)); p == nil || p.Missing != "" {
					return fmt.Sprintf("%s-%d is %+v", name, i, p)
				}
			}
			return ""
		})
		for i := range 4 {
			n.Kubectl("delete", "pod", fmt.Sprintf("%s-%d", name, i), "--grace-period=1", "--wait=false")
		}
	}
	w.until("only what stays", func(x *tick.Tick) string {
		for _, p := range x.Sample.Pods {
			if p.Name != "shared-normal-pod" && p.Name != "batch-0" {
				return p.Name + " is there, missing " + p.Missing
			}
		}
		return ""
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("%d ticks; errors: %v", w.ticks, w.errors)
	if w.absent > 0 {
		t.Errorf("the service was absent in %d ticks", w.absent)
	}
	for text, count := range w.errors {
		t.Errorf("in %d ticks: %s", count, text)
	}
	n.checkStarts(t)
	if got := restarts(); got != restarted {
		t.Errorf("the service's restarts and readiness are %s; they were %s", got, restarted)
	}
}
