package qemu

import (
	"encoding/binary"
	"math/bits"
)

// madtPath is where the kernel looks in an initramfs for a table to use instead of the firmware's
// (Documentation/admin-guide/acpi/initrd_table_override.rst).
const madtPath = "kernel/firmware/acpi/APIC.aml"

// Kinds of entries of the Multiple APIC Description Table (ACPI 6.4, 5.2.12).
const (
	madtLocalAPIC   = 0
	madtIOAPIC      = 1
	madtOverride    = 2
	madtLocalNMI    = 4
	madtEnabled     = 1
	madtHeaderBytes = 44
)

// Override adds the table to an initramfs that gives the CPUs the guide's numbers if the machine uses them. It
// comes first: the kernel looks for it before it unpacks anything.
func (m Machine) Override(a *Archive) {
	if m.GuideNumbering {
		a.File(madtPath, 0o644, m.madt())
	}
}

// madt is the table that makes the kernel number the CPUs as [Machine.GuideNumbering] describes: it numbers them in the order
// of the table's local APICs. The rest is as in QEMU's own table for the q35 machine.
func (m Machine) madt() []byte {
	t := make([]byte, madtHeaderBytes)
	copy(t, "APIC")
	t[8] = 1 // the table's revision
	copy(t[10:], "BOCHS BXPC    ")
	binary.LittleEndian.PutUint32(t[24:], 2) // QEMU's has 1, and the kernel prefers only a later revision
	copy(t[28:], "BXPC")
	binary.LittleEndian.PutUint32(t[32:], 1)
	binary.LittleEndian.PutUint32(t[36:], 0xfee00000) // the address of the local APICs
	binary.LittleEndian.PutUint32(t[40:], 1)          // there are two 8259s as well

	for thread := range m.ThreadsPerCore {
		for core := range m.Sockets * m.CoresPerSocket {
			uid := core*m.ThreadsPerCore + thread // QEMU's number, by which the ACPI namespace knows it
			t = append(t, madtLocalAPIC, 8, byte(uid), m.apicID(core, thread), madtEnabled, 0, 0, 0)
		}
	}
	t = append(t, madtIOAPIC, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0)
	t = append(t, madtOverride, 10, 0, 0, 2, 0, 0, 0, 0, 0) // the timer is on pin 2
	for _, irq := range []byte{5, 9, 10, 11} {
		t = append(t, madtOverride, 10, 0, irq, irq, 0, 0, 0, 0xd, 0) // PCI's: level, active high
	}
	t = append(t, madtLocalNMI, 6, 0xff, 0, 0, 1)

	binary.LittleEndian.PutUint32(t[4:], uint32(len(t)))
	var sum byte
	for _, b := range t {
		sum += b
	}
	t[9] = -sum
	return t
}

// apicID packs socket, core and thread into as many bits as each needs, as QEMU and the processors do.
func (m Machine) apicID(core, thread int) byte {
	threadBits := bits.Len(uint(m.ThreadsPerCore - 1))
	coreBits := bits.Len(uint(m.CoresPerSocket - 1))
	socket, core := core/m.CoresPerSocket, core%m.CoresPerSocket
	return byte((socket<<coreBits|core)<<threadBits | thread)
}
