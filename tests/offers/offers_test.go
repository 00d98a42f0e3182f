// Package offers measures the policies' offers on real load, through the real advise: `make bench-offers`. The traces are not part
// of the repository: OFFERS_TRACES names a directory that has them (trace_test.go describes their form).
package offers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/binaries"
)

// policies are advise's.
var policies = []string{"katalyst", "koordinator", "harvest"}

// variable names the directory of the traces.
const variable = "OFFERS_TRACES"

func BenchmarkOffers(b *testing.B) {
	dir := os.Getenv(variable)
	if dir == "" {
		b.Fatalf("%s is not set: it names the directory of the traces, PlanetLab's (CoMon, from CloudSim's repository) "+
			"or Alibaba's (machine_usage of cluster-trace-v2018)", variable)
	}
	sets, err := read(dir)
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range sets {
		fmt.Print(table(b, s)) // a benchmark's log is not printed
	}
}

// table is each way's offers on a set of machines: of CPU, and of memory if the traces have it.
func table(t testing.TB, s set) string {
	offered := map[string][]offers{} // by policy, of each machine
	for _, p := range policies {
		for i := range s.traces {
			offered[p] = append(offered[p], advised(t, p, &s.traces[i]))
		}
	}
	var out strings.Builder
	for _, r := range resources {
		if r.name == "memory" && !s.hasMemory {
			continue
		}
		const head = "| %s, %s, %d machines | offered | oversold | moves by over 5 %% | short within the hour |\n|---|---|---|---|---|\n"
		fmt.Fprintf(&out, head, s.name, r.name, len(s.traces))
		row := func(name string, all score) {
			fmt.Fprintf(&out, "| %s | %.1f %% | %.2f %% | %.2f %% | %.1f %% |\n", name, all.offered, all.oversold, all.moves, all.hour)
		}
		for _, p := range policies {
			row("policy "+p, r.advised(s, offered[p]))
		}
		for _, simple := range rules {
			row(simple.name, r.ruled(s, simple))
		}
		out.WriteString("\n")
	}
	return out.String()
}

