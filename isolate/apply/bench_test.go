package apply

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"polder/lib/tick"
)

// BenchmarkSqueeze measures the time from an advice that moves 100 reclaimed pods to fewer CPUs until the last write.
func BenchmarkSqueeze(b *testing.B) {
	names := []string{"batch"}
	for i := range 100 {
		pod := fmt.Sprintf("batch/pod%d", i)
		names = append(names, pod, pod+"/c")
	}
	r := newRealTree(b, names...)
	j := openJournal(b, filepath.Join(b.TempDir(), "journal"))
	a, w := newApplier(b, r.h, func(o *Options) { o.Journal = j })
	var last time.Time
	w.after = func() { last = time.Now() }
	advice := func(cpus string) []tick.Cgroup {
		var out []tick.Cgroup
		for _, name := range names {
			out = append(out, tick.Cgroup{Cgroup: r.path(name), CPUSetCPUs: cpus})
		}
		return out
	}
	lists := [][]tick.Cgroup{advice("0"), advice("0-1")}
	a.Apply(lists[0])
	a.Apply(lists[1])
	w.writes = 0
	var toLast time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		if out := a.Apply(lists[i%2]); len(out.Errors) > 0 {
			b.Fatal(errorsOf(out))
		}
		toLast += last.Sub(start)
	}
	b.ReportMetric(float64(toLast.Microseconds())/float64(b.N), "us-to-last-write")
	b.ReportMetric(float64(w.writes)/float64(b.N), "writes/op")
}

// BenchmarkSqueezeFloor does only the same 201 writes with open descriptors: the kernel's part.
func BenchmarkSqueezeFloor(b *testing.B) {
	names := []string{"batch"}
	for i := range 100 {
		pod := fmt.Sprintf("batch/pod%d", i)
		names = append(names, pod, pod+"/c")
	}
	r := newRealTree(b, names...)
	var files []*os.File
	for _, name := range names {
		f, err := os.OpenFile(filepath.Join(r.dir("cpuset", name), "cpuset.cpus"), os.O_WRONLY, 0)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	for i := 0; b.Loop(); i++ {
		for j := range files {
			f, text := files[len(files)-1-j], "0"
			if i%2 == 1 {
				f, text = files[j], "0-1"
			}
			if _, err := f.WriteString(text); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(len(files)), "writes/op")
}

// BenchmarkSteady measures a round without changes, for 250 containers with three values each.
func BenchmarkSteady(b *testing.B) {
	var names []string
	for i := range 250 {
		names = append(names, fmt.Sprintf("c%d", i))
	}
	r := newRealTree(b, names...)
	a, w := newApplier(b, r.h, nil)
	var desired []tick.Cgroup
	for _, name := range names {
		desired = append(desired, tick.Cgroup{Cgroup: r.path(name), CPUSetCPUs: "0-1", CPUWeight: new(int64(50)), CPUMaxMilliCPU: new(int64(500))})
	}
	a.Apply(desired)
	writes := w.writes
	b.ReportAllocs()
	for b.Loop() {
		a.Apply(append([]tick.Cgroup(nil), desired...))
	}
	if w.writes != writes {
		b.Errorf("%d writes in steady state", w.writes-writes)
	}
}
