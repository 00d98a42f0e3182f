package report

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
	"polder/tests/wander"
)

// With QUICK=1 the benchmark only shows that it works; its figures mean little.
var (
	scaleNodes = quickOr(20, 1000)
	steadyFor  = quickOr(5*time.Second, 3*time.Minute)
	warmUp     = quickOr(5*time.Second, 30*time.Second)
)

func quickOr[T any](quick, full T) T {
	if os.Getenv("QUICK") != "" {
		return quick
	}
	return full
}

// BenchmarkThousandNodes reports 1,000 nodes by one process: all at once, all at once again with smaller offers, and then for some
// minutes a tick a second of each node, with a varying load, through the real advise.
func BenchmarkThousandNodes(b *testing.B) {
	controlplane.Need(b, "kwok")
	for range b.N {
		scale(b)
	}
}

func scale(b *testing.B) {
	plane, err := controlplane.Open(controlplane.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer plane.Close()
	c := plane.For(b)
	c.ApplyFile(crds)
	c.Established()
	kwok := c.Kwok("")
	controlplane.Each(scaleNodes, func(i int) {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q}}`, scaleNode(i))
		if status, answer := c.API(http.MethodPost, "/api/v1/nodes", body); status != http.StatusCreated {
			b.Errorf("make node %d: %s", i, answer)
		}
	})
	c.Eventually(3*time.Minute, "nodes that kwok has made ready", func() string {
		var list struct {
			Items []struct {
				Status struct{ Capacity map[string]string }
			}
		}
		c.Get("/api/v1/nodes?resourceVersion=0", &list)
		ready := 0
		for _, n := range list.Items {
			if n.Status.Capacity["cpu"] == "48" {
				ready++
			}
		}
		if ready < scaleNodes {
			return fmt.Sprintf("%d of them\n%s", ready, kwok.Tail(5))
		}
		return ""
	})

	// advise | report
	ticks, advised, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	advise := exec.Command(binaries.Path(b, "advise"))
	advise.Stdout, advise.Stderr = advised, os.Stderr
	in, err := advise.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	report := exec.Command(binaries.Path(b, "report"), "--to", "cnr,node", "--kubeconfig", c.Kubeconfig(), "--all-nodes")
	report.Stdin, report.Stderr = ticks, os.Stderr
	out, err := report.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	for _, cmd := range []*exec.Cmd{advise, report} {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill() }()
	}
	advised.Close()
	ticks.Close()
	var failed atomic.Int64
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if strings.Contains(lines.Text(), `"state":"failed"`) {
				failed.Add(1)
			}
		}
	}()

	nodes := make([]*wander.Node, scaleNodes)
	for i := range nodes {
		nodes[i] = wander.New(scaleNode(i), uint64(i))
	}
	all := func(cores float64) {
		for _, n := range nodes {
			write(b, in, n, cores)
		}
	}
	before := requests(c)
	began := time.Now()
	all(2)
	c.Eventually(5*time.Minute, "all objects are there", func() string { return lacking(c, "") })
	took := time.Since(began)
	first := requests(c).less(before)
	b.ReportMetric(took.Seconds(), "s-first-all")
	b.ReportMetric(float64(first.writes())/took.Seconds(), "writes/s-first")
	b.Logf("first: %d nodes in %s, %s", scaleNodes, took.Round(time.Millisecond), first)

	before, began = requests(c), time.Now()
	was := fmt.Sprint(offered(c))
	all(20)
	c.Eventually(5*time.Minute, "all objects have shrunk", func() string { return lacking(c, was) })
	took = time.Since(began)
	shrunk := requests(c).less(before)
	b.ReportMetric(took.Seconds(), "s-shrink-all")
	b.ReportMetric(float64(shrunk.writes())/took.Seconds(), "writes/s-shrink")
	b.Logf("shrink: %s, %s", took.Round(time.Millisecond), shrunk)

	// A tick a second of each node. The first seconds, until the loads differ, do not count.
	for s, start := 0, time.Now(); time.Since(start) < warmUp+steadyFor; s++ {
		if s == int(warmUp.Seconds()) {
			before, began = requests(c), time.Now()
		}
		for _, n := range nodes {
			write(b, in, n, n.Next())
		}
		time.Sleep(time.Until(start.Add(time.Duration(s+1) * time.Second)))
	}
	steady, hours := requests(c).less(before), time.Since(began).Hours()
	b.ReportMetric(float64(steady.cnr)/hours/float64(scaleNodes), "cnr-writes/node/h")
	b.ReportMetric(float64(steady.node)/hours/float64(scaleNodes), "node-writes/node/h")
	b.Logf("steady: %s in %s", steady, time.Since(began).Round(time.Second))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", report.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseFloat(strings.Fields(kb)[0], 64)
			b.ReportMetric(n/1024, "MiB-peak")
		}
	}
	in.Close()
	<-read
	if err := report.Wait(); err != nil {
		b.Errorf("report: %v", err)
	}
	_ = advise.Wait()
	cpu := report.ProcessState.UserTime() + report.ProcessState.SystemTime()
	b.ReportMetric(cpu.Seconds(), "s-CPU")
	b.ReportMetric(float64(failed.Load()), "failed")
	b.ReportMetric(0, "ns/op")
}

func scaleNode(i int) string { return fmt.Sprintf("kwok-%04d", i) }

// write sends the tick of a node with this load.
func write(b *testing.B, w io.Writer, n *wander.Node, cores float64) {
	line, err := tick.Marshal(n.Tick(time.Now(), cores))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		b.Fatal(err)
	}
}

// offered counts the nodes by their offer, in both objects.
func offered(c *controlplane.ControlPlane) map[string]int {
	var nodes struct {
		Items []struct {
			Status struct{ Capacity map[string]string }
		}
	}
	var cnrs struct {
		Items []struct {
			Status struct{ ResourceAllocatable map[string]string }
		}
	}
	c.Get("/api/v1/nodes?resourceVersion=0", &nodes)
	c.Get(strings.TrimSuffix(cnrPath, "/")+"?resourceVersion=0", &cnrs)
	counts := map[string]int{}
	for _, n := range nodes.Items {
		counts[n.Status.Capacity[milliCPU]]++
	}
	for _, n := range cnrs.Items {
		counts[n.Status.ResourceAllocatable["katalyst.kubewharf.io/reclaimed_millicpu"]]++
	}
	return counts
}

// lacking returns "" once all objects have the same new offer, and the counts of the offers until then.
func lacking(c *controlplane.ControlPlane, was string) string {
	counts := offered(c)
	text := fmt.Sprint(counts)
	if len(counts) == 1 && text != was {
		for milli, n := range counts {
			if milli != "" && n == 2*scaleNodes {
				return ""
			}
		}
	}
	time.Sleep(200 * time.Millisecond)
	return text
}

// served counts the writes that the API server has served, without kwok's.
type served struct{ cnr, node int64 }

func (s served) less(t served) served { return served{s.cnr - t.cnr, s.node - t.node} }
func (s served) writes() int64        { return s.cnr + s.node }
func (s served) String() string       { return fmt.Sprintf("%d writes of CNRs, %d of nodes", s.cnr, s.node) }

// requests reads the API server's own count.
func requests(c *controlplane.ControlPlane) served {
	status, text := c.API(http.MethodGet, "/metrics", "")
	if status != http.StatusOK {
		c.Fatalf("metrics: status %d", status)
	}
	var s served
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `verb="APPLY"`) && !strings.Contains(line, `verb="PATCH"`) {
			continue
		}
		n, _ := strconv.ParseFloat(strings.Fields(line[strings.LastIndexByte(line, '}')+1:])[0], 64)
		switch {
		case strings.Contains(line, `resource="customnoderesources"`):
			s.cnr += int64(n)
		case strings.Contains(line, `resource="nodes"`) && strings.Contains(line, `subresource="status"`):
			s.node += int64(n)
		}
	}
	return s
}
