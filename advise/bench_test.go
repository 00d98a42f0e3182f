package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"polder/lib/stage"
	"polder/lib/tick"
)

// stream returns n ticks of the guide's 48-core node with 100 pods, as collect writes them.
func stream(b testing.TB, n int) []byte {
	b.Helper()
	topology := &tick.Topology{
		CPUs: "0-47", Sockets: []string{"0-11,24-35", "12-23,36-47"}, L3: []string{"0-11,24-35", "12-23,36-47"},
		NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-11,24-35"}, {ID: 1, CPUs: "12-23,36-47"}},
	}
	for i := range 24 {
		topology.Cores = append(topology.Cores, fmt.Sprintf("%d,%d", i, i+24))
	}
	var out bytes.Buffer
	for second := range n {
		t := tick.Tick{V: 1, Node: "node-1", Time: time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC), Sample: &tick.Sample{
			IntervalSeconds: new(1.0), Topology: topology, Memory: &tick.NodeMemory{TotalBytes: new(195924424.0 * 1024)},
		}}
		for i := range 100 {
			load := float64((i*7+second)%20) / 100
			c := tick.Container{
				Name: "app", ID: strings.Repeat("0123456789abcdef", 4), Cgroup: fmt.Sprintf("/kubepods/burstable/pod%036d/%064d", i, i), CPUSetCPUs: "10-11,22-23,34-35,46-47",
				UsageMilliCPU: new(load * 1000), Load1: new(load + 0.001), Load5: new(load + 0.002), Threads: new(12.0), ThrottledPercent: new(0.5),
				Memory: &tick.Memory{UsageBytes: new(123456789.0), WorkingSetBytes: new(123456000.0), RSSBytes: new(120000000.0), CacheBytes: new(3456789.0)},
			}
			qos := tick.QoSShared
			if i%3 == 0 {
				qos = tick.QoSReclaimed
			}
			t.Sample.Pods = append(t.Sample.Pods, tick.Pod{
				UID: fmt.Sprintf("%036d", i), Namespace: "default", Name: fmt.Sprintf("pod-%d", i), QoS: qos, QoSSource: tick.QoSFromRule, Cgroup: fmt.Sprintf("/kubepods/burstable/pod%036d", i),
				UsageMilliCPU: c.UsageMilliCPU, Load1: c.Load1, Load5: c.Load5, Threads: c.Threads, Memory: c.Memory,
				Requests: &tick.Resources{MilliCPU: new(200.0), MemoryBytes: new(1073741824.0)}, Containers: []tick.Container{c},
			})
		}
		line, err := tick.Marshal(t)
		if err != nil {
			b.Fatal(err)
		}
		out.Write(append(line, '\n'))
	}
	return out.Bytes()
}

// cpuTime returns the process's CPU time so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// BenchmarkTicks measures the whole tool on a recorded stream: read, decode, decide, splice, write. The target is 5,000 ticks per second.
func BenchmarkTicks(b *testing.B) { benchmark(b, stream(b, perFile)) }

// BenchmarkKoordinator does the same with Koordinator's policy, and with the sample fields that it needs.
func BenchmarkKoordinator(b *testing.B) {
	benchmark(b, bytes.ReplaceAll(stream(b, perFile), []byte(`"memory":{"totalBytes"`),
		[]byte(`"cpu":{"usageMilliCPU":12000},"capacity":{"milliCPU":48000,"memoryBytes":2e11},"allocatable":{"milliCPU":47000,"memoryBytes":19e10},"memory":{"availableBytes":9e10,"totalBytes"`)), "--policy", "koordinator")
}

// BenchmarkHarvest does the same with policy harvest.
func BenchmarkHarvest(b *testing.B) {
	benchmark(b, bytes.ReplaceAll(stream(b, perFile), []byte(`"memory":{"totalBytes"`),
		[]byte(`"cpu":{"usageMilliCPU":12000},"memory":{"availableBytes":9e10,"totalBytes"`)), "--policy", "harvest")
}

// perFile is the number of ticks of a recording.
const perFile = 600

func benchmark(b *testing.B, recorded []byte, args ...string) {
	path := filepath.Join(b.TempDir(), "recorded.jsonl")
	if err := os.WriteFile(path, recorded, 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(recorded)))
	ticks, before := 0, cpuTime(b)
	for b.Loop() {
		status := command().Execute(b.Context(), stage.Env{
			Args: append([]string{"advise", "--input", path}, args...), Out: io.Discard, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now,
		})
		if status != 0 {
			b.Fatalf("exit status %d", status)
		}
		ticks += perFile
	}
	b.ReportMetric(float64(ticks)/b.Elapsed().Seconds(), "ticks/s")
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(ticks), "cpu-us/tick")
	b.ReportMetric(float64(len(recorded)/perFile), "line-bytes")
	b.ReportMetric(0, "ns/op")
}
