package limits

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

const gib = 1 << 30

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// all enables everything.
var all = Settings{Own: true, Batch: Cap, Services: ProtectIfPossible}

// run is a node whose ticks are a second apart.
type run struct {
	t             *testing.T
	st            *State
	second        int
	sample        tick.Sample
	offer         *int64
	settings      Settings
	policyCgroups []tick.Cgroup
	advice        *tick.Advice
}

// newRun returns a host of 64 GiB with batch in /batch/job and a service in /web.slice/web.
func newRun(t *testing.T) *run {
	return &run{t: t, offer: new(int64(20 * gib)), settings: all, sample: tick.Sample{
		CgroupVersion: 2,
		Memory:        &tick.NodeMemory{TotalBytes: new(64.0 * gib), AvailableBytes: new(40.0 * gib)},
		BatchCgroups:  []string{"/batch"},
		Pods: []tick.Pod{
			{UID: "j", Name: "job", QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: "/batch/job", Memory: memoryUse(4 * gib)},
			{UID: "w", Name: "web", QoS: tick.QoSShared, QoSSource: tick.QoSFromRule, Cgroup: "/web.slice/web", Memory: memoryUse(10 * gib)},
		},
	}}
}

// memoryUse returns memory that is all in use.
func memoryUse(bytes float64) *tick.Memory {
	return &tick.Memory{UsageBytes: &bytes, WorkingSetBytes: new(bytes), RSSBytes: new(bytes)}
}

func (r *run) job() *tick.Pod { return &r.sample.Pods[0] }

// tickAfter runs a tick some seconds after the last.
func (r *run) tickAfter(seconds int) *run {
	r.t.Helper()
	r.second += seconds
	r.advice = &tick.Advice{Cgroups: r.policyCgroups}
	if r.offer != nil {
		r.advice.Reclaimed = &tick.Reclaimed{MemoryBytes: r.offer}
	}
	x := &tick.Tick{Node: "n", Time: begin.Add(time.Duration(r.second) * time.Second), Sample: &r.sample}
	r.st = r.st.Advise(x, r.advice, r.settings)
	return r
}

// entryText formats what is advised of a cgroup, and checks that the fallback is the same.
func (r *run) entryText(cgroup string) string {
	r.t.Helper()
	text := func(list []tick.Cgroup) string {
		var out []string
		for i := range list {
			c := &list[i]
			if c.Cgroup != cgroup {
				continue
			}
			for _, key := range []struct {
				name  string
				value *int64
				unit  int64
			}{{"cpu", c.CPUMaxMilliCPU, 1}, {"low", c.MemoryLowBytes, mebibyte}, {"high", c.MemoryHighBytes, mebibyte}, {"max", c.MemoryMaxBytes, mebibyte}} {
				switch {
				case key.value == nil:
				case *key.value == tick.Unlimited:
					out = append(out, key.name+" none")
				default:
					out = append(out, fmt.Sprintf("%s %d", key.name, *key.value/key.unit))
				}
			}
			if (c.MemoryHighBytes != nil || c.MemoryMaxBytes != nil) && !c.MemoryTighterOnly {
				out = append(out, "wider")
			}
		}
		return strings.Join(out, ", ")
	}
	now, fallback := text(r.advice.Cgroups), text(r.advice.Fallback)
	if now != fallback && len(r.policyCgroups) == 0 {
		r.t.Errorf("%s: advice %q, fallback %q", cgroup, now, fallback)
	}
	return now
}

func (r *run) want(cgroup, want string) {
	r.t.Helper()
	if got := r.entryText(cgroup); got != want {
		r.t.Errorf("after %d s %s has %q; want %q; %q", r.second, cgroup, got, want, r.advice.Reasons)
	}
}

func (r *run) hasReason(part string) {
	r.t.Helper()
	if !strings.Contains(strings.Join(r.advice.Reasons, "\n"), part) {
		r.t.Errorf("after %d s no reason has %q: %q", r.second, part, r.advice.Reasons)
	}
}

