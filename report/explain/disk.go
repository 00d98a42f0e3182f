package explain

import (
	"fmt"
	"slices"

	"polder/lib/phrase"
	"polder/lib/reason"
	"polder/lib/tick"
	"polder/report/view"
)

const (
	// leastStall is the percentage of the time from which a service's waiting for I/O is worth a sentence.
	leastStall = 1
	// busyDisk is the percentage of the time in which a disk had work from which it is worth a sentence where no limit is set.
	busyDisk = 90
	// mostLimits bounds the cgroups whose limits are listed.
	mostLimits = 3
)

// describeDisks describes the limits of the disks' use, the use, and who waited for a disk. about is nil for the node.
func describeDisks(t *tick.Tick, about *tick.Pod) (s []string) {
	if t.Sample == nil {
		return nil
	}
	if about != nil && about.QoS != tick.QoSReclaimed {
		return serviceOnDisks(about)
	}
	s = slices.Concat(diskLimits(t, about), diskWeight(t, about), diskCosts(t))
	limited := len(s) > 0
	if about != nil {
		if did := ioDone(about.IO); did != "" {
			s = append([]string{"It " + did + "."}, s...)
			if !limited {
				s = append(s, "Polder limited no disk.")
			}
		}
	}
	if t.Advice != nil {
		for _, r := range slices.Backward(t.Advice.Reasons) {
			if x, ok := reason.ParseGuardStep(r); ok && x.Kind == tick.GuardStepDisk {
				s = append(s, fmt.Sprintf("Step %d of %d was taken from batch's disks at %s, because %s.",
					x.OfKind, x.Most, brief(x.At), plain(x.Because)))
				break
			}
		}
	}
	if stalled := mostStalled(t.Sample); stalled != nil {
		s = append(s, fmt.Sprintf("%s waited for I/O longest of the services: for %s ms per second.",
			nameOf(stalled.Namespace, stalled.Name), phrase.Decimal(10*stalled.IOPressure.Some.Avg10, 0)))
	}
	return append(s, diskState(t, limited)...)
}

// serviceOnDisks describes a service's use of disks, and how long it waited for them.
func serviceOnDisks(p *tick.Pod) (s []string) {
	if did := ioDone(p.IO); did != "" {
		s = append(s, "It "+did+".")
	}
	if v := stall(p); v >= leastStall {
		s = append(s, fmt.Sprintf("It waited for I/O for %s ms per second.", phrase.Decimal(10*v, 0)))
	}
	return s
}

// diskLimits are the advised limits of the pod's cgroups and of those above it, or of the node's.
func diskLimits(t *tick.Tick, about *tick.Pod) (s []string) {
	if t.Advice == nil {
		return nil
	}
	more := 0
	for i := range t.Advice.Cgroups {
		c := &t.Advice.Cgroups[i]
		own, concerned := concerns(c.Cgroup, about)
		var limits []string
		for j := range c.IOMax {
			if text := describeLimit(&c.IOMax[j]); text != "" && concerned {
				limits = append(limits, text)
			}
		}
		switch {
		case len(limits) == 0:
		case len(s) == mostLimits:
			more++
		case own:
			s = append(s, fmt.Sprintf("It was limited to %s.", list(limits[:min(len(limits), mostLimits)])))
		default:
			s = append(s, fmt.Sprintf("All in %s together were limited to %s.", brief(c.Cgroup), list(limits[:min(len(limits), mostLimits)])))
		}
	}
	if more > 0 {
		s = append(s, fmt.Sprintf("%s more had limits.", phrase.Count(more, "cgroup")))
	}
	return s
}

// concerns reports whether a cgroup contains the pod or is one of its own. Without a pod every cgroup is concerned.
func concerns(cgroup string, about *tick.Pod) (own, concerned bool) {
	if about == nil {
		return false, true
	}
	if about.Cgroup == "" {
		return false, false
	}
	return cgroup == about.Cgroup, tick.IsWithin(cgroup, about.Cgroup) || cgroup != "/" && tick.IsBelow(about.Cgroup, cgroup)
}

