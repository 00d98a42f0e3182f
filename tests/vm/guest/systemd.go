package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// systemd is the machine whose process 1 is systemd, with Polder installed as docs/supervisor.md describes.
var systemd = suite{
	name: "systemd", doc: "deploy/systemd as Debian boots it",
	mount: func() error { return nil }, // systemd has mounted them
	tests: []test{
		{"boots", systemdBoots},
		{"in force", systemdInForce},
		{"watchdog", systemdWatchdog},
		{"colocation", systemdColocation},
		{"collect killed", systemdKilled("collect")},
		{"advise killed", systemdKilled("advise")},
		{"isolate killed", systemdKilled("isolate")},
		{"evict killed", systemdKilled("evict")},
		{"report killed", systemdKilled("report")},
		{"hangs", systemdHangs},
		{"restored", systemdRestored},
		{"whole", systemdWhole},
	},
}

var tools = []string{"collect", "advise", "isolate", "evict", "report"}

func unit(tool string) string { return "polder-" + tool + ".service" }

// run runs a command to its end and returns its output.
func run(words ...string) (string, error) {
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, text)
	}
	return text, err
}

// show is a property of a unit.
func show(unit, property string) string {
	text, err := run("systemctl", "show", "--property="+property, "--value", unit)
	if err != nil {
		return err.Error()
	}
	return text
}

// each is a property of every tool's unit, requested at once: a process is slow on an emulated CPU.
func each(property string) map[string]string {
	words := []string{"systemctl", "show", "--property=Id", "--property=" + property}
	for _, tool := range tools {
		words = append(words, unit(tool))
	}
	out := map[string]string{}
	text, err := run(words...)
	if err != nil {
		out["error"] = err.Error()
	}
	for block := range strings.SplitSeq(text, "\n\n") {
		id, value := "", ""
		for line := range strings.Lines(block) {
			switch name, text, _ := strings.Cut(strings.TrimSpace(line), "="); name {
			case "Id":
				id = text
			case property:
				value = text
			}
		}
		tool, _ := strings.CutPrefix(strings.TrimSuffix(id, ".service"), "polder-")
		out[tool] = value
	}
	return out
}

func all(value string) map[string]string {
	out := map[string]string{}
	for _, tool := range tools {
		out[tool] = value
	}
	return out
}

func (t *T) equal(what string, got, want map[string]string) {
	if !maps.Equal(got, want) {
		t.Errorf("%s: %v; want %v", what, got, want)
	}
}

// unitLogs is the end of the units' logs.
func unitLogs() string {
	text, _ := run("journalctl", "--no-pager", "--lines=40", "--output=short-monotonic", "--unit=polder*")
	return text
}

// heartbeat is touched with every tick that has passed all tools.
const heartbeat = "/run/polder-report/heartbeat"

// flows waits for a tick that comes through from now on.
func (t *T) flows(what string) {
	from := time.Now()
	if !within(func() bool {
		info, err := os.Stat(heartbeat)
		return err == nil && info.ModTime().After(from)
	}) {
		t.Fatalf("no tick comes through %s: %s", what, unitLogs())
	}
	t.Logf("ticks come through %s after %s", what, time.Since(from).Round(10*time.Millisecond))
}

func systemdBoots(t *T) {
	state := ""
	if !within(func() bool {
		state, _ = run("systemctl", "is-system-running")
		return state == "running" || state == "degraded"
	}) {
		jobs, _ := run("systemctl", "list-jobs", "--no-pager")
		t.Fatalf("the system is %s: %s", state, jobs)
	}
	if failed, _ := run("systemctl", "list-units", "--failed", "--plain", "--no-legend", "--no-pager"); failed != "" {
		t.Errorf("units in state failed: %s\n%s", failed, unitLogs())
	}
	took, _ := run("systemd-analyze", "time")
	t.Logf("%s", took)
	t.Logf("the root delegates: %s", read(v2+"/cgroup.subtree_control"))
	t.equal("ActiveState", each("ActiveState"), all("active"))
	t.equal("NRestarts", each("NRestarts"), all("0"))
	t.flows("after boot")
	warnings, _ := run("journalctl", "--no-pager", "--output=cat", "--unit=polder*", "--grep=level=(WARN|ERROR)")
	for line := range strings.Lines(warnings) {
		// A busy host does not give the stages enough CPU time.
		if strings.Contains(line, "level=") && !strings.Contains(line, "the next stage is slow") {
			t.Errorf("the tools log warnings: %s", line)
		}
	}
}

