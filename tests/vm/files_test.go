package vm

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// BenchmarkNewFiles runs collect/source's benchmark of the same name in a guest with cgroup v2, where pods have the files io.stat, io.pressure
// and memory.events. An emulated CPU's microseconds differ from a real one's; the ratio to the floor is comparable.
func BenchmarkNewFiles(b *testing.B) {
	dir := b.TempDir()
	l, err := Open(b.Context(), dir)
	if err != nil {
		b.Fatal(err)
	}
	program := filepath.Join(dir, "source.test")
	build := exec.CommandContext(b.Context(), "go", "test", "-c", "-o", program, "polder/collect/source")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("go test -c: %v\n%s", err, out)
	}
	if err := l.AddFile("bin/source.test", program); err != nil {
		b.Fatal(err)
	}
	r, err := l.Run(b.Context(), Small, "files")
	if err != nil {
		b.Fatalf("%v\n%v\n%s", err, r, r.Tail())
	}
	fmt.Print(r)
}