func TestBatchIsCappedAtTheOffer(t *testing.T) {
	r := newRun(t).tickAfter(1)
	r.want("/batch", "high 20480, max 22528")
	r.want("/batch/job", "")
	r.hasReason("batch memory: cap 20.00 GiB (the offer)")
}

func TestBatchIsCappedAtWhatIsFree(t *testing.T) {
	r := newRun(t)
	r.sample.Memory.AvailableBytes = new(6.0 * gib)
	r.tickAfter(1) // 4 + 6 - 1.28 GiB
	r.want("/batch", "high 8929, max 9822")
	r.hasReason("batch's use and the available memory, less 2 % of the machine")
}

// Batch's page cache already counts as available: it adds nothing to the cap.
func TestPageCacheIsNotCountedTwice(t *testing.T) {
	r := newRun(t)
	r.sample.Memory.AvailableBytes = new(6.0 * gib)
	r.job().Memory.RSSBytes = new(1.0 * gib)
	r.tickAfter(1).want("/batch", "high 5857, max 6443")
}

// The cap falls immediately, and memory.high reduces batch's use to it in steps, followed by memory.max.
func TestBatchUseIsReducedInSteps(t *testing.T) {
	r := newRun(t)
	*r.job().Memory.UsageBytes, *r.job().Memory.RSSBytes = 16*gib, 16*gib
	r.tickAfter(1).want("/batch", "high 20480, max 22528")
	*r.job().Memory.RSSBytes, *r.sample.Memory.AvailableBytes = 13.28*gib, 0 // the rest is page cache: batch may use 12 GiB
	r.tickAfter(1).want("/batch", "high 14746, max 18023")                   // a tenth below the use; the hard limit a tenth above that
	r.hasReason("memory.high reduces it in steps of 10 %, memory.max follows")
	*r.job().Memory.UsageBytes = 14.4 * gib
	r.tickAfter(1).want("/batch", "high 13272, max 16221")
	*r.job().Memory.UsageBytes, *r.job().Memory.RSSBytes, *r.sample.Memory.AvailableBytes = 12.96*gib, 12.96*gib, 0.32*gib
	r.tickAfter(1).want("/batch", "high 12288, max 14599")
	*r.job().Memory.UsageBytes, *r.job().Memory.RSSBytes, *r.sample.Memory.AvailableBytes = 12*gib, 12*gib, 1.28*gib
	r.tickAfter(1).want("/batch", "high 12288, max 13517")
}

func TestTheCapRisesLate(t *testing.T) {
	r := newRun(t).tickAfter(1)
	r.offer = new(int64(30 * gib))
	r.tickAfter(29).want("/batch", "high 20480, max 22528")
	r.hasReason("it may rise after 30s")
	r.offer = new(int64(25 * gib))
	r.tickAfter(1).want("/batch", "high 25600, max 28160") // the least of that time
	r.offer = new(int64(25*gib + gib/2))
	r.tickAfter(60).want("/batch", "high 25600, max 28160") // the change is too small to write
	r.offer = new(int64(30 * gib))
	r.tickAfter(29).want("/batch", "high 25600, max 28160")
	r.tickAfter(1).want("/batch", "high 30720, max 33792") // what was possible before the last rise does not count
}

// Unknown values change nothing for a minute; then there is no cap.
func TestUnknownIsNotZero(t *testing.T) {
	for name, hide := range map[string]func(r *run){
		"batch's use is unknown":          func(r *run) { r.job().Memory = nil },
		"the machine's memory is unknown": func(r *run) { r.sample.Memory = &tick.NodeMemory{AvailableBytes: new(1.0)} },
		"the available memory is unknown": func(r *run) { r.sample.Memory.AvailableBytes = nil },
		"the offer is unknown":            func(r *run) { r.offer = nil },
	} {
		r := newRun(t)
		r.settings.Services = None
		r.tickAfter(1)
		hide(r)
		r.tickAfter(59).want("/batch", "high 20480, max 22528")
		r.hasReason(name + ": the cap of 20.00 GiB stays for 1s")
		r.tickAfter(1).want("/batch", "high none, max none")
		r.hasReason(name + ": no cap")
		r.tickAfter(59).want("/batch", "high none, max none")
		r.tickAfter(1).want("/batch", "")

		r = newRun(t)
		r.settings.Services = None
		hide(r)
		r.tickAfter(1).want("/batch", "")
	}
}

