package series

import (
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

// The difference between the shadow's offer and the policy's is counted over the time between two advices; nothing is counted if one of
// the offers is unknown, or if the time is long or negative.
func TestShadowDifference(t *testing.T) {
	start := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	offer := func(milli int64) *tick.Reclaimed { return &tick.Reclaimed{MilliCPU: &milli} }
	at := func(after time.Duration, policy, shadow *tick.Reclaimed) *tick.Tick {
		return &tick.Tick{Node: "n", Time: start.Add(after), Advice: &tick.Advice{
			Policy: "katalyst", Reclaimed: policy, Shadow: &tick.Shadow{Policy: "koordinator", Reclaimed: shadow},
		}}
	}
	n := NewNode("advise")
	for _, step := range []struct {
		tick       *tick.Tick
		more, less string
	}{
		{at(0, offer(4000), offer(6000)), "0", "0"}, // no time has passed
		{at(10*time.Second, offer(4000), offer(6000)), "20", "0"},
		{at(12*time.Second, offer(4000), offer(1000)), "20", "6"},
		{at(13*time.Second, offer(4000), offer(4000)), "20", "6"},
		{at(14*time.Second, nil, offer(4000)), "20", "6"},
		{at(15*time.Second, offer(4000), nil), "20", "6"},
		{at(15*time.Second, offer(4000), offer(9000)), "20", "6"},
		{at(10*time.Second, offer(4000), offer(9000)), "20", "6"},
		{at(time.Hour, offer(4000), offer(9000)), "20", "6"},
		{at(time.Hour+time.Second, offer(4000), offer(9000)), "25", "6"},
	} {
		n.Add(step.tick)
		lines := text(n.Samples(step.tick))
		for _, want := range []string{
			"polder_shadow_difference_cpu_seconds_total[n koordinator more]" + step.more,
			"polder_shadow_difference_cpu_seconds_total[n koordinator less]" + step.less,
		} {
			if !slices.Contains(lines, want) {
				t.Errorf("%s: want %s in\n%s", step.tick.Time.Format(time.TimeOnly), want, strings.Join(lines, "\n"))
			}
		}
	}
	plain := &tick.Tick{Node: "n", Time: start, Advice: &tick.Advice{Policy: "katalyst", Reclaimed: offer(4000)}}
	if lines := strings.Join(samplesText(plain), "\n"); strings.Contains(lines, "polder_shadow") {
		t.Errorf("without a shadow:\n%s", lines)
	}
}

func samplesText(x *tick.Tick) []string { return text(samplesOf(x)) }
