package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkIO reads the input and output of 1,000 real cgroups through open files, as collect does every 5 s or less often. The files of a
// cgroup that has never used a disk are the shortest; BenchmarkParseIO measures the cost of lines.
func BenchmarkIO(b *testing.B) {
	const groups = 1000
	h, err := Detect("/")
	if err != nil || h.Version("io") != 1 || os.Geteuid() != 0 {
		b.Skipf("needs root and cgroup v1 with blkio: %v", err)
	}
	base := fmt.Sprintf("/polder-bench-io-%d", os.Getpid())
	var readers []*IOReader
	for i := -1; i < groups; i++ {
		path := base
		if i >= 0 {
			path = filepath.Join(base, fmt.Sprint(i))
		}
		dir, _, err := h.Dir("io", path)
		if err != nil {
			b.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Skip(err)
		}
		b.Cleanup(func() { _ = os.Remove(dir) })
		if i < 0 {
			continue
		}
		r, err := h.OpenIO(path)
		if err != nil || r == nil {
			b.Fatal(r, err)
		}
		b.Cleanup(r.Close)
		readers = append(readers, r)
	}
	buf := make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		for _, r := range readers {
			if buf, err = r.Read(buf, nil); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/groups/1000, "us/cgroup")
}

// BenchmarkParseIO parses a cgroup's file of four disks.
func BenchmarkParseIO(b *testing.B) {
	var data []byte
	for i := range 4 {
		data = fmt.Appendf(data, "8:%d rbytes=123456789 wbytes=987654321 rios=12345 wios=54321 dbytes=0 dios=0\n", 16*i)
	}
	b.ReportAllocs()
	for b.Loop() {
		var v IO
		if err := v.ParseStat(data, nil); err != nil {
			b.Fatal(err)
		}
	}
}