// describeLimit describes one disk's limits; it is empty where there is none.
func describeLimit(d *tick.DiskLimit) string {
	var parts []string
	for _, one := range []struct {
		limit *int64
		what  string
		bytes bool
	}{
		{d.ReadBytesPerSecond, "read", true},
		{d.WriteBytesPerSecond, "written", true},
		{d.ReadsPerSecond, "read", false},
		{d.WritesPerSecond, "write", false},
	} {
		switch {
		case one.limit == nil || *one.limit < 0:
		case one.bytes:
			parts = append(parts, fmt.Sprintf("%s %s a second", bytesOf(float64(*one.limit)), one.what))
		default:
			parts = append(parts, phrase.Count(int(min(*one.limit, 1e15)), one.what)+" a second")
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return list(parts) + " on " + diskNamed(d.Disk)
}

// diskWeight is the advised weight of the innermost cgroup that has one.
func diskWeight(t *tick.Tick, about *tick.Pod) []string {
	if t.Advice == nil {
		return nil
	}
	var weight *int64
	of := ""
	for i := range t.Advice.Cgroups {
		c := &t.Advice.Cgroups[i]
		if _, concerned := concerns(c.Cgroup, about); concerned && c.IOWeight != nil && *c.IOWeight > 0 && len(c.Cgroup) >= len(of) {
			weight, of = c.IOWeight, c.Cgroup
		}
	}
	if weight == nil {
		return nil
	}
	return []string{fmt.Sprintf("The weight of %s on disks was %d (the default is 100): beside others it gets that share, if the disk's scheduler supports weights.",
		brief(of), *weight)}
}

// diskCosts names the disks that the kernel shall share by costs.
func diskCosts(t *tick.Tick) []string {
	if t.Advice == nil {
		return nil
	}
	var names []string
	for i := range t.Advice.Cgroups {
		for j := range t.Advice.Cgroups[i].IOCost {
			if d := &t.Advice.Cgroups[i].IOCost[j]; d.Enabled != nil && *d.Enabled {
				names = append(names, diskNamed(d.Disk))
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("The kernel was to share %s by what reads and writes cost (io.cost): there weights count with every scheduler.", list(names[:min(len(names), mostLimits)]))}
}

// diskNamed is a disk's name in a sentence.
func diskNamed(disk string) string {
	if disk == tick.AllDisks {
		return "each disk"
	}
	return "disk " + brief(disk)
}

// ioDone describes a pod's reads and writes; it is empty where they are unknown.
func ioDone(io *tick.IO) string {
	if io == nil {
		return ""
	}
	var parts []string
	for _, one := range []struct {
		bytes, operations *float64
		verb, what        string
	}{{io.ReadBytesPerSecond, io.ReadsPerSecond, "read", "read"}, {io.WriteBytesPerSecond, io.WritesPerSecond, "wrote", "write"}} {
		if one.bytes == nil {
			continue
		}
		text := fmt.Sprintf("%s %s a second", one.verb, view.Bytes(one.bytes))
		if one.operations != nil {
			text += fmt.Sprintf(" in %s", phrase.Count(int(min(max(*one.operations, 0), 1e15)), one.what))
		}
		parts = append(parts, text)
	}
	return list(parts)
}

// stall is the percentage of the time in which a pod waited for I/O. It is 0 where that is unknown, which is not reported either.
func stall(p *tick.Pod) float64 {
	if p.IOPressure == nil || p.IOPressure.Some == nil {
		return 0
	}
	return p.IOPressure.Some.Avg10
}

// mostStalled is the service that waited longest for I/O, nil where none did.
func mostStalled(sample *tick.Sample) (most *tick.Pod) {
	least := float64(leastStall)
	for i := range sample.Pods {
		if p := &sample.Pods[i]; p.IsService() && stall(p) >= least {
			most, least = p, stall(p)
		}
	}
	return most
}

// diskState describes the disk that was used most, if limits are set or it was busy, and why limits are not in force.
func diskState(t *tick.Tick, limited bool) (s []string) {
	var fullest *tick.Disk
	for i := range t.Sample.Disks {
		if d := &t.Sample.Disks[i]; d.UsePercent != nil && (fullest == nil || *d.UsePercent > *fullest.UsePercent) {
			fullest = d
		}
	}
	if fullest != nil && (limited || *fullest.UsePercent >= busyDisk) {
		text := fmt.Sprintf("The disk that was used most, %s, had work in %s %% of the time",
			brief(fullest.Name), phrase.Decimal(*fullest.UsePercent, 0))
		if l := fullest.WriteLatencyMicroseconds; l != nil {
			text += fmt.Sprintf("; a write took %.3g ms", *l/1000)
		}
		s = append(s, text+".")
	}
	if t.Isolation == nil || !limited {
		return s
	}
	for _, key := range []string{"ioMax", "ioWeight", "ioCost"} {
		if slices.Contains(t.Isolation.Unavailable, key) {
			s = append(s, fmt.Sprintf("This kernel has no file for %s: it is not in force.", key))
		}
	}
	return s
}