// The offer is known to be 0: batch keeps its use but may not grow, and later has the least.
func TestNothingIsOffered(t *testing.T) {
	r := newRun(t)
	r.offer = new(int64(0))
	r.tickAfter(1).want("/batch", "high 4096, max 4506")
	r.hasReason("batch's use, above the offer of 0.00 GiB")
	*r.job().Memory.UsageBytes = 5 * gib
	r.tickAfter(60).want("/batch", "high 4608, max 5632")
	*r.job().Memory.UsageBytes = 3 * gib
	r.tickAfter(1).want("/batch", "high 3072, max 3380")
	*r.job().Memory.UsageBytes, *r.job().Memory.RSSBytes = 0, 0
	r.tickAfter(1).want("/batch", "high 655, max 721") // 1 % of the machine
}

func TestTheCapIsUndone(t *testing.T) {
	for name, end := range map[string]func(r *run){
		"switched off":       func(r *run) { r.settings.Batch = None },
		"a service is in it": func(r *run) { r.sample.Pods[1].Cgroup = "/batch/web" },
		"no batch is left":   func(r *run) { r.sample.Pods, r.sample.BatchCgroups = r.sample.Pods[1:], nil },
		"the job has ended":  func(r *run) { r.job().Phase = "Succeeded" },
	} {
		r := newRun(t)
		r.settings.Services = None
		r.tickAfter(1)
		end(r)
		r.tickAfter(1).want("/batch", "high none, max none")
		r.tickAfter(59).want("/batch", "high none, max none")
		if r.tickAfter(1); strings.Contains(r.entryText("/batch"), "none") {
			t.Errorf("%s: still undone after a minute: %s", name, r.entryText("/batch"))
		}
	}
}

// If two cgroups contain batch, memory left under the cap is divided, and use over it is taken from both.
func TestTwoCgroupsShareTheCap(t *testing.T) {
	r := newRun(t)
	r.sample.BatchCgroups = []string{"/batch", "/batch/inner", "/grid"}
	r.sample.Pods = append(r.sample.Pods, tick.Pod{UID: "g", Name: "grid", QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: "/grid/1", Memory: memoryUse(2 * gib)})
	r.tickAfter(1) // 14 GiB are free
	r.want("/batch", "high 11264, max 12391")
	r.want("/grid", "high 9216, max 10138")
	r.want("/batch/inner", "")
	*r.job().Memory.UsageBytes = 30 * gib
	r.sample.Memory.AvailableBytes = new(15.28 * gib) // 4 + 2 + 15.28 - 1.28
	r.tickAfter(1)
	r.want("/batch", "high 27648, max 33792")
	r.want("/grid", "high 1844, max 2253")
	*r.job().Memory.UsageBytes = 19 * gib // 1 GiB more than the cap: from each as much as it uses of the 21 GiB
	r.tickAfter(1)
	r.want("/batch", "high 18530, max 21402")
	r.want("/grid", "high 1951, max 2253")
	*r.job().Memory.UsageBytes = 22 * gib
	r.sample.Pods[2].Memory = memoryUse(0)
	r.sample.Memory.AvailableBytes = new(17.28 * gib)
	r.tickAfter(60)
	r.want("/grid", "high 64, max 71") // nothing would be no limit
}

