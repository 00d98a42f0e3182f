package colocation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/tests/await"
	"polder/tests/binaries"
	"polder/tests/cputime"
	"polder/tests/group"
	"polder/tests/need"
)

// method is one way to protect the service from a batch job; its end reverts it.
type method struct {
	name  string
	start func(b *testing.B, m *measurement) (end func())
}

// idleByHand is the line of shell with which batch's CPUs are compared.
const idleByHand = "cpu.idle by hand"

// methods are what is compared: what a user has without Polder, and each of its policies.
var methods = []method{
	{"unmanaged", func(*testing.B, *measurement) func() { return func() {} }},
	{idleByHand, func(b *testing.B, m *measurement) func() {
		m.batch.Write(b, "cpu.idle", "1")
		return func() { m.batch.Write(b, "cpu.idle", "0") }
	}},
	{"cpu.shares 2 by hand", func(b *testing.B, m *measurement) func() {
		m.batch.Write(b, "cpu.shares", "2")
		return func() { m.batch.Write(b, "cpu.shares", "1024") } // the kernel's default
	}},
	{"Polder, policy katalyst", polder("katalyst")},
	{"Polder, policy koordinator", polder("koordinator")},
	{"Polder, policy harvest", polder("harvest")},
}

// How long a cell runs before it is measured, and how long it is measured. Polder's first decision is in the second tick.
const (
	warmUp      = 2 * time.Second
	measureTime = 3 * time.Second
)

// A measurement during which the host took more than tolerable percent of the machine means little. It is repeated once, unless
// the run has already repeated that many of them.
const (
	maxSteal   = 2.0
	maxRepeats = 20
)

// cell is what is measured together: a service under a load beside a job.
type cell struct {
	service *service
	percent int // of the machine, that the service and its client use alone
	job     *job
}

// cells are those of a full run, or of a short one: the first service beside every job, the others beside those that differ most.
func cells(quick bool) (list []cell) {
	for i := range services {
		for j := range jobs {
			if i == 0 || jobs[j].always {
				list = append(list, cell{&services[i], 50, &jobs[j]})
			}
		}
		list = append(list, cell{&services[i], 20, &jobs[0]}, cell{&services[i], 70, &jobs[0]})
	}
	if quick {
		return []cell{{&services[0], 50, &jobs[0]}, {&services[0], 50, &jobs[2]}, {&services[0], 70, &jobs[0]}}
	}
	return list
}

// result is one measurement.
type result struct {
	P50, P99, P999 float64 // milliseconds
	Errors         int
	Batch, Polder  float64 // CPUs
	Busy           float64 // percent of the machine
	Steal          float64 // percent of the machine, that the host took from it
	Outside        float64 // p99 of the server outside, in milliseconds; 0 without one
}

// measurement is the machine while one service runs.
type measurement struct {
	client, address, protocol string
	service, batch, polder    *group.Group
	classify                  string
	ownProcesses              []string     // processes of batch's cgroup that are not the job's: a container's own
	repeats                   *int         // repeated measurements, over the whole run
	outside                   *measurement // another server, with outsideRate requests a second; nil without one
}

// outsideRate is the rate of requests to the server outside, a second.
const outsideRate = 100

func BenchmarkColocation(b *testing.B) {
	need.Root(b)
	for program, debianPackage := range map[string]string{"nginx": "nginx-light", "redis-server": "redis-server", "stress-ng": "stress-ng", "xz": "xz-utils"} {
		need.Program(b, program, debianPackage)
	}
	quick := os.Getenv("QUICK") != ""
	rounds := 2
	if n, err := strconv.Atoi(os.Getenv("ROUNDS")); err == nil && n > 0 {
		rounds = n
	}
	client := build(b)
	table, rates := newTable(), rates{}
	var kubernetes *kubernetesNode
	switch {
	case quick:
	case os.Getenv("POLDER_CLUSTER") == "":
		fmt.Println("not measured: the Kubernetes node, whose programs POLDER_CLUSTER names")
	default:
		kubernetes = startKubernetesNode(b)
	}
	output := os.Getenv("COLOCATION_OUTPUT")
	start, repeats := time.Now(), 0
	for round := range rounds {
		for i := range services {
			s := &services[i]
			var serviceCells []cell
			for _, c := range cells(quick) {
				if c.service == s {
					serviceCells = append(serviceCells, c)
				}
			}
			if len(serviceCells) > 0 {
				b.Run(fmt.Sprintf("round %d, %s", round+1, s.name), func(b *testing.B) {
					measureService(b, client, s, serviceCells, table, rates, &repeats)
				})
			}
		}
		if kubernetes != nil {
			b.Run(fmt.Sprintf("round %d, %s", round+1, onKubernetes.name), func(b *testing.B) {
				measureKubernetes(b, kubernetes, client, table, rates, &repeats)
			})
		}
		if output != "" { // after each round, so that a run that is ended early has those before
			if err := table.write(output); err != nil {
				b.Fatal(err)
			}
		}
		fmt.Printf("%s: round %d of %d\n", time.Since(start).Round(time.Second), round+1, rounds)
	}
	if output == "" {
		fmt.Print(table.markdown()) // a benchmark's log is not printed
	}
}

