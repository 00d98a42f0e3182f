package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"os/exec"
	"strconv"
)

// record48 records collect's output on a node with two services and two batch jobs, of which one service gets busy half
// way. No tool isolates them: a replay shows what would be done.
var record48 = suite{
	name: "record48", doc: "a recording of a 48-CPU node",
	mount: mountV2,
	tests: []test{{"record", record}},
}

// recordedTicks is how many ticks a recording has; the service gets busy from busyTick on, in steps of a tick.
const (
	recordedTicks = 40
	busyTick      = 16
	busyThreads   = 12
	busySteps     = 3
)

const recordRules = `
  - {cgroup: /shop/web, class: shared, namespace: shop, name: web, requests: {milliCPU: 2000, memoryBytes: 512Mi}}
  - {cgroup: /shop/cache, class: shared, namespace: shop, name: cache, requests: {milliCPU: 1000, memoryBytes: 1Gi}}
  - {cgroup: /batch/spark-1, class: reclaimed, namespace: batch, name: spark-1, requests: {reclaimedMilliCPU: 8000, reclaimedMemoryBytes: 4Gi}}
  - {cgroup: /batch/spark-2, class: reclaimed, namespace: batch, name: spark-2, requests: {reclaimedMilliCPU: 4000, reclaimedMemoryBytes: 2Gi}}
`

// residents run all the time; those that use memory start first and have it when the others start.
var residents = []struct {
	cgroup string
	args   []string
}{
	{"/shop/web", []string{"eat", "180"}},
	{"/shop/cache", []string{"eat", "420"}},
	{"/batch/spark-1", []string{"eat", "300"}},
	{"/batch/spark-2", []string{"eat", "120"}},
	{"/shop/web", []string{"spin", "-duty", "40", "2"}},
	{"/shop/cache", []string{"spin", "-duty", "20", "2"}},
	{"/batch/spark-1", []string{"spin", "5"}},
	{"/batch/spark-2", []string{"spin", "-duty", "60", "2"}},
}

func record(t *T) {
	for _, path := range []string{"/shop", "/shop/web", "/shop/cache", "/batch", "/batch/spark-1", "/batch/spark-2"} {
		var controllers []string
		if path == "/shop" || path == "/batch" {
			controllers = []string{"cpuset", "cpu", "memory", "pids"}
		}
		t.group(path, controllers...)
	}
	for _, r := range residents {
		t.startLoad(v2+r.cgroup, r.args...)
		if r.args[0] == "eat" {
			t.awaitMemory(v2+r.cgroup, r.args[1])
		}
	}
	ticks := t.recordTicks()
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	t.Must(err)
	_, err = z.Write(ticks)
	t.Must(err)
	t.Must(z.Close())
	t.Logf("%d bytes, %d packed", len(ticks), packed.Len())
	t.Send("recording", packed.Bytes())
}

func (t *T) awaitMemory(dir, mib string) {
	want, err := strconv.Atoi(mib)
	t.Must(err)
	if !within(func() bool {
		bytes, _ := strconv.Atoi(read(dir + "/memory.current")) // 0 until it can be read
		return bytes >= want<<20
	}) {
		t.Fatalf("%s has %s bytes, want %s MiB", dir, read(dir+"/memory.current"), mib)
	}
}

// recordTicks returns collect's lines unchanged. Its first ones, which have no rates or no load yet, are left out.
func (t *T) recordTicks() []byte {
	const first = 7
	command := exec.Command("collect", "--interval", "1s", "--count", strconv.Itoa(first+recordedTicks-1), "--classify", t.classify(recordRules))
	out, err := command.StdoutPipe()
	t.Must(err)
	t.Must(command.Start())
	var ticks []byte
	lines := bufio.NewReaderSize(out, 1<<20)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		if n >= first {
			ticks = append(ticks, line...)
		}
		if start := n - (first + busyTick - 2); start >= 0 && start < busySteps { // it shows in the next tick
			t.startLoad(v2+"/shop/web", "spin", itoa(busyThreads/busySteps))
		}
	}
	t.Must(command.Wait())
	return ticks
}
