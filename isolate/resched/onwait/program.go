package onwait

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf/asm"
)

// levels is how many cgroups above a task the program looks at. Deeper ones are not searched for the idle class.
const levels = 12

// What the program may cost: on each CPU an event for each of these spans of time, and as many at once as go into the allowance. Usually
// there are some tens a second. But where something waits that the kernel's choice is not for, such as a thread of the kernel beside
// kubelet's pods, each choice would cause the next event.
const (
	span      = 500 * time.Microsecond
	allowance = 50 * time.Millisecond
)

// The program's registers, besides those of a call.
const (
	context = asm.R9
	task    = asm.R6 // that begins to run
	queue   = asm.R7 // the task's, then of each group above it
	cpu     = asm.R8 // the CPU's rq, then its budget
)

// instructions are the program, at tp_btf/sched_switch, whose arguments are (preempt, prev, next, …). In C:
//
//	queue = next->se.cfs_rq; cpu = queue->rq;
//	if (next is the CPU's idle task || cpu->cfs.idle == 0 || cpu->cfs.idle >= cpu->cfs.queued) return;
//	for (parent = next->se.parent; ; queue = parent->cfs_rq, parent = parent->parent) {
//		if (queue->idle) ofBatch = runnable(queue);
//		if (!parent) break;
//	}
//	if (ofBatch == 0 || ofBatch >= runnable(&cpu->cfs)) return;
//	if (budget < now - allowance) budget = now - allowance;
//	if (budget + span > now) return;
//	budget += span;
//	perf_event_output(ctx, events, BPF_F_CURRENT_CPU, …);
//
// The second line is true in most cases, and the end of these. Neither test is sufficient: the counts of the idle class include tasks
// that sleep but are still queued, of the services as well, and what is runnable beside the outermost group in the idle class may be
// another such group.
func instructions(l layout, budget, events int) asm.Instructions {
	const (
		key, value = -4, -16 // on the stack
		next       = 2 * 8   // the third argument
	)
	list := asm.Instructions{
		asm.Mov.Reg(context, asm.R1),
		asm.LoadMem(task, context, next, asm.DWord),
		asm.LoadMem(queue, task, l.taskQueue, asm.DWord),
		asm.LoadMem(cpu, queue, l.queueCPU, asm.DWord),
		asm.LoadMem(asm.R1, cpu, l.cpuQueue+l.idle, asm.Word),
		asm.JEq.Imm(asm.R1, 0, "end"),
		asm.LoadMem(asm.R2, cpu, l.cpuQueue+l.queued, asm.Word),
		asm.JGE.Reg(asm.R1, asm.R2, "end"),
		asm.LoadMem(asm.R1, task, l.taskPID, asm.Word),
		asm.JEq.Imm(asm.R1, 0, "end"),
		asm.Mov.Imm(asm.R2, 0), // ofBatch
		asm.LoadMem(asm.R3, task, l.taskParent, asm.DWord),
	}
	for level := range levels { // written out: older kernels accept no loops
		notIdle := fmt.Sprintf("level%d", level)
		list = append(list,
			asm.LoadMem(asm.R1, queue, l.queueIsIdle, asm.Word),
			asm.JEq.Imm(asm.R1, 0, notIdle))
		list = append(list, l.loadRunnable(asm.R2, queue, 0)...)
		list = append(list,
			asm.JEq.Imm(asm.R3, 0, "top").WithSymbol(notIdle),
			asm.LoadMem(queue, asm.R3, l.entityQueue, asm.DWord),
			asm.LoadMem(asm.R3, asm.R3, l.entityParent, asm.DWord))
	}
	list = append(list, asm.JEq.Imm(asm.R2, 0, "end").WithSymbol("top"))
	list = append(list, l.loadRunnable(asm.R1, cpu, l.cpuQueue)...)
	return append(list,
		asm.JGE.Reg(asm.R2, asm.R1, "end"),

		asm.StoreImm(asm.R10, key, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, budget),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Mov.Reg(cpu, asm.R0),
		asm.FnKtimeGetNs.Call(), // now
		asm.LoadMem(asm.R1, cpu, 0, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R0),
		asm.Sub.Imm(asm.R2, int32(allowance)),
		asm.JGE.Reg(asm.R1, asm.R2, "spent"),
		asm.Mov.Reg(asm.R1, asm.R2),
		asm.Add.Imm(asm.R1, int32(span)).WithSymbol("spent"),
		asm.JGT.Reg(asm.R1, asm.R0, "end"),
		asm.StoreMem(cpu, 0, asm.R1, asm.DWord),

		asm.Mov.Imm(asm.R1, 0), // an event's content, which nobody reads
		asm.StoreMem(asm.R10, value, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R1, context),
		asm.LoadMapPtr(asm.R2, events),
		asm.LoadImm(asm.R3, currentCPU, asm.DWord),
		asm.Mov.Reg(asm.R4, asm.R10),
		asm.Add.Imm(asm.R4, value),
		asm.Mov.Imm(asm.R5, 8),
		asm.FnPerfEventOutput.Call(),

		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	)
}

// currentCPU is BPF_F_CURRENT_CPU of linux/bpf.h.
const currentCPU = 0xffffffff

// loadRunnable counts the tasks of a queue that wait or run, without those that sleep but are still queued.
func (l layout) loadRunnable(into, queue asm.Register, offset int16) asm.Instructions {
	switch {
	case l.runnable != missing:
		return asm.Instructions{asm.LoadMem(into, queue, offset+l.runnable, asm.Word)}
	case l.delayed != missing:
		return asm.Instructions{
			asm.LoadMem(into, queue, offset+l.queued, asm.Word),
			asm.LoadMem(asm.R4, queue, offset+l.delayed, asm.Word),
			asm.Sub.Reg(into, asm.R4),
		}
	default:
		return asm.Instructions{asm.LoadMem(into, queue, offset+l.queued, asm.Word)}
	}
}
