// Package onwait notices in the kernel that a CPU begins to run a task of the idle class while another task waits for this CPU, and wakes
// a thread there, so that the kernel chooses again.
//
// The kernel's fair scheduler (EEVDF) chooses only among tasks that did not get more than their share yet. So batch in the idle class can
// be chosen although a service waits that has just run, and then it runs until the kernel's next tick. A BPF program at the tracepoint
// sched_switch sees that when it happens (program.go), and writes an event for its CPU; that wakes the thread that reads the events of
// this CPU. When it sleeps again, the kernel chooses once more, after some microseconds of batch instead of milliseconds
// (docs/adr/0023-wake-when-a-task-waits-behind-batch.md).
//
// It needs Linux 5.15 with its types described (CONFIG_DEBUG_INFO_BTF, as in all common distributions), and CAP_BPF and CAP_PERFMON.
package onwait

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Watch is the program in the kernel with the events of each CPU. The kernel removes it when the process ends.
type Watch struct {
	program *ebpf.Program
	link    link.Link
	rings   *ebpf.Map // of the events; the kernel empties it when this file is closed, although the program keeps the map
	events  map[int]*Events
}

// New loads the program and opens the events of the CPUs, whose numbers are below numbers. The program does not run before [Watch.Attach].
func New(cpus []int, numbers int) (*Watch, error) {
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("the kernel's description of its types (/sys/kernel/btf/vmlinux, CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	l, err := layoutOf(types)
	if err != nil {
		return nil, err
	}
	w := &Watch{events: make(map[int]*Events, len(cpus))}
	w.rings, err = ebpf.NewMap(&ebpf.MapSpec{Name: "events", Type: ebpf.PerfEventArray, MaxEntries: uint32(numbers)})
	if err != nil {
		return nil, loadError(err)
	}
	budget, err := ebpf.NewMap(&ebpf.MapSpec{Name: "budget", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, loadError(err)
	}
	defer budget.Close() // the program keeps it
	for _, cpu := range cpus {
		e, err := newEvents(cpu)
		if errors.Is(err, unix.ENODEV) { // the CPU has just gone offline
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("events of CPU %d: %w", cpu, err)
		}
		if err := w.rings.Put(uint32(cpu), uint32(e.file)); err != nil {
			return nil, fmt.Errorf("events of CPU %d: %w", cpu, err)
		}
		w.events[cpu] = e
	}
	w.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "polder_onwait", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_switch",
		Instructions: instructions(l, budget.FD(), w.rings.FD()),
		License:      license,
	})
	if err != nil {
		return nil, loadError(err)
	}
	return w, nil
}

// license is that of the program in the kernel, which may call functions for programs under the GPL only. Its source has both licenses.
const license = "Dual BSD/GPL"

// loadError explains what the kernel's refusal means.
func loadError(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the kernel refuses a BPF program (CAP_BPF and CAP_PERFMON are needed): %w", err)
	}
	return fmt.Errorf("the kernel does not accept the BPF program: %w", err)
}

// Attach makes the program run at each change of a CPU's task.
func (w *Watch) Attach() (err error) {
	w.link, err = link.AttachTracing(link.TracingOptions{Program: w.program})
	if err != nil {
		return fmt.Errorf("the tracepoint sched_switch: %w", err)
	}
	return nil
}

// Events returns the events of a CPU; nil if it was not one of [New]'s or was offline.
func (w *Watch) Events(cpu int) *Events { return w.events[cpu] }

// Events are those of one CPU.
type Events struct {
	file int
	page *unix.PerfEventMmapPage // its first page, which counts what was written and read
}

// newEvents opens a CPU's events: a file with a ring of one page, which wakes its reader at each event.
func newEvents(cpu int) (*Events, error) {
	attributes := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_BPF_OUTPUT, Sample_type: unix.PERF_SAMPLE_RAW, Wakeup: 1,
	}
	attributes.Size = uint32(unsafe.Sizeof(attributes))
	file, err := unix.PerfEventOpen(&attributes, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("perf_event_open", err)
	}
	memory, err := unix.Mmap(file, 0, (1+1)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("mmap", err), unix.Close(file))
	}
	return &Events{file, (*unix.PerfEventMmapPage)(unsafe.Pointer(&memory[0]))}, nil
}

// WakeAtEach sleeps until the next event, again and again; it does not return. A raw system call does not tell Go's runtime, which would
// do more for each one than the kernel does, so the caller's thread is lost for other goroutines.
func (e *Events) WakeAtEach() {
	poll := unix.PollFd{Fd: int32(e.file), Events: unix.POLLIN}
	const forever = ^uintptr(0)
	for {
		unix.RawSyscall(unix.SYS_POLL, uintptr(unsafe.Pointer(&poll)), 1, forever)
		atomic.StoreUint64(&e.page.Data_tail, atomic.LoadUint64(&e.page.Data_head)) // the ring is empty again
	}
}
