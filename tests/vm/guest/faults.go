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

// faults is what only a machine of one's own can be put through.
var faults = suite{
	name: "faults", doc: "CPUs that go and come back, and a clock that is set",
	mount: mountV2,
	tests: []test{
		{"hotplug", hotplug},
		{"hotplug to a small machine", hotplugSmall},
		{"clock", clock},
	},
}

// node starts a service of one busy thread, batch work of two, and the whole pipe over them.
func (t *T) node(advise string) (*pipe, string) {
	t.group("/polder", "cpuset", "cpu", "memory", "pids")
	service, batch := t.group("/polder/service"), t.group("/polder/batch")
	t.startLoad(service, "spin", "1")
	t.startLoad(batch, "spin", "2")
	journal := "/run/journal-" + strings.ReplaceAll(t.name, " ", "-")
	p := t.startPipe("collect --interval 1s --rescan 5s --classify "+t.classify(guideRules), "advise "+advise,
		"isolate --journal "+journal, "evict", "report --to prometheus --metrics-file "+guideMetrics)
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

// divided waits until the pools are made of just the online CPUs, and then compares the kernel with them.
func (t *T) divided(p *pipe, want string) {
	tk := t.await(p, time.Minute, "pools over "+want+" and nothing left to write", func(tk *tick.Tick) bool {
		share, reclaim, online := pools(tk)
		return online == want && share != "" && reclaim != "" && tk.Isolation != nil && tk.Isolation.Applied == 0 && len(tk.Isolation.Errors) == 0
	})
	share, reclaim, _ := pools(tk)
	t.Logf("online %s: share %s, reclaim %s, reclaimed %d", want, share, reclaim, reclaimed(tk))
	t.expect(v2+"/polder", "service/cpuset.cpus.effective", share, "batch/cpuset.cpus.effective", reclaim)
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
	t.tool(0, "", "isolate --restore --journal "+journal)
}

// hotplugSmall takes a CPU from a machine of 8, which makes it too small for pools: both sides get all CPUs, and the batch
// work a quota; and back.
func hotplugSmall(t *T) {
	p, journal := t.node("--hold 2s")
	t.divided(p, "0-7")
	t.setOnline(5, "0")
	tk := t.await(p, time.Minute, "a quota", func(tk *tick.Tick) bool {
		share, _, online := pools(tk)
		return online == "0-4,6-7" && share == "" && tk.Isolation != nil && tk.Isolation.Applied == 0 && len(tk.Isolation.Errors) == 0
	})
	quota := read(v2 + "/polder/batch/cpu.max")
	t.Logf("7 CPUs: reclaimed %d, batch's cpu.max %s", reclaimed(tk), quota)
	if strings.HasPrefix(quota, "max") {
		t.Errorf("cpu.max is %s; want a quota", quota)
	}
	t.expect(v2+"/polder", "service/cpuset.cpus.effective", "0-4,6-7", "batch/cpuset.cpus.effective", "0-4,6-7")
	t.setOnline(5, "1")
	t.divided(p, "0-7")
	t.expect(v2+"/polder", "batch/cpu.max", "max 100000")
	t.stop(p)
	t.tool(0, "", "isolate --restore --journal "+journal)
}

// clock sets the guest's clock an hour ahead and two back. Ticks go on and are acted on, whatever their time; a service
// that gets busy then gets its CPUs.
func clock(t *T) {
	p, journal := t.node("--pool-min-cpus 4 --reserve-cpu 1 --floor-cpu 2 --hold 2s")
	t.divided(p, "0-7")
	for i, by := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
		now := time.Now().Add(by)
		t.Must(unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: now.Unix(), Nsec: int64(now.Nanosecond())}))
		tk := t.await(p, settle, "the new time, acted on", func(tk *tick.Tick) bool {
			return tk.Time.Sub(now).Abs() < 30*time.Second && tk.Isolation != nil && tk.Isolation.Refused == "" && tk.Eviction != nil && tk.Eviction.Refused == ""
		})
		t.Logf("clock set by %s: tick of %s, intervalSeconds %.2f", by, tk.Time.Format(time.RFC3339), number(tk.Sample.IntervalSeconds))
		t.between("intervalSeconds", number(tk.Sample.IntervalSeconds), 0.1, 30)
		t.between("usageMilliCPU", number(pod(tk, "/polder/service").UsageMilliCPU), 0, 9000)
		if i > 0 {
			continue
		}
		extra := t.startLoad(v2+"/polder/service", "spin", "3")
		t.await(p, time.Minute, "6 of the 8 CPUs in the shared pool", func(tk *tick.Tick) bool {
			return reclaimed(tk) == 2000
		})
		extra.kill()
	}
	t.stop(p)
	t.tool(0, "", "isolate --restore --journal "+journal)
	if _, err := os.Stat(guideMetrics); err != nil {
		t.Errorf("metrics: %v", err)
	}
}
