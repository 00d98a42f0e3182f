// Package cost measures what Polder costs a machine: the whole pipe beside many containers, and collect beside cAdvisor's manager in
// the same run. `make bench` runs it.
package cost

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"polder/tests/binaries"
	"polder/tests/group"
	"polder/tests/need"
)

const (
	// worker is the environment variable that makes this program a container's process, with so many threads.
	worker = "POLDER_COST_WORKER"
)

// settle is how long all programs run before they are measured: averages have started, a garbage collection has run.
var settle = quickOr(2*time.Second, 15*time.Second)

// quickOr is full, but with QUICK=1, which only shows that the benchmarks work.
func quickOr[T any](quick, full T) T {
	if os.Getenv("QUICK") != "" {
		return quick
	}
	return full
}

func TestMain(m *testing.M) {
	if threads, err := strconv.Atoi(os.Getenv(worker)); err == nil {
		work(threads)
	}
	os.Exit(m.Run())
}

// work runs that many threads of which each wakes twice a second for a moment, like those of services. It does not end.
func work(threads int) {
	for range threads {
		go func() {
			runtime.LockOSThread()
			for {
				time.Sleep(time.Second / 2)
			}
		}()
	}
	select {}
}

// containers makes cgroups with a process each, which has that many threads; 0 is one that only sleeps. It returns the cgroup above them.
func containers(b *testing.B, count, threads int) *group.Group {
	b.Helper()
	above := group.New(b, nil, "cost")
	for i := range count {
		c := group.New(b, above, "c"+strconv.Itoa(i))
		if threads == 0 {
			c.Sleep(b)
			continue
		}
		c.Run(b, fmt.Sprintf("%s=%d exec %s", worker, threads, os.Args[0]))
	}
	return above
}

// classify is the file of rules that makes half of the containers services and half batch.
func classify(b *testing.B, above *group.Group) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "classify.yaml")
	rules := fmt.Sprintf("rules:\n  - {cgroup: '%s/c*[02468]', class: shared}\n  - {cgroup: '%[1]s/c*', class: reclaimed}\n", above.Name)
	if err := os.WriteFile(path, []byte(rules), 0o644); err != nil {
		b.Fatal(err)
	}
	return path
}

// share runs a script in its own cgroup of that name, and returns the part of one CPU that it uses in percent; look, if given, is called
// before it ends. It ends the cgroup's processes.
func share(b *testing.B, name, script string, span time.Duration, look func(*group.Group)) float64 {
	b.Helper()
	own := group.New(b, nil, name)
	cmd := own.Run(b, script)
	time.Sleep(settle)
	begin, before := time.Now(), own.CPUTime(b)
	time.Sleep(span)
	percent := 100 * (own.CPUTime(b) - before).Seconds() / time.Since(begin).Seconds()
	if look != nil {
		look(own)
	}
	own.Kill(b)
	_ = cmd.Wait() // it was killed
	return percent
}

