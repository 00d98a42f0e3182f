package qemu

import (
	"bytes"
	"testing"
)

func TestMADT(t *testing.T) {
	table := Guide.madt()
	var sum byte
	for _, b := range table {
		sum += b
	}
	if sum != 0 {
		t.Errorf("checksum is %d", sum)
	}
	// Entry 24 is the first core's second thread; entry 12 the second socket's first core.
	for entry, want := range map[int][2]byte{0: {0, 0}, 1: {2, 2}, 12: {24, 32}, 23: {46, 54}, 24: {1, 1}, 47: {47, 55}} {
		at := table[madtHeaderBytes+8*entry:]
		if got := [2]byte{at[2], at[3]}; got != want {
			t.Errorf("entry %d is processor %d with APIC %d, want %v", entry, got[0], got[1], want)
		}
	}
}

func TestArchive(t *testing.T) {
	a := NewArchive()
	a.File("a/b/c", 0o755, []byte("12345"))
	a.File("a/b/d", 0o644, nil)
	a.Link("init", "/a/b/c")
	data := a.End()
	if len(data)%4 != 0 || bytes.Count(data, []byte("070701")) != 6 || !bytes.HasPrefix(data[110:], []byte("a\x00")) {
		t.Errorf("the archive is %q", data)
	}
	if n := bytes.Count(data, []byte("a/b\x00")); n != 1 {
		t.Errorf("the directory a/b is there %d times", n)
	}
}
