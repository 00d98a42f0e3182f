package supervisor

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/tests/need"
)

// bootColocated boots a machine with a busy service and a busy batch job, whose pipe runs. It returns their limits of before, too.
func bootColocated(t *testing.T, name string, settings ...string) (*machine, *colocated, string) {
	t.Helper()
	c := newColocated(t, name)
	before := c.limits()
	for _, dir := range hierarchies(t) {
		own := filepath.Join(dir, c.top.Name)
		if err := os.MkdirAll(own, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeTree(t, own) })
	}
	m := bootMachine(t, strings.TrimPrefix(c.top.Name, "/"), settings...)
	put(t, filepath.Join(m.dir, "classify.yaml"),
		"rules:\n  - {cgroup: /service, class: shared}\n  - {cgroup: /batch, class: reclaimed, requests: {reclaimedMilliCPU: 1000000}}\n")
	m.flows(t, "at first")
	return m, c, before
}

// must runs a shell script in the machine.
func (m *machine) must(t *testing.T, script string) string {
	t.Helper()
	out, err := m.run("sh", "-ec", script)
	if err != nil {
		t.Fatalf("%s: %v: %s\n%s", script, err, out, m.logs())
	}
	return out
}

// Each form of the pipe takes over from the other at the first attempt, as often as one likes. What the one has changed is restored before
// the other one begins, so that polder-restore restores the values of before both, also where the files belong to another user by then: an
// isolate with CAP_DAC_OVERRIDE may have changed those.
func TestSystemdForms(t *testing.T) {
	need.Root(t)
	need.Mount(t)
	t.Parallel()
	need.Program(t, "systemd", "systemd")
	need.Program(t, "s6-svscan", "s6")
	settings := []string{"POLDER_COLLECT_INTERVAL=200ms", "POLDER_COLLECT_CLASSIFY=/state/classify.yaml"}
	m, c, before := bootColocated(t, "forms", settings...)
	fifos := m.must(t, "stat -c '%n %A %U:%G' /run/polder /run/polder/*.fifo")

	for _, form := range []string{"polder.service", "polder.target", "polder.service", "polder.target"} {
		eventually(t, "the batch job is confined", func() bool { return c.limits() != before }, m.logs)
		m.must(t, "systemctl start "+form)
		m.flows(t, form)
		if form == "polder.service" {
			if got := m.show(form, "NRestarts"); got != "0" {
				t.Errorf("%s was restarted %s times; want none: %s", form, got, m.logs())
			}
		} else {
			for _, tool := range tools {
				if got := m.show("polder-"+tool+".service", "ActiveState"); got != "active" {
					t.Errorf("%s: %s is %s: %s", form, tool, got, m.logs())
				}
			}
		}
		other, journal := "polder.target", "/var/lib/polder-isolate/isolate.journal"
		if form == other {
			other, journal = "polder.service", "/var/lib/polder/isolate.journal"
		}
		if got := m.show(other, "ActiveState"); got != "inactive" {
			t.Errorf("beside %s %s is %s: %s", form, other, got, m.logs())
		}
		if out, err := m.run("test", "!", "-e", journal); err != nil {
			t.Errorf("under %s the journal of the other form is still there: %v %s", form, err, out)
		}
		if diff := cmp.Diff(fifos, m.must(t, "stat -c '%n %A %U:%G' /run/polder /run/polder/*.fifo")); diff != "" {
			t.Errorf("the FIFOs under %s (-before +after):\n%s", form, diff)
		}
	}
	eventually(t, "the batch job is confined", func() bool { return !strings.HasSuffix(before, c.batch.Limits()) }, m.logs)
	chown := func(owner string) {
		m.must(t, `for file in $(find /sys/fs/cgroup -path '*/batch/cpu*' -type f); do chown `+owner+` $file; done`)
	}
	chown("nobody")
	m.must(t, "systemctl start polder-restore.service")
	chown("root")
	if diff := cmp.Diff(before, c.limits()); diff != "" {
		t.Errorf("limits (-before +after):\n%s%s", diff, m.logs())
	}

	// An installation is complete, for a package manager, also if a unit does not come back.
	m.must(t, "systemctl start polder.target")
	m.flows(t, "after the restore")
	m.set(t, append(settings, "POLDER_ADVISE_POLICY=guess")...)
	const ready = "/usr/local/lib/polder/package/ready"
	if out := m.must(t, ready); !strings.Contains(out, "polder: a unit did not restart: systemctl status 'polder*'") {
		t.Errorf("with an invalid configuration ready prints %q", out)
	}
	if got := m.show("polder-advise.service", "ActiveState"); got != "failed" {
		t.Errorf("advise is %s with an invalid configuration: %s", got, m.logs())
	}
	m.set(t, settings...)
	if out := m.must(t, "systemctl start polder-advise.service; "+ready); strings.Contains(out, "did not restart") {
		t.Errorf("ready prints %q", out)
	}
}

// twoJournals leaves the journals of an s6 form that has followed the units without a restore: each has changed CPU quota of the batch job.
const twoJournals = installed + `
for place in /var/lib /run; do mount -t tmpfs none $place; done
mkdir -p /usr/local/lib/polder/package /var/lib/polder-isolate /var/lib/polder
cp "$REPO"/deploy/package/* /usr/local/lib/polder/package/ 2>/dev/null || true
write() {
	printf '{"v":1,"node":"n","time":"%s","advice":{"policy":"test","cgroups":[{"cgroup":"%s","cpuMaxMilliCPU":%s}]}}\n' "$NOW" "$2" "$3" |
		isolate --max-age 0 --node n --at-end keep --journal "/var/lib/$1/isolate.journal" >/dev/null
}
eval "$CHANGES"
status=0
eval "$RESTORE" || status=$?
ls /var/lib/*/*.journal 2>/dev/null || true
exit $status
`

