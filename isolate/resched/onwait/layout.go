package onwait

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// layout is where this kernel has what the program reads: bytes from the start of a structure of kernel/sched, which differ by version
// and configuration.
type layout struct {
	taskPID, taskQueue, taskParent int16 // task_struct: pid, se.cfs_rq, se.parent
	entityQueue, entityParent      int16 // sched_entity: cfs_rq, parent
	queueCPU, queueIsIdle          int16 // cfs_rq: rq, idle
	queued, idle                   int16 // cfs_rq: its tasks and those of the groups in it, and those in the idle class
	runnable, delayed              int16 // cfs_rq: its tasks without those that sleep but still have to pay for what they got; only these
	cpuQueue                       int16 // rq: cfs
}

// missing is the place of a field that the kernel does not have.
const missing int16 = -1

// layoutOf finds the fields; kernels have one of several names for some.
func layoutOf(types *btf.Spec) (l layout, err error) {
	for _, f := range []struct {
		into       *int16
		of         string
		names      []string // dots separate a structure's field from the field of it
		isOptional bool
	}{
		{&l.taskPID, "task_struct", []string{"pid"}, false},
		{&l.taskQueue, "task_struct", []string{"se.cfs_rq"}, false},
		{&l.taskParent, "task_struct", []string{"se.parent"}, false},
		{&l.entityQueue, "sched_entity", []string{"cfs_rq"}, false},
		{&l.entityParent, "sched_entity", []string{"parent"}, false},
		{&l.queueCPU, "cfs_rq", []string{"rq"}, false},
		{&l.queueIsIdle, "cfs_rq", []string{"idle"}, false},
		{&l.queued, "cfs_rq", []string{"h_nr_queued", "h_nr_running"}, false}, // since Linux 6.14, and before
		{&l.idle, "cfs_rq", []string{"h_nr_idle", "idle_h_nr_running"}, false},
		{&l.runnable, "cfs_rq", []string{"h_nr_runnable"}, true},
		{&l.delayed, "cfs_rq", []string{"h_nr_delayed"}, true}, // 6.13, and later ones of 6.12
		{&l.cpuQueue, "rq", []string{"cfs"}, false},
	} {
		if *f.into, err = offset(types, f.of, f.names); err != nil {
			if !f.isOptional {
				return l, err
			}
			*f.into = missing
		}
	}
	if l.runnable == missing && l.delayed == missing {
		// Only before 6.12 no task stays queued that sleeps, so that all queued ones can run.
		if _, err := offset(types, "sched_entity", []string{"sched_delayed"}); err == nil {
			return l, errors.New("this kernel does not count the tasks that sleep and are still queued (an early version of Linux 6.12)")
		}
	}
	return l, nil
}

// offset returns the place in a structure of the first of the fields that it has.
func offset(types *btf.Spec, structure string, fields []string) (int16, error) {
	var outer *btf.Struct
	if err := types.TypeByName(structure, &outer); err != nil {
		return 0, fmt.Errorf("this kernel has no type %s: %w", structure, err)
	}
	for _, field := range fields {
		bytes, found := 0, true
		at := outer
		for name := range strings.SplitSeq(field, ".") {
			if found = at != nil; !found {
				break
			}
			var member *btf.Member
			for i := range at.Members {
				if at.Members[i].Name == name {
					member = &at.Members[i]
				}
			}
			if found = member != nil; !found {
				break
			}
			bytes += int(member.Offset.Bytes())
			at, _ = btf.UnderlyingType(member.Type).(*btf.Struct) // the last field is none
		}
		if found && bytes <= math.MaxInt16 {
			return int16(bytes), nil
		}
	}
	return 0, fmt.Errorf("this kernel's %s has no field %s (Linux 5.15 with CONFIG_FAIR_GROUP_SCHED is needed)",
		structure, strings.Join(fields, " or "))
}
