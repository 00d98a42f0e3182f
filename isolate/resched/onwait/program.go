package onwait

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf/asm"
)

// levels is how many cgroups above a task the program looks at. Deeper ones are not searched for the idle class.
const levels = 12

// What the program may cost: on each CPU an event for each of these spans of time, and as many at once as go into the allowance. Usually
// there are some tens a second; a service that sleeps and wakes ten thousand times a second needs up to 2,000 (docs/adr/0023). But where
// something waits that the kernel's choice is not for, such as a thread of the kernel beside kubelet's pods, each choice would cause the
// next event.
const (
	span      = 500 * time.Microsecond
	allowance = 50 * time.Millisecond
)

// The program's registers, besides those of a call.
const (
	task  = asm.R6 // that begins to run
	queue = asm.R7 // the task's, then of each group above it
	cpu   = asm.R8 // the CPU's rq, then its budget
)

// The registers of what the loop finds.
const (
	batchRunnable = asm.R2 // of the outermost group in the idle class above the task
	parent        = asm.R3
	batchQueued   = asm.R5
)

// instructions are the program, at tp_btf/sched_switch, whose arguments are (preempt, prev, next, …). In C:
//
//	queue = next->se.cfs_rq; cpu = queue->rq;
//	if (next is the CPU's idle task || cpu->cfs.idle == 0 || cpu->cfs.idle >= cpu->cfs.queued) return;
//	for (parent = next->se.parent; ; queue = parent->cfs_rq, parent = parent->parent) {
//		if (queue->idle) { batchRunnable = runnable(queue); batchQueued = queue->queued; }
//		if (!parent) break;
//	}
//	if (batchRunnable == 0 || cpu->cfs.idle - batchQueued + batchRunnable >= runnable(&cpu->cfs)) return;
//	if (budget < now - allowance) budget = now - allowance;
//	if (budget + span > now) return;
//	budget += span;
//	if (ring = rings[this CPU]) ringbuf_output(ring, …, BPF_RB_FORCE_WAKEUP);
//
// The second line's condition is true in most cases, so the program usually ends there. The count of the idle class includes tasks that
// sleep but are still queued (Linux 6.12), so those of the task's own batch are subtracted. Those of other batch groups are not, so an
// event can be missing if they sleep often, but none is caused by batch alone, nor by the thread that the last event woke.
func instructions(l layout, budget, rings int) asm.Instructions {
	const (
		key, value = -4, -16 // on the stack
		next       = 2 * 8   // the third argument
	)
	list := asm.Instructions{
		asm.LoadMem(task, asm.R1, next, asm.DWord),
		asm.LoadMem(queue, task, l.taskQueue, asm.DWord),
		asm.LoadMem(cpu, queue, l.queueCPU, asm.DWord),
		asm.LoadMem(asm.R1, cpu, l.cpuQueue+l.idle, asm.Word),
		asm.JEq.Imm(asm.R1, 0, "end"),
		asm.LoadMem(asm.R2, cpu, l.cpuQueue+l.queued, asm.Word),
		asm.JGE.Reg(asm.R1, asm.R2, "end"),
		asm.LoadMem(asm.R1, task, l.taskPID, asm.Word),
		asm.JEq.Imm(asm.R1, 0, "end"),
		asm.Mov.Imm(batchRunnable, 0),
		asm.Mov.Imm(batchQueued, 0),
		asm.LoadMem(parent, task, l.taskParent, asm.DWord),
	}
	for level := range levels { // written out: so it needs no counter, and the verifier follows each pass anyway
		notIdle := fmt.Sprintf("level%d", level)
		list = append(list,
			asm.LoadMem(asm.R1, queue, l.queueIsIdle, asm.Word),
			asm.JEq.Imm(asm.R1, 0, notIdle))
		list = append(list, l.loadRunnable(batchRunnable, queue, 0)...)
		list = append(list,
			asm.LoadMem(batchQueued, queue, l.queued, asm.Word),
			asm.JEq.Imm(parent, 0, "top").WithSymbol(notIdle),
			asm.LoadMem(queue, parent, l.entityQueue, asm.DWord),
			asm.LoadMem(parent, parent, l.entityParent, asm.DWord))
	}
	list = append(list,
		asm.JEq.Imm(batchRunnable, 0, "end").WithSymbol("top"),
		asm.LoadMem(asm.R1, cpu, l.cpuQueue+l.idle, asm.Word),
		asm.Sub.Reg(asm.R1, batchQueued),
		asm.Add.Reg(asm.R1, batchRunnable))
	list = append(list, l.loadRunnable(asm.R3, cpu, l.cpuQueue)...)
	return append(list,
		asm.JSGE.Reg(asm.R1, asm.R3, "end"),

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

		asm.FnGetSmpProcessorId.Call(),
		asm.StoreMem(asm.R10, key, asm.R0, asm.Word),
		asm.LoadMapPtr(asm.R1, rings),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"), // a CPU without a thread
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Mov.Imm(asm.R2, 0), // an event's content, which nobody reads
		asm.StoreMem(asm.R10, value, asm.R2, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, value),
		asm.Mov.Imm(asm.R3, 8),
		asm.Mov.Imm(asm.R4, forceWakeup),
		asm.FnRingbufOutput.Call(),

		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	)
}

// forceWakeup is BPF_RB_FORCE_WAKEUP of linux/bpf.h.
const forceWakeup = 2

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
