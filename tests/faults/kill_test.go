package faults

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/tests/deep"
	"polder/tests/group"
	"polder/tests/need"
)

// numbered makes ticks of about a size, each with its number in three places, so that a torn tick is found.
type numbered struct {
	pods   string
	cgroup string // the cgroup of the advice, if there is one
}

func newNumbered(bytes int, cgroup string) *numbered {
	var b strings.Builder
	for i := 0; b.Len() < bytes; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"uid":"uid-%d","namespace":"load","name":"pod-%d","qos":%q,"cgroup":"/polder-none/pod%d","requests":{"milliCPU":10},`+
			`"containers":[{"name":"c","cgroup":"/polder-none/pod%d/c","usageMilliCPU":%d.25,"load1":0.01,"load5":0.01,"threads":3,"memory":{"usageBytes":1048576,"rssBytes":524288}}]}`,
			i, i, []string{"shared", "reclaimed"}[i%2], i, i, i%10)
	}
	return &numbered{pods: b.String(), cgroup: cgroup}
}

// milliCPU is the quota in the advice of tick n: it differs from its neighbours'.
func (*numbered) milliCPU(n int) int { return 100 + n%900 }

func (m *numbered) line(n int) []byte {
	advice := ""
	if m.cgroup != "" {
		advice = fmt.Sprintf(`,"advice":{"policy":"test","cgroups":[{"cgroup":%q,"cpuMaxMilliCPU":%d}]}`, m.cgroup, m.milliCPU(n))
	}
	return fmt.Appendf(nil, `{"v":1,"node":"n","time":%q,"number":%d,"sample":{"intervalSeconds":1,"n":%d,"topology":{"cpus":"0-7","cores":["0-1","2-3","4-5","6-7"]},`+
		`"memory":{"totalBytes":17179869184},"pods":[%s],"end":%d}%s}`+"\n", time.Now().UTC().Format(time.RFC3339Nano), n, n, m.pods, n, advice)
}

var numbers = regexp.MustCompile(`"number":(\d+),"sample":\{"intervalSeconds":1,"n":(\d+),`)

// whole checks that an output tick is one of the input.
func (m *numbered) whole(line []byte) error {
	found := numbers.FindSubmatch(line)
	if found == nil || !bytes.Equal(found[1], found[2]) {
		return fmt.Errorf("the numbers are %q", found)
	}
	if !bytes.Contains(line, fmt.Appendf(nil, `"pods":[%s],"end":%s}`, m.pods, found[1])) {
		return fmt.Errorf("tick %s has other pods than were sent", found[1])
	}
	return nil
}

var droppedTicks = regexp.MustCompile(`droppedTicks=(\d+)`)

// number is the number of an output tick, by its beginning.
func number(x seen) int {
	n, _ := strconv.Atoi(string(numbers.FindSubmatch(x.line)[1]))
	return n
}

// row is three tools: a neighbour, the one that is killed and another neighbour, with numbered ticks passing through.
type row struct {
	t        *testing.T
	made     *numbered
	in       *os.File
	out      *sink
	killed   *proc
	beside   []*proc
	pids     []int
	sent     int
	came     int     // the position of the last tick that was waited for
	reported int64   // by all runs of the killed tool
	dropped  []int64 // for each kill, how many ticks the tool reported at its end as dropped
	started  time.Time
}

// stageArgs are a tool's arguments besides its FIFOs.
func stageArgs(dir, tool string) []string {
	switch tool {
	case "isolate":
		return []string{"--node", "n", "--max-age", "10m", "--journal", filepath.Join(dir, "journal"), "--stale-after", "0"}
	case "evict-kill":
		return []string{"--node", "n", "--max-age", "10m", "--reclaimed-tolerance", "0s", "--action", "kill", "--state", filepath.Join(dir, "evict.json")}
	case "evict":
		return []string{"--node", "n", "--max-age", "10m", "--state", filepath.Join(dir, "evict.json")}
	case "report":
		return []string{"--node", "n", "--max-age", "10m", "--to", "prometheus", "--metrics-file", filepath.Join(dir, "node.prom")}
	}
	return []string{"--state", filepath.Join(dir, "advise.json")}
}

// inMemory is a directory that is in memory where that is possible: a disk that other tests fill takes seconds for a state file, which a
// tool that gets SIGTERM does not have.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "polder-faults-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func newRow(t *testing.T, made *numbered, tools ...string) *row {
	t.Helper()
	dir := inMemory(t)
	paths := []string{newFIFO(t, dir, "0")}
	for i := range tools {
		paths = append(paths, newFIFO(t, dir, strconv.Itoa(i+1)))
	}
	r := &row{t: t, made: made, out: openSink(t, paths[len(tools)], made.whole)}
	var err error
	if r.in, err = os.OpenFile(paths[0], os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.in.Close() })
	for i, tool := range tools {
		binary, _, _ := strings.Cut(tool, "-")
		p := launch(t, binary, append([]string{"--input", "fifo:" + paths[i], "--output", "fifo:" + paths[i+1]}, stageArgs(dir, tool)...)...)
		if i == 1 {
			r.killed = p
			continue
		}
		r.beside = append(r.beside, p)
		r.pids = append(r.pids, p.cmd.Process.Pid)
	}
	return r
}

// send sends the next tick and returns its number.
func (r *row) send() int {
	r.t.Helper()
	r.sent++
	_ = r.in.SetWriteDeadline(time.Now().Add(patient))
	if _, err := r.in.Write(r.made.line(r.sent)); err != nil {
		r.t.Fatalf("send tick %d: %v", r.sent, err)
	}
	return r.sent
}

func (r *row) await(n int) {
	r.t.Helper()
	_, r.came = r.out.await(r.came, fmt.Sprintf("tick %d comes out", n), func(x seen) bool { return number(x) == n })
}

// figures counts what happened to the ticks.
type figures struct {
	kills, sent, lost, mostLost int
	took                        time.Duration
}

// check reads the whole output, and counts the missing ticks, kill by kill.
func (r *row) check(lastOf []int) figures {
	r.t.Helper()
	f := figures{kills: len(lastOf), sent: r.sent, took: time.Since(r.started)}
	came := make([]bool, r.sent+1)
	before := 0
	for _, x := range r.out.all() {
		n := number(x)
		if n <= before {
			r.t.Errorf("tick %d came after tick %d", n, before)
		}
		came[n], before = true, n
	}
	// A tick that a tool dropped for a newer one is counted, and no loss: in later ticks, and by SIGTERM in its log.
	counted := make([]int, r.sent+1)
	for _, x := range r.out.all() {
		switch {
		case r.killed.tool == "isolate" && x.Isolation != nil:
			counted[number(x)] = int(x.Isolation.DroppedTicks)
		case r.killed.tool == "evict" && x.Eviction != nil:
			counted[number(x)] = int(x.Eviction.DroppedTicks)
		}
	}
	from := 1
	for i, last := range lastOf {
		lost, reported := 0, 0
		if i > 0 {
			reported = int(r.dropped[i-1])
		}
		for n := from; n <= last; n++ {
			reported = max(reported, counted[n])
		}
		lost -= reported
		for n := from; n <= last; n++ {
			if !came[n] {
				lost++
			}
		}
		lost = max(lost, 0)
		f.lost += lost
		f.mostLost = max(f.mostLost, lost)
		from = last + 1
	}
	r.out.whole()
	for i, p := range r.beside {
		p.alive()
		if p.cmd.Process.Pid != r.pids[i] {
			r.t.Errorf("%s has another PID", p.tool)
		}
	}
	return f
}

// kill kills the tool in the middle at some time within a span while waiting ticks are in the pipe, and starts it again.
// One more tick is sent while it is down.
func (r *row) kill(s syscall.Signal, waiting int, within time.Duration) (last int) {
	r.t.Helper()
	for range waiting {
		r.send()
	}
	time.Sleep(time.Duration(rand.Int64N(int64(within))))
	r.killed.signal(s)
	status := r.killed.wait()
	if want := map[syscall.Signal]int{unix.SIGTERM: 0, unix.SIGKILL: -1}[s]; status != want {
		r.t.Fatalf("%s ended with status %d after %s; want %d: %s", r.killed.tool, status, s, want, r.killed.log)
	}
	var reported int64
	for _, m := range droppedTicks.FindAllStringSubmatch(r.killed.log.String(), -1) {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		reported += n
	}
	r.dropped = append(r.dropped, reported-r.reported)
	r.reported = reported
	last = r.send()
	r.killed.start()
	r.await(last)
	return last
}

// latency is how long a tick takes through the row, measured with a few ticks without a kill.
func (r *row) latency() time.Duration {
	r.t.Helper()
	r.await(r.send()) // all have started
	begin := time.Now()
	const probes = 5
	for range probes {
		r.await(r.send())
	}
	return max(time.Since(begin)/probes, 100*time.Microsecond)
}

type killCase struct {
	tool    string
	row     []string
	advised bool // the ticks contain advice for a cgroup of the test
	live    bool // it acts
}

var killCases = []killCase{
	{"advise", []string{"evict", "advise", "report"}, false, false},
	{"isolate", []string{"evict", "isolate", "report"}, true, true},
	{"evict", []string{"advise", "evict", "report"}, false, false},
	{"evict --action kill", []string{"advise", "evict-kill", "report"}, false, true},
	{"report", []string{"advise", "report", "evict"}, false, false},
}

// sizes of a tick's pods: a small machine, a usual one and a very full one.
var sizes = []struct {
	name  string
	bytes int
}{{"3KB", 2700}, {"30KB", 30_000}, {"200KB", 200_000}}

// TestFaultKilled kills each tool again and again between neighbours that continue. SIGTERM loses nothing, whatever is in the
// pipe; SIGKILL at most the current tick.
func TestFaultKilled(t *testing.T) {
	need.Root(t)
	rounds := deep.Or(10, 100)
	for _, c := range killCases {
		t.Run(c.tool, func(t *testing.T) {
			t.Parallel()
			for _, size := range sizes {
				for _, s := range []syscall.Signal{unix.SIGTERM, unix.SIGKILL} {
					t.Run(size.name+" "+unix.SignalName(s), func(t *testing.T) {
						f := killedOften(t, c, size.bytes, s, rounds, func() int {
							if s == unix.SIGTERM {
								return 1 + rand.IntN(4)
							}
							return 1
						})
						t.Logf("figures | %s | %s | %s | %d kills | %d ticks | %d lost | at most %d a kill | %s", c.tool, size.name, unix.SignalName(s), f.kills, f.sent, f.lost, f.mostLost, f.took.Round(time.Second/10))
						if allowed := map[syscall.Signal]int{unix.SIGTERM: 0, unix.SIGKILL: 1}[s]; f.mostLost > allowed {
							t.Errorf("%d ticks were lost at one kill; want at most %d", f.mostLost, allowed)
						}
					})
				}
			}
		})
	}
}

// killedOften kills the tool rounds times with so many ticks in the pipe.
func killedOften(t *testing.T, c killCase, size int, s syscall.Signal, rounds int, waiting func() int) figures {
	t.Helper()
	made := newNumbered(size, "")
	var own *group.Group
	if c.advised || c.live {
		own = group.New(t, nil, fmt.Sprintf("kill%d", rand.Uint32()))
		own.Sleep(t)
	}
	if c.advised {
		made.cgroup = own.Name
	} else if c.live { // a pod of the machine that no rule evicts
		made.pods = strings.Replace(made.pods, `"/polder-none/pod0"`, strconv.Quote(own.Name), 1)
	}
	r := newRow(t, made, c.row...)
	latency := r.latency()
	r.started = time.Now()
	ends := []int{r.sent}
	for range rounds {
		n := waiting()
		ends = append(ends, r.kill(s, n, latency*time.Duration(n+2)/2))
	}
	f := r.check(ends)
	f.kills = rounds
	if c.advised {
		r.checkQuotas(own)
	}
	if own != nil && len(own.PIDs(t)) != 1 {
		t.Errorf("the process of %s is gone; want it unchanged", own.Name)
	}
	return f
}

// checkQuotas compares isolate's writes with the ticks' advice: nothing else, ever.
func (r *row) checkQuotas(own *group.Group) {
	r.t.Helper()
	wrote := 0
	for _, x := range r.out.all() {
		n := number(x)
		if x.Isolation == nil {
			r.t.Fatalf("tick %d has no isolation", n)
		}
		for _, w := range x.Isolation.Writes {
			wrote++
			if want := strconv.Itoa(r.made.milliCPU(n) * 100); w.Cgroup != own.Name || w.New != want {
				r.t.Errorf("tick %d: wrote %+v; want %s of %s alone", n, w, want, own.Name)
			}
		}
		for _, e := range x.Isolation.Errors {
			if !strings.Contains(e.Error, "changed externally from ") { // the write of a killed isolate, which it did not report
				r.t.Errorf("tick %d: %+v", n, e)
			}
		}
	}
	if wrote < len(r.out.all())/2 {
		r.t.Errorf("%d writes in %d ticks", wrote, len(r.out.all()))
	}
	if got, want := own.Read("cpu.cfs_quota_us"), strconv.Itoa(r.made.milliCPU(r.sent)*100); own.Read("cpu.max") == "" && got != want {
		r.t.Errorf("cpu.cfs_quota_us = %s; want the last tick's %s", got, want)
	}
}

// TestFaultKilledWithBacklog has ticks waiting when SIGKILL comes: no more than the current one is lost with the process, because
// those that it has not read stay in the FIFO.
func TestFaultKilledWithBacklog(t *testing.T) {
	need.Root(t)
	t.Parallel()
	rounds := deep.Or(3, 20)
	for _, c := range killCases {
		for _, size := range sizes {
			t.Run(c.tool+" "+size.name, func(t *testing.T) {
				waiting := 20
				if size.bytes > 100_000 {
					waiting = 4 // a FIFO's capacity
				}
				f := killedOften(t, c, size.bytes, unix.SIGKILL, rounds, func() int { return waiting })
				t.Logf("figures | %s, %d ticks waiting | %s | SIGKILL | %d kills | %d ticks | %d lost | at most %d a kill | %s", c.tool, waiting, size.name, f.kills, f.sent, f.lost, f.mostLost, f.took.Round(time.Second/10))
				if f.mostLost > 1 {
					t.Errorf("%d ticks were lost at one kill; want at most the current one", f.mostLost)
				}
			})
		}
	}
}
