package tests

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/binaries"
	"polder/tests/wander"
)

// The loads of the 1,000-node benchmark cost each object at most 30 writes a node and hour.
func TestWanderingLoadsCostFewWrites(t *testing.T) {
	const nodes, hours, most = 4, 2, 30
	var ticks bytes.Buffer
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for i := range nodes {
		n := wander.New(fmt.Sprintf("n%d", i), uint64(i))
		for s := range hours * 3600 {
			line, err := tick.Marshal(n.Tick(start.Add(time.Duration(s)*time.Second), n.Next()))
			if err != nil {
				t.Fatal(err)
			}
			ticks.Write(append(line, '\n'))
		}
	}
	advise := exec.Command(binaries.Path(t, "advise"))
	advise.Stdin = &ticks
	advised, err := advise.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"cnr", "node"} {
		report := exec.Command(binaries.Path(t, "report"), "--dry-run", "--to", target)
		var log bytes.Buffer
		report.Stdin, report.Stderr = bytes.NewReader(advised), &log
		if err := report.Run(); err != nil {
			t.Fatalf("report --to %s: %v\n%s", target, err, &log)
		}
		writes := float64(strings.Count(log.String(), "would be written")) / nodes / hours
		t.Logf("figures: %s: %.1f writes a node and hour", target, writes)
		if writes > most || writes < 3 {
			t.Errorf("%s: %.1f writes a node and hour; want some, and at most %d", target, writes, most)
		}
	}
}
