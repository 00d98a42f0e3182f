package vmnode

import (
	"context"
	"embed"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"polder/lib/tick"
	"polder/tests/cluster/program"
	"polder/tests/vmnode/wire"
)

// testdata has the examples' pods that the guide downloads, and its two configurations as it pipes them to kubectl.
//
//go:embed testdata
var testdata embed.FS

const (
	sharedLarge    = "shared-large-pod"
	reclaimedLarge = "reclaimed-large-pod"

	overcommitRule = "reclaimed-resource-pressure-eviction-plugin"
	loadRule       = "cpu-pressure-eviction-plugin"
)

// The load is sampled at every tick, not every half minute: the window's ten samples are there after 20 s instead of
// five minutes. All other settings are the defaults.
const fastLoad = "--load-sync-period 2s"

// A service's pool that is no longer needed shrinks at every tick, not by a step every half minute: new pods count with their
// requests.
const fastShrink = "--hold 1s"

// slowEnd gives evicted pods minutes to end: their programs end at once, but an emulated kubelet on a busy host takes long to see it. An
// eviction counts as failed after one and a half times the grace period, and evict then evicts another pod.
const slowEnd = " --reclaimed-grace-period 10m --cpu-grace-period 10m"

// overcommitDemo is the guide's "Resource Overcommit". The reclaimed pods request 36 CPUs, more than five times the 4 that are left.
func (w *world) overcommitDemo() {
	w.Helper()
	w.createLarge()
	w.create("overcommit-config")
	stress := w.hogs("shared-large-pod-2", 40)
	// The threshold is 10, so 36 CPUs are below it.
	w.awaitOffer("4k")
	w.log("stress -c 40: the offer is 4k")
	w.printed("the offer", w.Kubectl("get", "kcnr", wire.Node, "-o", "jsonpath={.status.resourceAllocatable}"))
	w.awaitPressure("the threshold of 10 holds", func(f *tick.PressureFinding) bool {
		return f.Rule == overcommitRule && f.Value == 36000 && f.Threshold == 40000 && !f.Met
	})
	w.noEviction()
	w.Kubectl("delete", "kcc", "eviction-configuration")
	w.Kubectl("delete", "evictionconfiguration", "default")
	w.awaitGone("reclaimed-large-pod-2")
	w.awaitEvents("reclaimed-large-pod-2", overcommitRule, "katalyst.kubewharf.io/reclaimed_millicpu")
	w.stillThere("shared-large-pod-1", "shared-large-pod-2", "reclaimed-large-pod-1")
	w.stop(stress, "shared-large-pod-2", 40)
}

// loadDemo is the guide's "Load Eviction": at 50 threads the node is tainted, at 100 the pod that runs them is evicted.
func (w *world) loadDemo() {
	w.Helper()
	stress := w.hogs("shared-large-pod-2", 50)
	w.awaitTaint("CPUPressure")
	w.awaitPressure("the soft bound is the pool's 44 CPUs", func(f *tick.PressureFinding) bool {
		return f.Rule == loadRule && !f.Hard && f.Met && f.Threshold == 44
	})
	w.stillThere("shared-large-pod-1", "shared-large-pod-2", "reclaimed-large-pod-1")
	w.log("stress -c 50: the node is tainted, no pod is evicted")
	w.stop(stress, "shared-large-pod-2", 50)

	w.hogs("shared-large-pod-2", 100)
	w.awaitGone("shared-large-pod-2")
	w.awaitEvents("shared-large-pod-2", loadRule, "cpu.load.1min.container")
	w.stillThere("shared-large-pod-1", "reclaimed-large-pod-1")
	w.judgeLoad()
}

// judgeLoad checks all ticks: the pod was chosen for its load only once the load was over the hard bound.
func (w *world) judgeLoad() {
	w.Helper()
	judged := 0
	for _, tk := range w.ticks() {
		if tk.Eviction == nil {
			continue
		}
		for _, e := range tk.Eviction.Evictions {
			if e.Rule != loadRule || e.State != tick.StateRequested {
				continue
			}
			judged++
			for _, f := range tk.Eviction.Pressures {
				if f.Rule == loadRule && f.Hard && !(f.Value > f.Threshold && f.Threshold == 44*1.8) {
					w.Errorf("%s: %s is evicted at a load of %.1f, the bound is %.1f", tk.Time.Format(time.TimeOnly), e.Name, f.Value, f.Threshold)
				}
			}
		}
	}
	if judged == 0 {
		w.Errorf("no tick has the eviction's request")
	}
}