// systemdInForce compares the kernel's values with the units' settings.
func systemdInForce(t *T) {
	const slice = v2 + "/polder.slice"
	t.expect(slice, "memory.min", itoa(128<<20), "cpu.weight", "500")
	mins := map[string]string{"collect": "24", "advise": "24", "isolate": "24", "evict": "16", "report": "16"}
	weights := map[string]string{"collect": "100", "advise": "100", "isolate": "200", "evict": "100", "report": "50"}
	scores, users, privileges, capabilities := map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	for _, tool := range tools {
		var mib int
		_, err := fmt.Sscan(mins[tool], &mib)
		t.Must(err)
		t.expect(slice+"/"+unit(tool), "memory.min", itoa(mib<<20), "memory.max", itoa(256<<20), "cpu.weight", weights[tool], "pids.max", "512")
		pid := show(unit(tool), "MainPID")
		scores[tool] = read("/proc/" + pid + "/oom_score_adj")
		privileges[tool] = threadStatus(pid, "NoNewPrivs") + " " + threadStatus(pid, "Seccomp")
		capabilities[tool] = threadStatus(pid, "CapEff")
		users[tool] = "root"
		if !strings.HasPrefix(threadStatus(pid, "Uid"), "0\t") {
			users[tool] = "dynamic"
		}
	}
	t.equal("oom_score_adj", scores, all("-900"))
	t.equal("NoNewPrivs and Seccomp", privileges, all("1 2"))
	want := all("dynamic")
	want["isolate"] = "root"
	t.equal("users", users, want)
	want = all("0000000000000000")
	want["evict"] = "0000000000000020"   // CAP_KILL
	want["isolate"] = "000000c000000000" // CAP_BPF, CAP_PERFMON
	t.equal("capabilities", capabilities, want)
	t.pinsThreads(unit("isolate"))
}

// pinsThreads checks that the unit with isolate allows what its child process needs, to have a thread on each CPU.
func (t *T) pinsThreads(unit string) {
	if filter := show(unit, "SystemCallFilter"); !slices.Contains(strings.Fields(filter), "sched_setaffinity") {
		t.Errorf("%s does not allow sched_setaffinity: %s", unit, filter)
	}
}

// choosesOnWait waits until the unit's isolate, confined as it is, has its program in the kernel, beside batch and a service.
func (t *T) choosesOnWait(unit string) {
	_, err := run("systemd-run", "--unit=web", "/usr/bin/guest", "spin", "1")
	t.Must(err)
	defer func() {
		_, err := run("systemctl", "stop", "web.service")
		t.Must(err)
	}()
	log := ""
	if !within(func() bool {
		log, _ = run("journalctl", "--no-pager", "--lines=500", "--output=cat", "--unit="+unit)
		return strings.Contains(log, "when=on-wait")
	}) {
		t.Errorf("%s did not notice tasks that wait behind batch: %s", unit, log)
	}
}

// systemdWatchdog sees each tool feed its watchdog.
func systemdWatchdog(t *T) {
	const fed = "WatchdogTimestampMonotonic"
	want := all("1min")
	want["advise"] = "20s" // the test's
	t.equal("WatchdogUSec", each("WatchdogUSec"), want)
	before := each(fed)
	if !within(func() bool {
		for tool, at := range each(fed) {
			if at == before[tool] || at == "0" {
				return false
			}
		}
		return true
	}) {
		t.Errorf("fed at %v, before at %v", each(fed), before)
	}
}

const batchSlice = v2 + "/batch.slice"

// atFirst is batch.slice before Polder saw a job in it.
var atFirst map[string]string

// systemdColocation runs batch work beside services: it gets what the advice gives it.
func systemdColocation(t *T) {
	// isolate starts once the first state is known.
	_, err := run("systemctl", "stop", unit("isolate"))
	t.Must(err)
	_, err = run("systemd-run", "--unit=job", "--slice=batch.slice", "/usr/bin/guest", "spin", "1")
	t.Must(err)
	if !within(func() bool {
		return read(batchSlice+"/cgroup.procs") != "" || show("job.service", "ActiveState") == "active"
	}) {
		t.Fatalf("no job in batch.slice")
	}
	t.Logf("with batch.slice and its AllowedCPUs= the root delegates: %s", read(v2+"/cgroup.subtree_control"))
	atFirst, err = values(batchSlice)
	t.Must(err)
	_, err = run("systemctl", "start", unit("isolate"))
	t.Must(err)
	if !within(func() bool { return !maps.Equal(atFirst, t.values()) }) {
		t.Fatalf("nothing of batch.slice has changed: %s", unitLogs())
	}
	now := t.values()
	for { // until a tick that comes through changes nothing
		t.flows("after a change")
		next := t.values()
		if maps.Equal(now, next) {
			break
		}
		now = next
	}
	for _, path := range slices.Sorted(maps.Keys(now)) {
		if now[path] != atFirst[path] {
			t.Logf("%s: %s -> %s", strings.TrimPrefix(path, v2), atFirst[path], now[path])
		}
	}
	t.choosesOnWait(unit("isolate"))
	// systemd writes its own AllowedCPUs= again; isolate restores its value.
	_, err = run("systemctl", "daemon-reload")
	t.Must(err)
	t.flows("after daemon-reload")
	const effective = batchSlice + "/cpuset.cpus.effective"
	if !within(func() bool { return read(effective) == now[effective] }) {
		t.Errorf("after daemon-reload batch.slice has CPUs %s; want %s again: %s", read(effective), now[effective], unitLogs())
	}
}