// After a pause of the cap, what was possible before it counts no more: the cap is at once what is possible now, not after half a minute.
func TestTheCapBeginsAnew(t *testing.T) {
	for name, pause := range map[string]func(r *run){
		"off":               func(r *run) { r.settings.Batch = None },
		"no batch":          func(r *run) { r.sample.Pods = r.sample.Pods[1:] },
		"unknown for long":  func(r *run) { r.sample.Memory.AvailableBytes = nil },
		"the offer as well": func(r *run) { r.offer = nil },
	} {
		r := newRun(t)
		pods := r.sample.Pods
		r.sample.Memory.AvailableBytes = new(6.0 * gib)
		r.tickAfter(1).want("/batch", "high 8929, max 9822")
		r.tickAfter(1).want("/batch", "high 8929, max 9822")
		pause(r)
		r.tickAfter(60)
		r.settings, r.sample.Pods, r.sample.Memory.AvailableBytes, r.offer = all, pods, new(40.0*gib), new(int64(20*gib))
		r.tickAfter(1).want("/batch", "high 20480, max 22528")
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

// Memory left under the cap is divided by pods: one that has a cgroup of its own, because of a small request or a label, gets no more of
// it.
func TestAPodOfItsOwnCgroupGetsNoLargerPart(t *testing.T) {
	r := newRun(t)
	for i := range 6 {
		r.sample.Pods = append(r.sample.Pods, tick.Pod{
			UID: fmt.Sprint(i), Name: fmt.Sprint(i), QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule,
			Cgroup: fmt.Sprint("/batch/", i), Memory: memoryUse(0),
		})
	}
	r.sample.Pods = append(r.sample.Pods, tick.Pod{
		UID: "g", Name: "g", QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromKatalyst, Cgroup: "/kubepods/burstable/podg", Memory: memoryUse(0),
	})
	r.tickAfter(1) // 16 of 20 GiB are free
	r.want("/batch", "high 18432, max 20276")
	r.want("/kubepods/burstable/podg", "high 2048, max 2253")
}

// On version 1 only the hard limit applies.
func TestVersion1(t *testing.T) {
	r := newRun(t)
	r.sample.CgroupVersion = 1
	r.tickAfter(1).want("/batch", "high 20480, max 20480")
	r.want("/web.slice/web", "")
	r.settings.Services = Protect
	r.sample.Memory.AvailableBytes = new(1.0 * gib)
	r.tickAfter(1).hasReason("cgroup version 1 has no memory.low")
	*r.job().Memory.UsageBytes = 24 * gib
	r.tickAfter(1).want("/batch", "high 22119, max 25191")
}

// Under kubelet the tier is capped if it contains only batch, else the pods are.
func TestKubelet(t *testing.T) {
	r := newRun(t)
	r.settings.Services = None
	r.sample.BatchCgroups = nil
	r.sample.Tiers = []tick.Tier{{Name: tick.TierBestEffort, Cgroup: "/kubepods/besteffort"}, {Name: tick.TierBurstable, Cgroup: "/kubepods/burstable"}}
	r.sample.Pods[0].QoSSource, r.sample.Pods[0].Cgroup = tick.QoSFromKatalyst, "/kubepods/besteffort/podj"
	r.tickAfter(1).want("/kubepods/besteffort", "high 20480, max 22528")
	r.want("/kubepods/besteffort/podj", "")
	r.sample.Pods[1].Cgroup = "/kubepods/besteffort/podw"
	r.tickAfter(1)
	r.want("/kubepods/besteffort", "high none, max none")
	r.want("/kubepods/besteffort/podj", "high 20480, max 22528")
	r.want("/kubepods/besteffort/podw", "")
}

// The guide's pods: 2 CPUs and 1 GiB as limits of reclaimed resources, which kubelet does not know.
func TestOwnLimits(t *testing.T) {
	r := newRun(t)
	r.settings.Services = None
	*r.job() = tick.Pod{UID: "j", Name: "job", QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromKatalyst, Cgroup: "/kubepods/besteffort/podj", Containers: []tick.Container{
		{Name: "a", Cgroup: "/kubepods/besteffort/podj/a", Memory: memoryUse(gib / 2), Limits: &tick.Resources{ReclaimedMilliCPU: new(2000.0), ReclaimedMemoryBytes: new(1.0 * gib)}},
		{Name: "b", Cgroup: "/kubepods/besteffort/podj/b", Memory: memoryUse(gib / 2)},
	}}
	const pod = "/kubepods/besteffort/podj"
	a, b := &r.job().Containers[0], &r.job().Containers[1]
	r.tickAfter(1).want(a.Cgroup, "max 1024")
	r.want(b.Cgroup, "")
	r.want(pod, "") // one container has no limit
	r.hasReason("batch pods' own limits: CPU of 0 pods, memory of 1 cgroup")
	b.Limits = &tick.Resources{ReclaimedMilliCPU: new(500.0)}
	r.tickAfter(1).want(pod, "cpu 2500")
	r.want(b.Cgroup, "")
	r.hasReason("batch pods' own limits: CPU of 1 pod, memory of 1 cgroup")

	*a.Memory.UsageBytes = 2 * gib
	r.tickAfter(1).want(a.Cgroup, "high 1844, max 2253")
	*a.Memory.UsageBytes = 1.1 * gib
	r.tickAfter(1).want(a.Cgroup, "high 1024, max 1240")
	*a.Memory.UsageBytes = 1 * gib
	r.tickAfter(1).want(a.Cgroup, "high none, max 1024")
	a.Memory = nil
	r.tickAfter(100).want(a.Cgroup, "max 1024")

	a.Limits.MilliCPU, a.Limits.MemoryBytes = new(500.0), new(0.5*gib)
	a.Memory = memoryUse(gib / 4)
	r.tickAfter(1).want(a.Cgroup, "max 512") // never wider than kubelet's
	r.want(pod, "cpu 1000")
	b.Limits.MilliCPU = new(100.0)
	r.tickAfter(1).want(pod, "cpu 600")
	r.job().QoS = tick.QoSShared
	r.tickAfter(1).want(a.Cgroup, "max 512") // reverted to kubelet's
}

// A policy's own values stay if they are tighter.
func TestThePolicysLimitsHold(t *testing.T) {
	r := newRun(t)
	r.job().Limits = &tick.Resources{ReclaimedMilliCPU: new(2000.0)}
	r.policyCgroups = []tick.Cgroup{{Cgroup: "/batch/job", CPUMaxMilliCPU: new(int64(500))}, {Cgroup: "/batch", MemoryMaxBytes: new(int64(gib)), MemoryHighBytes: tick.Ptr(int64(tick.Unlimited))}}
	r.tickAfter(1).want("/batch/job", "cpu 500")
	r.want("/batch", "high 20480, max 1024")
	if *r.policyCgroups[0].CPUMaxMilliCPU != 500 || *r.policyCgroups[1].MemoryHighBytes != tick.Unlimited {
		t.Errorf("the policy's list was changed: %+v", r.policyCgroups)
	}
	*r.policyCgroups[0].CPUMaxMilliCPU = 3000
	r.tickAfter(1).want("/batch/job", "cpu 2000")
}

func TestServicesAreProtected(t *testing.T) {
	r := newRun(t)
	r.settings.Batch = None
	r.tickAfter(1).want("/web.slice/web", "low 10240")
	r.want("/web.slice", "low 10240") // otherwise the kernel ignores the protection below
	r.want("/batch/job", "")
	r.hasReason("memory protection: 10.00 GiB of 1 service cgroup")
	*r.sample.Pods[1].Memory.WorkingSetBytes = 11 * gib
	r.tickAfter(1).want("/web.slice/web", "low 10240") // a small change writes nothing
	*r.sample.Pods[1].Memory.WorkingSetBytes = 12 * gib
	r.tickAfter(1).want("/web.slice/web", "low 12288")
	r.sample.Pods[1].Memory.WorkingSetBytes = nil
	r.tickAfter(1).want("/web.slice/web", "low 12288")
	r.hasReason("some services' working set is unknown")
	r.settings.Services = None
	r.tickAfter(1).want("/web.slice/web", "low 0")
	r.want("/web.slice", "low 0")
	r.tickAfter(60).want("/web.slice", "")
}

// Protection that does not fit is scaled in the lowest class; the sums above it are of the scaled values.
func TestProtectionFits(t *testing.T) {
	r := newRun(t)
	r.settings.Batch = None
	r.sample.Pods[1].Memory = memoryUse(30 * gib)
	r.sample.Pods = append(r.sample.Pods,
		tick.Pod{UID: "x", Name: "x", QoS: tick.QoSShared, QoSSource: tick.QoSFromRule, Cgroup: "/web.slice/x", Memory: memoryUse(30 * gib)},
		tick.Pod{UID: "d", Name: "d", QoS: tick.QoSDedicated, QoSSource: tick.QoSFromRule, Cgroup: "/db", Memory: memoryUse(30 * gib)})
	r.tickAfter(1) // 51.2 GiB may be protected
	r.want("/db", "low 30720")
	r.want("/web.slice/web", "low 10854")
	r.want("/web.slice/x", "low 10854")
	r.want("/web.slice", "low 21708")
	r.hasReason("the working sets exceed 80 % of the machine: scaled, shared to 35 %")
}

// If a policy protects memory itself its values are left alone.
func TestThePolicysProtectionHolds(t *testing.T) {
	r := newRun(t)
	r.policyCgroups = []tick.Cgroup{{Cgroup: "/web.slice", MemoryLowBytes: new(int64(gib))}}
	r.tickAfter(1).want("/web.slice/web", "")
	r.want("/web.slice", "low 1024")
	r.hasReason("the policy protects memory itself")
}

// All parts are off if neither the policy nor a setting enables them, and the state is empty.
func TestOffByDefault(t *testing.T) {
	r := newRun(t)
	r.settings = Settings{}
	r.job().Limits = &tick.Resources{ReclaimedMilliCPU: new(2000.0)}
	if r.tickAfter(1); len(r.advice.Cgroups)+len(r.advice.Fallback)+len(r.advice.Reasons) > 0 || r.st != nil {
		t.Errorf("%+v, %+v", r.advice, r.st)
	}
	r.settings = Settings{Batch: Cap, Services: Protect}
	r.tickAfter(1).want("/batch", "high 20480, max 22528")
	r.want("/web.slice/web", "low 10240")
}

// What pods request is protected before what others use beyond their requests, whatever class a label gives these.
func TestALabelTakesNoProtectionFromRequests(t *testing.T) {
	for _, class := range []string{tick.QoSShared, tick.QoSDedicated} {
		r := newRun(t)
		r.settings.Batch = None
		pod := func(name, class string, request float64, containers ...float64) tick.Pod {
			p := tick.Pod{UID: name, Name: name, QoS: class, QoSSource: tick.QoSFromKatalyst, Cgroup: "/kubepods/pod" + name}
			p.Requests = &tick.Resources{MemoryBytes: new(request * gib)}
			for i, use := range containers {
				p.Containers = append(p.Containers, tick.Container{Cgroup: fmt.Sprint(p.Cgroup, "/", i), Memory: memoryUse(use * gib)})
			}
			return p
		}
		r.sample.Pods = append(r.sample.Pods[:1],
			pod("db", tick.QoSShared, 30, 15, 5), pod("greedy", class, 0, 60), pod("two", class, 10, 30, 10))
		r.tickAfter(1) // 51.2 GiB may be protected: 20 and 10 are requested, and 90 are used beyond that
		r.want("/kubepods/poddb", "low 20480")
		r.want("/kubepods/poddb/1", "low 5120")
		r.want("/kubepods/podgreedy", "low 14472")
		r.want("/kubepods/podtwo/0", "low 13107")
		r.want("/kubepods/podtwo/1", "low 4369")
		r.hasReason("the working sets exceed 80 % of the machine: scaled, use beyond requests to 24 %")
	}
}