// createLarge creates the examples' pods, the reclaimed ones first: a shared pod counts with its requests while it
// is new, and once the node has the shared ones it offers 8k, which is not enough for the others.
func (w *world) createLarge() {
	w.Helper()
	for _, pods := range []string{reclaimedLarge, sharedLarge} {
		w.shows("kubectl create -f " + pods + ".yaml")
		for _, n := range []string{"-1", "-2"} {
			w.awaitContainer(pods + n)
			if pods == reclaimedLarge {
				w.on("echo 20000 100000 > " + w.cgroupOf(pods+n) + "/cpu.max") // as in hogs
			}
		}
		if pods == reclaimedLarge {
			w.shows("kubectl wait --for=condition=Ready pod/reclaimed-large-pod-1 pod/reclaimed-large-pod-2")
		}
	}
	w.log("the large pods run")
}

// create pipes a file to kubectl, as the guide does.
func (w *world) create(name string) {
	w.Helper()
	data, err := testdata.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		w.Fatal(err)
	}
	out, err := w.TryKubectl(string(data), "create", "-f", "-")
	if err != nil {
		w.Fatal(err)
	}
	w.printed("kubectl create -f "+name+".yaml", out)
}

// exec runs a command in a pod as the guide does, and returns when it runs. On a busy host kubelet may give up on the streams of
// kubectl exec before they are open: kubectl then ends with status 0 or waits for ever, prints nothing, and nothing runs. So exec
// retries.
// The command continues when kubectl's connection ends.
func (w *world) exec(pod, command string) *program.Program {
	w.Helper()
	cgroup := w.cgroupOf(pod)
	args := append([]string{"exec", pod, "--"}, strings.Fields(command)...)
	start := func() *exec.Cmd { return w.KubectlCommand(context.Background(), args...) }
	line := fmt.Sprintf("kubectl exec %s -it -- %s", pod, command)
	onPage := w.page != nil && w.page.has(line)
	if onPage {
		start = func() *exec.Cmd { return w.typing(context.Background(), "exec "+line) }
	}
	var p *program.Program
	var asked time.Time
	answer := 2 * time.Minute // each later attempt has twice as long: a busy host may be slow
	w.await(command+" runs in "+pod, func() string {
		if p != nil && p.Running() && time.Since(asked) > answer && !w.runs(cgroup, command) {
			p.Kill()
			answer *= 2
		}
		if p == nil || !p.Running() && !w.runs(cgroup, command) {
			if p != nil {
				w.log("kubectl exec ended and %s does not run: again", command)
			}
			var err error
			asked = time.Now()
			if p, err = program.Start(filepath.Join(w.Dir(), "exec.log"), start()); err != nil {
				w.Fatal(err)
			}
			w.Cleanup(p.Kill)
			w.log("kubectl %s", strings.Join(args, " "))
		}
		if !w.runs(cgroup, command) {
			return "it does not yet; the end of kubectl's log:\n" + p.Tail(5)
		}
		return ""
	})
	if onPage {
		w.done(line)
	}
	return p
}

// runs reports whether a process whose command line begins so is in a cgroup.
func (w *world) runs(cgroup, command string) bool {
	w.Helper()
	script := "cat"
	for pid := range strings.FieldsSeq(w.on("cat " + cgroup + "/cgroup.procs")) {
		script += " /proc/" + pid + "/cmdline"
	}
	line := "\x00" + strings.ReplaceAll(command, " ", "\x00") + "\x00"
	return script != "cat" && strings.Contains("\x00"+w.on(script+" 2>/dev/null || true"), line) // one may have ended
}

