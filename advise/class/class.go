// Package class puts batch pods into a scheduling class below the services', so that the kernel itself gives a waking service the CPU
// immediately, also between two ticks:
//
//	idle    cpu.idle: the cgroup's tasks run only while no sibling wants the CPU (SCHED_IDLE for cgroups, Linux 5.15)
//	weight  the smallest weight: batch gets about 1 % of the CPU beside a busy sibling
//	none    no class is set; a class that was set before is undone
//
// The default is idle, except for resizable pods of kubelet: they get no class. On a plain host, batch then waits for every sibling. Below
// kubelet's tiers it does not, because there the tiers' weights decide between batch and services; but a CPU that runs only idle tasks
// counts as free when the kernel selects a CPU for a waking thread of a service (docs/adr/0010).
//
// The idle class alone leaves services waiting for each other and, at times, for batch: where a service seldom runs on a CPU, its cgroup's
// weight there is a small part of the whole, and batch's turn comes sooner. So the weights of the services beside batch are multiplied too,
// on a plain host (services.go, docs/adr/0020).
//
// And the kernel itself gives batch the CPU of a service that something interrupted, until its next tick. So CPUs are rescheduled when a
// task waits behind batch, or, where that is not possible and no CPU is kept free for services, more often than at each tick (resched.go,
// docs/adr/0021 and 0023).
//
// Both classes are relative to the cgroup's siblings, so they are set on the pod's cgroup and on the cgroups above it that contain only
// batch: the outermost of these is the services' sibling, and a cgroup that appears below it between two ticks has the class immediately. A
// starving batch pod is a failure too (locks, liveness probes, memory that is not freed): if the machine is full and batch that has
// something to do gets less than its floor for some time, it gets a weight that corresponds to the floor until services leave room again.
package class

import (
	"fmt"
	"path"
	"slices"
	"time"

	"polder/advise/policy"
	"polder/lib/clip"
	"polder/lib/kubepods"
	"polder/lib/phrase"
	"polder/lib/qos"
	"polder/lib/reason"
	"polder/lib/tick"
)

// Names of classes.
const (
	Idle   = "idle"
	Weight = "weight"
	None   = "none"
)

// Names contains all names of classes.
var Names = []string{Idle, Weight, None}

// IdleOnHosts is the default setting of policy koordinator; it is not one of [Names]: the idle class on a plain host, and no class for pods
// of Kubernetes. There Koordinator's own schedIdle decides, because batch pods have weights according to their requests, and an idle cgroup
// has no weight.
const IdleOnHosts = "idle on hosts"

// Of returns a reclaimed pod's class according to the setting; an empty setting means the default, the idle class. A resizable pod of
// Kubernetes (one that is not BestEffort) never has a class: kubelet writes its weight then, and the kernel refuses a weight for an idle
// cgroup. A pod whose cgroup is unknown has no class either, because there is no cgroup to set it on.
func Of(setting string, p *tick.Pod) string {
	at := kubepods.Of(p.Cgroup)
	switch {
	case !hasCgroup(p):
		return None
	case IsOfHost(p):
	case setting == IdleOnHosts, qos.KubernetesOf(p) != qos.BestEffort, at.Level != kubepods.Outside && at.BestEffort == "":
		return None
	}
	return className(setting)
}

// IsOfHost reports whether a pod is a cgroup of a plain host, which only a rule of the classification makes a pod.
func IsOfHost(p *tick.Pod) bool {
	return p.QoSSource == tick.QoSFromRule && hasCgroup(p) && !kubepods.Contains(p.Cgroup)
}

// className returns the class that a setting means, one of [Names].
func className(setting string) string {
	if setting == "" || setting == IdleOnHosts {
		return Idle
	}
	return setting
}

const (
	minWeight     = 1
	defaultWeight = 100  // the kernel's default (Documentation/admin-guide/cgroup-v2.rst)
	defaultShares = 1024 // the default of version 1

	// starvingFor is how long batch must starve before it gets the weight, and minReliefTime the least time for which it keeps the weight.
	starvingFor   = 10 * time.Second
	minReliefTime = 30 * time.Second
	// fullMachinePermille is the share of the machine's CPU from which the machine counts as full.
	fullMachinePermille = 970
)

// Settings are the package's settings.
type Settings struct {
	// Class is the scheduling class of batch pods, one of [Names] or [IdleOnHosts]; empty means the default, the idle class.
	Class string
	// ServiceWeightFactor multiplies the weights of services beside batch, on plain hosts; 0 and 1 do not change them.
	ServiceWeightFactor int
	// ReschedOnWait means that a CPU is rescheduled when batch in the idle class begins to run there while another task waits.
	ReschedOnWait bool
	// ReschedInterval is how often CPUs are rescheduled while batch runs beside services, where ReschedOnWait is off or not possible: 0 means
	// never, and [ReschedOnSmallMachines] means [SmallMachineInterval] on machines with fewer than [SmallMachineCPUs] CPUs.
	ReschedInterval time.Duration
}