func (t *T) values() map[string]string {
	out, err := values(batchSlice)
	t.Must(err)
	return out
}

// systemdKilled kills a tool: only that one is restarted.
func systemdKilled(tool string) func(*T) {
	return func(t *T) {
		pids, restarts := each("MainPID"), each("NRestarts")
		at := uptime()
		_, err := run("systemctl", "kill", "--signal=KILL", unit(tool))
		t.Must(err)
		if !within(func() bool {
			pid := show(unit(tool), "MainPID")
			return pid != pids[tool] && pid != "0" && show(unit(tool), "ActiveState") == "active"
		}) {
			t.Fatalf("%s is not back: %s", tool, unitLogs())
		}
		t.Logf("%s is back after %s", tool, (uptime() - at).Round(10*time.Millisecond))
		t.flows("after " + tool + " was killed")
		t.restartedAlone(tool, pids, restarts)
	}
}

// restartedAlone compares processes and restarts with those before.
func (t *T) restartedAlone(tool string, pids, restarts map[string]string) {
	var n int
	_, err := fmt.Sscan(restarts[tool], &n)
	t.Must(err)
	restarts[tool] = itoa(n + 1)
	t.equal("NRestarts", each("NRestarts"), restarts)
	now := each("MainPID")
	pids[tool] = now[tool]
	t.equal("processes", now, pids)
}

// systemdHangs stops a tool: its watchdog ends it, and it is restarted.
func systemdHangs(t *T) {
	pids, restarts := each("MainPID"), each("NRestarts")
	at := uptime()
	_, err := run("systemctl", "kill", "--signal=STOP", unit("advise"))
	t.Must(err)
	if !within(func() bool {
		return show(unit("advise"), "NRestarts") != restarts["advise"] && show(unit("advise"), "ActiveState") == "active"
	}) {
		t.Fatalf("advise is not restarted: %s", unitLogs())
	}
	t.Logf("advise is back after %s with a watchdog of 20 s", (uptime() - at).Round(10*time.Millisecond))
	t.flows("after advise hung")
	t.restartedAlone("advise", pids, restarts)
}

// systemdRestored restores what isolate changed; all other Polder units end with it.
func systemdRestored(t *T) {
	_, err := run("systemctl", "start", "polder-restore.service")
	t.Must(err)
	t.same(atFirst, t.values())
	within(func() bool { return maps.Equal(each("ActiveState"), all("inactive")) })
	t.equal("ActiveState", each("ActiveState"), all("inactive"))
	if got := show("polder-restore.service", "Result"); got != "success" {
		t.Errorf("polder-restore ends with %s: %s", got, unitLogs())
	}
}

// systemdWhole is the other form: one unit with s6 inside.
func systemdWhole(t *T) {
	_, err := run("systemctl", "start", "polder.service")
	t.Must(err)
	t.flows("under s6")
	t.expect(v2+"/polder.slice/polder.service", "memory.min", itoa(112<<20))
	t.pinsThreads("polder.service")
	if !within(func() bool { return !maps.Equal(atFirst, t.values()) }) {
		t.Errorf("nothing of batch.slice has changed: %s", unitLogs())
	}
	t.choosesOnWait("polder.service")
	_, err = run("systemctl", "start", "polder-restore.service")
	t.Must(err)
	t.same(atFirst, t.values())
	if got := show("polder.service", "ActiveState") + " " + show("polder.service", "Result"); got != "inactive success" {
		t.Errorf("polder.service is %s: %s", got, unitLogs())
	}
	_, err = run("systemctl", "stop", "job.service")
	t.Must(err)
}
