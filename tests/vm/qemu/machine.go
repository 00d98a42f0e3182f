package qemu

import (
	"fmt"
	"strconv"
)

// Machine is a guest's hardware. Each socket is a NUMA node with its part of the memory.
type Machine struct {
	Sockets, CoresPerSocket, ThreadsPerCore int
	MemoryMiB                               int
	// GuideNumbering numbers the CPUs as most firmware does, and as the guide's node has them: first every core's first
	// thread, then every core's second one, so that CPU i's sibling is i+24 on 24 cores. QEMU's own is 2i and 2i+1.
	GuideNumbering bool
	// DiskBytesPerSecond is the virtio disk's rate; 0 without a disk.
	DiskBytesPerSecond int
	// DiskFile is the disk's data file. Without one the disk discards all writes.
	DiskFile string
	// Parameters are further kernel parameters.
	Parameters string
	// Dilation makes shares of CPU and waiting comparable, if it is not 0 (see [Machine.steady]): the guest's clock is so many times slower
	// than the host's.
	Dilation int
}

// The machines that tests run on.
var (
	// Tiny has 2 CPUs, for tests that any machine can run.
	Tiny = Machine{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 1, MemoryMiB: 512}
	// Small has 8 CPUs and boots in some 6 s.
	Small = Machine{Sockets: 2, CoresPerSocket: 2, ThreadsPerCore: 2, MemoryMiB: 2048}
	// Guide has the guide's 48 CPUs and their numbers, not its memory, which no test would use.
	Guide = Machine{Sockets: 2, CoresPerSocket: 12, ThreadsPerCore: 2, MemoryMiB: 4096, GuideNumbering: true}
)

// CPUs is the number of CPUs.
func (m Machine) CPUs() int { return m.Sockets * m.CoresPerSocket * m.ThreadsPerCore }

// Arguments are QEMU's for the hardware. /dev/kvm may be missing: everything is emulated. The CPU model is one with
// hyperthreads; QEMU's default has none.
func (m Machine) Arguments() []string {
	args := []string{
		"-M", "q35", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "Westmere",
		"-smp", fmt.Sprintf("%d,sockets=%d,cores=%d,threads=%d", m.CPUs(), m.Sockets, m.CoresPerSocket, m.ThreadsPerCore),
		"-m", strconv.Itoa(m.MemoryMiB) + "M",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
	}
	perSocket := m.CPUs() / m.Sockets
	for i := range m.Sockets {
		args = append(args,
			// Not reserved: a guest may have more memory than the host as long as it does not use it.
			"-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM,reserve=off", i, m.MemoryMiB/m.Sockets),
			"-numa", fmt.Sprintf("node,nodeid=%d,memdev=m%d,cpus=%d-%d", i, i, i*perSocket, (i+1)*perSocket-1))
	}
	if m.DiskBytesPerSecond > 0 {
		file := fmt.Sprintf("file.driver=null-co,file.size=%d", 1<<30)
		if m.DiskFile != "" {
			file = "cache=unsafe,file=" + m.DiskFile // the file does not outlive the guest
		}
		args = append(args, "-drive", fmt.Sprintf("%s,format=raw,if=virtio,throttling.bps-total=%d", file, m.DiskBytesPerSecond))
	}
	return args
}
