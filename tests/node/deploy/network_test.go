package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"polder/tests/cluster/controlplane"
	"polder/tests/need"
)

// uplink is a link of this test alone, which represents the node's uplink: a node here has the machine's network, whose own links must
// not be shaped.
type uplink struct {
	t    *testing.T
	name string
}

func newUplink(t *testing.T) uplink {
	t.Helper()
	need.Program(t, "ip", "iproute2")
	need.Program(t, "tc", "iproute2")
	u := uplink{t, fmt.Sprintf("plr%d", os.Getpid()%1_000_000)}
	u.must("ip", "link", "add", u.name, "type", "veth", "peer", "name", u.name+"p")
	t.Cleanup(func() { u.must("ip", "link", "del", u.name) })
	u.must("ip", "link", "set", u.name, "up")
	return u
}

func (u uplink) must(command ...string) string {
	u.t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		u.t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// shaped returns what the link lacks of the shaping in the chart's values.
func (u uplink) shaped() string {
	u.t.Helper()
	qdisc, classes := u.must("tc", "qdisc", "show", "dev", u.name), u.must("tc", "class", "show", "dev", u.name)
	if !strings.HasPrefix(qdisc, "qdisc htb 706f: root ") {
		return qdisc
	}
	for _, want := range []string{"706f:1 root rate 1Gbit ", "706f:100 parent 706f:1 ", "rate 900Mbit ceil 1Gbit ", "706f:101 parent 706f:1 ", "prio 7 ", "rate 100Mbit ceil 1Gbit "} {
		if !strings.Contains(classes, want) {
			return fmt.Sprintf("no %q in\n%s", want, classes)
		}
	}
	return ""
}

// values are the chart's for that link.
func (u uplink) values() []string {
	return []string{"network.enabled=true", "network.rate=1Gbit", "advise.flags.network-links=" + u.name}
}

// shapesUplink runs the second isolate in its own pod between isolate and evict, with the one capability that it needs; a restore reverts
// the link.
func (d *deployment) shapesUplink(t *testing.T) {
	u := newUplink(t)
	first := u.must("tc", "qdisc", "show", "dev", u.name)
	d.apply(u.values()...)
	d.ready(slices.Sorted(slices.Values(append(slices.Clone(apart), "isolate-network")))...)
	d.Eventually(controlplane.Soon, "the uplink is shaped", u.shaped)
	found := 0
	for _, pid := range d.Processes() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || !strings.HasPrefix(string(line), "/usr/local/bin/isolate\x00--only\x00network\x00") {
			continue // it may have ended
		}
		found++
		const netAdmin = 1 << 12
		for _, key := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			got, err := strconv.ParseUint(status(t, pid, key), 16, 64)
			if err != nil || got&^netAdmin != 0 || key == "CapEff" && got != netAdmin {
				t.Errorf("isolate --only network has %s %x (%v)", key, got, err)
			}
		}
		if status(t, pid, "NoNewPrivs") != "1" || status(t, pid, "Seccomp") != "2" {
			t.Errorf("isolate --only network has NoNewPrivs %s, Seccomp %s", status(t, pid, "NoNewPrivs"), status(t, pid, "Seccomp"))
		}
	}
	if found != 1 {
		t.Errorf("%d processes are isolate --only network; want 1", found)
	}
	t.Logf("%s", u.must("tc", "class", "show", "dev", u.name))

	d.apply(append(u.values(), "restore=true")...)
	d.ready("done", "done", "done")
	if got := u.must("tc", "qdisc", "show", "dev", u.name); got != first {
		t.Errorf("after the restore the link has %s; at first %s", got, first)
	}
	if _, err := os.Stat(d.Path("/var/lib/polder/network/network.journal")); !os.IsNotExist(err) {
		t.Errorf("after the restore the journal is there: %v", err)
	}
}

// status is a field of a process's status file.
func status(t *testing.T, pid int, field string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if key, value, _ := strings.Cut(line, ":"); key == field {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("process %d has no %s", pid, field)
	return ""
}
