// Package offers measures what the policies offer on real load, through the real advise: `make bench-offers`. The traces are not part
// of the repository: OFFERS_TRACES names a directory that has them (trace_test.go says in which form).
package offers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
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
		b.Fatalf("%s is not set: it names the directory of the traces, PlanetLab's (CoMon, from CloudSim's repository) or Alibaba's (machine_usage of cluster-trace-v2018)", variable)
	}
	sets, err := read(dir)
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range sets {
		fmt.Println(table(b, s)) // what a benchmark logs is not printed
	}
}

// table is what each way offers on a set of machines.
func table(t testing.TB, s set) string {
	var out strings.Builder
	fmt.Fprintf(&out, "| %s, %d machines | offered | oversold | moves by over 5 %% | short within the hour |\n|---|---|---|---|---|\n", s.name, len(s.traces))
	row := func(name string, all score) {
		fmt.Fprintf(&out, "| %s | %.1f %% | %.2f %% | %.2f %% | %.1f %% |\n", name, all.offered, all.oversold, all.moves, all.hour)
	}
	for _, p := range policies {
		row("policy "+p, mean(s, func(tr *trace) score { return judge(tr, advised(t, p, tr)) }))
	}
	for _, r := range rules {
		row(r.name, mean(s, func(tr *trace) score { return judge(tr, r.offer(tr)) }))
	}
	return out.String()
}

func mean(s set, of func(*trace) score) (all score) {
	for i := range s.traces {
		all = all.plus(of(&s.traces[i]), 1/float64(len(s.traces)))
	}
	return all
}

// advised is what advise offers, as parts of the machine; nothing where it says nothing.
func advised(t testing.TB, policy string, tr *trace) []float64 {
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
	var offers []float64
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
		offer := 0.0
		if r := got.Advice.Reclaimed; r != nil && r.MilliCPU != nil {
			offer = float64(*r.MilliCPU) / float64(tr.cpus*1000)
		}
		offers = append(offers, offer)
	}
	if len(offers) != len(tr.samples) {
		t.Fatalf("advise --policy %s: %d ticks of %d", policy, len(offers), len(tr.samples))
	}
	return offers
}

// machineBytes is the memory of each machine.
const machineBytes = 256 << 30

// tick is a sample as collect has it: each pod a shared one, and nothing else on the machine.
func (t *trace) tick(i int) *tick.Tick {
	s := t.samples[i]
	own := &tick.Sample{IntervalSeconds: tick.Ptr(t.interval.Seconds()), Topology: topology(t.cpus), CgroupVersion: 2}
	own.Capacity = &tick.Resources{MilliCPU: tick.Ptr(float64(t.cpus * 1000)), MemoryBytes: tick.Ptr(float64(machineBytes))}
	own.Allocatable = own.Capacity
	own.CPU = &tick.NodeCPU{UsageMilliCPU: tick.Ptr(t.part(i) * float64(t.cpus*1000))}
	if s.memory > 0 {
		own.Memory = &tick.NodeMemory{TotalBytes: tick.Ptr(float64(machineBytes)), AvailableBytes: tick.Ptr((1 - s.memory) * machineBytes), FreeBytes: tick.Ptr((1 - s.memory) * machineBytes)}
	}
	for p, milliCPU := range s.pods {
		name := fmt.Sprintf("service-%d", p)
		load := milliCPU / 1000
		own.Pods = append(own.Pods, tick.Pod{
			UID: name, Name: name, QoS: tick.QoSShared, QoSSource: tick.QoSFromRule, Cgroup: "/services/" + name,
			UsageMilliCPU: &milliCPU, Load1: &load, Load5: &load, Threads: tick.Ptr(1.0),
			Memory: &tick.Memory{RSSBytes: tick.Ptr(s.memory * machineBytes / float64(len(s.pods))), WorkingSetBytes: tick.Ptr(s.memory * machineBytes / float64(len(s.pods)))},
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
		shape.NUMANodes = append(shape.NUMANodes, tick.TopologyNUMA{ID: node, CPUs: list, MemoryBytes: tick.Ptr(float64(machineBytes / 2))})
	}
	return shape
}
