package apply

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/isolate/plan"
	"polder/lib/tick"
)

// A program that changes a value every few rounds wins the contest; one that does so rarely does not, however long it continues.
func TestContestEnds(t *testing.T) {
	for _, tt := range []struct {
		every int // rounds
		left  bool
	}{{1, true}, {10, true}, {19, true}, {30, false}, {60, false}, {99, false}, {150, false}} {
		a := &Applier{Options: Options{Contest: 5}}
		it := &item{file: &file{lastApplied: "90000", hasLastApplied: true}}
		it.Setting = plan.Setting{File: plan.File{Controller: "cpu", Cgroup: "/a", Name: "cpu.cfs_quota_us"}, Key: "cpuMaxMilliCPU"}
		left := false
		for i := range 5000 {
			it.Observed = "90000"
			if i%tt.every == 0 {
				it.Observed = "-1"
			}
			left = a.isContested(it, &round{Isolation: tick.Isolation{}}) || left
			it.file.lastApplied = "90000" // it is written again
		}
		if left != tt.left {
			t.Errorf("changed every %d rounds: left to the other writer %t; want %t", tt.every, left, tt.left)
		}
	}
}

// Kubelet's own updates do not count, however rare the ticks are and however long they continue; a program that resets a value more
// often wins the contest.
func TestKubeletResetIsNoContest(t *testing.T) {
	const contest5 = 5
	for _, tt := range []struct {
		name                   string
		tick, kubelet, foreign time.Duration // intervals
		pod                    time.Duration // interval of new pods, for which kubelet resets the value as well
		left                   bool
	}{
		{name: "kubelet alone, a tick a second", tick: time.Second, kubelet: time.Minute},
		{name: "kubelet alone, ten ticks a second", tick: 100 * time.Millisecond, kubelet: time.Minute},
		{name: "kubelet alone, ticks beside the minute", tick: 7 * time.Second, kubelet: time.Minute},
		{name: "kubelet alone, few ticks", tick: 10 * time.Second, kubelet: time.Minute},
		{name: "kubelet alone, a tick a minute", tick: time.Minute, kubelet: time.Minute},
		{name: "a new pod every three seconds", tick: time.Second, kubelet: time.Minute, pod: 3 * time.Second},
		{name: "a new pod every three seconds, few ticks", tick: 10 * time.Second, kubelet: time.Minute, pod: 3 * time.Second},
		{name: "an opponent at each tick", tick: time.Second, foreign: time.Second, left: true},
		{name: "an opponent every ten seconds", tick: time.Second, foreign: 10 * time.Second, left: true},
		{name: "an opponent every twenty seconds, few ticks", tick: 10 * time.Second, foreign: 20 * time.Second, left: true},
		{name: "an opponent beside kubelet", tick: time.Second, kubelet: time.Minute, foreign: 5 * time.Second, left: true},
		{name: "an opponent beside new pods", tick: time.Second, kubelet: time.Minute, pod: 5 * time.Second, foreign: time.Second, left: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c contest
			pods, left, isCounted := map[string]bool{}, false, false
			begin := time.Unix(1_767_225_600, 0)
			due := func(every, at time.Duration) bool { return every > 0 && (at-tt.tick)/every != at/every }
			for at := tt.tick; at < 6*time.Hour; at += tt.tick {
				if due(tt.pod, at) {
					pods = map[string]bool{at.String(): true} // the previous one is gone
				}
				switch reset := due(tt.kubelet, at) || due(tt.foreign, at) || due(tt.pod, at); {
				case !reset:
					c.RecordUnchanged()
				case !c.isKubeletUpdate(begin.Add(at), pods):
					c.RecordChange()
				}
				left = left || c.YieldReason(contest5) != ""
				isCounted = isCounted || c.YieldReason(0) != ""
			}
			if left != tt.left || isCounted != tt.left {
				t.Errorf("left to the other writer: %t, want %t; a reset counted: %t", left, tt.left, isCounted)
			}
		})
	}
}

