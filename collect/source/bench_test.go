package source

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/collect/classify"
	"polder/collect/host"
	"polder/collect/kubernetes"
	"polder/lib/cgroup"
	"polder/lib/tick"
)

// benchGroups is the number of cgroups that a round is measured over.
const benchGroups = 1000

// BenchmarkRound measures the CPU time of a whole round over 1,000 real cgroups of version 1, with writing the line,
// against the floor: the files that must be read in it, with open descriptors, without parsing; and against all of their files.
// They are measured alternately in the same run. A second of collect's clock passes from one round to the next.
func BenchmarkRound(b *testing.B) { benchRound(b, nil) }

// BenchmarkRoundCluster is the same with a cluster that has all the pods and whose lists do not change.
func BenchmarkRoundCluster(b *testing.B) {
	c := &fakeCluster{}
	var pods []*kubernetes.Pod
	for i := range benchGroups {
		p := clusterPod(fmt.Sprintf("web-%d", i), fmt.Sprintf("%04d", i), tick.QoSShared)
		p.Tick.Annotations = map[string]string{"katalyst.kubewharf.io/qos_level": "shared_cores"}
		p.Tick.Requests = &tick.Resources{MilliCPU: new(500.0), MemoryBytes: new(1e9)}
		pods = append(pods, p)
	}
	c.set(pods...)
	benchRound(b, c)
}

func benchRound(b *testing.B, cluster *fakeCluster) {
	b.Helper()
	base := benchTree(b)
	env := benchEnv(b, base)
	rounds := 0
	env.Now = func() time.Time { return time.Now().Add(time.Duration(rounds) * time.Second) }
	if cluster != nil {
		env.Cluster = cluster
	}
	c := New(env)
	defer c.Close()
	out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()
	t := &tick.Tick{V: tick.Version, Node: "bench"}
	var line []byte
	round := func() {
		rounds++
		t.Time = time.Now().UTC().Truncate(time.Millisecond)
		t.Sample = c.Read(false)
		if line, err = tick.AppendMarshal(line[:0], t); err != nil {
			b.Fatal(err)
		}
		if _, err = out.Write(append(line, '\n')); err != nil {
			b.Fatal(err)
		}
	}
	c.Read(true)
	round()
	if n := len(t.Sample.Pods); n != benchGroups || t.Sample.Errors != nil {
		b.Fatalf("%d pods, want %d; errors %v", n, benchGroups, t.Sample.Errors)
	}
	files := benchFiles(b, base)
	buf := make([]byte, 8<<10)

	var whole, floor, all time.Duration
	read := func(f benchFile) {
		if _, err := f.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		at := cpuTime(b)
		round()
		middle := cpuTime(b)
		for i, f := range files {
			if (rounds+i/benchFilesEach)%f.every == 0 {
				read(f)
			}
		}
		end := cpuTime(b)
		for _, f := range files {
			read(f)
		}
		whole, floor, all = whole+middle-at, floor+end-middle, all+cpuTime(b)-end
	}
	b.ReportMetric(float64(whole.Microseconds())/float64(b.N)/benchGroups, "us/cgroup")
	b.ReportMetric(float64(floor.Microseconds())/float64(b.N)/benchGroups, "floor-us/cgroup")
	b.ReportMetric(float64(all.Microseconds())/float64(b.N)/benchGroups, "all-files-us/cgroup")
	b.ReportMetric(float64(whole)/float64(floor), "ratio")
	b.ReportMetric(float64(len(line)), "line-bytes")
}

// cpuTime is the process's CPU time, with the garbage collector's threads.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// benchTree creates the cgroups, as kubelet's pods of one container, and returns their parent.
func benchTree(b *testing.B) string {
	b.Helper()
	if os.Getuid() != 0 {
		b.Skip("not root")
	}
	base := fmt.Sprintf("/polder-bench-%d/kubepods", os.Getpid())
	h, err := cgroup.Detect("/")
	if err != nil || h.Mode() == cgroup.ModeV2 {
		b.Skipf("no cgroup v1: %v", err)
	}
	for _, controller := range []string{"cpu", "cpuacct", "cpuset", "memory", "pids"} {
		dir, _, err := h.Dir(controller, base)
		if err != nil {
			b.Skip(err)
		}
		paths := []string{filepath.Dir(dir), dir}
		for i := range benchGroups {
			paths = append(paths, filepath.Join(dir, fmt.Sprintf("pod%04d", i)))
		}
		for _, at := range paths {
			if err := os.Mkdir(at, 0o755); err != nil && !os.IsExist(err) {
				b.Skip(err)
			}
			b.Cleanup(func() { _ = os.Remove(at) })
		}
	}
	return base
}

func benchEnv(b *testing.B, base string) *Env {
	b.Helper()
	rules, err := classify.Parse("bench.yaml", []byte("rules: [{cgroup: "+base+"/*, class: shared}]"))
	if err != nil {
		b.Fatal(err)
	}
	h, err := host.New("/")
	if err != nil {
		b.Fatal(err)
	}
	return &Env{Host: h, Rules: rules, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: time.Now}
}

// benchFile is a file of a cgroup, read every so many seconds where nothing happens in the cgroup and it has no threads.
type benchFile struct {
	*cgroup.File
	every int
}

// benchFilesEach is how many of them a cgroup has.
const benchFilesEach = 6

// benchFiles holds open what the Collector holds open.
func benchFiles(b *testing.B, base string) []benchFile {
	b.Helper()
	h, err := cgroup.Detect("/")
	if err != nil {
		b.Fatal(err)
	}
	var files []benchFile
	b.Cleanup(func() {
		for _, f := range files {
			f.Close()
		}
	})
	for i := range benchGroups {
		for _, f := range []struct {
			controller, name string
			every            int
		}{
			{"cpuacct", "cpuacct.usage", 1},
			{"cpu", "cpu.stat", 2},
			{"memory", "memory.usage_in_bytes", 1},
			{"memory", "memory.stat", 5},
			{"cpuset", "cpuset.effective_cpus", 2},
			{"pids", "pids.current", 1},
		} {
			file, err := h.Open(f.controller, fmt.Sprintf("%s/pod%04d", base, i), f.name)
			if err != nil {
				b.Fatal(err)
			}
			files = append(files, benchFile{file, f.every})
		}
	}
	return files
}