// BenchmarkPipe is the whole pipe with a tick a second over 250 containers of 8 threads, of which each wakes twice a second: the part of
// one CPU that it uses, its anonymous memory, tool by tool, and beside them the floor: the cost of a bare loop over the cgroups' files
// that collect reads.
func BenchmarkPipe(b *testing.B) {
	need.Root(b)
	span, count := quickOr(3*time.Second, 60*time.Second), quickOr(50, 250)
	above := containers(b, count, 8)
	rules := classify(b, above)
	dir := b.TempDir()
	tool := func(name string) string { return binaries.Path(b, name) }
	script := fmt.Sprintf(`cd %s; exec 2>log
%s --classify %s | %s --state advise.json | %s --journal journal | %s --state evict.json | %s --to prometheus --metrics-file polder.prom >/dev/null`,
		dir, tool("collect"), rules, tool("advise"), tool("isolate"), tool("evict"), tool("report"))
	for range b.N {
		begun := time.Now()
		percent := share(b, "pipe", script, span, func(own *group.Group) {
			b.ReportMetric(ticks(b, filepath.Join(dir, "polder.prom"))/time.Since(begun).Seconds(), "ticks/s")
			total := 0.0
			if pids := own.PIDs(b); len(pids) < len(binaries.Tools) {
				log, err := os.ReadFile(filepath.Join(dir, "log"))
				b.Fatalf("of the pipe only %v run: %s (%v)", pids, log, err)
			}
			for _, pid := range own.PIDs(b) {
				name, seconds, anonymous, peak := process(b, pid)
				total += anonymous
				fmt.Printf("%-8s %5.1f MiB anonymous, %5.1f at its peak of all, CPU time %.2f s\n", name, anonymous, peak, seconds)
			}
			b.ReportMetric(total, "MiB-anonymous")
			files, all, threads, page := floor(b, above, count)
			fmt.Printf("floors, in percent of a core: the files that collect reads %.2f, all of them every second %.2f, "+
				"256 threads' waiting by name %.2f; a page touched again after a second takes %v\n", files, all, threads, page)
			b.ReportMetric(files, "%core-floor")
		})
		b.ReportMetric(percent, "%core")
	}
	if out, err := exec.Command(tool("isolate"), "--restore", "--if-exists", "--journal", filepath.Join(dir, "journal")).CombinedOutput(); err != nil {
		b.Fatalf("isolate --restore: %v\n%s", err, out)
	}
}

// ticks is how many ticks have come through the pipe, by report's file: fewer than one a second if the machine is too busy, and then their
// measured cost is too low.
func ticks(b *testing.B, metrics string) float64 {
	b.Helper()
	page, err := os.ReadFile(metrics)
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), "} "); strings.HasPrefix(name, "polder_ticks_total{") && strings.Contains(name, `tool="report"`) {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatalf("%s has no number of ticks", metrics)
	return 0
}

// BenchmarkCollectBesideCadvisor is collect and cAdvisor's manager over the same cgroups, each once a second, in turns: the parts of one
// CPU that they use, and their ratio.
func BenchmarkCollectBesideCadvisor(b *testing.B) {
	need.Root(b)
	span := quickOr(3*time.Second, 20*time.Second)
	peer := filepath.Join(b.TempDir(), "cadvisor")
	build := exec.Command("go", "build", "-o", peer, ".")
	build.Dir = "cadvisor"
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("go build in tests/cost/cadvisor: %v\n%s", err, out)
	}
	for _, count := range quickOr([]int{50}, []int{250, 1000}) {
		b.Run(strconv.Itoa(count), func(b *testing.B) {
			rules := classify(b, containers(b, count, 0))
			ours, theirs := 0.0, 0.0
			for range b.N {
				for round := range 2 {
					ours += share(b, fmt.Sprint("collect-", count, round), fmt.Sprintf("%s --classify %s >/dev/null", binaries.Path(b, "collect"), rules), span, nil)
					theirs += share(b, fmt.Sprint("cadvisor-", count, round), "exec "+peer+" 2>/dev/null", span, nil)
				}
			}
			rounds := float64(2 * b.N)
			b.ReportMetric(ours/rounds, "%core-collect")
			b.ReportMetric(theirs/rounds, "%core-cAdvisor")
			b.ReportMetric(theirs/ours, "times")
		})
	}
}

// process is a process's name, its CPU time in seconds, and its memory now and at its peak in MiB: anonymous, and all.
func process(b *testing.B, pid string) (name string, seconds, anonymous, peak float64) {
	b.Helper()
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		kib, _ := strconv.ParseFloat(strings.TrimSuffix(value, " kB"), 64) // only if it is an amount
		switch key {
		case "Name":
			name = value
		case "RssAnon":
			anonymous = kib / 1024
		case "VmHWM":
			peak = kib / 1024
		}
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, field := range fields[11:13] { // user and system time
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			b.Fatal(err)
		}
		seconds += ticks / 100 // USER_HZ
	}
	return name, seconds, anonymous, peak
}