// hogs runs exec with so many stress hogs. Then the pod is limited to a fifth of a CPU: the load counts the threads that
// want to run, with or without CPU, and 24 busy emulated CPUs would leave kubelet and the tools none of the host's few.
func (w *world) hogs(pod string, n int) *program.Program {
	w.Helper()
	cgroup := w.cgroupOf(pod)
	w.on("echo max 100000 > " + cgroup + "/cpu.max")
	p := w.exec(pod, fmt.Sprintf("stress -c %d", n))
	w.await("all hogs run", func() string {
		// Two are the pod's own, one is the hogs' parent.
		got := strings.TrimSpace(w.on(fmt.Sprintf(`n=$(wc -l < %[1]s/cgroup.procs)
			[ $n -lt %[2]d ] || echo 20000 100000 > %[1]s/cpu.max
			echo $n`, cgroup, n+3)))
		if count, err := strconv.Atoi(got); err != nil || count < n+3 {
			return "so far " + got
		}
		return ""
	})
	return p
}

// stop ends the processes of an exec of stress. Each hog's time is over, as with -t: the parent ends after them. Without a parent they
// would become children of the pod's first process, which treats their end as a failure of its own.
func (w *world) stop(p *program.Program, pod string, n int) {
	w.Helper()
	cgroup := w.cgroupOf(pod)
	command := fmt.Sprintf("stress -c %d", n)
	if !w.runs(cgroup, command) {
		w.Errorf("%s does not run any more in %s, and the test has not ended it; the end of kubectl's log:\n%s", command, pod, p.Tail(5))
	}
	w.on(fmt.Sprintf(`echo max 100000 > %[1]s/cpu.max
		for p in $(sort -n %[1]s/cgroup.procs); do
			[ "$(tr '\0' ' ' </proc/$p/cmdline)" = "%[2]s " ] || continue
			[ -z "$parent" ] && parent=$p || echo $p
		done | xargs kill -ALRM`, cgroup, command))
	w.await(command+" ends", func() string {
		if w.runs(cgroup, command) {
			return "it runs"
		}
		return ""
	})
}

// cgroupOf is the cgroup of the container of a running pod.
func (w *world) cgroupOf(pod string) string {
	w.Helper()
	cgroup := strings.TrimSpace(w.on("find " + w.hierarchy + " -type d -name '*" + w.container(pod) + "*'")) // systemd's has more in its name
	if cgroup == "" || strings.Contains(cgroup, "\n") {
		w.Fatalf("%s: the cgroups of its container are %q", pod, cgroup)
	}
	return cgroup
}

func (w *world) awaitContainer(pod string) {
	w.Helper()
	w.await(pod+" runs", func() string {
		if w.container(pod) != "" {
			return ""
		}
		return w.Kubectl("get", "pod", pod, "-o", "wide", "--no-headers")
	})
}

// exists reports whether a pod exists, also while it terminates.
func (w *world) exists(pod string) bool {
	w.Helper()
	status, body := w.API("GET", "/api/v1/namespaces/default/pods/"+pod, "")
	if status != http.StatusOK && status != http.StatusNotFound {
		w.Fatalf("pod %s: status %d: %s", pod, status, body)
	}
	return status == http.StatusOK
}

func (w *world) awaitGone(pod string) {
	w.Helper()
	w.await(pod+" is evicted", func() string {
		if !w.exists(pod) {
			return ""
		}
		return "it is there; the last pressures: " + w.pressures()
	})
	w.log("%s is gone", pod)
}

// stillThere fails the test if one of the pods is gone or terminates.
func (w *world) stillThere(pods ...string) {
	w.Helper()
	for _, pod := range pods {
		if got := w.Kubectl("get", "pod", pod, "--ignore-not-found", "-o", "jsonpath={.status.phase}{.metadata.deletionTimestamp}"); got != "Running" {
			w.Errorf("pod %s: %q, want it to run", pod, got)
		}
	}
}

