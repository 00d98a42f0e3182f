package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// document is one of the chart's objects, by its kind.
func document(t *testing.T, rendered, kind string) map[string]any {
	t.Helper()
	for d := yaml.NewDecoder(strings.NewReader(rendered)); ; {
		var o map[string]any
		if err := d.Decode(&o); err != nil {
			return nil // end of the output
		}
		if o["kind"] == kind {
			return o
		}
	}
}

func at(o any, path ...string) any {
	for _, key := range path {
		m, _ := o.(map[string]any)
		o = m[key]
	}
	return o
}

var toolsOfMetrics = []string{"collect", "advise", "isolate", "evict", "report"}

// The tools listen on the PodMonitor's ports, in both forms; by default no tool listens.
func TestMetrics(t *testing.T) {
	cluster(t) // helm is available
	if out := template(t); strings.Contains(out, "METRICS_ADDR") || strings.Contains(out, "containerPort") || strings.Contains(out, "monitoring.coreos.com") {
		t.Error("by default a tool listens or is scraped")
	}
	for _, form := range []string{"single", "containers"} {
		t.Run(form, func(t *testing.T) {
			out := template(t, "form="+form, "metrics.enabled=true", "metrics.ports.isolate=7777", "metrics.podMonitor.enabled=true", "metrics.podMonitor.labels.release=p")
			var containers []any
			for document := range strings.SplitSeq(out, "\n---\n") {
				var set map[string]any
				if !strings.Contains(document, "\nkind: DaemonSet\n") {
					continue
				}
				if err := yaml.Unmarshal([]byte(document), &set); err != nil {
					t.Fatal(err)
				}
				list, _ := at(set, "spec", "template", "spec", "containers").([]any)
				containers = append(containers, list...)
			}
			ports, listens := map[string]int{}, map[string]string{}
			for _, c := range containers {
				list, _ := at(c, "ports").([]any)
				for _, p := range list {
					name, _ := at(p, "name").(string)
					ports[name], _ = at(p, "containerPort").(int)
					if at(p, "hostPort") != nil || len(name) > 15 {
						t.Errorf("port %v", p)
					}
				}
				env, _ := at(c, "env").([]any)
				for _, e := range env {
					if name, _ := at(e, "name").(string); strings.HasSuffix(name, "_METRICS_ADDR") {
						listens[name], _ = at(e, "value").(string)
					}
				}
			}
			monitor := document(t, out, "PodMonitor")
			if at(monitor, "metadata", "labels", "release") != "p" || at(monitor, "spec", "selector", "matchLabels", "app.kubernetes.io/instance") != "polder" {
				t.Errorf("PodMonitor: %v", monitor)
			}
			endpoints, _ := at(monitor, "spec", "podMetricsEndpoints").([]any)
			if len(endpoints) != len(toolsOfMetrics) || len(ports) != len(toolsOfMetrics) {
				t.Errorf("%d endpoints, ports %v", len(endpoints), ports)
			}
			want := map[string]string{"collect": ":9471", "advise": ":9472", "isolate": ":7777", "evict": ":9474", "report": ":9475"}
			for i, tool := range toolsOfMetrics {
				if got := listens["POLDER_"+strings.ToUpper(tool)+"_METRICS_ADDR"]; got != want[tool] {
					t.Errorf("%s listens at %q, want %q", tool, got, want[tool])
				}
				if i < len(endpoints) && at(endpoints[i], "port") != tool+"-metrics" || ports[tool+"-metrics"] == 0 {
					t.Errorf("%s: endpoint %v, ports %v", tool, endpoints, ports)
				}
			}
		})
	}
}

// The PrometheusRule and the dashboard's ConfigMap contain the files of deploy/monitoring, unchanged.
func TestMonitoringFiles(t *testing.T) {
	cluster(t)
	out := template(t, "metrics.rules.enabled=true", "metrics.dashboard.enabled=true")
	var rules map[string]any
	if err := yaml.Unmarshal([]byte(read(t, top+"/deploy/monitoring/alerts.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(at(document(t, out, "PrometheusRule"), "spec"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := yaml.Marshal(rules)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the PrometheusRule is not alerts.yaml:\n%s", got)
	}
	config := document(t, out, "ConfigMap")
	if dashboard := at(config, "data", "polder.json"); dashboard != read(t, top+"/deploy/monitoring/dashboard.json") || at(config, "metadata", "labels", "grafana_dashboard") != "1" {
		t.Errorf("the dashboard's ConfigMap is not dashboard.json: %.200v", dashboard)
	}
	for _, name := range []string{"alerts.yaml", "dashboard.json"} {
		if info, err := os.Lstat(filepath.Join(top, "deploy/monitoring", name)); err != nil || info.Mode().Type() != fs.ModeSymlink {
			t.Errorf("deploy/monitoring/%s is not a link into the chart (%v)", name, err)
		}
	}
}
