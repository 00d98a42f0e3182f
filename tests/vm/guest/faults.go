package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// faults are tests that change the whole machine.
var faults = suite{
	name: "faults", doc: "CPUs that go and come back, and a clock that is set",
	mount: mountV2,
	tests: []test{
		{"hotplug", hotplug},
		{"hotplug to a small machine", hotplugSmall},
		{"clock", clock},
	},
}

// anyAge makes isolate and evict act on ticks of any age: on a busy host a tick takes long to arrive, and is still valid.
const anyAge = "--max-age 10m"

// node starts a service of one busy thread, batch work of two, and the whole pipe for them.
func (t *T) node(advise string) (*pipe, string) {
	t.group("/polder", "cpuset", "cpu", "memory", "pids")
	service, batch := t.group("/polder/service"), t.group("/polder/batch")
	t.startLoad(service, "spin", "1")
	t.startLoad(batch, "spin", "2")
	journal := "/run/journal-" + strings.ReplaceAll(t.name, " ", "-")
	p := t.startPipe("collect --interval 1s --rescan 5s --classify "+t.classify(guideRules), "advise "+advise,
		"isolate "+anyAge+" --journal "+journal, "evict "+anyAge, "report --to prometheus --metrics-file "+guideMetrics)
	return p, journal
}

// pools are the two pools of a tick and all CPUs that were online.
func pools(tk *tick.Tick) (share, reclaim, online string) {
	if tk.Advice == nil || tk.Sample == nil || tk.Sample.Topology == nil {
		return "", "", ""
	}
	for _, p := range tk.Advice.Pools {
		switch p.Name {
		case tick.PoolShare:
			share = p.CPUs
		case tick.PoolReclaim:
			reclaim = p.CPUs
		}
	}
	return share, reclaim, tk.Sample.Topology.CPUs
}

// settled reports whether isolate had nothing to write and no error.
func settled(tk *tick.Tick) bool {
	return tk.Isolation != nil && tk.Isolation.Applied == 0 && len(tk.Isolation.Errors) == 0 && tk.Isolation.Refused == ""
}

// divided waits until the pools divide exactly the online CPUs, and the kernel's sets agree.
func (t *T) divided(p *pipe, want string) {
	// The kernel removes a CPU from all sets asynchronously, and a later tick may move the pools: the test reads all until they agree.
	tk := t.await(p, "pools over "+want+", nothing left to write, and the kernel's sets the same", func(tk *tick.Tick) bool {
		share, reclaim, online := pools(tk)
		return online == want && share != "" && reclaim != "" && settled(tk) &&
			has(v2+"/polder", "service/cpuset.cpus.effective", share, "batch/cpuset.cpus.effective", reclaim)
	})
	share, reclaim, _ := pools(tk)
	t.Logf("online %s: share %s, reclaim %s, reclaimed %d", want, share, reclaim, reclaimed(tk))
	a, err := cpus.Parse(share)
	t.Must(err)
	b, err := cpus.Parse(reclaim)
	t.Must(err)
	if all := a.Union(b).String(); all != want || !a.Intersection(b).IsEmpty() {
		t.Errorf("share %s and reclaim %s; want them to divide %s", share, reclaim, want)
	}
}

func (t *T) setOnline(cpu int, state string) {
	t.Must(write(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu), state))
}

// hotplug takes CPUs offline under both pools, one after the other, and brings them back.
func hotplug(t *T) {
	p, journal := t.node("--pool-min-cpus 4 --reserve-cpu 1 --floor-cpu 2 --hold 2s")
	t.divided(p, "0-7")
	for _, step := range []struct {
		cpu         int
		state, left string
	}{{7, "0", "0-6"}, {6, "0", "0-5"}, {1, "0", "0,2-5"}, {7, "1", "0,2-5,7"}, {1, "1", "0-5,7"}, {6, "1", "0-7"}} {
		t.setOnline(step.cpu, step.state)
		t.divided(p, step.left)
	}
	t.stop(p)
	t.tool(0, "", "isolate --restore --if-exists --journal "+journal)
}

// hotplugSmall takes a CPU from a machine of 8 with pools, which makes it too small for them: both sides get all CPUs, and the batch
// work a quota and the idle class, where the flags ask for them; and back.
func hotplugSmall(t *T) {
	p, journal := t.node("--hold 2s --limit quota --batch-class idle --share-overlap off")
	t.divided(p, "0-7")
	t.setOnline(5, "0")
	const left = "0-4,6-7"
	tk := t.await(p, "a quota, and all CPUs for both", func(tk *tick.Tick) bool {
		share, _, online := pools(tk)
		return online == left && share == "" && settled(tk) && !strings.HasPrefix(read(v2+"/polder/batch/cpu.max"), "max") &&
			has(v2+"/polder", "service/cpuset.cpus.effective", left, "batch/cpuset.cpus.effective", left, "batch/cpu.idle", "1", "service/cpu.idle", "0")
	})
	t.Logf("7 CPUs: reclaimed %d, batch's cpu.max %s", reclaimed(tk), read(v2+"/polder/batch/cpu.max"))
	t.setOnline(5, "1")
	t.divided(p, "0-7")
	t.await(p, "no quota", func(tk *tick.Tick) bool {
		return settled(tk) && has(v2+"/polder", "batch/cpu.max", "max 100000", "batch/cpu.idle", "1")
	})
	t.stop(p)
	t.tool(0, "", "isolate --restore --if-exists --journal "+journal)
}

// clock sets the guest's clock an hour ahead and two back. Ticks continue and are acted on, whatever their time; a service
// that gets busy then gets its CPUs.
func clock(t *T) {
	p, journal := t.node("--pool-min-cpus 4 --reserve-cpu 1 --floor-cpu 2 --hold 2s")
	t.divided(p, "0-7")
	for i, by := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
		now := time.Now().Add(by)
		t.Must(unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: now.Unix(), Nsec: int64(now.Nanosecond())}))
		tk := t.await(p, "the new time, acted on", func(tk *tick.Tick) bool {
			return time.Until(tk.Time).Abs() < by.Abs()/4 &&
				tk.Isolation != nil && tk.Isolation.Refused == "" && tk.Eviction != nil && tk.Eviction.Refused == ""
		})
		t.Logf("clock set by %s: tick of %s, intervalSeconds %.2f", by, tk.Time.Format(time.RFC3339), number(tk.Sample.IntervalSeconds))
		t.between("intervalSeconds", number(tk.Sample.IntervalSeconds), 0.001, by.Abs().Seconds()/4)
		t.between("usageMilliCPU", number(pod(tk, "/polder/service").UsageMilliCPU), 0, 9000)
		if i > 0 {
			continue
		}
		extra := t.startLoad(v2+"/polder/service", "spin", "3")
		t.await(p, "6 of the 8 CPUs in the shared pool", func(tk *tick.Tick) bool {
			return reclaimed(tk) == 2000
		})
		extra.kill()
	}
	t.stop(p)
	t.tool(0, "", "isolate --restore --if-exists --journal "+journal)
	if _, err := os.Stat(guideMetrics); err != nil {
		t.Errorf("metrics: %v", err)
	}
}