// startService starts a service, with cgroups for it, for batch and for Polder. They are at the top, where systemd has its slices: batch
// work below a cgroup that also holds services uses up that cgroup's share against the kernel's own threads, which the services wait for
// (BenchmarkHierarchy).
func startService(b *testing.B, client string, s *service) *measurement {
	b.Helper()
	dir, port := b.TempDir(), freePort(b)
	m := &measurement{
		client: client, protocol: s.protocol, address: "127.0.0.1:" + port,
		service: group.New(b, nil, "service"), batch: group.New(b, nil, "batch"), polder: group.New(b, nil, "polder"),
	}
	m.writeClassification(b, dir)
	s.start(b, m.service, dir, port)
	awaitService(b, client, s.protocol, m.address)
	return m
}

// measureService measures all cells of one service, alone first for each load.
func measureService(b *testing.B, client string, s *service, serviceCells []cell, table *table, rates rates, repeats *int) {
	m := startService(b, client, s)
	m.repeats = repeats
	m.cells(b, serviceCells, methods, table, rates)
}

// writeClassification writes the rules that classify the cgroups.
func (m *measurement) writeClassification(b *testing.B, dir string) {
	b.Helper()
	m.classify = filepath.Join(dir, "classify.yaml")
	rules := fmt.Sprintf("rules:\n  - {cgroup: %s, class: shared}\n  - {cgroup: %s, class: reclaimed}\n  - {cgroup: %s, class: system}\n", m.service.Name, m.batch.Name, m.polder.Name)
	if err := os.WriteFile(m.classify, []byte(rules), 0o644); err != nil {
		b.Fatal(err)
	}
}

// load is a service that uses a part of the machine.
type load struct {
	service *service
	percent int
}

// rates are the requests a second of each load, the same in all rounds.
type rates map[load]float64

// cells measures the service alone at each load, and in each way beside each job.
func (m *measurement) cells(b *testing.B, list []cell, methods []method, table *table, rates rates) {
	b.Helper()
	measuredAlone := map[load]bool{}
	for _, c := range list {
		l := load{c.service, c.percent}
		if rates[l] == 0 {
			rates[l] = m.rate(b, c.percent)
		}
		if !measuredAlone[l] {
			measuredAlone[l] = true
			table.add(c, alone, rates[l], m.measure(b, rates[l]))
		}
		for _, w := range methods {
			if r := m.measureBeside(b, c, &w, rates[l]); r != nil {
				table.add(c, w.name, rates[l], *r)
			}
		}
	}
}

// rate is the rate at which the service and its client use so much of the machine.
func (m *measurement) rate(b *testing.B, percent int) float64 {
	b.Helper()
	rate := 50.0
	for range 3 { // a request costs less at higher rates
		before := m.service.CPUTime(b)
		m.load(b, rate, 2*time.Second, 0)
		perRequest := (m.service.CPUTime(b) - before).Seconds() / (rate * 2)
		rate = float64(percent) / 100 * float64(runtime.NumCPU()) / perRequest
	}
	return float64(int(rate))
}

// measureBeside measures the service beside a job in one way; nil if -bench leaves it out.
func (m *measurement) measureBeside(b *testing.B, c cell, w *method, rate float64) (r *result) {
	b.Helper()
	b.Run(fmt.Sprintf("%s, %s, %d", w.name, c.job.name, c.percent), func(b *testing.B) {
		m.batch.Run(b, c.job.script(2*runtime.NumCPU(), b.TempDir()))
		end := w.start(b, m)
		r = new(m.measure(b, rate))
		end()
		m.batch.Kill(b, m.ownProcesses...)
	})
	unix.Sync() // the job's files are written or discarded now, not while the next method is measured
	return r
}

// measure is the result of one run of the client, or of a second one if the host disturbed the first more.
func (m *measurement) measure(b *testing.B, rate float64) result {
	b.Helper()
	r := m.runOnce(b, rate)
	if r.Steal > maxSteal && m.repeats != nil && *m.repeats < maxRepeats {
		*m.repeats++
		if second := m.runOnce(b, rate); second.Steal < r.Steal {
			return second
		}
	}
	return r
}