// If the ticks' clock is set back, no update counts as external.
func TestClockSetBackIsNoContest(t *testing.T) {
	var c contest
	now := time.Unix(1_767_225_600, 0)
	for _, at := range []time.Time{now, now.Add(-time.Hour), now.Add(-time.Hour + time.Minute)} {
		if !c.isKubeletUpdate(at, nil) {
			t.Errorf("the reset at %s counts", at)
		}
	}
}

// On the machine's cgroups: a tier's quota is written again at once each time that kubelet removes it; another value, faster changes,
// and a cgroup that is not a tier remain contests.
func TestTierQuotaIsRewritten(t *testing.T) {
	const tick10 = 10 * time.Second
	for _, tt := range []struct {
		name, cgroup string
		value        string // that the other program writes, at an interval in ticks of 10 s
		every        int
		left         bool
	}{
		{"kubelet", "kubepods/besteffort", "-1", 6, false},
		{"kubelet under the systemd driver", "kubepods.slice/kubepods-besteffort.slice", "-1", 6, false},
		{"a faster one", "kubepods/besteffort", "-1", 1, true},
		{"another value", "kubepods/besteffort", "60000", 6, true},
		{"a pod's", "kubepods/podx", "-1", 6, true},
		{"no kubelet's", "batch/low", "-1", 6, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRealTree(t, filepath.Dir(tt.cgroup), tt.cgroup)
			a, _ := newApplier(t, r.h, func(o *Options) { o.Contest = 5 })
			desired := []tick.Cgroup{{Cgroup: r.path(tt.cgroup), CPUMaxMilliCPU: new(int64(500))}}
			left, at := false, time.Unix(1_767_225_600, 0)
			for round := range 20 * tt.every {
				reset := round > 0 && round%tt.every == 0
				if reset {
					r.set("cpu", tt.cgroup, "cpu.cfs_quota_us", tt.value)
				}
				a.At(at.Add(time.Duration(round) * tick10))
				out := a.Apply(desired)
				problems := errorsOf(out)
				left = left || strings.Contains(problems, "left to the other writer")
				if got := r.get("cpu", tt.cgroup, "cpu.cfs_quota_us"); !left && got != "50000" {
					t.Fatalf("round %d: the quota is %s: %s", round, got, problems)
				}
				if reset && !tt.left && !strings.Contains(problems, "reset by kubelet from 50000 to -1") {
					t.Errorf("round %d: errors %q; want kubelet's reset", round, problems)
				}
			}
			if left != tt.left {
				t.Errorf("left to the other writer: %t; want %t", left, tt.left)
			}
		})
	}
}

// TestStartedContainerExplainsReset: systemd resets a tier when a pod's slice is created, and again when its container is created
// in it. Without a new container the second reset counts.
func TestStartedContainerExplainsReset(t *testing.T) {
	const tier = "kubepods.slice/kubepods-besteffort.slice"
	const slice = tier + "/kubepods-besteffort-podu.slice"
	for _, started := range []bool{false, true} {
		r := newRealTree(t, filepath.Dir(tier), tier)
		a, _ := newApplier(t, r.h, func(o *Options) { o.Contest = 5 })
		desired := []tick.Cgroup{{Cgroup: r.path(tier), CPUMaxMilliCPU: new(int64(500))}}
		problems := ""
		for second := range 3 { // the first writes it, kubelet resets it, and two seconds later again
			a.At(time.Unix(1_767_225_600+2*int64(second), 0))
			if second > 0 {
				r.set("cpu", tier, "cpu.cfs_quota_us", "-1")
			}
			if second == 1 {
				if err := r.make(slice); err != nil {
					t.Fatal(err)
				}
			}
			if second == 2 && started {
				if err := r.make(slice + "/cri-containerd-c.scope"); err != nil {
					t.Fatal(err)
				}
			}
			problems = errorsOf(a.Apply(desired))
		}
		if got := strings.Contains(problems, "reset by kubelet"); got != started {
			t.Errorf("a container started: %t; errors %q", started, problems)
		}
	}
}

