package stage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"polder/tests/need"
)

// What the loader, a debugger or the program itself has written into stays: only what is as the file is can be had again.
func TestCleanMappings(t *testing.T) {
	amounts := func(dirty, anonymous, swap int) string {
		return fmt.Sprintf("Size:                 64 kB\nPrivate_Dirty:        %d kB\nAnonymous:            %d kB\nSwap:                 %d kB\nSwapPss:               0 kB\nVmFlags: rd mr mw me dw\n", dirty, anonymous, swap)
	}
	text := strings.Join([]string{
		"00400000-00800000 r-xp 00000000 fe:01 77 /bin/tool\n", amounts(0, 0, 0), // code
		"00800000-00900000 r--p 00400000 fe:01 77 /bin/tool\n", amounts(64, 0, 0), // tables of a program that the disk does not have yet
		"00900000-00a00000 r--p 00500000 fe:01 77 /bin/tool\n", amounts(64, 64, 0), // tables with the loader's addresses
		"00a00000-00b00000 r--p 00600000 fe:01 77 /bin/tool\n", amounts(0, 4, 0), // the same, after fork
		"00b00000-00c00000 r--p 00700000 fe:01 77 /bin/tool\n", amounts(0, 0, 4), // the same, swapped out
		"00c00000-00d00000 rw-p 00800000 fe:01 77 /bin/tool\n", amounts(0, 0, 0),
		"00d00000-00e00000 r--s 00800000 fe:01 77 /bin/tool\n", amounts(0, 0, 0),
		"00e00000-00f00000 r--p 00000000 fe:01 78 /lib/other\n", amounts(0, 0, 0),
		"01000000-01100000 r--p 00000000 00:00 0 \n", amounts(0, 0, 0),
		"01100000-01200000 r--p 00000000 fe:01 77 /bin/tool\nSize: 64 kB\n", // a kernel that does not say
		"01200000-01300000 r--p 00000000 fe:01 77 /bin/tool\n", amounts(0, 0, 0),
	}, "")
	got, err := cleanMappings(strings.NewReader(text), func(path string) bool { return path == "/bin/tool" })
	want := []mapping{{0x400000, 0x800000}, {0x800000, 0x900000}, {0x1200000, 0x1300000}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%x, %v; want %x", got, err, want)
	}
}

// This process gives pages back and goes on, and there is something to give back.
func TestReleaseStartup(t *testing.T) {
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	clean, err := cleanMappings(file, func(path string) bool { return path == self })
	if err != nil || len(clean) == 0 {
		t.Errorf("mappings %x, %v; want the code's at least", clean, err)
	}
	if err := releaseStartup(); err != nil {
		t.Error(err)
	}
}

// A tool that is built to run at any address keeps the tables that the loader has filled in.
func TestPositionIndependentTool(t *testing.T) {
	need.Program(t, "go", "golang-go")
	tool := filepath.Join(t.TempDir(), "advise")
	build := exec.Command("go", "build", "-buildmode=pie", "-o", tool, "polder/advise")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.Command(tool)
	line := `{"v":1,"node":"n","time":"2026-11-21T12:00:0%dZ","sample":{"topology":{"cpus":"0-3"},"cpu":{"usageMilliCPU":100}}}` + "\n"
	var in strings.Builder
	for i := range 2*settledAfter + 1 {
		fmt.Fprintf(&in, line, i)
	}
	run.Stdin = strings.NewReader(in.String())
	var log strings.Builder
	run.Stderr = &log
	out, err := run.Output()
	if err != nil || strings.Count(string(out), `"advice":`) != 2*settledAfter+1 {
		t.Errorf("%v, %.300s\n%.2000s", err, out, log.String())
	}
}

// What the first ticks alone needed goes once, and not with every tick: each page that is needed again is a fault.
func TestSettlesOnce(t *testing.T) {
	released := []int{}
	s, n := &Session{}, 0
	s.settled() // in a test, or within another process: nothing to give back
	s.release = func() { released = append(released, n) }
	for n = 1; n <= 10*settledAfter; n++ {
		s.settled()
	}
	if !slices.Equal(released, []int{settledAfter}) {
		t.Errorf("given back at the ticks %d, want %d alone", released, settledAfter)
	}
}