// runOnce runs the client and reads all CPU usage meanwhile.
func (m *measurement) runOnce(b *testing.B, rate float64) result {
	b.Helper()
	type reading struct {
		at                         time.Time
		batch, polder, busy, steal time.Duration
	}
	read := func() reading {
		machine, err := cputime.Read()
		if err != nil {
			b.Fatal(err)
		}
		return reading{time.Now(), m.batch.CPUTime(b), m.polder.CPUTime(b), machine.Busy, machine.Steal}
	}
	firstReading := make(chan reading, 1)
	timer := time.AfterFunc(warmUp, func() {
		defer close(firstReading) // if the reading fails, it ends this goroutine alone
		firstReading <- read()
	})
	defer timer.Stop()
	var endOutside func() clientResult
	if m.outside != nil {
		endOutside = m.outside.startLoad(b, outsideRate, warmUp+measureTime, warmUp)
	}
	l := m.load(b, rate, warmUp+measureTime, warmUp)
	first, last := <-firstReading, read()
	outside := 0.0
	if endOutside != nil {
		outside = endOutside().P99
	}
	seconds := last.at.Sub(first.at).Seconds()
	return result{
		P50: l.P50, P99: l.P99, P999: l.P999, Errors: l.Errors,
		Batch: (last.batch - first.batch).Seconds() / seconds, Polder: (last.polder - first.polder).Seconds() / seconds,
		Busy:    100 * (last.busy - first.busy).Seconds() / seconds / float64(runtime.NumCPU()),
		Steal:   100 * (last.steal - first.steal).Seconds() / seconds / float64(runtime.NumCPU()),
		Outside: outside,
	}
}

// clientResult is the client's output.
type clientResult struct {
	Errors         int
	P50, P99, P999 float64
}

// load runs the client in the service's cgroup.
func (m *measurement) load(b *testing.B, rate float64, span, skip time.Duration) clientResult {
	b.Helper()
	return m.startLoad(b, rate, span, skip)()
}

// startLoad starts the client; the function that it returns waits for its end.
func (m *measurement) startLoad(b *testing.B, rate float64, span, skip time.Duration) func() clientResult {
	b.Helper()
	cmd := exec.Command("sh", "-c", `read go; exec "$@"`, "sh", m.client, "-protocol", m.protocol, "-address", m.address,
		"-rate", strconv.FormatFloat(rate, 'f', -1, 64), "-for", span.String(), "-skip", skip.String())
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	var out, log strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	m.service.Enter(b, cmd.Process.Pid)
	fmt.Fprintln(in, "go")
	return func() (l clientResult) {
		b.Helper()
		if err := cmd.Wait(); err != nil {
			b.Fatalf("the client: %v: %s", err, &log)
		}
		if err := json.Unmarshal([]byte(out.String()), &l); err != nil {
			b.Fatalf("the client printed %q: %v", &out, err)
		}
		return l
	}
}

// polder runs the pipe with a policy, in its own cgroup.
func polder(policy string) func(*testing.B, *measurement) func() {
	return func(b *testing.B, m *measurement) func() {
		b.Helper()
		return startPolder(b, m, b.TempDir(), policy)
	}
}

// startPolder starts the pipe with a policy and perhaps more of advise's flags. Its logs and its output, "ticks", are in dir. The function
// that it returns ends the pipe and restores the cgroups.
func startPolder(b *testing.B, m *measurement, dir, policy string) (end func()) {
	b.Helper()
	journal := filepath.Join(dir, "journal")
	tool := func(name string) string { return binaries.Path(b, name) }
	pipe := m.polder.Run(b, fmt.Sprintf("%[2]s --classify %[3]s --interval 1s 2>%[1]s/collect.log | "+
		"%[4]s --policy %[5]s 2>%[1]s/advise.log | %[6]s --journal %[7]s >%[1]s/ticks 2>%[1]s/isolate.log",
		dir, tool("collect"), m.classify, tool("advise"), policy, tool("isolate"), journal))
	// The client starts after the first decision: else the requests that queue before it, beside the unmanaged job, would be measured.
	await.Until(b, 30*time.Second, "batch's class", func() string {
		if idle := m.batch.Read("cpu.idle"); idle != "1" {
			return fmt.Sprintf("cpu.idle of batch is %q", idle)
		}
		return ""
	})
	return func() {
		b.Helper()
		if pids := m.polder.PIDs(b); len(pids) < len([]string{"collect", "advise", "isolate"}) {
			b.Errorf("only %v of the pipe run:\n%s", pids, logs(dir))
		}
		m.polder.Kill(b)
		_ = pipe.Wait() // it was killed
		if out, err := exec.Command(tool("isolate"), "--restore", "--if-exists", "--journal", journal).CombinedOutput(); err != nil {
			b.Fatalf("isolate --restore: %v\n%s", err, out)
		}
	}
}

// logs are the tools' logs.
func logs(dir string) string {
	var text strings.Builder
	for _, tool := range []string{"collect", "advise", "isolate"} {
		data, err := os.ReadFile(filepath.Join(dir, tool+".log"))
		fmt.Fprintf(&text, "%s (%v): %s\n", tool, err, data)
	}
	return text.String()
}

// freePort is an unused port of loopback, below those that the kernel gives to anybody who asks for one meanwhile.
func freePort(b *testing.B) string {
	b.Helper()
	for range 100 {
		port := strconv.Itoa(12_000 + rand.IntN(8_000))
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err == nil {
			l.Close()
			return port
		}
	}
	b.Fatal("no port is free")
	return ""
}
