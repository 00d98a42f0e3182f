package object

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// FuzzNodeMetric reads any sample and any strategies: the result can be written, and is bounded.
func FuzzNodeMetric(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`,
		`{"cpu":{"usageMilliCPU":138},"memory":{"totalBytes":4e9,"availableBytes":2e9},"pods":[{"uid":"u","namespace":"d","name":"p","usageMilliCPU":1,"memory":{"rssBytes":5},"containers":[{"cgroup":"/a","usageMilliCPU":1,"memory":{"rssBytes":5}}]}]}`,
		`{"cpu":{"usageMilliCPU":-1e308},"memory":{"totalBytes":1,"availableBytes":2},"numaNodes":[{"id":-7,"usageMilliCPU":1e300},{"id":-7}]}`,
		`{"config":{"koordinator":{"colocation":{"metricAggregateDurationSeconds":-9223372036854775808,"metricReportIntervalSeconds":9223372036854775807,"metricAggregatePolicy":{"durations":["1ns","9999999h",""]},"metricMemoryCollectPolicy":"usageWithPageCache"}}},"pods":[{"missing":"cluster"},{"namespace":"a","name":"b"}]}`,
	} {
		f.Add([]byte(seed), int64(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, step int64) {
		var s *tick.Sample
		if tick.Unmarshal(data, &s) != nil || s == nil {
			return
		}
		var m sloconfig.InForce
		_ = m.Update(s)
		r := Rules{}.Koordinator(m.Colocation(), Given{})
		if r.MinChange <= 0 || math.IsNaN(r.MinChange) || r.Resync < time.Second || r.Resync > longestWait {
			t.Fatalf("rules %+v", r)
		}
		var u Usage
		now := noon
		for _, c := range []sloconfig.Colocation{m.Colocation(), defaults(), m.Colocation()} {
			now = now.Add(time.Duration(step % int64(time.Hour)))
			u.Take(&tick.Tick{Time: now, Sample: s}, c)
			if u.Due(now) {
				u.Reported(now)
			}
			status := u.Status(now)
			if _, err := json.Marshal(NodeMetricPatch(status)); err != nil {
				t.Fatalf("not to be written: %v", err)
			}
			if pods, _ := status["podsMetric"].([]any); len(pods) > maxMeasuredPods || len(u.node.cpu.Points) > nodePoints+2 {
				t.Fatalf("%d pods, %d points", len(pods), len(u.node.cpu.Points))
			}
			u.Note(now)
		}
	})
}
