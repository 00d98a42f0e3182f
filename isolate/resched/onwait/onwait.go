// Package onwait notices in the kernel that a CPU begins to run a task of the idle class while another task waits for this CPU, and wakes
// a thread there, so that the kernel reschedules the CPU.
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
	events  map[int]*Events
}

// New loads the program, for events of these CPUs. It does not run before [Watch.Attach].
func New(cpus []int) (*Watch, error) {
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("the kernel's description of its types (/sys/kernel/btf/vmlinux, CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	l, err := layoutOf(types)
	if err != nil {
		return nil, err
	}
	ring := &ebpf.MapSpec{Name: "ring", Type: ebpf.RingBuf, MaxEntries: uint32(os.Getpagesize())} // bytes
	rings, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "rings", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: numbers(cpus), InnerMap: ring,
	})
	if err != nil {
		return nil, loadError(err)
	}
	defer rings.Close() // the program keeps it, and with it the ring of each CPU
	budget, err := ebpf.NewMap(&ebpf.MapSpec{Name: "budget", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, loadError(err)
	}
	defer budget.Close()
	w := &Watch{events: make(map[int]*Events, len(cpus))}
	for _, cpu := range cpus {
		if w.events[cpu], err = newEvents(ring, rings, cpu); err != nil {
			return nil, fmt.Errorf("events of CPU %d: %w", cpu, err)
		}
	}
	w.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "polder_onwait", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_switch",
		Instructions: instructions(l, budget.FD(), rings.FD()),
		License:      license,
	})
	if err != nil {
		return nil, loadError(err)
	}
	return w, nil
}

// license is that of the program in the kernel, which may call functions for programs under the GPL only. Its source has both licenses.
const license = "Dual BSD/GPL"

// numbers is how many numbers of CPUs there are up to the largest of these.
func numbers(cpus []int) (n uint32) {
	for _, cpu := range cpus {
		n = max(n, uint32(cpu)+1)
	}
	return n
}

// loadError explains what the kernel's refusal means.
func loadError(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("the kernel refuses a BPF program (CAP_BPF and CAP_PERFMON are needed): %w", err)
	}
	return fmt.Errorf("the kernel does not accept the BPF program: %w", err)
}

// Attach makes the program run at each change of a CPU's task.
func (w *Watch) Attach() (err error) {
	w.link, err = link.AttachTracing(link.TracingOptions{Program: w.program})
	if err != nil {
		return fmt.Errorf("the tracepoint sched_switch: %w", loadError(err))
	}
	return nil
}

// Events returns the events of a CPU; nil if it was not one of [New]'s.
func (w *Watch) Events(cpu int) *Events { return w.events[cpu] }

// Events are those of one CPU: a ring whose reader the program wakes at each event. (A perf event would be the older way, but Debian's and
// Ubuntu's kernels permit these only with CAP_SYS_ADMIN.)
type Events struct {
	ring              *ebpf.Map
	consumed, written *uint64 // bytes since the start, which the reader and the kernel count
}

// newEvents makes a CPU's ring and puts it among the program's.
func newEvents(spec *ebpf.MapSpec, rings *ebpf.Map, cpu int) (*Events, error) {
	ring, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, loadError(err)
	}
	if err := rings.Put(uint32(cpu), uint32(ring.FD())); err != nil {
		return nil, err
	}
	// The ring's file has a page with the reader's count, a page with the kernel's, and the content.
	page := os.Getpagesize()
	consumer, err := unix.Mmap(ring.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	producer, err := unix.Mmap(ring.FD(), int64(page), page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return &Events{ring, (*uint64)(unsafe.Pointer(&consumer[0])), (*uint64)(unsafe.Pointer(&producer[0]))}, nil
}

// WakeAtEach sleeps until the next event, again and again; it does not return. A raw system call does not tell Go's runtime, which would
// do more for each one than the kernel does, so the caller's thread is lost for other goroutines.
func (e *Events) WakeAtEach() {
	poll := unix.PollFd{Fd: int32(e.ring.FD()), Events: unix.POLLIN}
	for {
		unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, 0, 0, 0, 0) // without a time limit
		atomic.StoreUint64(e.consumed, atomic.LoadUint64(e.written))                    // the ring is empty again
	}
}
