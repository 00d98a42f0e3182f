package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/stage"
	"polder/lib/tick"
	"polder/lib/tick/ticktest"
	"polder/report/cluster"
	"polder/tests/await"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func session(env map[string]string) *stage.Session {
	return &stage.Session{
		Env:  stage.Env{Out: io.Discard, Getenv: func(name string) string { return env[name] }, Now: func() time.Time { return noon }},
		Log:  slog.New(slog.DiscardHandler),
		Node: "n",
	}
}

func incoming(node string, seconds int, milli int64) stage.Incoming {
	return stage.Incoming{Tick: &tick.Tick{
		V: 1, Node: node, Time: noon.Add(time.Duration(seconds) * time.Second),
		Advice: &tick.Advice{Policy: "katalyst", Reclaimed: &tick.Reclaimed{MilliCPU: &milli}},
	}}
}

func put(t *testing.T, x cluster.Target, in stage.Incoming) tick.Target {
	t.Helper()
	result, err := x.Put(in)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestMetricsRewrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "polder.prom")
	x, err := openMetrics(t.Context(), session(nil), &options{metricsFile: path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	x.(*metrics).diskTimeout = replayTimeout // the test is of the writes, however slow the disk is
	for _, step := range []struct {
		name    string
		seconds int
		milli   int64
		want    string
		changed bool
	}{
		{"first", 0, 1, tick.TargetWritten, true},
		{"nothing new", 5, 1, tick.TargetUnchanged, false},
		{"something new", 6, 2, tick.TargetWritten, true},
		{"nothing new again", 15, 2, tick.TargetUnchanged, false},
		{"the file's time is old", 16, 2, tick.TargetWritten, false},
		{"the clock was set back", 3, 2, tick.TargetWritten, false},
	} {
		want := tick.Target{Target: "prometheus", State: step.want, Changed: step.changed}
		if d := cmp.Diff(want, put(t, x, incoming("n", step.seconds, step.milli))); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, d)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%s: %v, %v; want mode 0644, for node_exporter", path, info, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// slowDisk returns a target whose file is written when a result of that is sent, and what has been written.
func slowDisk(t *testing.T) (m *metrics, allow chan error, written *[]string) {
	t.Helper()
	x, err := openMetrics(t.Context(), session(nil), &options{metricsFile: "x"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, allow, written = x.(*metrics), make(chan error), &[]string{}
	m.replace = func(_ string, data []byte, _ fs.FileMode) error {
		err := <-allow
		*written = append(*written, string(data))
		return err
	}
	return m, allow, written
}

// A slow disk delays neither the stream nor more than one write, and the newest page is written next.
func TestMetricsSlowDisk(t *testing.T) {
	m, allow, written := slowDisk(t)
	for i := range 3 {
		if got := put(t, m, incoming("n", i, int64(1000*(i+1)))); got.State != tick.TargetPending {
			t.Errorf("tick %d: %+v; want pending", i, got)
		}
	}
	allow <- nil
	go func() { allow <- errors.New("no space") }()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if len(*written) != 2 || !strings.Contains((*written)[1], "polder_reclaimed_cpu_cores{node=\"n\"} 3\n") {
		t.Errorf("written: %q; want the first page and the newest", *written)
	}
}

// A page that waited for the disk is not written after newer ticks that have what is in the file.
func TestPageThatIsOutOfDateIsNotWritten(t *testing.T) {
	m, allow, written := slowDisk(t)
	for i, milliCPU := range []int64{1000, 2000} {
		if got := put(t, m, incoming("n", i, milliCPU)); got.State != tick.TargetPending {
			t.Errorf("tick %d: %+v; want pending", i, got)
		}
	}
	allow <- nil
	await.Until(t, time.Minute, "the end of the first write", await.Is(func() bool { return len(m.done) == 1 }))
	if got := put(t, m, incoming("n", 2, 1000)); got.State != tick.TargetWritten {
		t.Errorf("the first page again: %+v; want written", got)
	}
	close(allow) // for a second write
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if len(*written) != 1 {
		t.Errorf("%d writes: %q; want the first page alone", len(*written), (*written)[1:])
	}
}

func TestSectionKeepsTheContract(t *testing.T) {
	dir := t.TempDir()
	in := `{"v":1,"node":"n","time":"2026-11-21T12:00:00Z","advice":{"policy":"katalyst","reclaimed":{"milliCPU":4000}}}` + "\n"
	for _, file := range []string{filepath.Join(dir, "a.prom"), filepath.Join(dir, "none", "a.prom")} {
		var out bytes.Buffer
		env := stage.Env{
			Args: []string{"report", "--to", "prometheus", "--metrics-file", file, "--max-age", "0", "--node", "n"},
			In:   strings.NewReader(in), Out: &out, Err: io.Discard, Getenv: func(string) string { return "" }, Now: time.Now,
		}
		if status := command().Execute(context.Background(), env); status != 0 {
			t.Fatalf("exit status %d", status)
		}
		if err := ticktest.Validate(bytes.TrimSpace(out.Bytes())); err != nil {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
}

func TestTaintNodeWantsACluster(t *testing.T) {
	o := options{to: []string{"table"}}
	o.cluster.TaintNode = true
	if _, err := o.names(session(nil)); err == nil || !strings.Contains(err.Error(), "--taint-node needs --to cnr or --to node") {
		t.Errorf("%v", err)
	}
	o.to = []string{"node"}
	if names, err := o.names(session(nil)); err != nil || strings.Join(names, " ") != "node node-taints" {
		t.Errorf("%v, %v", names, err)
	}
}

// An unknown target is refused, with the one that was perhaps meant; so is one that only another flag enables.
func TestUnknownTarget(t *testing.T) {
	for to, want := range map[string]string{
		cluster.NodeTaints: `--to "node-taints": want one of cnr, explain, html,`,
		"table,htlm":       "tty; did you mean html?\n",
		"grafana":          "tty\n",
	} {
		var log strings.Builder
		env := stage.Env{Args: []string{"report", "--to", to}, In: strings.NewReader(""), Out: io.Discard, Err: &log, Getenv: func(string) string { return "" }, Now: time.Now}
		if status := command().Execute(t.Context(), env); status != 2 || !strings.Contains(log.String(), want) {
			t.Errorf("--to %s: status %d: %s; want %s", to, status, &log, want)
		}
	}
}

// The table marks each stale tick of a live stream, however old it is, and none of a recording that comes from a pipe.
func TestTableMarksStaleTicks(t *testing.T) {
	for _, tt := range []struct {
		name string
		ages []int // of the ticks, in seconds
		want string
	}{
		{"live", []int{0, 1}, "- -"},
		{"stale", []int{0, 10, 300, 300, 0}, "- stale stale stale -"},
		{"ahead of the clock", []int{0, -300}, "- early"},
		{"a recording", []int{86400, 86399}, "- -"},
		{"a recording, then live ticks", []int{3600, 1, 300}, "- - stale"},
	} {
		var out bytes.Buffer
		x, err := openTable(t.Context(), session(nil), &options{}, &out)
		if err != nil {
			t.Fatal(err)
		}
		for _, age := range tt.ages {
			put(t, x, incoming("n", -age, 1000))
		}
		var last []string
		for line := range strings.Lines(out.String()) {
			fields := strings.Fields(line)
			last = append(last, fields[len(fields)-1])
		}
		if got := strings.Join(last, " "); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
