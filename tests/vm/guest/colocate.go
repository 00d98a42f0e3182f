package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"time"

	"polder/lib/tick"
	"polder/tests/cputime"
	"polder/tests/vm/wire"
)

// shareOfCPUs is a benchmark: the test colocate's service and batch job, measured in each way in several rounds.
var shareOfCPUs = suite{
	name:  wire.SharesSuite,
	doc:   "a service's CPU and waiting beside batch, and batch's CPU",
	mount: mountV2,
	tests: []test{{"shares", measureShares}},
}

// The benchmark measures each way once in each of shareRounds rounds for shareSpan, after shareWarm: the first ticks change CPU lists.
// Ways with an option of their own are measured in the first round alone, because each second takes several of the host's.
const (
	shareRounds = 2
	shareWarm   = 2 * time.Second
	shareSpan   = 3 * time.Second
)

// shareText is a share as the test logs it.
func shareText(s wire.Share) string {
	return fmt.Sprintf("service %.2f CPUs, batch %.2f CPUs, the service waited %.1f %% of the time, machine %.0f %% busy",
		s.ServiceCPUs, s.BatchCPUs, s.WaitedPercent, s.BusyPercent)
}

// colocation is a service that is busy half of the time on all CPUs, and a batch job that is always busy, in a cgroup below one of its
// own.
type colocation struct {
	t                     *T
	web, grid, job, rules string
}

// newColocation makes the cgroups, and starts the service.
func (t *T) newColocation() colocation {
	t.group("/colo", "cpuset", "cpu", "memory", "pids")
	c := colocation{t: t, web: t.group("/colo/web"), grid: t.group("/colo/grid", "cpuset", "cpu", "memory", "pids")}
	c.job = t.group("/colo/grid/job")
	c.rules = t.classify("  - {cgroup: /colo/web, class: shared}\n  - {cgroup: /colo/grid/*, class: reclaimed}\n")
	t.startLoad(c.web, "spin", "-duty", "50", itoa(runtime.NumCPU()))
	c.awaitUse(c.web)
	return c
}

// startJob starts the batch job.
func (c colocation) startJob() {
	c.t.startLoad(c.job, "spin", itoa(2*runtime.NumCPU()))
	c.awaitUse(c.job)
}

func (c colocation) awaitUse(dir string) {
	if !within(func() bool { return usageMicros(dir) > 500_000 }) {
		c.t.Fatalf("%s used %d us", dir, usageMicros(dir))
	}
}

// shares measures for a span of the guest's clock.
func (c colocation) shares(span time.Duration) wire.Share {
	idle, at, web, job, waited := c.idleMicros(), uptime(), usageMicros(c.web), usageMicros(c.job), c.waitedMicros()
	time.Sleep(span)
	micros := float64((uptime() - at).Microseconds())
	part := func(now, then int64) float64 { return float64(now-then) / micros }
	return wire.Share{
		ServiceCPUs: part(usageMicros(c.web), web), BatchCPUs: part(usageMicros(c.job), job),
		WaitedPercent: 100 * part(c.waitedMicros(), waited),
		BusyPercent:   100 * (1 - part(c.idleMicros(), idle)/float64(runtime.NumCPU())),
	}
}

// idleMicros is for how long the CPUs have been idle, in microseconds. The kernel measures this by the clock, but counts busy time at
// its ticks, many of which an emulated CPU misses.
func (c colocation) idleMicros() int64 {
	times, err := cputime.Read()
	c.t.Must(err)
	return times.Idle.Microseconds()
}

// waitedMicros is for how long at least one thread of the service has waited for a CPU, in microseconds (cpu.pressure).
func (c colocation) waitedMicros() (total int64) {
	some, _, _ := strings.Cut(read(c.web+"/cpu.pressure"), "\n")
	_, text, _ := strings.Cut(some, "total=")
	if _, err := fmt.Sscan(text, &total); err != nil {
		c.t.Fatalf("cpu.pressure is %q: %v", some, err)
	}
	return total
}

// shareWay is one way to protect the service; the end of it reverts it.
type shareWay struct {
	name  string
	start func() (end func())
}

