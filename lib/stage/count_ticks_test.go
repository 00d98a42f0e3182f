package stage

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"polder/lib/metrics"
	"polder/lib/tick"
)

// Each section that a tool returns is in its metrics.
func TestSectionsAreInTheMetrics(t *testing.T) {
	for _, tt := range []struct {
		tool, series string
		section      any
	}{
		{"advise", "polder_advice_reasons", &tick.Advice{}},
		{"isolate", "polder_isolation_missing_cgroups", tick.Isolation{}},
		{"isolate", "polder_network_class_backlog_bytes", tick.NetworkIsolation{
			Classes: []tick.NetworkCount{{Link: "eth0", Class: "batch"}},
		}},
		{"isolate", `polder_dropped_ticks_total{node="n",tool="isolate-network"} 3`, tick.NetworkIsolation{DroppedTicks: 3}},
		{"evict", "polder_eviction_queue_pods", &tick.Eviction{}},
		{"report", "polder_report_target_state", &tick.Report{Targets: []tick.Target{{Target: "cnr", State: tick.TargetWritten}}}},
	} {
		s := &Session{Metrics: metrics.New(tt.tool, "1")}
		if err := s.Metrics.Serve("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		s.measure(&tick.Line{Node: "n", Time: time.Unix(1, 0)}, tt.section, "", 0)
		r, err := http.Get("http://" + s.Metrics.Addr() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		s.Metrics.Close()
		if err != nil || !strings.Contains(string(text), "\n"+tt.series) {
			t.Errorf("%s: no %s (%v) in:\n%s", tt.tool, tt.series, err, text)
		}
	}
}
