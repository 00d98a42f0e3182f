package report

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
	"polder/tests/cluster/program"
)

const (
	scaleNodes = 1000
	steadyFor  = 3 * time.Minute
)

// kwokStage makes kwok's nodes ready.
const kwokStage = `
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-initialize}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions: [{key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}]
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      {{ range NodeConditions }}
      - {lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }}, message: {{ .message | Quote }}, reason: {{ .reason | Quote }}, status: {{ .status | Quote }}, type: {{ .type | Quote }}}
      {{ end }}
      capacity: {cpu: "48", memory: 195924424Ki, pods: "110"}
      allocatable: {cpu: "48", memory: 195924424Ki, pods: "110"}
      phase: Running
`

// BenchmarkThousandNodes reports 1,000 nodes by one process: all at once, all at once again as they shrink, and then for some
// minutes a tick a second of each, with a load that moves, through the real advise.
func BenchmarkThousandNodes(b *testing.B) {
	dir := controlplane.Need(b, "kwok")
	for range b.N {
		scale(b, dir)
	}
}

func scale(b *testing.B, dir string) {
	plane, err := controlplane.Open(controlplane.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer plane.Close()
	c := plane.For(b)
	c.ApplyFile(crds)
	c.Kubectl("wait", "--for=condition=Established", "crd/customnoderesources.node.katalyst.kubewharf.io")
	stage := filepath.Join(b.TempDir(), "stage.yaml")
	if err := os.WriteFile(stage, []byte(kwokStage), 0o644); err != nil {
		b.Fatal(err)
	}
	kwok, err := program.Start(filepath.Join(b.TempDir(), "kwok.log"), exec.Command(filepath.Join(dir, "kwok"), "--kubeconfig", c.Kubeconfig(), "--config", stage,
		"--manage-all-nodes=true", "--node-lease-duration-seconds=40", "--cidr=10.0.0.0/8"))
	if err != nil {
		b.Fatal(err)
	}
	defer kwok.Kill()
	each(scaleNodes, func(i int) {
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
	advise := exec.Command(pipe.Binary(b, "advise"))
	advise.Stdout, advise.Stderr = advised, os.Stderr
	in, err := advise.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	report := exec.Command(pipe.Binary(b, "report"), "--to", "cnr,node", "--kubeconfig", c.Kubeconfig(), "--all-nodes")
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

	nodes := make([]*load, scaleNodes)
	for i := range nodes {
		nodes[i] = &load{name: scaleNode(i), random: rand.New(rand.NewPCG(1, uint64(i)))}
	}
	all := func(cores float64) {
		for _, n := range nodes {
			n.write(b, in, cores)
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

	// A tick a second of each node. The first half a minute, in which the loads part, does not count.
	for s, start := 0, time.Now(); time.Since(start) < 30*time.Second+steadyFor; s++ {
		if s == 30 {
			before, began = requests(c), time.Now()
		}
		for _, n := range nodes {
			n.write(b, in, n.next())
		}
		time.Sleep(time.Until(start.Add(time.Duration(s+1) * time.Second)))
	}
	steady, hours := requests(c).less(before), time.Since(began).Hours()
	b.ReportMetric(float64(steady.cnr)/hours/scaleNodes, "cnr-writes/node/h")
	b.ReportMetric(float64(steady.node)/hours/scaleNodes, "node-writes/node/h")
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

// each calls f for every number under n, 16 at a time.
func each(n int, f func(int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	all.Wait()
}

// load is a node of the guide with one service, whose load goes up and down by itself.
type load struct {
	name   string
	random *rand.Rand
	cores  float64
	rss    float64
}

// next is the load a second later: a walk between 1 and 30 cores that is drawn to 10, with a jump once in ten minutes.
func (l *load) next() float64 {
	l.cores += (10-l.cores)/300 + l.random.NormFloat64()/4
	if l.random.IntN(600) == 0 {
		l.cores += l.random.NormFloat64() * 8
	}
	l.cores = min(max(l.cores, 1), 30)
	return l.cores
}

func (l *load) write(b *testing.B, w io.Writer, cores float64) {
	l.cores = cores
	l.rss = min(max(l.rss+l.random.NormFloat64()*32*(1<<20), 2<<30), 90<<30)
	f := tick.Ptr[float64]
	numa := []tick.TopologyNUMA{{ID: 0, CPUs: "0-11,24-35", MemoryBytes: f(100313305088)}, {ID: 1, CPUs: "12-23,36-47", MemoryBytes: f(100313305088)}}
	t := &tick.Tick{V: 1, Node: l.name, Time: time.Now().UTC(), Sample: &tick.Sample{
		IntervalSeconds: f(1),
		Topology:        &tick.Topology{CPUs: "0-47", Sockets: []string{"0-11,24-35", "12-23,36-47"}, NUMANodes: numa},
		CPU:             &tick.NodeCPU{UsageMilliCPU: f(cores * 1000), Load1: f(cores), Load5: f(cores)},
		Memory:          &tick.NodeMemory{TotalBytes: f(195924424 * 1024), FreeBytes: f(100 << 30), AvailableBytes: f(150 << 30)},
		Capacity:        &tick.Resources{MilliCPU: f(48000), MemoryBytes: f(195924424 * 1024)},
		Allocatable:     &tick.Resources{MilliCPU: f(48000), MemoryBytes: f(195924424 * 1024)},
		Pods: []tick.Pod{
			{UID: "s", Namespace: "default", Name: "service", QoS: tick.QoSShared, UsageMilliCPU: f(cores * 1000), Load1: f(cores), Load5: f(cores),
				Memory: &tick.Memory{RSSBytes: f(l.rss)}, Requests: &tick.Resources{MilliCPU: f(8000)},
				Containers: []tick.Container{{Name: "c", UsageMilliCPU: f(cores * 1000), Load1: f(cores), Load5: f(cores), Memory: &tick.Memory{RSSBytes: f(l.rss)}}}},
			{UID: "r", Namespace: "default", Name: "batch", QoS: tick.QoSReclaimed, Requests: &tick.Resources{ReclaimedMilliCPU: f(2000), ReclaimedMemoryBytes: f(1 << 30)},
				Containers: []tick.Container{{Name: "c", CPUSetCPUs: "0-10,12-21"}}},
		},
	}}
	line, err := tick.Marshal(t)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		b.Fatal(err)
	}
}

// offered counts the nodes by what they offer, in both objects.
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

// lacking says how many objects there are not, of those that all offer the same and not what they were.
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

// served are the writes that the API server has served, without kwok's.
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
