package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Settings of a --config ConfigMap that have no effect are logged once, and again if a changed file has other ones; so are
// doubtful values in force.
func TestConfigMapIsAnnounced(t *testing.T) {
	const (
		unsupported = "settings of the ConfigMap that are not supported"
		problem     = "nodeStrategies[0]: it has no nodeSelector: it is for no node"
	)
	file := filepath.Join(t.TempDir(), "slo.yaml")
	write := func(threshold, qos string) {
		t.Helper()
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: slo-controller-config}\ndata:\n" +
			"  resource-threshold-config: |\n    " + threshold + "\n  resource-qos-config: |\n    " + qos + "\n"
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	const odd = `{"clusterStrategy":{"enable":true,"memoryEvictTreshold":1},"nodeStrategies":[{"memoryEvictThresholdPercent":50}]}`
	write(odd, `{"clusterStrategy":{"lsClass":{"cpuQOS":{"enable":true}}}}`)
	p := startEvict(t, "--dry-run", "--config", file)
	makeTick := overcommit("/a", "/b")
	at := 0
	ticks := func() {
		for range 6 {
			at++
			x := makeTick(at)
			x.Node = []string{"n", "m"}[at%2]
			p.put(x)
		}
	}
	count := func(text string, want int) {
		t.Helper()
		if got := strings.Count(p.log.String(), text); got != want {
			t.Errorf("%q is in the log %d times; want %d:\n%s", text, got, want, p.log)
		}
	}
	again := func(n int) {
		t.Helper()
		p.log.Await(t, waitTimeout, "configuration read again", n)
	}
	ticks()
	count(unsupported, 1)
	count("resource-threshold-config: clusterStrategy.memoryEvictTreshold (unknown), resource-qos-config: clusterStrategy.lsClass.cpuQOS", 1)
	count(problem, 2) // two nodes

	write(odd, `{"clusterStrategy":{"systemClass":{"resctrlQOS":{"mbaPercent":50}}}}`)
	again(1)
	ticks()
	count(unsupported, 2)
	count("resource-qos-config: clusterStrategy.systemClass.resctrlQOS", 1)
	count(problem, 2) // as before

	write(`{"clusterStrategy":{"enable":true}}`, `{}`)
	again(2)
	ticks()
	count(unsupported, 2)
	count(problem, 2)
	if got := p.close(); got != 0 {
		t.Errorf("exit status %d:\n%s", got, p.log)
	}
}
