package apply

import (
	"cmp"
	"reflect"
	"slices"

	"polder/isolate/plan"
	"polder/lib/disks"
	"polder/lib/tick"
)

// diskReadInterval is the number of rounds after which the disks and mounts are read again while disk limits are desired.
const diskReadInterval = 10

// diskReading counts the rounds since they were read.
type diskReading struct {
	roundsLeft      int
	failureReported bool // the failure to read them was reported
}

// readDisksFor reads the machine's disks if disk limits are desired. If they changed, the items are made again.
func (a *Applier) readDisksFor(desired []tick.Cgroup) {
	if !slices.ContainsFunc(desired, func(c tick.Cgroup) bool { return len(c.IOMax) > 0 || len(c.IOCost) > 0 }) {
		return
	}
	if a.disks.roundsLeft--; a.disks.roundsLeft >= 0 && len(a.machine.Disks) > 0 {
		return
	}
	a.disks.roundsLeft = diskReadInterval
	if before := a.machine.Disks; a.readDisks() && !reflect.DeepEqual(before, a.machine.Disks) {
		a.machineChanged = true
	}
}

// readDisks reads the machine's disks and their mount points. If that fails, the last known ones stay valid.
func (a *Applier) readDisks() bool {
	root := cmp.Or(a.Root, "/")
	list, err := disks.List(root)
	var mounts map[string]string
	if err == nil {
		mounts, err = disks.Mounts(root)
	}
	if err != nil {
		if !a.disks.failureReported {
			a.Log.Warn("the machine's disks were not read; the last known ones stay valid", "error", err)
		}
		a.disks.failureReported = true
		return false
	}
	a.disks.failureReported = false
	at := map[string][]string{}
	for point, device := range mounts {
		at[device] = append(at[device], point)
	}
	a.machine.Disks = nil
	for _, d := range list {
		slices.Sort(at[d.Device])
		one := plan.Disk{Name: d.Name, Device: d.Device, Mounts: at[d.Device], IsInAll: d.Real && !d.Stacked && !d.Empty}
		a.machine.Disks = append(a.machine.Disks, one)
	}
	return true
}

// isDiskGone reports whether a disk certainly no longer exists, and so neither do its limits.
func (a *Applier) isDiskGone(device string) bool {
	if device == "" || len(a.machine.Disks) == 0 {
		return false
	}
	return !slices.ContainsFunc(a.machine.Disks, func(d plan.Disk) bool { return d.Device == device })
}

// readText reads a file's text once: of a file with a line per disk only the part for the desired disk.
func (a *Applier) readText(f plan.File) (string, error) {
	readText, err := a.Hierarchy.ReadFile(f.Controller, f.Cgroup, f.Name)
	if f.Device != "" {
		readText = plan.DeviceText(readText, f.Device)
	}
	return readText, err
}
