// Package metrics tests the tools' metrics for Prometheus: it reads the real tools over HTTP, and compares the names in the alerts, the
// dashboard and the documentation with them.
package metrics

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/metrics"
	"polder/lib/series"
	"polder/lib/series/seriestest"
	"polder/tests/await"
	"polder/tests/binaries"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md")

// bin has the tools; promql is the parser of queries.
var bin, promql string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		var err error
		if bin, err = binaries.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		own, err := os.MkdirTemp("", "polder-metrics-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(own)
		promql = filepath.Join(own, "promql")
		parser := exec.Command("go", "build", "-C", "promql", "-o", promql, ".")
		if parser.Stderr = os.Stderr; parser.Run() != nil {
			return 1
		}
		return m.Run()
	}())
}

// everything is every metric of the tools.
func everything(t *testing.T) map[string]*family {
	t.Helper()
	all := map[string]*family{}
	s := metrics.New("evict", "v0.0.0-test")
	s.Tick(seriestest.Everything(), time.Millisecond)
	families(t, all, page(t, s))
	s.Tick(seriestest.Fleet(), time.Millisecond)
	api := s.API()
	api.Request("GET", "200")
	api.Latency("GET", time.Millisecond)
	api.Waited(0)
	api.Watching("pods", func() time.Duration { return 0 })
	s.Counters("polder_eviction_limits_total", limits(t), []string{"rule", "limit"}, func(put func(float64, ...string)) { put(1, "r", "burst") })
	families(t, all, page(t, s))
	if len(all) < len(series.All) {
		t.Fatalf("%d metrics in all", len(all))
	}
	return all
}

// page is a set's metrics.
func page(t *testing.T, s *metrics.Set) string {
	t.Helper()
	if err := s.Serve("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return get(t, "http://"+s.Addr()+"/metrics")
}

// limits is evict's description of its own counter.
func limits(t *testing.T) string {
	t.Helper()
	found := map[string]*family{}
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() // not left to the garbage collector: evict would see the end of its input and close its port at any time
	p := start(t, in, nil, "evict", "--rules", "reclaimed-resource-pressure-eviction-plugin")
	p.scrape(t, "polder_build_info")
	families(t, found, p.scrape(t, "polder_build_info"))
	if f := found["polder_eviction_limits_total"]; f != nil {
		return f.help
	}
	return "Ticks in which a limit prevented evictions of a rule." // no limit was reached: it has no sample yet
}

// The pipe over this machine, and over a recording, exposes the listed metrics, with those types and labels.
func TestToolsTellWhatIsListed(t *testing.T) {
	all := everything(t)
	recording := exec.Command("gzip", "-dc", "../../scripts/demo-48cpu.jsonl.gz")
	ticks, err := recording.Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "polder.prom")
	for name, pipe := range map[string][][]string{
		"machine":   {{"collect", "--interval", "200ms"}, {"advise"}, {"isolate", "--dry-run"}, {"evict"}, {"report", "--to", "prometheus", "--metrics-file", file}},
		"recording": {{"advise"}, {"isolate", "--dry-run"}, {"evict", "--dry-run"}, {"report", "--dry-run", "--to", "prometheus", "--metrics-file", file}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := map[string]*family{}
			var in *os.File
			if name == "recording" {
				r, w, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { w.Close() })
				go func() { _, _ = w.Write(ticks) }() // and stays open
				in = r
			}
			var running []*process
			for _, args := range pipe {
				r, w, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				p := start(t, in, w, args[0], args[1:]...)
				w.Close()
				running, in = append(running, p), r
			}
			go func() { _, _ = io.Copy(io.Discard, in) }()
			for i, p := range running {
				want := map[string]string{
					"collect": "polder_node_memory_free_bytes{", "advise": "polder_reclaimed_cpu_cores{", "isolate": "polder_isolation_unchanged_values{",
					"evict": "polder_eviction_queue_pods{", "report": `polder_report_target_state{`,
				}[pipe[i][0]]
				families(t, seen, p.scrape(t, want))
			}
			for n, f := range seen {
				if !strings.HasPrefix(n, "polder_") {
					continue
				}
				switch known := all[n]; {
				case known == nil:
					t.Errorf("%s is exposed and not listed", n)
				case known.kind != f.kind || known.help != f.help:
					t.Errorf("%s is a %s (%s), listed is a %s (%s)", n, f.kind, f.help, known.kind, known.help)
				case !subset(f.labels, known.labels):
					t.Errorf("%s has the labels %v, listed are %v", n, names(f.labels), names(known.labels))
				}
			}
			for _, n := range []string{"polder_build_info", "polder_ticks_total", "polder_tick_handling_seconds", "polder_reclaimed_cpu_cores", "process_resident_memory_bytes", "go_goroutines"} {
				if seen[n] == nil {
					t.Errorf("no tool exposes %s", n)
				}
			}
		})
	}
}

func names(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }

