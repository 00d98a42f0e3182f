package tests

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/binaries"
	"polder/tests/wander"
)

// writeDay writes a day of a busy node: a tick every 10 s, 40 pods that stay, and one that comes every 5 minutes.
func writeDay(t testing.TB, out io.Writer) {
	t.Helper()
	n := wander.New("node-1", 7)
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for i := range 8640 {
		var cores float64
		for range 10 {
			cores = n.Next()
		}
		x := n.Tick(start.Add(time.Duration(i)*10*time.Second), cores)
		x.Sample.IntervalSeconds, x.Sample.PeriodSeconds = new(10.0), new(10.0)
		x.Sample.Pods[1].UsageMilliCPU = new(1500 + 1000*math.Sin(float64(i)/50))
		for p := range 40 {
			x.Sample.Pods = append(x.Sample.Pods, worker(fmt.Sprintf("worker-%d", p), 50+20*math.Sin(float64(i+p)/20)))
		}
		x.Sample.Pods = append(x.Sample.Pods, worker(fmt.Sprintf("cron-%d", i/30), 100))
		*x.Sample.CPU.UsageMilliCPU += 4500
		line, err := tick.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
	}
}

func worker(name string, milliCPU float64) tick.Pod {
	return tick.Pod{
		UID: name, Namespace: "jobs", Name: name, QoS: tick.QoSReclaimed, UsageMilliCPU: &milliCPU, Cgroup: "/batch/" + name,
		Requests:   &tick.Resources{ReclaimedMilliCPU: new(100.0), ReclaimedMemoryBytes: new(67108864.0)},
		Containers: []tick.Container{{Name: "c", Cgroup: "/batch/" + name + "/c", CPUSetCPUs: "0-47", UsageMilliCPU: &milliCPU, ThrottledPercent: new(0.0)}},
	}
}

// A day of one node at a tick every 10 s is a page of less than 5 MB, and all its points are ticks.
func TestPageOfADay(t *testing.T) {
	page := filepath.Join(t.TempDir(), "day.html")
	runReport(t, recordDay(t), page)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 5_000_000 {
		t.Errorf("the page has %d bytes; want less than 5 MB", len(text))
	}
	if !bytes.Contains(text, []byte(`"perPoint":1,`)) {
		t.Error("the points of a day of 8640 ticks are no single ticks")
	}
}

// BenchmarkPageOfADay is the page's cost: seconds of CPU time.
func BenchmarkPageOfADay(b *testing.B) {
	day := recordDay(b)
	var took time.Duration
	for b.Loop() {
		took += runReport(b, day, filepath.Join(b.TempDir(), "day.html"))
	}
	b.ReportMetric(took.Seconds()/float64(b.N), "CPU-s/op")
}

// recordDay writes the day with advice in each tick; it returns the path.
func recordDay(t testing.TB) string {
	t.Helper()
	var day bytes.Buffer
	writeDay(t, &day)
	recording := filepath.Join(t.TempDir(), "day.jsonl")
	if err := os.WriteFile(recording, pipe(t, day.Bytes(), "advise"), 0o644); err != nil {
		t.Fatal(err)
	}
	return recording
}

// runReport draws a recording as a page and returns the CPU time of that.
func runReport(t testing.TB, recording, page string) time.Duration {
	t.Helper()
	report := exec.Command(binaries.Path(t, "report"), "--to", "html", "--input", recording, "--output", page)
	if out, err := report.CombinedOutput(); err != nil {
		t.Fatalf("report --to html: %v\n%s", err, out)
	}
	return report.ProcessState.UserTime() + report.ProcessState.SystemTime()
}

// pipe is the output of a tool.
func pipe(t testing.TB, in []byte, tool string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(binaries.Path(t, tool), args...)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return out
}
