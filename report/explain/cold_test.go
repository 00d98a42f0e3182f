package explain

import (
	"strings"
	"testing"

	"polder/lib/tick"
)

// explain names the memory that was reclaimed for the node and for the pod that used it, not for a service, and gives the reason why it was no more.
func TestColdMemory(t *testing.T) {
	x := made(noon, 4000, 1000)
	x.Advice.Reasons = append(x.Advice.Reasons, "cold memory: nothing to reclaim now; 1 pod in hold-down, the first for 30s more")
	var job string
	for _, p := range x.Sample.Pods {
		if p.Name == "job" {
			job = p.Cgroup
		}
	}
	x.Isolation = &tick.Isolation{Reclaims: []tick.Reclaim{
		{Cgroup: job, Bytes: 1 << 30, ReclaimedBytes: 1 << 30, State: tick.ReclaimDone},
		{Cgroup: "/other", ReclaimedBytes: 1 << 30, State: tick.ReclaimPartial},
		{State: tick.ReclaimSkipped, Reason: "an earlier one is in progress\x1b[2J"},
	}}
	at := moment(t, "12:00")
	for about, want := range map[string]string{
		"":          "2.00 GiB that batch did not use was reclaimed in 2 steps from 12:00:00 on (1 of them incomplete). 1 step not done; the last reason: an earlier one is in progress?[2J. Advise reports: nothing to reclaim now; 1 pod in hold-down, the first for 30s more.",
		"batch/job": "1.00 GiB that it did not use was reclaimed from it in 1 step from 12:00:00 on.",
	} {
		text := spaces(ask(t, Question{Pod: about, At: at}, x))
		if !strings.Contains(text, "Cold memory: "+want) || strings.Count(text, "hold-down") != 1 {
			t.Errorf("about %q: %s; want %s", about, text, want)
		}
	}
	if text := spaces(ask(t, Question{Pod: "shop/web", At: at}, x)); strings.Contains(text, "Cold memory") {
		t.Errorf("about a service: %s", text)
	}
}