// evictionEvents is the guide's output.
func (w *world) evictionEvents() string {
	w.Helper()
	var b strings.Builder
	for line := range strings.Lines(w.Kubectl("get", "event", "-A")) {
		if strings.Contains(line, "Evict") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// noEviction fails the test if there are events of evictions.
func (w *world) noEviction() {
	w.Helper()
	if events := w.evictionEvents(); events != "" {
		w.Errorf("events of evictions:\n%s", events)
	}
}

// awaitEvents waits for both events of an eviction, with the guide's texts.
func (w *world) awaitEvents(pod, rule, scope string) {
	w.Helper()
	reason := fmt.Sprintf("reason: met threshold in scope: %s from plugin: %s", scope, rule)
	var wants []*regexp.Regexp
	for _, want := range []string{
		"default LAST Normal EvictCreated pod/" + pod + " Successfully create eviction; " + reason,
		"default LAST Normal EvictSucceeded pod/" + pod + " Evicted pod has been deleted physically; " + reason,
	} {
		wants = append(wants, regexp.MustCompile("(?m)^"+strings.ReplaceAll(strings.ReplaceAll(regexp.QuoteMeta(want), " ", " +"), "LAST", `\S+`)+"$"))
	}
	const line = "kubectl get event -A | grep -i evict"
	onPage := w.page != nil && w.page.has(line)
	var events string
	w.await("the events of "+pod, func() string {
		if events = w.evictionEvents(); onPage {
			var err error
			if events, err = w.types(line); err != nil {
				return err.Error()
			}
		}
		for _, want := range wants {
			if !want.MatchString(events) {
				return fmt.Sprintf("none matches %s:\n%s", want, events)
			}
		}
		return ""
	})
	w.printed(line, events)
	if onPage {
		w.done(line)
	}
}

// awaitTaint waits until the CustomNodeResource has the taint, printed as in the guide but for the class that later releases name.
func (w *world) awaitTaint(name string) {
	w.Helper()
	want := regexp.MustCompile(`(?m)^  taints:\n  - effect: NoSchedule\n    key: node\.katalyst\.kubewharf\.io/` + name + `\n(?:    qosLevel: reclaimed_cores\n)?    timeAdded: "20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"$`)
	const line = "kubectl get kcnr " + wire.Node + " -o yaml"
	var found string
	w.await("the taint "+name, func() string {
		text, err := w.types(line)
		if err != nil {
			return err.Error()
		}
		if found = want.FindString(text); found == "" {
			return "the last pressures: " + w.pressures()
		}
		return ""
	})
	w.printed(line, found)
	w.done(line)
}

// lastTick is the newest tick.
func (w *world) lastTick() *tick.Tick {
	w.Helper()
	var tk tick.Tick
	text := strings.TrimSpace(w.on("[ ! -e " + ticksFile + " ] || tail -n 1 " + ticksFile))
	if err := tick.Unmarshal([]byte(text), &tk); err != nil {
		return &tick.Tick{} // not written yet, or not completely
	}
	return &tk
}

// ticks are all ticks of the current pipe.
func (w *world) ticks() []*tick.Tick {
	w.Helper()
	var all []*tick.Tick
	for line := range strings.Lines(w.on("cat " + ticksFile)) {
		tk := new(tick.Tick)
		if err := tick.Unmarshal([]byte(line), tk); err != nil {
			continue // the last one, not completely written
		}
		all = append(all, tk)
	}
	return all
}

// pressures are the last tick's, in readable form.
func (w *world) pressures() string {
	w.Helper()
	e := w.lastTick().Eviction
	if e == nil {
		return "none"
	}
	var b strings.Builder
	for _, f := range e.Pressures {
		fmt.Fprintf(&b, "%s %s hard %t: %.1f of %.1f, met %t; ", f.Rule, f.Scope, f.Hard, f.Value, f.Threshold, f.Met)
	}
	fmt.Fprintf(&b, "reported errors %v", e.Errors)
	return b.String()
}

// awaitPressure waits for a tick with a finding.
func (w *world) awaitPressure(what string, ok func(*tick.PressureFinding) bool) {
	w.Helper()
	w.await(what, func() string {
		if e := w.lastTick().Eviction; e != nil {
			for i := range e.Pressures {
				if ok(&e.Pressures[i]) {
					return ""
				}
			}
		}
		return w.pressures()
	})
}

// printed logs a user's command and its output.
func (w *world) printed(command, text string) {
	w.Helper()
	w.log("$ %s\n%s", command, strings.TrimRight(text, "\n"))
}