// The same applies to the CPU list: systemd empties its slices' list when the first container is created. Elsewhere that is a contest.
func TestTierListIsRewritten(t *testing.T) {
	for cgroup, contested := range map[string]bool{
		"kubepods.slice/kubepods-besteffort.slice": false, "kubepods/besteffort": true, "batch.slice/low.slice": true,
	} {
		t.Run(cgroup, func(t *testing.T) {
			r := newRealTree(t, filepath.Dir(cgroup), cgroup)
			a, _ := newApplier(t, r.h, func(o *Options) { o.Contest = 5 })
			desired := []tick.Cgroup{{Cgroup: r.path(cgroup), CPUSetCPUs: "0"}}
			left := false
			for round := range 60 {
				if round > 0 && round%4 == 0 {
					r.set("cpuset", cgroup, "cpuset.cpus", "\n")
				}
				a.At(time.Unix(1_767_225_600, 0).Add(time.Duration(round) * 10 * time.Second))
				problems := errorsOf(a.Apply(desired))
				left = left || strings.Contains(problems, "left to the other writer")
				if round == 4 && !strings.Contains(problems, " from 0 to no list") {
					t.Errorf("reported errors %q; want the list that is gone", problems)
				}
				if got := r.get("cpuset", cgroup, "cpuset.cpus"); !left && got != "0" {
					t.Fatalf("round %d: the list is %q: %s", round, got, problems)
				}
			}
			if left != contested {
				t.Errorf("left to the other writer: %t; want %t", left, contested)
			}
		})
	}
}

// Kubelet resets the values just before it creates the pod's cgroup: a reset that is seen in between stops counting afterwards.
func TestPodAppearsAfterReset(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration
		pods  map[string]bool
		want  bool // it counts
	}{
		{"at the next tick", time.Second, map[string]bool{"a": true, "b": true}, false},
		{"too late", time.Minute, map[string]bool{"a": true, "b": true}, true},
		{"none", time.Second, map[string]bool{"a": true}, true},
		{"one went", time.Second, map[string]bool{}, true},
	} {
		c, now := contest{}, time.Unix(1_767_225_600, 0)
		for range 2 {
			if !c.isKubeletUpdate(now, map[string]bool{"a": true}) {
				c.RecordChange()
			}
		}
		if c.YieldReason(0) == "" || !c.mayAwaitPod {
			t.Fatalf("%s: %+v", tt.name, c)
		}
		c.reconsider(now.Add(tt.after), tt.pods)
		if got := c.YieldReason(0) != ""; got != tt.want {
			t.Errorf("%s: the reset counts: %t; want %t", tt.name, got, tt.want)
		}
	}
}

// A new pod's cgroup shows that kubelet has reset its tiers' values, which it does before it creates the cgroup.
func TestNewPodExplainsReset(t *testing.T) {
	r := newRealTree(t, "kubepods", "kubepods/besteffort", "kubepods/burstable")
	a, _ := newApplier(t, r.h, func(o *Options) { o.Contest = 2 })
	desired := []tick.Cgroup{{Cgroup: r.path("kubepods/besteffort"), CPUMaxMilliCPU: new(int64(500))}}
	at := time.Unix(1_767_225_600, 0)
	for round, tier := range []string{"", "/burstable", "/besteffort", "", "/burstable", "/besteffort", ""} {
		a.At(at.Add(time.Duration(round) * time.Second))
		if out := a.Apply(desired); strings.Contains(errorsOf(out), "changed externally") {
			t.Errorf("round %d: %s", round, errorsOf(out))
		}
		r.set("cpu", "kubepods/besteffort", "cpu.cfs_quota_us", "-1")
		if err := r.make(fmt.Sprintf("kubepods%s/pod%d", tier, round)); err != nil {
			t.Fatal(err)
		}
	}
}
