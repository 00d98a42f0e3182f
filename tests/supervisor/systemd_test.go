package supervisor

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/tests/need"
)

// installed puts the tools and deploy/ where the units expect them, in a mount namespace of the command.
const installed = `
mount -t tmpfs none /usr/local
mkdir -p /usr/local/bin /usr/local/lib/polder
cp "$BIN"/* /usr/local/bin/
cp -R "$REPO/deploy/s6" "$REPO/deploy/systemd" /usr/local/lib/polder/
`

func repository(t *testing.T) string {
	t.Helper()
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// units are systemd's files in deploy/systemd.
func units(t *testing.T, kinds ...string) []string {
	t.Helper()
	var paths []string
	for _, kind := range kinds {
		found, err := filepath.Glob(filepath.Join(repository(t), "deploy/systemd/*."+kind))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	return paths
}

// systemd finds no fault with any unit.
func TestSystemdVerify(t *testing.T) {
	need.Mount(t)
	need.Program(t, "systemd-analyze", "systemd")
	verify := exec.Command("unshare", append([]string{
		"--mount", "--propagation", "private", "sh", "-ec",
		installed + `exec systemd-analyze verify --man=no "$@"`, "sh",
	}, units(t, "service", "target", "timer", "slice")...)...)
	verify.Env = append(os.Environ(), "BIN="+bin, "REPO="+repository(t))
	if out, err := verify.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// No unit is more exposed than docs/supervisor.md lists: systemd's own figure, from 0 (nothing) to 10.
func TestSystemdExposure(t *testing.T) {
	need.Program(t, "systemd-analyze", "systemd")
	page, err := os.ReadFile("../../docs/supervisor.md")
	if err != nil {
		t.Fatal(err)
	}
	most := map[string]float64{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`polder") {
			continue
		}
		level, err := strconv.ParseFloat(strings.TrimSpace(cells[2]), 64)
		if err != nil {
			t.Fatalf("docs/supervisor.md: %q: %v", line, err)
		}
		most[strings.Split(cells[1], "`")[1]] = level
	}
	for _, path := range units(t, "service") {
		name := filepath.Base(path)
		level, ok := most[name]
		if !ok {
			t.Errorf("docs/supervisor.md lists no exposure of %s", name)
			continue
		}
		security := exec.Command("systemd-analyze", "security", "--offline=yes", "--no-pager", fmt.Sprintf("--threshold=%.0f", 10*level), path)
		if out, err := security.CombinedOutput(); err != nil {
			t.Errorf("%s is more exposed than %.1f: %v\n%s", name, level, err, out)
		}
	}
}

// ownRoot makes the root of a machine: all of the host's files under an overlay, its own /run, cgroups below the test's own. The console
// is a file: the test must not write to the host's.
const ownRoot = `
mount -t tmpfs none "$WORK"
mkdir "$WORK/upper" "$WORK/work" "$WORK/root"
mount -t overlay -o "lowerdir=/,upperdir=$WORK/upper,workdir=$WORK/work" none "$WORK/root"
root=$WORK/root
mount -t proc none "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs none "$root/sys"
awk '$3 ~ /^cgroup2?$/ {print $2, $3}' /proc/mounts | sort | while read -r where kind; do
	[ "$where" = /sys/fs/cgroup ] || { mountpoint -q "$root/sys/fs/cgroup" || mount -t tmpfs none "$root/sys/fs/cgroup"; }
	mkdir -p "$root$where"
	mount --bind "$where/$GROUP" "$root$where"
done
for link in /sys/fs/cgroup/*; do # cpu -> cpu,cpuacct
	[ ! -L "$link" ] || cp -P "$link" "$root$link"
done
mount --rbind /dev "$root/dev"
mount --bind "$CONSOLE" "$root/dev/console"
mount -t tmpfs none "$root/run"
mount -t tmpfs none "$root/tmp"
mkdir -p "$root/state"
mount --bind "$STATE" "$root/state"
`

// boot is process 1 of a machine with our units.
const boot = ownRoot + `
mkdir -p "$root/usr/local/bin" "$root/usr/local/lib/polder" "$root/etc/polder" "$root/units/polder-.service.d" "$root/old"
cp "$BIN"/* "$root/usr/local/bin/"
cp -R "$REPO/deploy/s6" "$REPO/deploy/systemd" "$REPO/deploy/package" "$root/usr/local/lib/polder/"
for kind in sysusers.d tmpfiles.d; do
	mkdir -p "$root/etc/$kind"
	cp "$REPO/deploy/systemd/$kind/polder.conf" "$root/etc/$kind/"
done
ln -s /state/polder.env "$root/etc/polder/polder.env"
cp -R "$REPO"/deploy/systemd/polder* "$root/units/"
for unit in basic sysinit shutdown slices sockets timers paths local-fs; do
	cp "/lib/systemd/system/$unit.target" "$root/units/"
done
# There is no journal here; and a tool that is slow to stop on a busy machine does not count as one that hangs.
printf '[Service]\nStandardOutput=append:/state/log\nStandardError=append:/state/log\nTimeoutStopSec=3min\n' |
	tee "$root/units/polder-.service.d/log.conf" > "$root/units/polder.service.d/log.conf"
for tool in collect advise isolate evict report; do
	mkdir -p "$root/units/polder-$tool.service.d"
done
# The test starts the check of the heartbeat itself: with its limit of 2 s the timer would restart all tools while one is down.
mkdir "$root/units/polder-heartbeat.timer.d"
printf '[Timer]\nOnActiveSec=\nOnUnitInactiveSec=\nOnActiveSec=1d\n' > "$root/units/polder-heartbeat.timer.d/test.conf"
sed -i 's/sleep 5/sleep 1/' "$root/usr/local/lib/polder/systemd/polder-heartbeat" # its pause between two looks
systemd-sysusers --root="$root" "$REPO/deploy/systemd/sysusers.d/polder.conf"
cd "$root"
pivot_root . old
umount -l /old
systemd-tmpfiles --create /usr/local/lib/polder/systemd/tmpfiles.d/polder.conf
export container=polder SYSTEMD_UNIT_PATH=/units
exec /lib/systemd/systemd --system --log-target=null --unit=polder.target
`

// machine is systemd as process 1 of its own namespaces.
type machine struct {
	dir string
	pid int // of process 1, as the host sees it
}

// bootMachine boots systemd with polder.target; the cgroup top is its root.
func bootMachine(t *testing.T, name string, settings ...string) *machine {
	t.Helper()
	return bootWith(t, name, boot, nil, settings...)
}

// bootWith is bootMachine with another script for process 1, and additional environment variables.
func bootWith(t *testing.T, name, boot string, env []string, settings ...string) *machine {
	t.Helper()
	m := &machine{dir: t.TempDir()}
	// A dynamic user writes through it, and reads its content.
	if err := os.Chmod(m.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m.set(t, settings...)
	put(t, filepath.Join(m.dir, "console"), "")
	work := filepath.Join(m.dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	script := `for dir in ` + strings.Join(hierarchies(t), " ") + `; do echo $$ > "$dir/$GROUP/cgroup.procs"; done
exec unshare --mount --propagation private --pid --fork --kill-child --uts --ipc --net --cgroup sh -ec "$BOOT"`
	systemd := exec.Command("sh", "-ec", script)
	var log bytes.Buffer
	systemd.Stdout, systemd.Stderr = &log, &log
	systemd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // no process outlives a killed test
	systemd.Env = append(os.Environ(), "BIN="+bin, "REPO="+repository(t), "GROUP="+name, "WORK="+work, "STATE="+m.dir,
		"CONSOLE="+filepath.Join(m.dir, "console"), "BOOT="+boot)
	systemd.Env = append(systemd.Env, env...)
	if err := systemd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if m.pid != 0 {
			_ = syscall.Kill(m.pid, syscall.SIGKILL) // its pid namespace ends with it
		}
		_ = systemd.Process.Kill()
		_ = systemd.Wait()
		if t.Failed() {
			t.Logf("boot: %s", &log)
		}
	})
	m.pid = onlyChild(t, systemd.Process.Pid)
	return m
}

func (m *machine) set(t *testing.T, settings ...string) {
	t.Helper()
	put(t, filepath.Join(m.dir, "polder.env"), strings.Join(settings, "\n")+"\n")
}

// logs is systemd's status of the units, and the end of the tools' logs.
func (m *machine) logs() string {
	status, _ := m.run("systemctl", "status", "--no-pager", "--full", "polder*") // status 3 if a unit is down
	log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
	return fmt.Sprintf("%s\nlog: %s", status, log[max(0, len(log)-8192):])
}

// enter is nsenter's part of a command in the machine.
func (m *machine) enter() []string {
	return []string{"--target", strconv.Itoa(m.pid), "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--"}
}

// run runs a command in the machine, as root.
func (m *machine) run(command ...string) (string, error) {
	out, err := exec.Command("nsenter", append(m.enter(), command...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// show is a property of a unit.
func (m *machine) show(unit, property string) string {
	out, err := m.run("systemctl", "show", "--property="+property, "--value", unit)
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return out
}

// pids are the tools' main processes, as the machine sees them.
func (m *machine) pids() map[string]string {
	pids := map[string]string{}
	for _, tool := range tools {
		pids[tool] = m.show("polder-"+tool+".service", "MainPID")
	}
	return pids
}

func (m *machine) flows(t *testing.T, what string) {
	t.Helper()
	eventually(t, "ticks come through "+what, func() bool {
		_, err := m.run("/usr/local/lib/polder/s6/alive", "2")
		return err == nil
	}, m.logs)
}

// hierarchies are the mounted cgroup hierarchies, of version 1 and 2.
func hierarchies(t *testing.T) []string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); (f[2] == "cgroup" || f[2] == "cgroup2") && !slices.Contains(dirs, f[1]) {
			dirs = append(dirs, f[1])
		}
	}
	return dirs
}

// untilNotAlive is the part of a command that waits until the heartbeat is old.
const untilNotAlive = "while /usr/local/lib/polder/s6/alive 2; do sleep 0.1; done; "

// systemd itself, booted in namespaces with our units only: each tool can do what it must and nothing else, is restarted
// alone when it is killed or hangs, and stays down if its configuration is invalid; the other form of the pipe, the
// heartbeat's check and the restoring unit work.
func TestSystemdBoot(t *testing.T) {
	need.Root(t)
	need.Mount(t)
	t.Parallel()
	need.Program(t, "systemd", "systemd")
	need.Program(t, "s6-svscan", "s6")
	need.Program(t, "tc", "iproute2")
	settings := []string{"POLDER_COLLECT_INTERVAL=200ms", "POLDER_COLLECT_CLASSIFY=/state/classify.yaml", "POLDER_HEARTBEAT_LIMIT=2"}
	m, c, before := bootColocated(t, "systemd", settings...)
	eventually(t, "the batch job is confined", func() bool { return c.limits() != before }, m.logs)

	t.Run("confined", func(t *testing.T) { m.checkConfined(t) })
	t.Run("metrics", func(t *testing.T) { m.checkMetrics(t, settings) })
	t.Run("network", func(t *testing.T) { m.checkNetwork(t, settings) })
	for _, tool := range tools {
		t.Run(tool+" killed", func(t *testing.T) { m.checkReturns(t, tool, "KILL") })
	}
	t.Run("advise panics", func(t *testing.T) { m.checkReturns(t, "advise", "ABRT") })
	t.Run("collect hangs", func(t *testing.T) {
		m.shortWatchdog(t, "collect")
		m.checkReturns(t, "collect", "STOP")
	})
	t.Run("evict signals", func(t *testing.T) {
		// In the machine, because evict sees only processes of its own pid namespace.
		victim := exec.Command("nsenter", append(m.enter(), "sh", "-ec",
			`for dir in $(find /sys/fs/cgroup -name batch -type d); do echo $$ > $dir/cgroup.procs; done
exec setpriv --reuid=65534 --regid=65534 --clear-groups sleep 1000`)...)
		var trouble bytes.Buffer
		victim.Stderr = &trouble
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = victim.Wait() // by a signal, as it should
			close(ended)
		}()
		defer func() { _ = victim.Process.Kill() }()
		eventually(t, "a process of another user is in the batch cgroup", func() bool {
			_, err := m.run("pgrep", "-u", "nobody", "-x", "sleep")
			return err == nil
		}, m.logs)
		m.set(t, append(settings, "POLDER_EVICT_ACTION=kill")...)
		defer m.set(t, settings...)
		if out, err := m.run("systemctl", "restart", "polder-evict.service"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		eventually(t, "it has ended", func() bool {
			select {
			case <-ended:
				return true
			default:
				return false
			}
		}, m.logs)
		if s, ok := victim.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGTERM { // nsenter ends as its child does
			t.Errorf("it ended with %s; want SIGTERM: %s", victim.ProcessState, &trouble)
		}
	})
	t.Run("configuration error", func(t *testing.T) {
		was := m.pids()
		m.set(t, append(settings, "POLDER_ADVISE_POLICY=guess")...)
		_, _ = m.run("systemctl", "restart", "polder-advise.service") // it must fail
		// A unit that waits for its next attempt is "activating"; one that has failed gets none.
		eventually(t, "advise has failed", func() bool { return m.show("polder-advise.service", "ActiveState") == "failed" }, m.logs)
		if got := m.show("polder-advise.service", "NRestarts"); got != "0" {
			t.Errorf("advise was started again %s times; want none: %s", got, m.logs())
		}
		is := m.pids()
		was["advise"] = "0"
		if diff := cmp.Diff(was, is); diff != "" {
			t.Errorf("processes (-want +got):\n%s", diff)
		}
		m.set(t, settings...)
		if out, err := m.run("systemctl", "restart", "polder-advise.service"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		m.flows(t, "after the configuration was mended")
	})
	t.Run("collect stopped", func(t *testing.T) {
		if out, err := m.run("systemctl", "stop", "polder-collect.service"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		was := m.pids()
		if out, err := m.run("sh", "-ec", untilNotAlive+"systemctl start polder-heartbeat.service"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if diff := cmp.Diff(was, m.pids()); diff != "" {
			t.Errorf("the heartbeat's check has restarted tools, processes (-want +got):\n%s", diff)
		}
		if out, err := m.run("systemctl", "start", "polder-collect.service"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		m.flows(t, "after collect was started again")
	})
	t.Run("broken FIFO", func(t *testing.T) {
		// No tool ends because of it, and no tool can detect it: the two ends are different FIFOs.
		if out, err := m.run("sh", "-ec", "rm /run/polder/2.fifo; "+
			"systemd-tmpfiles --create /usr/local/lib/polder/systemd/tmpfiles.d/polder.conf; systemctl restart polder-advise.service; "+
			untilNotAlive+"systemctl start polder-heartbeat.service || true"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		m.flows(t, "after everything was restarted")
	})
	t.Run("restored", func(t *testing.T) {
		if out, err := m.run("systemctl", "start", "polder-restore.service"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if diff := cmp.Diff(before, c.limits()); diff != "" {
			t.Errorf("limits (-before +after):\n%s%s", diff, m.logs())
		}
		if pids := m.pids(); pids["isolate"] != "0" {
			t.Errorf("processes %v; want isolate down", pids)
		}
	})
	t.Run("all tools under s6", func(t *testing.T) {
		if out, err := m.run("systemctl", "start", "polder.service"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		m.flows(t, "under s6")
		eventually(t, "the batch job is confined", func() bool { return c.limits() != before }, m.logs)
		m.checkDownUnderS6(t, settings)
		if out, err := m.run("systemctl", "stop", "polder.service"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if got := m.show("polder.service", "Result"); got != "success" {
			t.Errorf("polder.service ends with %s: %s", got, m.logs())
		}
		if out, err := m.run("systemctl", "start", "polder-restore.service"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if diff := cmp.Diff(before, c.limits()); diff != "" {
			t.Errorf("limits (-before +after):\n%s%s", diff, m.logs())
		}
	})
}

// checkDownUnderS6 gives a tool an invalid configuration, with which it stays down: the heartbeat's check names it, and restarts nothing.
func (m *machine) checkDownUnderS6(t *testing.T, settings []string) {
	t.Helper()
	const service = "/run/polder/service/advise"
	was := m.show("polder.service", "MainPID")
	m.set(t, append(settings, "POLDER_ADVISE_POLICY=guess")...)
	if out, err := m.run("s6-svc", "-r", service); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	eventually(t, "advise is neither up nor wanted up", func() bool {
		out, _ := m.run("s6-svstat", "-o", "up,wantedup", service)
		return strings.TrimSpace(out) == "false false"
	}, m.logs)
	if out, err := m.run("sh", "-c", untilNotAlive+"systemctl start polder-heartbeat.service"); err == nil {
		t.Errorf("the heartbeat's check succeeds while advise is down: %s%s", out, m.logs())
	}
	if is := m.show("polder.service", "MainPID"); is != was {
		t.Errorf("the heartbeat's check has restarted polder.service: its process was %s and is %s", was, is)
	}
	if log, want := m.logs(), "advise is down under polder.service, and nothing is restarted"; !strings.Contains(log, want) {
		t.Errorf("no message %q: %s", want, log)
	}
	m.set(t, settings...)
	if out, err := m.run("s6-svc", "-u", service); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m.flows(t, "after advise's configuration was corrected")
}

// shortWatchdog has the service manager find soon that a tool hangs. The others keep the shipped limit, which a busy machine does not reach.
func (m *machine) shortWatchdog(t *testing.T, tool string) {
	t.Helper()
	if out, err := m.run("bash", "-ec", fmt.Sprintf(`printf '[Service]\nWatchdogSec=10s\nTimeoutAbortSec=4s\n' >/units/polder-%[1]s.service.d/test.conf
systemctl daemon-reload
systemctl restart polder-%[1]s.service`, tool)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m.flows(t, "after "+tool+" was restarted")
}

// checkReturns ends a tool by a signal, waits until it is back, and checks whether its neighbours noticed.
func (m *machine) checkReturns(t *testing.T, tool, signal string) {
	t.Helper()
	was := m.pids()
	at := time.Now()
	if out, err := m.run("kill", "-"+signal, was[tool]); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	eventually(t, tool+" is back", func() bool {
		pid := m.show("polder-"+tool+".service", "MainPID")
		return pid != was[tool] && pid != "0"
	}, m.logs)
	t.Logf("back after %s", time.Since(at).Round(10*time.Millisecond))
	m.flows(t, "after "+tool+" got SIG"+signal)
	is := m.pids()
	was[tool] = is[tool]
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("the neighbours' processes (-want +got):\n%s%s", diff, m.logs())
	}
}

// checkConfined compares what each tool's process may do with the table of docs/stream.md.
func (m *machine) checkConfined(t *testing.T) {
	type may struct {
		Root, Cgroups, Etc, Network, Seccomp bool
		Capabilities, TimerSlack             string
	}
	want := map[string]may{}
	for _, tool := range tools {
		want[tool] = may{Seccomp: true, TimerSlack: "1000000", Capabilities: "0000000000000000"}
	}
	// CAP_BPF and CAP_PERFMON, and CAP_KILL
	want["isolate"] = may{Seccomp: true, TimerSlack: "1000000", Capabilities: "000000c000000000", Root: true, Cgroups: true}
	want["evict"] = may{Seccomp: true, TimerSlack: "1000000", Capabilities: "0000000000000020"}

	got := map[string]may{}
	for tool, pid := range m.pids() {
		status, err := m.run("cat", "/proc/"+pid+"/status")
		if err != nil {
			t.Fatalf("%v: %s", err, status)
		}
		field := func(name string) string {
			_, rest, _ := strings.Cut(status, "\n"+name+":")
			first, _, _ := strings.Cut(strings.TrimLeft(rest, "\t "), "\n")
			first, _, _ = strings.Cut(first, "\t")
			return first
		}
		// What root may do within the tool's mounts: nothing that they do not allow.
		inside := func(command string) bool {
			_, err := m.run("nsenter", "--target", pid, "--mount", "--", "sh", "-ec", command)
			return err == nil
		}
		interfaces, err := m.run("nsenter", "--target", pid, "--net", "--", "sh", "-c", "grep -c : /proc/self/net/dev; readlink /proc/self/ns/net /proc/1/ns/net | uniq | wc -l")
		if err != nil {
			t.Fatalf("%v: %s", err, interfaces)
		}
		slack, err := m.run("cat", "/proc/"+pid+"/timerslack_ns")
		if err != nil {
			t.Fatalf("%v: %s", err, slack)
		}
		got[tool] = may{
			Root:         field("Uid") == "0",
			TimerSlack:   strings.TrimSpace(slack),
			Capabilities: field("CapEff"),
			Seccomp:      field("Seccomp") == "2" && field("NoNewPrivs") == "1",
			Network:      interfaces != "1\n2", // lo alone, and not process 1's
			Cgroups:      inside("dir=$(find /sys/fs/cgroup -name batch -type d | head -n 1); mkdir $dir/test && rmdir $dir/test"),
			Etc:          inside(": > /etc/polder/test || : > /usr/local/bin/test || : > /root/test"),
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the tools may do (-want +got):\n%s", diff)
	}
	eventually(t, "report has written its metrics", func() bool { // beside the stream: maybe after the heartbeat
		metrics, err := m.run("cat", "/run/polder-report/polder.prom")
		return err == nil && strings.Contains(metrics, "polder_tick_timestamp_seconds")
	}, m.logs)
}
