package qemu

import (
	"bytes"
	"strconv"
	"strings"
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

// A machine with a slower clock has idle CPUs that poll, and a counter with as many more ticks a second; others have neither.
func TestDilation(t *testing.T) {
	khz := func(m Machine) (khz float64) {
		for word := range strings.FieldsSeq(m.KernelParameters()) {
			if text, found := strings.CutPrefix(word, "tsc_early_khz="); found {
				khz, _ = strconv.ParseFloat(text, 64)
			}
		}
		return khz
	}
	usual, slow := Machine{Parameters: "own=1"}, Machine{Dilation: 3}
	if got := usual.KernelParameters(); strings.Contains(got, steadyParameter) || !strings.Contains(got, " own=1") {
		t.Errorf("the usual parameters are %q", got)
	}
	if got := slow.KernelParameters(); !strings.Contains(got, " "+steadyParameter) || khz(slow) != 3*khz(usual) {
		t.Errorf("the parameters are %q; usually %q", got, usual.KernelParameters())
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
