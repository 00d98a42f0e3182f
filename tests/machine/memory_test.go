package machine

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"polder/tests/await"
	"polder/tests/binaries"
	"polder/tests/group"
	"polder/tests/need"
)

const mebibyte = 1 << 20

// bytesIn reads a number of bytes from a file of a cgroup, by its name on version 1 or on version 2.
func bytesIn(t *testing.T, g *group.Group, v1, v2 string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(g.Read(v1, v2), 10, 64)
	if err != nil {
		t.Fatalf("%s of %s: %v", v1, g.Name, err)
	}
	return n
}

func usage(t *testing.T, g *group.Group) int64 {
	t.Helper()
	return bytesIn(t, g, "memory.usage_in_bytes", "memory.current")
}

// patient is a limit for what takes some seconds on an idle machine.
const patient = 5 * time.Minute

// isLimited reports whether a cgroup's own limit has ever kept it from growing.
func isLimited(g *group.Group) bool {
	if hits := g.Read("memory.failcnt"); hits != "" {
		return hits != "0"
	}
	for line := range strings.Lines(g.Read("memory.events.local")) { // memory.events counts those of the cgroups below as well
		if name, count, _ := strings.Cut(strings.TrimSpace(line), " "); (name == "high" || name == "max") && count != "0" {
			return true
		}
	}
	return false
}

// smallMachine is a cgroup of 512 MiB that acts as a machine, with a service in it that holds 200 MiB of page cache, and batch.
func smallMachine(t *testing.T) (machine, service, batch, job *group.Group) {
	t.Helper()
	machine = group.New(t, nil, "memory")
	limit := "memory.max"
	if machine.Read("memory.limit_in_bytes") != "" {
		limit = "memory.limit_in_bytes"
	}
	machine.Write(t, limit, strconv.Itoa(512*mebibyte))
	service, batch = group.New(t, machine, "web"), group.New(t, machine, "batch")
	job = group.New(t, batch, "job")
	file := filepath.Join(t.TempDir(), "data")
	done := file + ".done"
	// It uses its page cache all the time, or a machine that reclaims cold memory would take it before the test does.
	service.Run(t, fmt.Sprintf("dd if=/dev/zero of=%[1]s bs=1M count=200 conv=fsync status=none; cat %[1]s %[1]s >/dev/null; : >%[2]s; while sleep 0.2; do cat %[1]s >/dev/null; done", file, done))
	await.Until(t, patient, "the service has its page cache", await.Is(func() bool { return exec.Command("test", "-e", done).Run() == nil }))
	await.Until(t, patient, "the service holds its page cache", func() string {
		if held := usage(t, service); held < 195*mebibyte {
			return fmt.Sprintf("it has %d MiB, want 200: is the directory for temporary files on a disk?", held/mebibyte)
		}
		return ""
	})
	return machine, service, batch, job
}

// limitBatch runs the real tools on a sample of the small machine, and applies the advice.
func limitBatch(t *testing.T, service, batch, job *group.Group, arguments ...string) (restore func()) {
	t.Helper()
	version := 2
	if batch.Read("memory.limit_in_bytes") != "" {
		version = 1
	}
	held := usage(t, service)
	line := fmt.Sprintf(`{"v":1,"node":"n","time":"2026-01-01T00:00:00Z","sample":{"intervalSeconds":1,"cgroupVersion":%d,"topology":{"cpus":"0-1"},"cpu":{"usageMilliCPU":100},`+
		`"memory":{"totalBytes":%d,"availableBytes":%d,"freeBytes":%d},"batchCgroups":[%q],"pods":[`+
		`{"uid":"w","name":"web","qos":"shared","qosSource":"rule","cgroup":%q,"usageMilliCPU":50,"memory":{"usageBytes":%[7]d,"workingSetBytes":%[7]d,"rssBytes":%[7]d}},`+
		`{"uid":"j","name":"job","qos":"reclaimed","qosSource":"rule","cgroup":%[8]q,"usageMilliCPU":0,"memory":{"usageBytes":0,"workingSetBytes":0,"rssBytes":0}}]}}`+"\n",
		version, 512*mebibyte, 512*mebibyte-held, 512*mebibyte-held, batch.Name, service.Name, held, job.Name)
	journal := filepath.Join(t.TempDir(), "journal")
	tool := func(name, in string, arguments ...string) string {
		t.Helper()
		cmd := exec.Command(binaries.Path(t, name), arguments...)
		var out, errs bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, &errs)
		}
		return out.String()
	}
	advised := tool("advise", line, append([]string{"--policy", "harvest"}, arguments...)...)
	t.Logf("applied: %s", tool("isolate", advised, "--max-age", "0", "--node", "n", "--journal", journal))
	return func() { t.Helper(); tool("isolate", "", "--restore", "--journal", journal) }
}

// TestBatchThatGrowsLeavesServicesTheirMemory runs a batch job that grows beside a service on the machine's own kernel: without a limit the
// kernel reclaims the service's memory for it, with the limit the job stops there.
func TestBatchThatGrowsLeavesServicesTheirMemory(t *testing.T) {
	need.Program(t, "python3", "python3")
	const grow = `exec python3 -c '
import time
memory = bytearray(450 << 20)
for i in range(0, len(memory), 4096):
    memory[i] = 1
time.sleep(300)'`

	t.Run("without a limit", func(t *testing.T) {
		machine, service, batch, job := smallMachine(t)
		limitBatch(t, service, batch, job, "--batch-memory", "none", "--service-memory", "none")
		job.Run(t, grow)
		await.Until(t, patient, "batch has grown", await.Is(func() bool { return usage(t, batch) > 430*mebibyte }))
		held := usage(t, service)
		t.Logf("the service has %d MiB of 200 left", held/mebibyte)
		if held > 100*mebibyte {
			t.Errorf("the service has %d MiB left: nothing was reclaimed, and the other half of the test shows nothing", held/mebibyte)
		}
		if !isLimited(machine) {
			t.Error("the small machine's limit was not reached: the other half of the test shows nothing")
		}
	})
	t.Run("with the limit", func(t *testing.T) {
		machine, service, batch, job := smallMachine(t)
		limit := func() string { return batch.Read("memory.limit_in_bytes", "memory.max") }
		first := limit()
		restore := limitBatch(t, service, batch, job, "--service-memory", "none")
		if limit() == first {
			t.Fatalf("batch has no limit: %s", limit())
		}
		before := usage(t, service)
		job.Run(t, grow)
		await.Until(t, patient, "batch is kept from growing", await.Is(func() bool { return isLimited(batch) }))
		held := usage(t, service)
		t.Logf("limit %s; the service has %d MiB of %d left, batch %d", limit(), held/mebibyte, before/mebibyte, usage(t, batch)/mebibyte)
		// The kernel takes memory from a cgroup for the sake of another one only where a limit above both is reached. The service's usage
		// does not prove it: a machine may reclaim what nobody uses for a second at any time (DAMON), whatever the limits are.
		if isLimited(machine) {
			t.Error("the small machine's limit was reached beside a limited batch: the service was reclaimed for it")
		}
		restore()
		if limit() != first {
			t.Errorf("after isolate --restore batch's limit is %s; want %s", limit(), first)
		}
	})
}