// advised runs advise over a trace.
func advised(t testing.TB, policy string, tr *trace) (all offers) {
	t.Helper()
	var in bytes.Buffer
	for i := range tr.samples {
		line, err := tick.Marshal(tr.tick(i))
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	advise := exec.CommandContext(ctx, binaries.Path(t, "advise"), "--policy", policy)
	var messages bytes.Buffer
	advise.Stdin, advise.Stderr = &in, &messages
	out, err := advise.Output()
	if err != nil {
		t.Fatalf("advise --policy %s: %v\n%s", policy, err, messages.String())
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		l, err := tick.ParseLine(lines.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.Decode(tick.SectionAdvice)
		if err != nil {
			t.Fatal(err)
		}
		if len(all.cpu) == len(tr.samples) {
			t.Fatalf("advise --policy %s: more ticks than the %d samples", policy, len(tr.samples))
		}
		reclaimed := got.Advice.Reclaimed
		if reclaimed == nil {
			reclaimed = &tick.Reclaimed{}
		}
		part := func(of *int64, whole float64) float64 {
			if of == nil {
				return 0
			}
			return float64(*of) / whole
		}
		if tr.samples[len(all.cpu)].memory > 0 {
			all.memory = append(all.memory, part(reclaimed.MemoryBytes, machineBytes))
		}
		all.cpu = append(all.cpu, part(reclaimed.MilliCPU, float64(tr.cpus*1000)))
	}
	if len(all.cpu) != len(tr.samples) {
		t.Fatalf("advise --policy %s: %d ticks of %d", policy, len(all.cpu), len(tr.samples))
	}
	return all
}

// machineBytes is the memory of each machine.
const machineBytes = 256 << 30

// tick is a sample as collect writes it: each pod a shared one, and nothing else on the machine.
func (t *trace) tick(i int) *tick.Tick {
	s := t.samples[i]
	own := &tick.Sample{IntervalSeconds: new(t.interval.Seconds()), Topology: topology(t.cpus), CgroupVersion: 2}
	own.Capacity = &tick.Resources{MilliCPU: new(float64(t.cpus * 1000)), MemoryBytes: new(float64(machineBytes))}
	own.Allocatable = own.Capacity
	own.CPU = &tick.NodeCPU{UsageMilliCPU: new(t.part(i) * float64(t.cpus*1000))}
	if s.memory > 0 {
		free := (1 - s.memory) * machineBytes
		own.Memory = &tick.NodeMemory{TotalBytes: new(float64(machineBytes)), AvailableBytes: &free, FreeBytes: &free}
	}
	held := s.memory * machineBytes / float64(len(s.pods))
	for p, milliCPU := range s.pods {
		name := fmt.Sprintf("service-%d", p)
		load := milliCPU / 1000
		own.Pods = append(own.Pods, tick.Pod{
			UID: name, Name: name, QoS: tick.QoSShared, QoSSource: tick.QoSFromRule, Cgroup: "/services/" + name,
			UsageMilliCPU: &milliCPU, Load1: &load, Load5: &load, Threads: new(1.0),
			Memory: &tick.Memory{RSSBytes: &held, WorkingSetBytes: &held},
		})
	}
	return &tick.Tick{V: 1, Node: t.name, Time: s.at, Sample: own}
}

// topology is two sockets of cores with two hyperthreads each.
func topology(cpus int) *tick.Topology {
	half, quarter := cpus/2, cpus/4
	shape := &tick.Topology{CPUs: fmt.Sprintf("0-%d", cpus-1)}
	for core := range half {
		shape.Cores = append(shape.Cores, fmt.Sprintf("%d,%d", core, core+half))
	}
	for node := range 2 {
		list := fmt.Sprintf("%d-%d,%d-%d", node*quarter, (node+1)*quarter-1, half+node*quarter, half+(node+1)*quarter-1)
		shape.Sockets = append(shape.Sockets, list)
		shape.NUMANodes = append(shape.NUMANodes, tick.TopologyNUMA{ID: node, CPUs: list, MemoryBytes: new(float64(machineBytes / 2))})
	}
	return shape
}

// On generated machines, harvest keeps its promises for both resources: few samples are oversold, few offers move, and more is offered
// than by the rule of one line, within the best that could be known.
func TestOffersOfGeneratedLoad(t *testing.T) {
	s := set{"generated", true, generated(3, 2)}
	var offered []offers
	for i := range s.traces {
		offered = append(offered, advised(t, "harvest", &s.traces[i]))
	}
	for _, r := range resources {
		harvest, largest, perfect := r.advised(s, offered), r.ruled(s, rules[0]), r.ruled(s, rules[len(rules)-1])
		t.Logf("%s: harvest %.2f, the largest of the hour %.2f, perfect %.2f", r.name, harvest, largest, perfect)
		if harvest.oversold > 0.5 || harvest.moves > 1 {
			t.Errorf("%s: of the samples %.2f %% are oversold, and %.2f %% move", r.name, harvest.oversold, harvest.moves)
		}
		if harvest.offered <= largest.offered || harvest.offered >= perfect.offered {
			t.Errorf("%s: %.1f %% of the machine are offered; the rule of one line offers %.1f %%, perfect knowledge %.1f %%",
				r.name, harvest.offered, largest.offered, perfect.offered)
		}
	}
}

func TestJudge(t *testing.T) {
	tr := trace{cpus: 10, interval: time.Minute}
	for i, use := range []float64{2000, 2000, 5000, 2000, 2000} {
		tr.samples = append(tr.samples, sample{at: midnight.Add(time.Duration(i) * time.Minute), pods: []float64{use}})
	}
	got := judge(tr.cpu(), []float64{0.7, 0.7, 0.5, 0.54, 0.8})
	if want := (score{offered: 64.8, oversold: 20, moves: 40, hour: 40}); fmt.Sprintf("%.3f", got) != fmt.Sprintf("%.3f", want) {
		t.Errorf("%.3f; want %.3f", got, want)
	}
}

// Both public forms are read; anything else is an error.
func TestReadTraces(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := read(dir); err == nil || !strings.Contains(err.Error(), "has no trace") {
		t.Errorf("of an empty directory: %v", err)
	}
	write("machine_usage.csv", "m_1,60,10,50,,,1,2,3\nm_2,0,1,2\nm_1,130,20,,,,1,2,3\nm_1,200,101,50\nm_1,240,40,50\n")
	for vm := range planetlabVMs + 3 {
		write(fmt.Sprintf("20110303/vm-%02d", vm), "10\n20\n")
	}
	sets, err := read(dir)
	if err != nil || len(sets) != 2 || len(sets[0].traces) != 1 || len(sets[1].traces) != 2 {
		t.Fatalf("%+v, %v", sets, err)
	}
	planet, ali := &sets[0].traces[0], &sets[1].traces[0]
	if len(planet.samples) != 2 || math.Abs(planet.part(1)-0.2) > 1e-9 {
		t.Errorf("PlanetLab: %+v", planet)
	}
	var parts []float64
	for i := range ali.samples {
		parts = append(parts, math.Round(100*ali.part(i)))
	}
	if want := []float64{10, 10, 20, 40}; !slices.Equal(parts, want) { // at 60, 120, 180 and 240 s
		t.Errorf("Alibaba: %v; want %v", parts, want)
	}
	if got, want := ali.memory().used, []float64{0.5, 0.5, 0.5}; !slices.Equal(got, want) { // unknown at 180 s
		t.Errorf("Alibaba's memory: %v; want %v", got, want)
	}
	write("broken.csv", "m_1,x\n")
	if _, err := read(dir); err == nil || !strings.Contains(err.Error(), "broken.csv:1") {
		t.Errorf("of an invalid table: %v", err)
	}
}