// Defaults returns the default settings.
func Defaults() Settings {
	return Settings{ServiceWeightFactor: DefaultServiceWeightFactor, ReschedOnWait: true, ReschedInterval: ReschedOnSmallMachines}
}

// Machine is what the floor is measured against: all CPU and the floor, in milli-CPU, and the version of the cgroups.
type Machine struct {
	MilliCPU, FloorMilliCPU int64
	CgroupVersion           int
}

// State is what this package remembers of one node, in the format of the state file.
type State struct {
	// Set is the class that was last set of each cgroup that is in the sample: if no class is desired any more, this one must be undone.
	Set map[string]string `json:"set,omitempty"`
	// BatchCgroups lists those of them that are above pods.
	BatchCgroups policy.SetCgroups `json:"above,omitempty"`
	// StarvingSince is when batch first starved, StarvedAt when it last did, and RelievedAt when it got the floor's weight; zero means never.
	StarvingSince time.Time `json:"starvingSince,omitzero"`
	StarvedAt     time.Time `json:"starvedAt,omitzero"`
	RelievedAt    time.Time `json:"relievedAt,omitzero"`
	// Weight is the weight that batch has had since RelievedAt.
	Weight int64 `json:"weight,omitempty"`
	// Services is what is remembered of the services beside batch.
	Services ServiceState `json:"services,omitzero"`
	// BothRanAt is when batch and other programs last used a part of the machine in the same tick; zero means never.
	BothRanAt time.Time `json:"bothRanAt,omitzero"`

	indexOf map[string]int // index of a cgroup in the advice; the map is reused
}

// Advise adds the class of each reclaimed pod's cgroup, and of the cgroups that contain only such pods, to the advice and to its fallback,
// the weights of the services beside them and how often CPUs are rescheduled, and sets how the floor is kept. It returns the new state, nil
// if there is nothing to remember.
func (st *State) Advise(t *tick.Tick, a *tick.Advice, s Settings, m Machine) *State {
	if t.Sample == nil {
		return st
	}
	if st == nil {
		st = &State{}
	}
	c := choices{previous: st.Set, current: make(map[string]string, len(st.Set))}
	if st.updateFloorWeight(t, a, s.Class, m) {
		c.floorWeight = st.Weight
	}
	for i := range t.Sample.Pods {
		if p := &t.Sample.Pods[i]; hasCgroup(p) && c.add(p.Cgroup, classOf(s.Class, p)) {
			c.pods++
		}
	}
	var batchCgroups []string
	for _, cgroup := range policy.BatchCgroups(t.Sample) {
		if c.add(cgroup, className(s.Class)) {
			batchCgroups = append(batchCgroups, cgroup)
		}
	}
	c.batchCgroups = len(batchCgroups)
	warning := c.mixedCgroups(t.Sample.Pods)
	st.undoDropped(t.Time, &c, batchCgroups)
	services := st.Services.advise(t, &c, s.ServiceWeightFactor, m)
	if st.Set = c.current; len(st.Set) == 0 && len(st.Services.Multiplied) == 0 {
		return nil
	}
	st.index(a.Cgroups)
	a.Cgroups = st.join(a.Cgroups, slices.Concat(c.desired, services.desired))
	st.index(a.Fallback)
	a.Fallback = st.join(a.Fallback, slices.Concat(c.desired, services.fallback))
	if c.pods > 0 && c.floorWeight == 0 { // otherwise updateFloorWeight adds the reason
		a.Reasons = append(a.Reasons, c.reason(className(s.Class)))
		if warning != "" {
			a.Reasons = append(a.Reasons, warning)
		}
	}
	if services.reason != "" {
		a.Reasons = append(a.Reasons, services.reason)
	}
	st.adviseResched(t, a, c.isAtTop(), s, m)
	return st
}

// choices are the classes chosen in one tick.
type choices struct {
	previous, current  map[string]string // cgroup -> class, of the last tick and of this one
	desired            []tick.Cgroup
	chosen             []string // cgroups that have a class now, without those whose class is undone
	floorWeight        int64    // weight that replaces the class outside of kubelet's cgroups while batch starves, else 0
	pods, batchCgroups int      // cgroups with a class: pods', and batch cgroups above pods
}

// add chooses a class for a cgroup and reports whether the cgroup has one. A second pod with the same cgroup changes nothing.
func (c *choices) add(cgroup, class string) bool {
	if c.current[cgroup] != "" {
		return false
	}
	previous, wasSet := c.previous[cgroup]
	if class == None {
		if wasSet {
			c.undo(cgroup, previous)
		}
		return false
	}
	c.current[cgroup], c.chosen = class, append(c.chosen, cgroup)
	hasFloorWeight := c.floorWeight > 0 && !kubepods.Contains(cgroup)
	weight := int64(minWeight) // for class weight, and for kernels without the idle class
	if hasFloorWeight {
		weight = c.floorWeight
	}
	desired := tick.Cgroup{Cgroup: cgroup, CPUWeight: &weight}
	if class == Idle || wasSet { // a kernel without the idle class has nothing to undo
		desired.CPUIdle = new(class == Idle && !hasFloorWeight)
	}
	c.desired = append(c.desired, desired)
	return true
}

