package vmnode

import (
	"context"
	"fmt"
	"strings"
	"time"

	"polder/lib/tick"
	"polder/tests/vmnode/wire"
)

// rampUp is how long a new shared pod runs on all CPUs.
const rampUp = 30 * time.Second

const (
	ticksFile = "/run/polder/ticks"
	journal   = "/run/polder/journal"
	// On a busy host a tick takes long to arrive, and is still valid then.
	anyAge = " --max-age 10m "
)

// flags are the tools' flags besides those that all pipes have.
type flags struct{ collect, advise, isolate, evict, report string }

// startPipe starts the tools for the guide, with more flags for advise and evict.
func (w *world) startPipe(advise, evict string) {
	w.Helper()
	w.start(flags{advise: advise, evict: evict, report: "--to cnr,node"})
}

// start starts the tools on the node as a user would, each with a kubeconfig of its own account. They use two CPUs
// at once: emulated ones are slow, and 48 of them share the host's.
func (w *world) start(f flags) {
	w.Helper()
	for _, tool := range []string{"collect", "evict", "report"} {
		path := w.AccountFor(tool, w.values...)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, err := w.node.RunInput(ctx, "mkdir -p /etc/polder /run/polder; umask 077; cat > "+kubeconfig(tool), Flatten(w.ControlPlane, path))
		cancel()
		if err != nil {
			w.Fatal(err)
		}
	}
	stages := []string{
		"collect --interval 2s --node " + wire.Node + " --kubeconfig " + kubeconfig("collect") + " " + f.collect,
		"advise " + f.advise,
		"isolate" + anyAge + "--journal " + journal + " " + f.isolate,
		"evict" + anyAge + "--action evict --kubeconfig " + kubeconfig("evict") + " " + f.evict,
		"report --grow-interval 0s " + f.report + " --kubeconfig " + kubeconfig("report"),
	}
	for i, stage := range stages {
		name, _, _ := strings.Cut(stage, " ")
		stages[i] = fmt.Sprintf("{ %s 2>/var/log/%s.log; echo %s $? >>/run/polder/ends; }", stage, name, name)
	}
	w.on("rm -f /run/polder/ends; export GOMAXPROCS=2; setsid sh -c '" + strings.Join(stages, " | ") + " >" + ticksFile + "' </dev/null >/dev/null 2>&1 &")
}

func kubeconfig(tool string) string { return "/etc/polder/" + tool + ".kubeconfig" }

// stopPipe ends the first tool; the others end at their input's end, and all must succeed.
func (w *world) stopPipe() {
	w.Helper()
	w.on("killall -TERM collect")
	var ends string
	w.await("the tools end", func() string {
		if ends = w.on("cat /run/polder/ends 2>/dev/null || true"); strings.Count(ends, "\n") == len(tools) {
			return ""
		}
		return "ended so far: " + ends
	})
	for line := range strings.Lines(ends) {
		if !strings.HasSuffix(line, " 0\n") {
			w.Errorf("status of %s", line)
		}
	}
}

// judgeTicks checks all ticks for violations. While a new shared pod is in its ramp-up, and no longer, it runs
// on all CPUs; on a slow host that may be over before the container is there.
func (w *world) judgeTicks(all string) {
	w.Helper()
	text := w.on("cat " + ticksFile)
	var count, late, writes, ramping int
	for line := range strings.Lines(text) {
		var tk tick.Tick
		if err := tick.Unmarshal([]byte(line), &tk); err != nil {
			w.Errorf("%v: %.200s", err, line)
			continue
		}
		count++
		if i := tk.Isolation; i != nil {
			writes += len(i.Writes)
			if i.Refused != "" {
				late++
			}
			for _, e := range i.Errors {
				// A few resets are seen before the pod or container that caused them (see judgeResets).
				early := strings.HasPrefix(e.Cgroup+"/", systemdTier+"/") && strings.HasPrefix(e.Error, "changed externally ") &&
					(strings.HasSuffix(e.Error, " to no list") || strings.HasSuffix(e.Error, " to max"))
				if w.systemd && (early || strings.HasPrefix(e.Error, "reset by kubelet ")) {
					w.log("isolate: %s %s: %s", e.Cgroup, e.Key, e.Error)
					continue
				}
				w.Errorf("%s: isolate: %s %s: %s", tk.Time.Format(time.TimeOnly), e.Cgroup, e.Key, e.Error)
			}
		}
		if tk.Eviction != nil && len(tk.Eviction.Evictions) > 0 {
			w.Errorf("%s: evictions: %+v", tk.Time.Format(time.TimeOnly), tk.Eviction.Evictions)
		}
		for _, pod := range tk.Sample.Pods {
			start, err := time.Parse(time.RFC3339, pod.StartTime)
			age := tk.Time.Sub(start)
			if pod.Name != "shared-normal-pod" || err != nil || age > rampUp {
				continue
			}
			for _, c := range pod.Containers {
				ramping++
				if c.CPUSetCPUs != "" && c.CPUSetCPUs != all {
					w.Errorf("%s: the shared pod is %s old and runs only on %s", tk.Time.Format(time.TimeOnly), age, c.CPUSetCPUs)
				}
			}
		}
	}
	w.log("%d ticks, %d of them too late for isolate, %d writes to cgroups; a container in its ramp-up in %d ticks", count, late, writes, ramping)
}
