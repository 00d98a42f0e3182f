package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/tick"
)

// sharedDisks are the shares of services and batch of a disk.
var sharedDisks = suite{
	name:  "disks",
	doc:   "disks that are shared by costs, and a service that commits beside a job that fills the same disk",
	mount: mountV2,
	tests: []test{{"io cost", writeIOCost}, {"shared disk", shareDisk}},
}

// deviceBytes is the part of a disk that the loads write.
const deviceBytes = 256 << 20

// openDisk opens a disk for direct writes, and returns an aligned buffer for them.
func openDisk(path string, size, flags int) (fd int, buffer []byte, err error) {
	if fd, err = unix.Open(path, unix.O_WRONLY|unix.O_DIRECT|flags, 0); err != nil {
		return fd, nil, err
	}
	buffer, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	return fd, buffer, err
}

// writes fills a disk until it is killed: "writes DISK KiB THREADS".
func writes(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("writes %q: want a disk, KiB and a number of threads", args)
	}
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	threads, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	size <<= 10
	waitForStart()
	failed := make(chan error)
	for range threads {
		go func() {
			fd, buffer, err := openDisk(args[0], size, 0)
			for err == nil {
				_, err = unix.Pwrite(fd, buffer, int64(rand.IntN(deviceBytes/size)*size))
			}
			failed <- err
		}()
	}
	return <-failed
}

// commits writes 4 KiB to a disk fifty times a second, and each write's duration to a file, in microseconds: "commits DISK FILE".
func commits(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("commits %q: want a disk and a file", args)
	}
	const size = 4096
	waitForStart()
	fd, buffer, err := openDisk(args[0], size, unix.O_DSYNC)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(args[1], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	for {
		begun := time.Now()
		if _, err := unix.Pwrite(fd, buffer, int64(rand.IntN(deviceBytes/size)*size)); err != nil {
			return err
		}
		took := time.Since(begun)
		if _, err := fmt.Fprintln(log, took.Microseconds()); err != nil {
			return err
		}
		time.Sleep(max(20*time.Millisecond-took, 0))
	}
}

// times are the percentiles of a service's writes over some seconds.
type times struct {
	number   int
	p50, p99 time.Duration
}

func (x times) String() string {
	return fmt.Sprintf("%d writes, p50 %.1f ms, p99 %.1f ms", x.number, float64(x.p50.Microseconds())/1000, float64(x.p99.Microseconds())/1000)
}

// timesOf measures for some seconds, and for as long as it takes until some writes have ended.
func (t *T) timesOf(file string, span time.Duration) times {
	before, err := os.ReadFile(file)
	t.Must(err)
	time.Sleep(span)
	var list []int
	within(func() bool {
		now, err := os.ReadFile(file)
		t.Must(err)
		list = list[:0]
		for text := range strings.Lines(string(bytes.TrimPrefix(now, before))) {
			if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil { // the last line may be incomplete
				list = append(list, n)
			}
		}
		return len(list) >= 20
	})
	slices.Sort(list)
	at := func(part float64) time.Duration {
		return time.Duration(list[int(float64(len(list)-1)*part)]) * time.Microsecond
	}
	return times{len(list), at(0.5), at(0.99)}
}

// diskModules drive the machine's disk.
var diskModules = []string{"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk"}

// shareDisk runs a service that commits each write beside a batch job that fills the same disk, of 8 MiB/s: alone, unmanaged, with the
// guard's steps, and with io.cost and the smallest weight.
func shareDisk(t *T) {
	t.loadModules(diskModules)
	if !within(func() bool { _, err := os.Stat("/dev/vda"); return err == nil }) {
		t.Fatalf("there is no /dev/vda")
	}
	device := read("/sys/block/vda/dev")
	t.group("/disk", "cpuset", "cpu", "memory", "pids", "io")
	web := t.group("/disk/web")
	t.group("/disk/grid", "cpuset", "cpu", "memory", "pids", "io")
	job := t.group("/disk/grid/job")
	rules := t.classify("  - {cgroup: /disk/web, class: shared}\n  - {cgroup: /disk/grid/*, class: reclaimed}\n")
	const log = "/run/commits"
	t.startLoad(web, "commits", "/dev/vda", log)
	if !within(func() bool { return len(read(log)) > 100 }) {
		t.Fatalf("the service writes nothing: %s", read(log))
	}
	const span = 8 * time.Second
	t.Logf("alone: %s", t.timesOf(log, span))
	t.startLoad(job, "writes", "/dev/vda", "128", "8")
	if !within(func() bool { return strings.Contains(read(job+"/io.stat"), device+" ") }) {
		t.Fatalf("the job writes nothing: %s", read(job+"/io.stat"))
	}
	unmanaged := t.timesOf(log, span)
	t.Logf("unmanaged: %s", unmanaged)
	for _, way := range []struct{ name, flags string }{
		{"the guard's steps", "--policy harvest --guard on --guard-disk on --guard-target 100 --batch-disk none"},
		{"io.cost and the smallest weight", "--policy katalyst --batch-disk idle --disk-cost vda=wpct:90,wlat:20000,min:1,max:100"},
	} {
		p := t.startPipe("collect --interval 1s --classify "+rules, "advise "+way.flags, "isolate "+anyAge+" --journal /run/journal-disk")
		if strings.Contains(way.flags, "--guard") {
			t.await(p, "limits of the job's disk", func(*tick.Tick) bool { return strings.Contains(read(job+"/io.max"), device+" ") })
		} else {
			t.await(p, "costs of the disk and batch's weight", func(*tick.Tick) bool {
				return strings.Contains(read(v2+"/io.cost.qos"), device+" enable=1 ctrl=user") && read(v2+"/disk/grid/io.weight") == "default 1"
			})
		}
		var now times
		if !within(func() bool {
			now = t.timesOf(log, span)
			t.Logf("%s, so far: %s", way.name, now) // a silent guest counts as one that hangs
			return now.p99 < unmanaged.p99/2
		}) {
			t.Errorf("%s: %s; want less than half of the time unmanaged", way.name, now)
		}
		t.Logf("%s: %s; io.max of the job %q, io.cost.qos %q", way.name, now, read(job+"/io.max"), read(v2+"/io.cost.qos"))
		t.stop(p)
		t.tool(0, "", "isolate --restore --journal /run/journal-disk")
		if got := read(job + "/io.max"); got != "" {
			t.Errorf("restored, io.max is %q", got)
		}
		if got := read(v2 + "/io.cost.qos"); strings.Contains(got, "enable=1") {
			t.Errorf("restored, io.cost.qos is %q", got)
		}
	}
}
