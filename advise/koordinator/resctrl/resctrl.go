// Package resctrl divides the L3 cache and the memory bandwidth between the classes, according to the ConfigMap's resource-qos-config
// (resctrlQOS): the groups of /sys/fs/resctrl, their schemata, and their pods. It is pure.
package resctrl

import (
	"fmt"
	"slices"
	"strings"

	"polder/advise/koordinator/annotation"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// State is what this package remembers of one node, in the format of the state file.
type State struct {
	// Used are the groups that were requested since resctrl was mounted: if disabled, they get the whole again.
	Used []string `json:"used,omitempty"`
	// Missing reports whether resctrl was not mounted in the last sample, which is reported once.
	Missing bool `json:"missing,omitempty"`
}

// source is collect's name of its resctrl source.
const source = "resctrl"

// groups are the classes' own groups; earlier ones have precedence if the machine has too few. A pod of class LSE belongs to LSR's.
var groups = []struct {
	name    string
	classes []string
	of      func(*sloconfig.ResourceQOS) *sloconfig.ClassQOS
}{
	{"BE", []string{qos.BE}, func(q *sloconfig.ResourceQOS) *sloconfig.ClassQOS { return q.BE }},
	{"LS", []string{qos.LS}, func(q *sloconfig.ResourceQOS) *sloconfig.ClassQOS { return q.LS }},
	{"LSR", []string{qos.LSR, qos.LSE}, func(q *sloconfig.ResourceQOS) *sloconfig.ClassQOS { return q.LSR }},
}

// Advise adds the desired groups to the advice.
func (st *State) Advise(t *tick.Tick, s *sloconfig.Strategies, a *tick.Advice) {
	var enabled []string
	for _, g := range groups {
		if isEnabled(g.of(&s.QOS)) {
			enabled = append(enabled, g.name)
		}
	}
	if len(enabled) == 0 && len(st.Used) == 0 {
		st.Missing = false
		return
	}
	m, why := divisible(t.Sample)
	if m == nil {
		missing := t.Sample != nil && t.Sample.Resctrl == nil && !t.Sample.IsUnread(source)
		if len(enabled) > 0 && !(missing && st.Missing) {
			a.Reasons = append(a.Reasons, fmt.Sprintf("resctrl: %s: cache and memory bandwidth of %s stay unchanged", why, strings.Join(enabled, ", ")))
		}
		if t.Sample != nil && !t.Sample.IsUnread(source) { // unmounting removes all groups
			st.Used = nil
		}
		if missing {
			nameUnmounted(t.Sample, s, a)
		}
		if t.Sample != nil {
			st.Missing = missing && len(enabled) > 0
		}
		return
	}
	st.Missing = false
	r := &round{State: st, machine: m, advice: a}
	for _, g := range groups {
		switch q := g.of(&s.QOS); {
		case isEnabled(q):
			r.adviseGroup(g.name, q.Resctrl, memberCgroups(t.Sample.Pods, g.classes))
		case slices.Contains(st.Used, g.name):
			r.adviseFull(g.name)
		}
	}
}

// nameUnmounted names the desired groups if resctrl is not mounted, for isolate to report: without lines, and not to be created.
func nameUnmounted(sample *tick.Sample, s *sloconfig.Strategies, a *tick.Advice) {
	for _, g := range groups {
		if isEnabled(g.of(&s.QOS)) {
			a.Resctrl = append(a.Resctrl, tick.ResctrlGroup{Group: g.name, Cgroups: memberCgroups(sample.Pods, g.classes), IfExists: true})
		}
	}
}

func isEnabled(q *sloconfig.ClassQOS) bool {
	return q != nil && q.Resctrl != nil && sloconfig.IsTrue(q.Resctrl.Enable)
}

// divisible returns what can be divided; nil, and why, if that is unknown.
func divisible(s *tick.Sample) (*tick.Resctrl, string) {
	switch {
	case s == nil:
		return nil, "there is no sample"
	case s.Resctrl == nil && s.IsUnread(source):
		return nil, "it could not be read (sample.errors)"
	case s.Resctrl == nil:
		return nil, "it is not mounted at /sys/fs/resctrl (mount -t resctrl resctrl /sys/fs/resctrl, if the processor supports it)"
	case len(s.Resctrl.L3) == 0 && len(s.Resctrl.MB) == 0 && s.IsUnread(source):
		return nil, "what the machine can divide could not be read (sample.errors)"
	case len(s.Resctrl.L3) == 0 && len(s.Resctrl.MB) == 0:
		return nil, "this machine can divide neither its L3 cache nor its memory bandwidth"
	}
	return s.Resctrl, ""
}

// memberCgroups returns the cgroups of the classes' pods, by [qos.KoordinatorOrDefault], each with all its processes, the sandbox
// included. A pod with a group of its own by annotation belongs to none of the classes' groups. This does not apply to batch pods:
// otherwise any tenant could leave the part of the cache that batch is confined to.
func memberCgroups(pods []tick.Pod, classes []string) []string {
	var out []string
	for i := range pods {
		p := &pods[i]
		_, hasOwnGroup := p.Annotations[annotation.Resctrl]
		hasOwnGroup = hasOwnGroup && qos.KoordinatorOrDefault(p) != qos.BE
		switch {
		case p.Cgroup == "" || p.Cgroup == "/", p.Missing != "", hasOwnGroup, p.Ended():
		case slices.Contains(classes, qos.KoordinatorOrDefault(p)):
			out = append(out, p.Cgroup)
		}
	}
	return out
}

// round is the work of one tick.
type round struct {
	*State
	machine *tick.Resctrl
	advice  *tick.Advice
	advised []string // the groups that were advised, which isolate may have to create
}

func (r *round) addReason(format string, args ...any) {
	r.advice.Reasons = append(r.advice.Reasons, fmt.Sprintf("resctrl "+format, args...))
}

// adviseGroup adds a class's group with its part.
func (r *round) adviseGroup(name string, q *sloconfig.ResctrlQOS, members []string) {
	if n := r.machine.CLOSIDs; n > 0 && int64(len(r.advised)) >= n-1 {
		r.addReason("%s: unchanged: the machine has %d groups in all (num_closids), the root's and %s's", name, n, strings.Join(r.advised, "'s and "))
		return
	}
	lines, terms, problems := groupParts(r.machine, q)
	for _, p := range problems {
		r.addReason("%s: %v: unchanged", name, p)
	}
	if len(lines) == 0 {
		return
	}
	r.advised = append(r.advised, name)
	if !slices.Contains(r.Used, name) {
		r.Used = append(slices.Clone(r.Used), name)
	}
	r.advice.Resctrl = append(r.advice.Resctrl, tick.ResctrlGroup{Group: name, Schemata: lines, Cgroups: members})
	r.addReason("%s: %s; pods: %d", name, strings.Join(terms, ", "), len(members))
}

// adviseFull gives all resources to a group that was used and is now disabled. Its tasks stay, because nothing limits them there.
func (r *round) adviseFull(name string) {
	full := &sloconfig.ResctrlQOS{CATRangeStartPercent: new(int64(0)), CATRangeEndPercent: new(int64(100)), MBAPercent: new(int64(100))}
	if lines, _, _ := groupParts(r.machine, full); len(lines) > 0 {
		r.advice.Resctrl = append(r.advice.Resctrl, tick.ResctrlGroup{Group: name, Schemata: lines, IfExists: true})
	}
}