// ways are what is compared with the unmanaged job.
func (c colocation) ways() []shareWay {
	list := []shareWay{{"cpu.idle by hand", func() func() {
		c.t.Must(write(c.grid+"/cpu.idle", "1"))
		return func() { c.t.Must(write(c.grid+"/cpu.idle", "0")) }
	}}}
	for _, policy := range []string{"katalyst", "koordinator", "harvest"} {
		list = append(list, shareWay{"Polder, policy " + policy, func() func() { return c.polder(policy) }})
	}
	return list
}

// polder runs the pipe with a policy, and perhaps more of advise's flags, until its end, which restores the cgroups.
func (c colocation) polder(policy string) (end func()) {
	t, journal := c.t, "/run/journal-"+strings.ReplaceAll(policy, " ", "")
	p := t.startPipe("collect --interval 1s --classify "+c.rules, "advise --policy "+policy, "isolate "+anyAge+" --journal "+journal)
	t.await(p, "batch's class on the cgroup above the job", func(*tick.Tick) bool { return has(c.grid, "cpu.idle", "1") })
	return func() {
		t.stop(p)
		t.tool(0, "", "isolate --restore --journal "+journal)
		all := fmt.Sprintf("0-%d", runtime.NumCPU()-1)
		for _, dir := range []string{c.grid, c.job} { // a list that was empty cannot be while there are processes: all CPUs are the same
			t.expect(dir, "cpu.idle", "0", "cpu.weight", "100", "cpu.max", "max 100000", "cpuset.cpus.effective", all)
		}
	}
}

// colocate compares the service beside the batch job in each way. With a line of shell and with each policy the service waits clearly less
// than beside the unmanaged job, and batch runs. Emulated CPUs have no meaningful latency.
func colocate(t *T) {
	const span = 2 * time.Second
	c := t.newColocation()
	c.startJob()
	// Of three: while the host runs few of the guest's CPUs, the service hardly waits for another of the guest's threads.
	unmanaged := c.shares(span)
	for range 2 {
		if again := c.shares(span); again.WaitedPercent > unmanaged.WaitedPercent {
			unmanaged = again
		}
	}
	t.Logf("unmanaged: %s", shareText(unmanaged))
	for _, way := range c.ways() {
		end := way.start()
		var now wire.Share
		if !within(func() bool {
			now = c.shares(span)
			return now.WaitedPercent < unmanaged.WaitedPercent*0.8 && now.BatchCPUs >= 0.5
		}) {
			t.Errorf("%s: %s; want the service to wait clearly less than unmanaged, and batch to run", way.name, shareText(now))
		}
		t.Logf("%s: %s", way.name, shareText(now))
		end()
	}
}

// measureShares measures the service alone, beside the job, and beside it in each way, also under policy katalyst where it confines
// services as Katalyst does by default, and under policy harvest with a buffer of idle CPUs where it has none by default, and without one
// where it has one.
func measureShares(t *T) {
	c := t.newColocation()
	ways := c.ways()
	repeated := len(ways)
	minCPUs := 2
	if runtime.NumCPU() >= 16 {
		minCPUs = 1000
	}
	for _, flags := range []string{"katalyst --share-overlap off", fmt.Sprint("harvest --harvest-min-cpus ", minCPUs)} {
		name, option, _ := strings.Cut(flags, " ")
		ways = append(ways, shareWay{"Polder, policy " + name + ", " + option, func() func() { return c.polder(flags) }})
	}
	var rows []wire.ShareRow
	measure := func(row int, name string) {
		if row == len(rows) {
			rows = append(rows, wire.ShareRow{Way: name})
		}
		time.Sleep(shareWarm)
		share := c.shares(shareSpan)
		t.Logf("%s: %s", name, shareText(share))
		rows[row].Rounds = append(rows[row].Rounds, share)
	}
	for range shareRounds {
		measure(0, "alone")
	}
	c.startJob()
	for round := range shareRounds {
		measure(1, "unmanaged")
		if round > 0 {
			ways = ways[:repeated]
		}
		for i, way := range ways {
			end := way.start()
			measure(2+i, way.name)
			end()
		}
	}
	data, err := json.Marshal(rows)
	t.Must(err)
	t.Send(wire.SharesFile, data)
}
