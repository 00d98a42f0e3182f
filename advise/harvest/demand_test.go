package harvest

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"polder/lib/tick"
)

// inContainers moves a pod's use and memory into n containers, in equal parts.
func inContainers(p *tick.Pod, n int) {
	part := func(v *float64) *float64 { return new(*v / float64(n)) }
	for range n {
		p.Containers = append(p.Containers, tick.Container{
			Cgroup:        p.Cgroup + "/c",
			UsageMilliCPU: part(p.UsageMilliCPU),
			Memory:        &tick.Memory{RSSBytes: part(p.Memory.RSSBytes), WorkingSetBytes: part(p.Memory.WorkingSetBytes)},
		})
	}
	p.UsageMilliCPU, p.Memory = nil, nil
}

// own gives a pod exclusive CPUs, as by kubelet.
func own(p *tick.Pod) {
	inContainers(p, 1)
	p.Containers[0].CPUSetCPUs = "1-2,9-10"
	p.Containers[0].Requests = &tick.Resources{MilliCPU: new(4000.0)}
}

// ownOfTwo gives a pod two containers, one of which has exclusive CPUs and this use.
func ownOfTwo(p *tick.Pod, use *float64) {
	p.Containers = []tick.Container{
		{CPUSetCPUs: "1-2,9-10", Requests: &tick.Resources{MilliCPU: new(4000.0)}, UsageMilliCPU: use},
		{CPUSetCPUs: "0,3-8,11-15", Requests: &tick.Resources{MilliCPU: new(500.0)}},
	}
}

