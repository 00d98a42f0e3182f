package colocation

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/tests/await"
	"polder/tests/group"
	"polder/tests/need"
	"polder/tests/vm"
	"polder/tests/vm/qemu"
	"polder/tests/vm/wire"
)

// BenchmarkDisks measures redis with fsync on every write beside a job that fills the same disk, on this machine: cgroup v1
// limits a job only as far as it writes past the page cache itself. The results are a section of docs/colocation.md.
func BenchmarkDisks(b *testing.B) { disksBenchmark(b, disksTitle, nativeDisk) }

// BenchmarkDisksGuest is the same in a guest with cgroup v2, where Polder has its whole loop.
func BenchmarkDisksGuest(b *testing.B) { disksBenchmark(b, disksV2Title, guestDisk) }

func disksBenchmark(b *testing.B, title string, measure func(*testing.B, string) string) {
	b.Helper()
	if os.Getenv("QUICK") != "" {
		fmt.Printf("%s: not in the quick run\n", title)
		return
	}
	need.Root(b)
	need.Program(b, "redis-server", "redis-server")
	need.Program(b, "stress-ng", "stress-ng")
	writeSection(b, title, measure(b, build(b)))
}

// directJob is a job that writes past the page cache: cgroup v1, too, attributes these writes to it.
var directJob = stressor("hdd", "writes past the page cache", "--hdd-bytes 64m --hdd-opts direct", false)

// diskLimit is batch's limit of writes a second on this machine.
const diskLimit = "--batch-disk-max all=write:4Mi"

