package main

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/lib/config"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/tests/await"
)

// sloFile returns Koordinator's ConfigMap with a document.
func sloFile(threshold, qos string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: slo-controller-config}\ndata:\n" +
		"  resource-threshold-config: |\n    " + threshold + "\n  resource-qos-config: |\n    " + qos + "\n"
}

// A setting in the ConfigMap of --config that no tool uses is logged once, and again if a changed file has another one. A valid but unusual
// setting is logged once per node.
func TestConfigMapIsAnnounced(t *testing.T) {
	const (
		unsupported = "settings of the ConfigMap that are not supported"
		problem     = "nodeStrategies[0]: it has no nodeSelector: it is for no node"
	)
	path := filepath.Join(t.TempDir(), "slo.yaml")
	write := func(text string) {
		t.Helper()
		if err := stage.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const threshold = `{"clusterStrategy":{"enable":true,"cpuSuppressTreshold":1},"nodeStrategies":[{"cpuSuppressThresholdPercent":50}]}`
	write(sloFile(threshold, `{"clusterStrategy":{"lsClass":{"cpuQOS":{"enable":true}}}}`))
	in, input := io.Pipe()
	output, out := io.Pipe()
	log := &await.Log{}
	done := make(chan int)
	go func() {
		env := stage.Env{Args: []string{"advise", "--policy", "koordinator", "--config", path}, In: in, Out: out, Err: log, Getenv: os.Getenv, Now: time.Now}
		done <- command().Execute(t.Context(), env)
		out.Close()
	}()
	lines := bufio.NewScanner(output)
	ticks := func(from int) {
		t.Helper()
		for i := range 6 {
			at := time.Date(2026, 1, 1, 0, 0, from+i, 0, time.UTC).Format(time.RFC3339)
			fmt.Fprintf(input, `{"v":1,"node":"n%d","time":%q,"sample":{"intervalSeconds":1,"topology":{"cpus":"0-7"}}}`+"\n", i%2, at)
			if !lines.Scan() {
				t.Fatalf("no tick: %v", lines.Err())
			}
		}
	}
	count := func(text string, want int) {
		t.Helper()
		if got := strings.Count(log.String(), text); got != want {
			t.Errorf("%q is in the log %d times; want %d:\n%s", text, got, want, log)
		}
	}
	ticks(0)
	count(unsupported, 1)
	count("resource-threshold-config: clusterStrategy.cpuSuppressTreshold (unknown), resource-qos-config: clusterStrategy.lsClass.cpuQOS", 1)
	count(problem, 2) // two nodes

	write(sloFile(threshold, `{"clusterStrategy":{"systemClass":{"resctrlQOS":{"mbaPercent":50}}}}`))
	log.Await(t, waitLimit, "configuration read again", 1)
	ticks(10)
	count(unsupported, 2)
	count("resource-qos-config: clusterStrategy.systemClass.resctrlQOS", 1)
	count(problem, 2) // unchanged

	write(sloFile(`{"clusterStrategy":{"enable":true}}`, `{}`))
	log.Await(t, waitLimit, "configuration read again", 2)
	ticks(20)
	count(unsupported, 2)
	count(problem, 2)
	input.Close()
	if got := <-done; got != 0 {
		t.Errorf("exit status %d: %s", got, log)
	}
}

// The number of remembered nodes is bounded, and a node that was dropped still has the file's objects.
func TestNodesOfObjectsAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slo.yaml")
	file, err := config.ReadObjects(path, []byte(sloFile(`{"clusterStrategy":{"enable":true}}`, `{}`)))
	if err != nil {
		t.Fatal(err)
	}
	o := &objects{file: file, log: slog.New(slog.DiscardHandler), nodes: map[string]*nodeObjects{}}
	for i := range tick.MaxNodes - 1 {
		o.nodes[fmt.Sprint(i)] = &nodeObjects{}
	}
	for _, step := range []struct {
		node string
		want int // nodes that are remembered
	}{{"last", tick.MaxNodes}, {"0", tick.MaxNodes}, {"new", 1}, {"0", 2}, {"new", 2}} {
		x := &tick.Tick{Node: step.node, Sample: &tick.Sample{}}
		if o.override(x); !strings.Contains(string(x.Sample.Config), `"resourceThreshold"`) {
			t.Errorf("node %s has the configuration %s", x.Node, x.Sample.Config)
		}
		if len(o.nodes) != step.want || o.nodes[step.node] == nil {
			t.Errorf("after node %s %d are remembered; want %d", step.node, len(o.nodes), step.want)
		}
	}
}

// A node keeps the strategies of its labels and annotations while the Node object is unknown, as after a restart of collect without the API
// server; without labels only the cluster's strategies would be in force.
func TestObjectsOfALabelledNodeStayWhileItIsUnread(t *testing.T) {
	const threshold = `{"clusterStrategy":{"cpuSuppressThresholdPercent":65},` +
		`"nodeStrategies":[{"nodeSelector":{"matchLabels":{"pool":"gpu"}},"cpuSuppressThresholdPercent":7}]}`
	path := filepath.Join(t.TempDir(), "slo.yaml")
	file, err := config.ReadObjects(path, []byte(sloFile(threshold, `{}`)))
	if err != nil {
		t.Fatal(err)
	}
	o := &objects{file: file, log: slog.New(slog.DiscardHandler)}
	labelled := tick.Sample{Labels: map[string]string{"pool": "gpu"}}
	unread := tick.Sample{Errors: []tick.SourceError{{Source: "node", Error: "no answer"}}}
	for i, step := range []struct {
		sample  tick.Sample
		percent int
	}{{unread, 65}, {labelled, 7}, {unread, 7}, {tick.Sample{}, 65}, {unread, 65}} {
		x := &tick.Tick{Node: "n", Sample: &step.sample}
		o.override(x)
		if want := fmt.Sprintf(`"cpuSuppressThresholdPercent":%d`, step.percent); !strings.Contains(string(x.Sample.Config), want+",") &&
			!strings.Contains(string(x.Sample.Config), want+"}") {
			t.Errorf("tick %d: the configuration is %s; want %s", i, x.Sample.Config, want)
		}
	}
}
