package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/tick"
	"polder/tests/vm/wire"
)

// redisDisk is a benchmark: a real service that commits each write before it responds, beside a real job that fills the same file
// system.
var redisDisk = suite{
	name:  "redis",
	doc:   "redis with fsync on every write beside stress-ng --hdd, on a virtio disk with ext4",
	mount: mountV2,
	tests: []test{{"redis", shareRedisDisk}},
}

const (
	redisAddress = "127.0.0.1:6379"
	// redisRate is the client's number of writes a second.
	redisRate = 30
	// diskWarm is how long a policy runs before it is measured. The guard takes a step each 5 s, so it needs guardWarm.
	diskWarm  = 15 * time.Second
	guardWarm = 40 * time.Second
	diskSpan  = 20 * time.Second
)

// diskWay is one way to protect the service's disk from the job: a policy with its flags, and the key that isolate has to write for it.
type diskWay struct {
	name, flags, key string
	warm             time.Duration
	orderedOnly      bool // measured only with data=ordered, to save time
}

const costOfDisk = "--disk-cost vda=wpct:90,wlat:20000,min:1,max:100"

var diskWays = []diskWay{
	{"Polder, policy harvest", "--policy harvest", "ioWeight", diskWarm, false},
	{"Polder, policy harvest with `--guard-disk on`: weight 1, and limits in steps while redis waits", "--policy harvest --guard-disk on", "ioMax", guardWarm, false},
	{"Polder, `--batch-disk-max all=write:1Mi`", "--policy katalyst --batch-disk-max all=write:1Mi", "ioMax", diskWarm, false},
	{"Polder, `--batch-disk idle " + costOfDisk + "`", "--policy katalyst --batch-disk idle " + costOfDisk, "ioCost", diskWarm, true},
	{"Polder, policy harvest with the same `--disk-cost`", "--policy harvest " + costOfDisk, "ioCost", diskWarm, true},
}

// shareRedisDisk measures the service alone, beside the job, and beside it in each way.
func shareRedisDisk(t *T) {
	t.loadModules(diskModules)
	if !within(func() bool { _, err := os.Stat("/dev/vda"); return err == nil }) {
		t.Fatalf("there is no /dev/vda")
	}
	for _, dir := range []string{"/data", "/data/redis", "/data/job"} {
		t.Must(os.MkdirAll(dir, 0o755))
		if dir == "/data" {
			t.Must(unix.Mount("/dev/vda", dir, "ext4", 0, "data="+parameter(wire.DataParameter)))
		}
	}
	t.Must(exec.Command("/bin/busybox", "ip", "link", "set", "lo", "up").Run())
	t.group("/disk", "cpuset", "cpu", "memory", "pids", "io")
	web := t.group("/disk/web")
	t.group("/disk/grid", "cpuset", "cpu", "memory", "pids", "io")
	job := t.group("/disk/grid/job")
	rules := t.classify("  - {cgroup: /disk/web, class: shared}\n  - {cgroup: /disk/grid/*, class: reclaimed}\n")
	t.startProgram(web, "redis-server --port 6379 --bind 127.0.0.1 --dir /data/redis --save '' --appendonly yes --appendfsync always "+
		"--auto-aof-rewrite-percentage 0") // it would replace its file beside the same methods in each run
	if !within(func() bool { r, err := ask(time.Second, 0); return err == nil && r.Errors == 0 && r.Requests > 0 }) {
		t.Fatalf("redis does not answer")
	}
	var rows []wire.DiskRow
	add := func(way string, warm time.Duration) {
		rows = append(rows, t.measureDisk(way, job, warm))
	}
	add("alone", time.Second)
	t.startProgram(job, "stress-ng --quiet --temp-path /data/job --hdd 4 --hdd-bytes 64m")
	add("unmanaged", diskWarm)
	for _, way := range diskWays {
		if way.orderedOnly && parameter(wire.DataParameter) != "ordered" {
			continue
		}
		p := t.startPipe("collect --interval 1s --classify "+rules, "advise "+way.flags, "isolate --journal /run/journal-redis")
		add(way.name, way.warm)
		if !p.wrote(way.key) {
			t.Errorf("%s: isolate has not written %s; the tools logged: %s", way.name, way.key, p.logs())
		}
		t.stop(p)
		t.tool(0, "", "isolate --restore --journal /run/journal-redis")
		if limits, costs := read(job+"/io.max"), read(v2+"/io.cost.qos"); limits != "" || strings.Contains(costs, "enable=1") {
			t.Errorf("%s: restored, io.max is %q, io.cost.qos %q", way.name, limits, costs)
		}
	}
	data, err := json.Marshal(rows)
	t.Must(err)
	t.Send(wire.DiskFile, data)
}

// startProgram starts a shell command in a cgroup. It ends with the cgroup.
func (t *T) startProgram(cgroup, command string) {
	cmd := exec.Command("/bin/sh", "-c", "echo $$ >"+cgroup+"/cgroup.procs && exec "+command)
	cmd.Stderr = os.Stderr
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/tmp"}
	t.Must(cmd.Start())
	go func() { _ = cmd.Wait() }() // by a signal
}

// wrote reports whether isolate wrote a key in any of the ticks.
func (p *pipe) wrote(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.ticks, func(x *tick.Tick) bool {
		return x.Isolation != nil && slices.ContainsFunc(x.Isolation.Writes, func(w tick.Write) bool { return w.Key == key })
	})
}

// ask runs the client for a while, the beginning of which does not count.
func ask(span, skip time.Duration) (r wire.DiskRow, err error) {
	out, err := exec.Command("/bin/load", "-protocol", "set", "-address", redisAddress, "-rate", strconv.Itoa(redisRate),
		"-for", (span + skip).String(), "-skip", skip.String()).Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	return r, err
}

// measureDisk is the latency of the service's client, and the job's writes meanwhile.
func (t *T) measureDisk(way, job string, warm time.Duration) wire.DiskRow {
	if _, err := ask(warm, 0); err != nil {
		t.Fatalf("the client: %v", err)
	}
	before, begun := written(job), uptime()
	r, err := ask(diskSpan, 0)
	if err != nil {
		t.Fatalf("the client: %v", err)
	}
	r.Way, r.JobBytesPerSecond = way, (written(job)-before)/(uptime()-begun).Seconds()
	r.InForce = strings.TrimSpace(strings.Join([]string{read(job + "/io.max"), read(v2 + "/disk/grid/io.weight"), read(v2 + "/io.cost.qos")}, "; "))
	t.Logf("%s: %d requests, %d errors, p50 %.1f ms, p99 %.1f ms, most %.1f ms; the job writes %.2f MiB/s; in force: %s",
		way, r.Requests, r.Errors, r.P50, r.P99, r.Most, r.JobBytesPerSecond/(1<<20), r.InForce)
	return r
}

// written is the number of bytes that a cgroup has written to disks.
func written(dir string) (bytes float64) {
	for word := range strings.FieldsSeq(read(dir + "/io.stat")) {
		var n float64
		if _, err := fmt.Sscanf(word, "wbytes=%f", &n); err == nil {
			bytes += n
		}
	}
	return bytes
}
