package supervisor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checkMetrics checks that a tool answers Prometheus, as docs/metrics.md describes: only with the drop-in, and only on
// this machine.
func (m *machine) checkMetrics(t *testing.T, settings []string) {
	run := func(script string) string {
		t.Helper()
		out, err := m.run("bash", "-ec", script)
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return out
	}
	t.Cleanup(func() {
		m.set(t, settings...)
		run("rm -f /units/polder-advise.service.d/metrics.conf; systemctl daemon-reload; systemctl reset-failed polder-advise.service; systemctl restart polder-advise.service")
		m.flows(t, "after the metrics")
	})
	m.set(t, append(slices.Clip(settings), "POLDER_ADVISE_METRICS_ADDR=127.0.0.1:9472")...)
	run("systemctl restart polder-advise.service || true")
	eventually(t, "advise logs why it cannot listen", func() bool {
		log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
		return strings.Contains(string(log), "is the unit's RestrictAddressFamilies without AF_INET?")
	}, m.logs)

	run("cp /usr/local/lib/polder/systemd/metrics.conf /units/polder-advise.service.d/; systemctl daemon-reload; systemctl reset-failed polder-advise.service; systemctl restart polder-advise.service")
	eventually(t, "advise answers", func() bool {
		page, err := m.run("bash", "-ec", `exec 3<>/dev/tcp/127.0.0.1/9472; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; cat <&3`)
		return err == nil && strings.Contains(page, "\npolder_ticks_total{") && strings.Contains(page, `tool="advise"`)
	}, m.logs)
	// The other restrictions still apply.
	if got := m.show("polder-advise.service", "IPAddressDeny") + " " + m.show("polder-advise.service", "IPAddressAllow"); !strings.Contains(got, "0.0.0.0/0") || !strings.Contains(got, "127.0.0.0/8") {
		t.Errorf("addresses that are denied and allowed: %s", got)
	}
	if got := m.show("polder-advise.service", "RestrictAddressFamilies"); strings.Contains(got, "NETLINK") || strings.Contains(got, "PACKET") || !strings.Contains(got, "AF_INET") {
		t.Errorf("address families: %s", got)
	}
}