// undo undoes a cgroup's class, and remembers the class as long as it advises that.
func (c *choices) undo(cgroup, previous string) {
	c.current[cgroup] = previous
	c.desired = append(c.desired, undoValues(cgroup, previous))
}

// reason returns the number of cgroups in the class as text.
func (c *choices) reason(class string) string {
	text := fmt.Sprintf(reason.BatchClass+"%s: %s", class, phrase.Count(c.pods, "pod"))
	if c.batchCgroups > 0 {
		text += fmt.Sprintf(" and %s", phrase.Count(c.batchCgroups, "batch cgroup"))
	}
	return text
}

// mixedCgroups names the first cgroup that contains both batch and a service, if any. For the kernel's own threads, which are in the root
// cgroup, such a cgroup is one sibling, whatever class batch has inside it (docs/adr/0014). kubelet's cgroups are always of that kind and
// cannot be changed.
func (c *choices) mixedCgroups(pods []tick.Pod) string {
	ofServices := map[string]bool{} // cgroups that contain services
	for i := range pods {
		if p := &pods[i]; hasCgroup(p) && p.QoS != tick.QoSReclaimed {
			for parent := path.Dir(p.Cgroup); parent != "/" && !ofServices[parent]; parent = path.Dir(parent) {
				ofServices[parent] = true
			}
		}
	}
	first, count := "", 0
	for _, cgroup := range c.chosen {
		parent := path.Dir(cgroup)
		if kubepods.Contains(cgroup) || c.current[parent] != "" { // the ancestor that has a class counts
			continue
		}
		for parent != "/" && !ofServices[parent] {
			parent = path.Dir(parent)
		}
		if parent == "/" {
			continue
		}
		if count++; first == "" || parent < first {
			first = parent
		}
	}
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("batch class: %s below a cgroup that also contains services (%s): the services can wait long for kernel threads "+
		"(disk, network), whatever the class; move batch to a top-level cgroup", phrase.Count(count, "batch cgroup"), clip.Text(first, 100))
}

// undoDropped undoes the class of the cgroups above pods that now contain other pods too, or no pod: the next pod in them may be a service.
func (st *State) undoDropped(now time.Time, c *choices, batchCgroups []string) {
	for _, cgroup := range st.BatchCgroups.Update(now, batchCgroups) {
		if previous := st.Set[cgroup]; c.current[cgroup] == "" && previous != "" {
			c.undo(cgroup, previous)
		}
	}
}

// hasCgroup reports whether a pod runs in a cgroup of its own that an advice can name.
func hasCgroup(p *tick.Pod) bool {
	return policy.IsCgroup(p.Cgroup) && p.Missing == "" && !p.Ended()
}

// classOf returns the class of any pod.
func classOf(setting string, p *tick.Pod) string {
	if p.QoS != tick.QoSReclaimed {
		return None
	}
	return Of(setting, p)
}

// undoValues returns the desired values that undo a cgroup's class. isolate restores the weight that the idle class replaced; a weight that
// class weight set becomes the kernel's default.
func undoValues(cgroup, previous string) tick.Cgroup {
	if previous == Weight {
		return tick.Cgroup{Cgroup: cgroup, CPUWeight: new(int64(defaultWeight))}
	}
	return tick.Cgroup{Cgroup: cgroup, CPUIdle: new(false)}
}

func (st *State) index(list []tick.Cgroup) {
	if st.indexOf == nil {
		st.indexOf = make(map[string]int, len(list))
	}
	clear(st.indexOf)
	for i := range list {
		st.indexOf[list[i].Cgroup] = i
	}
}

// join adds the desired classes to a copy of the indexed list of cgroups; values that others desire of the same cgroup stay. The weight
// that a policy desires of a pod in the idle class is for kernels without the idle class.
func (st *State) join(list, desired []tick.Cgroup) []tick.Cgroup {
	list = slices.Clone(list)
	for _, w := range desired {
		i, found := st.indexOf[w.Cgroup]
		if !found {
			list = append(list, w)
			continue
		}
		c := &list[i]
		if w.CPUIdle != nil {
			c.CPUIdle = w.CPUIdle
		}
		if w.CPUWeight != nil && (c.CPUWeight == nil || w.CPUIdle == nil || !*w.CPUIdle) {
			c.CPUWeight = w.CPUWeight
		}
		if c.CPUWeight == nil {
			c.CPUWeightFactor = w.CPUWeightFactor
		}
	}
	return list
}