// The services' need is all use except that of batch and of pods on exclusive CPUs, as far as it is known, and the system's reservation if
// the system uses less. If a value is missing the next best is used; without any the need is unknown, which is not 0.
func TestDemand(t *testing.T) {
	unknown := math.NaN()
	for _, tt := range []struct {
		name            string
		change          func(*tick.Sample)
		milliCPU, bytes float64
		used            float64
	}{
		{"services alone", func(*tick.Sample) {}, 4000, 30e9, 4000},
		{"the system beside them", func(s *tick.Sample) { s.CPU.UsageMilliCPU = new(7500.0) }, 4500, 30e9, 4500},
		{"the system uses less than is kept for it", func(s *tick.Sample) {
			s.CPU.UsageMilliCPU, s.Allocatable = new(7500.0), &tick.Resources{MilliCPU: new(14000.0)}
		}, 6000, 30e9, 4500},
		{"all is kept", func(s *tick.Sample) { s.Allocatable = &tick.Resources{MilliCPU: new(0.0)} }, 20000, 30e9, 4000},
		{"a negative amount keeps nothing", func(s *tick.Sample) { s.Allocatable = &tick.Resources{MilliCPU: new(-5.0)} }, 4000, 30e9, 4000},
		{"a second service", func(s *tick.Sample) { s.Pods = append(s.Pods, podOf("api", tick.QoSShared, 1000)) }, 5000, 30e9, 5000},
		{"a service on CPUs of its own", func(s *tick.Sample) {
			s.Pods, s.CPU.UsageMilliCPU = append(s.Pods, podOf("own", tick.QoSShared, 2500)), new(9600.0)
			own(&s.Pods[2])
		}, 4100, 30e9, 4100},
		{"a service with CPUs of its own for one of two containers", func(s *tick.Sample) {
			s.Pods, s.CPU.UsageMilliCPU = append(s.Pods, podOf("own", tick.QoSShared, 2500)), new(9600.0)
			ownOfTwo(&s.Pods[2], new(1000.0))
		}, 5600, 30e9, 5600},
		{"the use of that container is unknown", func(s *tick.Sample) {
			s.Pods, s.CPU.UsageMilliCPU = append(s.Pods, podOf("own", tick.QoSShared, 2500)), new(9600.0)
			ownOfTwo(&s.Pods[2], nil)
		}, 6600, 30e9, 6600},
		{"a service on kubelet's list of CPUs that it assigned to no pod", func(s *tick.Sample) {
			inContainers(&s.Pods[0], 1)
			s.Pods[0].Containers[0].CPUSetCPUs = "0,3-8,11-15"
		}, 4000, 30e9, 4000},
		{"a service that has ended is not one", func(s *tick.Sample) { s.Pods[0].Phase = "Succeeded" }, 4000, 30e9, 4000},
		{"nothing is used", func(s *tick.Sample) {
			s.CPU.UsageMilliCPU, s.Pods = new(0.0), []tick.Pod{podOf("web", tick.QoSShared, 0)}
		}, 0, 40e9, 0},

		{"a service whose use is unknown", func(s *tick.Sample) { forget(&s.Pods[0]) }, 4000, 30e9, 4000},
		{"beside one on CPUs of its own", func(s *tick.Sample) {
			s.Pods, s.CPU.UsageMilliCPU = append(s.Pods, podOf("own", tick.QoSShared, 2500)), new(9600.0)
			forget(&s.Pods[0])
			own(&s.Pods[2])
		}, 4100, 30e9, 4100},
		{"where more is kept", func(s *tick.Sample) {
			forget(&s.Pods[0])
			s.Allocatable = &tick.Resources{MilliCPU: new(10000.0)}
		}, 6000, 30e9, 4000},
		{"a negative use is none", func(s *tick.Sample) { s.Pods[0].UsageMilliCPU, s.CPU = new(-1.0), nil }, unknown, 30e9, 0},
		{"a service that has not started", func(s *tick.Sample) {
			s.Pods[0].UsageMilliCPU, s.Pods[0].Missing, s.CPU = nil, tick.MissingCgroup, nil
			s.Pods = append(s.Pods, podOf("api", tick.QoSShared, 1000))
		}, 1000, 30e9, 1000},
		{"no other has, and the machine's use is unknown", func(s *tick.Sample) {
			s.Pods[0].UsageMilliCPU, s.Pods[0].Missing, s.CPU = nil, tick.MissingCgroup, nil
		}, unknown, 30e9, 0},

		{"the machine's use is unknown", func(s *tick.Sample) { s.CPU, s.Allocatable = nil, &tick.Resources{MilliCPU: new(14000.0)} }, 6000, 30e9, 4000},
		{"the machine's is negative", func(s *tick.Sample) { s.CPU.UsageMilliCPU = new(-1.0) }, 4000, 30e9, 4000},
		{"the machine's is 0, and a service's is unknown", func(s *tick.Sample) {
			s.CPU.UsageMilliCPU, s.Pods[0].UsageMilliCPU = new(0.0), nil
		}, 0, 30e9, 0},
		{"the machine's is unknown, and a service uses nothing", func(s *tick.Sample) { s.CPU, s.Pods[0].UsageMilliCPU = nil, new(0.0) }, 0, 30e9, 0},
		{"the machine's is unknown, and there is batch alone", func(s *tick.Sample) {
			s.CPU, s.Memory, s.Pods = nil, nil, []tick.Pod{podOf("job", tick.QoSReclaimed, 3000)}
		}, unknown, unknown, 0},
		{"neither is there a pod", func(s *tick.Sample) { s.CPU, s.Pods = nil, nil }, unknown, 40e9, 0},
		{"nor is memory known", func(s *tick.Sample) { s.CPU, s.Pods, s.Memory = nil, nil, nil }, unknown, unknown, 0},

		{"containers' use is the pod's", func(s *tick.Sample) { inContainers(&s.Pods[0], 2); s.CPU = nil }, 4000, 30e9, 4000},
		{"idle containers' as well", func(s *tick.Sample) {
			inContainers(&s.Pods[0], 2)
			s.Pods[0].Containers[0].UsageMilliCPU, s.CPU = new(0.0), nil
		}, 2000, 30e9, 2000},
		{"but not where one's is unknown", func(s *tick.Sample) {
			inContainers(&s.Pods[0], 2)
			s.Pods[0].Containers[0].UsageMilliCPU, s.CPU = nil, nil
		}, unknown, 30e9, 0},
		{"nor where one's is negative", func(s *tick.Sample) {
			inContainers(&s.Pods[0], 2)
			s.Pods[0].Containers[0].UsageMilliCPU, s.CPU = new(-1.0), nil
		}, unknown, 30e9, 0},

		{"what batch holds is not the services', by containers too", func(s *tick.Sample) { inContainers(&s.Pods[1], 2) }, 4000, 30e9, 4000},
		{"batch in two pods", func(s *tick.Sample) { s.Pods = append(s.Pods, podOf("hadoop", tick.QoSReclaimed, 0)) }, 4000, 20e9, 4000},
		{"the machine's memory is unknown: working sets", func(s *tick.Sample) {
			s.Memory, s.Pods = nil, append(s.Pods, podOf("api", tick.QoSShared, 0))
		}, 4000, 24e9, 4000},
		{"or only its total", func(s *tick.Sample) { s.Memory.AvailableBytes = nil }, 4000, 12e9, 4000},
		{"containers' sets are the pod's", func(s *tick.Sample) { inContainers(&s.Pods[0], 3); s.Memory = nil }, 4000, 12e9, 4000},
		{"but not where one's is unknown", func(s *tick.Sample) {
			inContainers(&s.Pods[0], 3)
			s.Pods[0].Containers[1].Memory, s.Memory = nil, nil
		}, 4000, unknown, 4000},
		{"or is not in its memory", func(s *tick.Sample) {
			inContainers(&s.Pods[0], 3)
			s.Pods[0].Containers[1].Memory.WorkingSetBytes, s.Memory = nil, nil
		}, 4000, unknown, 4000},
		{"or is negative", func(s *tick.Sample) {
			inContainers(&s.Pods[0], 3)
			s.Pods[0].Containers[1].Memory.WorkingSetBytes, s.Memory = new(-1.0), nil
		}, 4000, unknown, 4000},
		{"a set of nothing is known", func(s *tick.Sample) {
			inContainers(&s.Pods[0], 3)
			s.Pods[0].Containers[1].Memory.WorkingSetBytes, s.Memory = new(0.0), nil
		}, 4000, 8e9, 4000},
		{"a pod's own of nothing, too", func(s *tick.Sample) { s.Pods[0].Memory.WorkingSetBytes, s.Memory = new(0.0), nil }, 4000, 0, 4000},
		{"a pod's own that is negative is not", func(s *tick.Sample) { s.Pods[0].Memory.WorkingSetBytes, s.Memory = new(-1.0), nil }, 4000, unknown, 4000},
		{"a pod without any figure of memory", func(s *tick.Sample) { s.Pods[0].Memory, s.Memory = nil, nil }, 4000, unknown, 4000},
		{"unless it has not started", func(s *tick.Sample) {
			s.Pods[0].Memory, s.Pods[0].Missing, s.Memory = nil, tick.MissingCgroup, nil
			s.Pods = append(s.Pods, podOf("api", tick.QoSShared, 0))
		}, 4000, 12e9, 4000},
		{"and no other has", func(s *tick.Sample) {
			s.Pods[0].Memory, s.Pods[0].Missing, s.Memory = nil, tick.MissingCgroup, nil
		}, 4000, unknown, 4000},
	} {
		s := machine(4000)
		tt.change(s)
		n := &node{}
		if err := n.updateShape(s.Topology, "", "1-2,9-10"); err != nil {
			t.Fatal(err)
		}
		n.observeReservation(s)
		got := n.observeDemand(at(0, s), Defaults())
		want := demand{milliCPU: tt.milliCPU, bytes: tt.bytes, inUse: tt.used, machineMilliCPU: got.machineMilliCPU, newPods: got.newPods}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(demand{}), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// What is idle of the CPUs that batch may use is what the machine does not use, except on exclusive CPUs, however little is known of pods.
// Reserved CPUs are not batch's, and what runs there counts as if it ran on its. Unknown is not 0.
func TestIdleCPUs(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(*tick.Sample)
		reserved string
		want     float64
	}{
		{"the machine has 12 such CPUs and uses 7000m", func(*tick.Sample) {}, "", 5000},
		{"two more are reserved", func(*tick.Sample) {}, "0,8", 3000},
		{"a service on exclusive CPUs", func(s *tick.Sample) {
			s.Pods, s.CPU.UsageMilliCPU = append(s.Pods, podOf("own", tick.QoSShared, 2500)), new(9600.0)
			own(&s.Pods[2])
		}, "", 4900},
		{"a service's use is unknown", func(s *tick.Sample) { forget(&s.Pods[0]) }, "", 5000},
		{"the hypervisor takes 1500m", func(s *tick.Sample) { s.CPU.StealMilliCPU = new(1500.0) }, "", 3500},
		{"it takes less than nothing", func(s *tick.Sample) { s.CPU.StealMilliCPU = new(-1500.0) }, "", 5000},
		{"it uses all", func(s *tick.Sample) { s.CPU.UsageMilliCPU = new(16000.0) }, "", 0},
		{"it uses nothing", func(s *tick.Sample) { s.CPU.UsageMilliCPU = new(0.0) }, "", 12000},
		{"its use is unknown", func(s *tick.Sample) { s.CPU = nil }, "", math.NaN()},
		{"its use is negative", func(s *tick.Sample) { s.CPU.UsageMilliCPU = new(-1.0) }, "", math.NaN()},
	} {
		s := machine(4000)
		tt.change(s)
		n := &node{}
		if err := n.updateShape(s.Topology, tt.reserved, "1-2,9-10"); err != nil {
			t.Fatal(err)
		}
		n.observeReservation(s)
		d := n.observeDemand(at(0, s), Defaults())
		if got := d.idleMilliCPU(n.shape.Avail.Size()); !cmp.Equal(tt.want, got, cmpopts.EquateNaNs()) {
			t.Errorf("%s: %v; want %v", tt.name, got, tt.want)
		}
	}
}

// CPUs that are reserved for the system are part of its reservation: only what the Node object reserves in addition counts.
func TestReservedCPUsCountOnce(t *testing.T) {
	s := machine(4000)
	n := &node{}
	if err := n.updateShape(s.Topology, "0,8", ""); err != nil {
		t.Fatal(err)
	}
	for allocatable, want := range map[float64]float64{15000: 0, 14000: 0, 13500: 500} {
		s.Allocatable = &tick.Resources{MilliCPU: &allocatable}
		n.observeReservation(s)
		if got := n.systemReservedMilliCPU(); got != want {
			t.Errorf("of %vm allocatable %vm are kept beside a core; want %v", allocatable, got, want)
		}
	}
}

// New pods count with the unused part of their requests, each separately; exclusive CPUs are already subtracted.
func TestRequestsOfNewPods(t *testing.T) {
	young := func(name string, milliCPU, request, requestBytes float64) tick.Pod {
		p := podOf(name, tick.QoSShared, milliCPU)
		p.StartTime = start.Format(time.RFC3339)
		p.Requests = &tick.Resources{MilliCPU: &request, MemoryBytes: &requestBytes}
		return p
	}
	s := machine(4000)
	s.Pods = append(s.Pods, young("a", 500, 2000, 13e9), young("b", 3000, 1000, 1e9), young("own", 1000, 4000, 14e9), young("c", 100, 400, 12e9), podOf("d", tick.QoSShared, 1))
	s.Pods[6].StartTime = start.Format(time.RFC3339)
	own(&s.Pods[4])
	s.Pods = append(s.Pods, young("two", 1700, 7000, 12e9)) // beside its exclusive CPUs it requests 3000m and uses 700m
	ownOfTwo(&s.Pods[7], new(1000.0))
	n := &node{}
	if err := n.updateShape(s.Topology, "", "1-2,9-10"); err != nil {
		t.Fatal(err)
	}
	got := n.observeDemand(at(time.Second, s), Defaults())
	if got.newPods != 6 || got.newMilliCPU != 1800+2300 || got.newBytes != 3e9 {
		t.Errorf("%d new pods ask for %vm and %v bytes beyond use; want 6, 4100m, 3e9", got.newPods, got.newMilliCPU, got.newBytes)
	}
}

// A service that waits for its image, or whose use is unknown in its first tick, must not raise the offer: what is reserved for the system
// stays beside the other services' use.
func TestWaitingServiceRaisesNoOffer(t *testing.T) {
	waiting, first := podOf("new", tick.QoSShared, 0), podOf("new", tick.QoSShared, 0)
	waiting.UsageMilliCPU = nil
	forget(&first)
	for _, pods := range [][]tick.Pod{{}, {waiting}, {first}} {
		s := machine(4000)
		s.Allocatable = &tick.Resources{MilliCPU: new(10000.0)}
		s.Pods = append(s.Pods, pods...)
		n := &node{}
		if err := n.updateShape(s.Topology, "", ""); err != nil {
			t.Fatal(err)
		}
		n.observeReservation(s)
		if got := n.observeDemand(at(0, s), Defaults()).milliCPU; got != 4000+6000 {
			t.Errorf("beside %d more pods the need is %vm; want 10000m", len(pods), got)
		}
	}
}

// The first tick of a batch pod has no rate. What it uses is not the services': the offer and batch's CPUs stay, for a minute.
func TestFirstTickOfBatchIsNotTheServices(t *testing.T) {
	d := New(Defaults())
	var before *tick.Advice
	for second := range 60 {
		before = d.Decide(at(time.Duration(second)*time.Second, machine(4000)))
	}
	place := placeReason(t, before)
	for second := 60; second < 200; second++ {
		s := machine(4000)
		fresh := podOf("fresh", tick.QoSReclaimed, 0)
		forget(&fresh)
		s.Pods, s.CPU.UsageMilliCPU = append(s.Pods, fresh), new(*s.CPU.UsageMilliCPU+5000)
		a := d.Decide(at(time.Duration(second)*time.Second, s))
		got := placeReason(t, a)
		isKept := strings.Contains(got, "services, which use 4000m ") && milli(t, a) >= milli(t, before)
		if want := second <= 59+60; isKept != want {
			t.Fatalf("after %d s: the offer is %dm (before %dm), %s; before: %s", second, milli(t, a), milli(t, before), got, place)
		}
		if !isKept {
			break
		}
	}
}