// addBlkioCgroup adds the hierarchy of disks to a cgroup.
func addBlkioCgroup(b *testing.B, g *group.Group) {
	b.Helper()
	dir := "/sys/fs/cgroup/blkio" + g.Name
	if err := os.Mkdir(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	g.Dirs = append(g.Dirs, dir)
}

// nativeDisk measures on this machine.
func nativeDisk(b *testing.B, client string) string {
	b.Helper()
	need.CgroupsV1(b, "blkio")
	s := services[2]
	hdd := &jobs[slices.IndexFunc(jobs, func(j job) bool { return strings.HasPrefix(j.name, "stress-ng --hdd") })]
	m := startService(b, client, &s)
	addBlkioCgroup(b, m.batch)
	methods := []method{methods[0], {"Polder, `--policy harvest --guard-disk on`", polder("harvest --guard-disk on")}, {"Polder, `--policy harvest " + diskLimit + "`", untilLimitIsSet(polder("harvest " + diskLimit))}}
	list, table, rates, written := []cell{{&s, 20, hdd}, {&s, 20, &directJob}}, newTable(), rates{}, map[string]float64{}
	const rounds = 2
	for range rounds {
		for _, c := range list {
			withWrites := make([]method, len(methods))
			for i, w := range methods {
				withWrites[i] = method{w.name, measureWrites(w, func(bytes float64) { written[c.job.name+w.name] += bytes / rounds })}
			}
			m.cells(b, []cell{c}, withWrites, table, rates)
		}
	}
	var rows strings.Builder
	for _, r := range table.rows {
		p99, lowest, highest := r.stats(func(x result) float64 { return x.P99 })
		p50, _, _ := r.stats(func(x result) float64 { return x.P50 })
		errors, _, _ := r.stats(func(x result) float64 { return float64(x.Errors) })
		name, writes := "", ""
		if r.cell.job != nil {
			name, writes = r.cell.job.name, fmt.Sprintf("%.1f", written[r.cell.job.name+r.method]/(1<<20))
		}
		fmt.Fprintf(&rows, "| %s | %s | %.2f | %.2f (%.2f-%.2f) | %.0f | %s |\n", name, r.method, p50, p99, lowest, highest, errors, writes)
	}
	return fmt.Sprintf(`
On this machine (%s), with the limits of cgroup v1. They limit only what a job itself writes past the page cache (`+"`O_DIRECT`"+`); the kernel's own
threads write what goes through the page cache, and cgroup v1 attributes that to no job ([disk.md](disk.md)). %.0f writes a second, medians of
%d rounds, with minimum and maximum in brackets.

| batch job | method | p50 ms | p99 ms | errors | the job itself writes MiB/s |
|---|---|---|---|---|---|
%s`, kernel(), table.rows[0].rate, rounds, rows.String())
}

// untilLimitIsSet is a way that has started when the kernel has batch's limit: a pod's writes are known with the second reading, after 5 s.
func untilLimitIsSet(start func(*testing.B, *measurement) func()) func(*testing.B, *measurement) func() {
	return func(b *testing.B, m *measurement) func() {
		b.Helper()
		end := start(b, m)
		await.Until(b, time.Minute, "batch's limit", func() string {
			if m.batch.Read("blkio.throttle.write_bps_device") == "" {
				return "not set"
			}
			return ""
		})
		return end
	}
}

// measureWrites is a way that measures the batch job's writes a second while it is in force.
func measureWrites(w method, report func(bytesPerSecond float64)) func(*testing.B, *measurement) func() {
	return func(b *testing.B, m *measurement) func() {
		b.Helper()
		end, start, before := w.start(b, m), time.Now(), blkioWritten(b, m.batch)
		return func() {
			b.Helper()
			report((blkioWritten(b, m.batch) - before) / time.Since(start).Seconds())
			end()
		}
	}
}

// blkioWritten is the number of bytes that a cgroup of version 1 has written to disks itself.
func blkioWritten(b *testing.B, g *group.Group) (bytes float64) {
	b.Helper()
	for line := range strings.Lines(g.Read("blkio.throttle.io_service_bytes")) {
		var device string
		var n float64
		if _, err := fmt.Sscanf(line, "%s Write %f", &device, &n); err == nil {
			bytes += n
		}
	}
	return bytes
}

// guestDisk measures in a guest.
func guestDisk(b *testing.B, client string) string {
	b.Helper()
	if err := qemu.Missing(); err != nil {
		b.Fatal(err)
	}
	ctx, dir := context.Background(), b.TempDir()
	lab, err := vm.Open(ctx, dir)
	if err == nil {
		err = lab.AddPrograms(ctx, "redis-server", "stress-ng")
	}
	if err == nil {
		err = lab.AddFile("bin/load", client)
	}
	if err != nil {
		b.Fatal(err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, `
In a guest (Debian's kernel, cgroup v2, ext4 on a virtio disk of %d MiB/s) `+"`stress-ng --hdd 4`"+` writes through the page cache to the same file
system. 30 writes a second; each row is measured for 20 s, after its method has run for 15 s (the guard: 40 s).
[disk.md](disk.md#on-a-file-system-that-batch-shares-with-services) explains why the two modes of ext4 differ.
`, guestDiskSpeed>>20)
	for _, data := range []string{"ordered", "writeback"} {
		fmt.Fprintf(&text, "\next4 with `data=%s`:\n\n| method | p50 ms | p99 ms | p99.9 ms | errors | the job writes MiB/s |\n|---|---|---|---|---|---|\n", data)
		for _, r := range guestRows(b, lab, data) {
			fmt.Fprintf(&text, "| %s | %.1f | %.1f | %.1f | %d | %.2f |\n", r.Way, r.P50, r.P99, r.P999, r.Errors, r.JobBytesPerSecond/(1<<20))
		}
	}
	return text.String()
}

const guestDiskSpeed = 8 << 20

// guestRows measures in a guest of its own, on a new file system.
func guestRows(b *testing.B, lab *vm.Lab, data string) (rows []wire.DiskRow) {
	b.Helper()
	machine := vm.Machine{
		Sockets: 1, CoresPerSocket: 4, ThreadsPerCore: 1, MemoryMiB: 1536, Parameters: wire.DataParameter + "=" + data,
		DiskBytesPerSecond: guestDiskSpeed, DiskFile: filepath.Join(b.TempDir(), "disk"),
	}
	if out, err := exec.Command("/usr/sbin/mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0", machine.DiskFile, "1024M").CombinedOutput(); err != nil {
		b.Fatalf("mke2fs: %v: %s", err, out)
	}
	runGuest(b, lab, machine, "redis", wire.DiskFile, &rows)
	return rows
}
