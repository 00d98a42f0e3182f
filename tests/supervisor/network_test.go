package supervisor

import (
	"slices"
	"strings"
	"testing"
)

// checkNetwork shapes the machine's uplink with the unit of the second isolate, as docs/network.md describes. collect has a network of its
// own, and sees the machine's links and their drivers' speed nevertheless.
func (m *machine) checkNetwork(t *testing.T, settings []string) {
	run := func(script string) string {
		t.Helper()
		out, err := m.run("bash", "-ec", script)
		if err != nil {
			t.Fatalf("%s: %v: %s\n%s", script, err, out, m.logs())
		}
		return out
	}
	t.Cleanup(func() {
		m.set(t, settings...)
		run("rm -f /units/polder-evict.service.d/network.conf; systemctl daemon-reload; systemctl start polder.target; systemctl restart polder-advise polder-evict")
		m.flows(t, "after the network")
	})
	run("ip link add up0 type veth peer name far0; ip link set far0 up; ip link set up0 up; ip addr add 192.0.2.1/30 dev up0; ip route add default via 192.0.2.2")
	before := run("tc qdisc show dev up0")
	m.set(t, append(slices.Clip(settings), "POLDER_ADVISE_BATCH_NETWORK_RATE=10%")...)
	run("cp /usr/local/lib/polder/systemd/network.conf /units/polder-evict.service.d/; systemctl daemon-reload; systemctl restart polder-collect polder-advise polder-evict")
	m.flows(t, "through the second isolate")
	// A veth's driver reports 10 Gbit/s, of which 95 % count.
	eventually(t, "up0 has the classes of its speed", func() bool {
		out, _ := m.run("tc", "class", "show", "dev", "up0")
		return strings.Contains(out, "htb 706f:1 ") && strings.Contains(out, "9500Mbit")
	}, m.logs)

	pid := m.show("polder-isolate-network.service", "MainPID")
	status := run("cat /proc/" + pid + "/status")
	for _, want := range []string{"\nCapEff:\t0000000000001000\n", "\nCapBnd:\t0000000000001000\n", "\nNoNewPrivs:\t1\n", "\nSeccomp:\t2\n"} {
		if !strings.Contains(status, want) {
			t.Errorf("the second isolate has not %q:\n%s", want, status)
		}
	}
	if strings.Contains(status, "\nUid:\t0\t") {
		t.Error("the second isolate is root")
	}
	if out, err := m.run("nsenter", "--target", pid, "--mount", "--", "sh", "-ec", "dir=$(find /sys/fs/cgroup -name batch -type d | head -n 1); mkdir $dir/test"); err == nil {
		t.Errorf("the second isolate's cgroups can be written: %s", out)
	}

	run("systemctl start polder-restore.service")
	if after := run("tc qdisc show dev up0"); after != before {
		t.Errorf("after the restore up0 has\n%s\nwant\n%s", after, before)
	}
	if got := m.show("polder-isolate-network.service", "ActiveState") + " " + m.show("polder-restore-network.service", "Result"); got != "inactive success" {
		t.Errorf("the second isolate is %s: %s", got, m.logs())
	}
}
