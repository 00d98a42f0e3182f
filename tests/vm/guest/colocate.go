package main

import (
	"fmt"
	"strings"
	"time"

	"polder/lib/tick"
)

// share is the CPU of a service and of a batch job over a span of the guest's clock, in CPUs, and the part of the span in which a thread
// of the service waited for a CPU (cpu.pressure).
type share struct{ service, batch, waited float64 }

func (s share) String() string {
	return fmt.Sprintf("service %.2f CPUs, batch %.2f CPUs, the service waited %.1f %% of the time", s.service, s.batch, 100*s.waited)
}

// shares measures for two seconds.
func shares(service, batch string) share {
	at, web, job, waited := uptime(), usageMicros(service), usageMicros(batch), waitedMicros(service)
	time.Sleep(2 * time.Second)
	span := float64((uptime() - at).Microseconds())
	part := func(now, then int64) float64 { return float64(now-then) / span }
	return share{part(usageMicros(service), web), part(usageMicros(batch), job), part(waitedMicros(service), waited)}
}

// waitedMicros is for how long at least one thread of a cgroup has waited for a CPU, in microseconds.
func waitedMicros(dir string) (total int64) {
	some, _, _ := strings.Cut(read(dir+"/cpu.pressure"), "\n")
	_, text, _ := strings.Cut(some, "total=")
	_, _ = fmt.Sscan(text, &total) // an unreadable one is 0, and the test shows it: the service's wait is too short
	return total
}

// colocate runs a service that is busy half of the time on all CPUs beside a batch job that is always busy, in a cgroup below one of its
// own. With a line of shell and with each policy the service waits less than beside the unmanaged job or, if its pool has fewer CPUs than
// it has threads, gets more CPU; and batch runs.
// Emulated CPUs have no meaningful latency.
func colocate(t *T) {
	t.group("/colo", "cpuset", "cpu", "memory", "pids")
	web := t.group("/colo/web")
	grid := t.group("/colo/grid", "cpuset", "cpu", "memory", "pids")
	job := t.group("/colo/grid/job")
	rules := t.classify("  - {cgroup: /colo/web, class: shared}\n  - {cgroup: /colo/grid/*, class: reclaimed}\n")
	t.startLoad(web, "spin", "-duty", "50", "8")
	t.startLoad(job, "spin", "16")
	if !within(func() bool { return usageMicros(web) > 500_000 && usageMicros(job) > 500_000 }) {
		t.Fatalf("the service used %d us, batch %d us", usageMicros(web), usageMicros(job))
	}
	// Of three: while the host runs few of the guest's CPUs, the service hardly waits for another of the guest's threads.
	unmanaged := shares(web, job)
	for range 2 {
		if again := shares(web, job); again.waited > unmanaged.waited {
			unmanaged = again
		}
	}
	t.Logf("unmanaged: %s", unmanaged)
	better := func(way string) {
		var now share
		if !within(func() bool {
			now = shares(web, job)
			return (now.waited < unmanaged.waited*0.8 || now.service > unmanaged.service*1.1) && now.batch >= 0.5
		}) {
			t.Errorf("%s: %s; want the service to wait clearly less than unmanaged, or to get clearly more CPU, and batch to run", way, now)
		}
		t.Logf("%s: %s", way, now)
	}
	t.Must(write(grid+"/cpu.idle", "1"))
	better("cpu.idle by hand")
	t.Must(write(grid+"/cpu.idle", "0"))
	for _, policy := range []string{"katalyst", "koordinator", "harvest"} {
		journal := "/run/journal-" + policy
		p := t.startPipe("collect --interval 1s --classify "+rules, "advise --policy "+policy, "isolate "+anyAge+" --journal "+journal)
		t.await(p, "batch's class on the cgroup above the job", func(*tick.Tick) bool { return has(grid, "cpu.idle", "1") })
		better("Polder, policy " + policy)
		t.stop(p)
		t.tool(0, "", "isolate --restore --journal "+journal)
		for _, dir := range []string{grid, job} { // a list that was empty cannot be while there are processes: all CPUs are the same
			t.expect(dir, "cpu.idle", "0", "cpu.weight", "100", "cpu.max", "max 100000", "cpuset.cpus.effective", "0-7")
		}
	}
}