func subset(some, all map[string]bool) bool {
	for n := range some {
		if !all[n] {
			return false
		}
	}
	return true
}

// docs/metrics.md has the table of all metrics; go test -update writes it.
func TestMetricsAreDocumented(t *testing.T) {
	all := everything(t)
	var b bytes.Buffer
	fmt.Fprint(&b, "| metric | type | unit | labels | |\n|---|---|---|---|---|\n")
	ours := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(n string) bool { return !strings.HasPrefix(n, "polder_") })
	for _, n := range ours {
		labels := slices.DeleteFunc(names(all[n].labels), func(l string) bool { return l == "le" })
		// Backquotes are for code, pipes for tables.
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", n, all[n].kind, unit(n), cmp.Or(strings.Join(labels, ", "), "–"), strings.ReplaceAll(strings.ReplaceAll(all[n].help, "|", `\|`), "<error>", "`<error>`"))
	}
	const path, begin, end = "../../docs/metrics.md", "<!-- table: go test ./tests/metrics -update -->\n", "<!-- end -->\n"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(data), begin)
	table, tail, whole := strings.Cut(rest, end)
	if !ok || !whole {
		t.Fatalf("%s lacks %q or %q", path, begin, end)
	}
	if *update {
		table = b.String()
		if err := os.WriteFile(path, []byte(head+begin+table+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if table != b.String() {
		t.Errorf("the table of %s differs from the tools' metrics: run go test ./tests/metrics -update", path)
	}
}

// unit is the end of a metric's name.
func unit(name string) string {
	name = strings.TrimSuffix(name, "_total")
	for suffix, unit := range map[string]string{"_seconds": "seconds", "_bytes": "bytes", "_cores": "cores", "_ratio": "0 to 1", "_pages_per_second": "pages a second"} {
		if strings.HasSuffix(name, suffix) {
			return unit
		}
	}
	switch {
	case strings.HasPrefix(name, "polder_pressure_value"), strings.HasPrefix(name, "polder_pressure_threshold"):
		return "the scope's"
	case slices.Contains([]string{"polder_build_info", "polder_taint", "polder_pressure_met", "polder_rule_dry_run", "polder_fleet_held", "polder_fleet_protection_active", "polder_fleet_agent_state", "polder_report_target_state"}, name):
		return "0 or 1"
	}
	return "number"
}

// Invalid addresses, and the end of a tool.
func TestAddressesAndTheEnd(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p := start(t, r, nil, "advise")
	r.Close()
	addr := strings.TrimSuffix(strings.TrimPrefix(p.address(t), "http://"), "/metrics")

	run := func(want int, text, tool string, args ...string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, tool), args...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want || !strings.Contains(string(out), text) {
			t.Errorf("%s %q: status %d, want %d with %q: %s", tool, args, got, want, text, out)
		}
	}
	run(1, "--metrics-addr "+addr+": listen tcp "+addr+": bind: address already in use (another process listens there", "isolate", "--dry-run", "--metrics-addr", addr)
	run(2, `--metrics-addr "9471": want HOST:PORT`, "collect", "--count", "1", "--metrics-addr", "9471")
	// Subcommands that read no stream work beside those that do.
	run(0, "reclaimed-resource-pressure-eviction-plugin", "evict", "--list", "--metrics-addr", addr)

	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await.Until(t, soon, "a tool that got SIGTERM stops answering", await.Is(func() bool {
		_, err := http.Get("http://" + addr + "/metrics")
		return err != nil
	}))
	run(0, "url=http://"+addr+"/metrics", "collect", "--count", "1", "--metrics-addr", addr)
}

// A tool that waits for the next tick answers nevertheless.
func TestScrapeOfAStalledStream(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	unread, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	defer out.Close()
	defer w.Close()
	p := start(t, r, out, "advise")
	r.Close()
	line := func(i int) string {
		return fmt.Sprintf(`{"v":1,"node":"n%d","time":"2026-11-21T12:00:00Z","padding":%q}`+"\n", i%3, strings.Repeat("x", 8<<10))
	}
	// The tool stops once its output is full, and then its input fills.
	go func() {
		for i := 0; ; i++ {
			if _, err := io.WriteString(w, line(i)); err != nil {
				return
			}
		}
	}()
	p.scrape(t, `polder_ticks_total{node="n0"`)
	await.Until(t, soon, "both pipes are full", await.Is(func() bool { return isFull(t, w) && isFull(t, out) }))
	p.scrape(t, `polder_ticks_total{node="n0"`)
}

// isFull reports whether a pipe has no room at all.
func isFull(t *testing.T, f *os.File) bool {
	t.Helper()
	c, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	ready := 0
	if cErr := c.Control(func(fd uintptr) { ready, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0) }); cErr != nil || err != nil && !errors.Is(err, unix.EINTR) {
		t.Fatal(cErr, err)
	}
	return ready == 0 && err == nil
}