// Two journals are restored, the one that was written last first, whichever form that was. What cannot be restored in one of them does not
// keep the other from being restored.
func TestRestoreOfTwoJournals(t *testing.T) {
	need.Root(t)
	need.Mount(t)
	t.Parallel()
	const unit = "/usr/local/lib/polder/systemd/polder-restore /var/lib/polder-isolate/isolate.journal /var/lib/polder/isolate.journal"
	const stop = "/usr/local/lib/polder/package/stop"
	const unitsFirst = `write polder-isolate $BATCH 500; touch -d -1hour /var/lib/polder-isolate/isolate.journal; write polder $BATCH 700`
	const s6First = `write polder $BATCH 500; touch -d -1hour /var/lib/polder/isolate.journal; write polder-isolate $BATCH 700`
	const external = `; for file in $(find /sys/fs/cgroup -path "*$SERVICE/cpu.cfs_quota_us" -o -path "*$SERVICE/cpu.max"); do
	echo 70000 >$file
done`
	const left = "/var/lib/polder-isolate/isolate.journal\n"
	for name, one := range map[string]struct {
		changes, restore string
		left             string // journals
		fails            bool
	}{
		"units first":    {unitsFirst, unit, "", false},
		"s6 first":       {s6First, unit, "", false},
		"removal":        {unitsFirst, stop, "", false},
		"one fails":      {`write polder-isolate $SERVICE 500; write polder $BATCH 700` + external, unit, left, true},
		"the last fails": {`write polder $BATCH 700; write polder-isolate $SERVICE 500` + external, unit, left, true},
		"one only":       {`write polder $BATCH 700`, unit, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newColocated(t, "journals-"+strings.ReplaceAll(name, " ", "-"))
			before := c.batch.Limits()
			run := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-ec", twoJournals)
			run.Env = append(os.Environ(), "BIN="+bin, "REPO="+repository(t), "BATCH="+c.batch.Name, "SERVICE="+c.service.Name,
				"CHANGES="+one.changes, "RESTORE="+one.restore, "NOW="+time.Now().UTC().Format(time.RFC3339),
				"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
			var stderr bytes.Buffer
			run.Stderr = &stderr
			out, err := run.Output()
			if (err != nil) != one.fails || string(out) != one.left {
				t.Errorf("the restore ends with %v, leaves %q and prints\n%s\nwant left %q", err, out, &stderr, one.left)
			}
			if diff := cmp.Diff(before, c.batch.Limits()); diff != "" {
				t.Errorf("limits of batch (-before +after):\n%s%s", diff, &stderr)
			}
		})
	}
}

// CPUs that kubelet has assigned exclusively since come into no list: each restore on a host reads kubelet's state in the directory that
// polder.env names, and nothing else of that file. A removal does so, too.
func TestRestoreReadsKubeletsStateInItsRoot(t *testing.T) {
	need.Root(t)
	need.Mount(t)
	t.Parallel()
	if n := runtime.NumCPU(); n < 2 {
		t.Skipf("needs 2 CPUs, there is %d", n)
	}
	command := func(unit, key string) string {
		data, err := os.ReadFile(filepath.Join(repository(t), "deploy/systemd", unit))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), "\n"+key+"=")
		line, _, _ := strings.Cut(rest, "\n")
		return strings.ReplaceAll(strings.TrimPrefix(line, "-"), "%S", "/var/lib")
	}
	unit, otherForm := command("polder-restore.service", "ExecStart"), command("polder.service", "ExecStartPre")
	const root = "POLDER_ISOLATE_KUBELET_ROOT="
	for name, one := range map[string]struct{ restore, settings, cpus string }{
		"unit":            {unit, root + "/run/kubelet", "0"},
		"the other form":  {otherForm, root + "/nowhere\n " + root + `"/run/kubelet" `, "0"},
		"removal":         {"/usr/local/lib/polder/package/stop", root + "'/run/kubelet'", "0"},
		"no such setting": {unit, "#" + root + "/run/kubelet", "0-1"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newColocated(t, "kubelet-"+strings.ReplaceAll(name, " ", "-"))
			c.batch.Write(t, "cpuset.cpus", "0-1")
			run := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-ec", twoJournals)
			run.Env = append(os.Environ(), "BIN="+bin, "REPO="+repository(t), "NOW="+time.Now().UTC().Format(time.RFC3339),
				"BATCH="+c.batch.Name,
				"POLDER_ENV=/run/polder.env", "SETTINGS=POLDER_ISOLATE_DRY_RUN=true\n"+one.settings+"\n", "RESTORE="+one.restore,
				`CHANGES=write polder-isolate $BATCH '500,"cpusetCPUs":"0"'
mkdir /run/kubelet
printf '{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"c":"1"}},"checksum":0}' >/run/kubelet/cpu_manager_state
printf %s "$SETTINGS" >/run/polder.env`,
				"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
			if out, err := run.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
			if got := c.batch.Read("cpuset.cpus"); got != one.cpus {
				t.Errorf("the batch job is on CPUs %s; want %s", got, one.cpus)
			}
		})
	}
}
