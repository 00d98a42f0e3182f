package colocation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"polder/tests/vm"
	"polder/tests/vm/qemu"
	"polder/tests/vm/wire"
)

// guestTitle is the title of the section with shares of CPUs, which `make bench-colocation` writes after the rounds on this machine.
const guestTitle = "With cgroup v2"

// guestMachine is emulated with CPUs of a steady speed.
var guestMachine = vm.Machine{Sockets: 2, CoresPerSocket: 2, ThreadsPerCore: 2, MemoryMiB: 2048, Dilation: 3}

// BenchmarkColocationGuest measures shares of CPU and waiting in a guest with cgroup v2. Its CPUs are emulated, so that latencies would
// mean little. GUEST_CORES is how many cores each of its two sockets has, 2 by default; with another number no page is written.
func BenchmarkColocationGuest(b *testing.B) {
	if os.Getenv("QUICK") != "" {
		fmt.Printf("%s: not in the quick run\n", guestTitle)
		return
	}
	if err := qemu.Missing(); err != nil {
		writeSection(b, guestTitle, fmt.Sprintf("\nNot measured: %v.\n", err))
		return
	}
	ctx := context.Background()
	lab, err := vm.Open(ctx, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	var rows []wire.ShareRow
	machine := guestMachine
	cores := os.Getenv("GUEST_CORES")
	if cores != "" {
		if machine.CoresPerSocket, err = strconv.Atoi(cores); err != nil {
			b.Fatalf("GUEST_CORES: %v", err)
		}
	}
	runGuest(b, lab, machine, wire.SharesSuite, wire.SharesFile, &rows)
	if text := sharesText(machine.CPUs(), rows); cores != "" {
		fmt.Print(text)
	} else {
		writeSection(b, guestTitle, text)
	}
}

// runGuest runs a suite in a guest, and decodes the file that it sends.
func runGuest(b *testing.B, lab *vm.Lab, machine vm.Machine, suite, file string, result any) {
	b.Helper()
	report, err := lab.Run(context.Background(), machine, suite)
	if report == nil {
		b.Fatal(err)
	}
	if err != nil {
		b.Fatalf("%v\n%v\n%s", err, report, report.Tail())
	}
	fmt.Print(report)
	if slices.ContainsFunc(report.Lines, func(line wire.Line) bool { return line.State == wire.Fail }) {
		b.Error("the guest's suite failed")
	}
	text, err := report.File(file)
	if err == nil {
		err = json.Unmarshal(text, result)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// sharesText is the section's text: for each way the medians of its rounds, with minimum and maximum in brackets.
func sharesText(cpus int, rows []wire.ShareRow) string {
	var b strings.Builder
	fmt.Fprintf(&b, `
In a guest (Debian's kernel, cgroup v2) of %d emulated CPUs. The service is busy half of the time on all CPUs, the batch job has twice as
many threads as there are CPUs and is always busy. Waiting is the part of the time in which a thread of the service waited for a CPU
(cpu.pressure, some); confined to fewer CPUs than it has threads (--share-overlap off) these also wait for each other.
Medians of %d rounds, with minimum and maximum in brackets, by the guest's clock; methods with an option of their own have one round.

Emulated CPUs share those of the host. So that batch does not harm the service through the host, idle ones use as much of it as busy ones
(idle=poll), the host runs each for 250 µs at a time, and the guest's clock is three times slower than the host's. Latency is not measured: a
change between two processes costs an emulated CPU far more than a real one.

| method | the service's CPUs | the service waits | batch CPUs | machine busy |
|---|---|---|---|---|
`, cpus, len(rows[0].Rounds))
	for _, r := range rows {
		column := func(value func(wire.Share) float64, format string) string {
			var values []float64
			for _, s := range r.Rounds {
				values = append(values, value(s))
			}
			median, lowest, highest := spread(values)
			return fmt.Sprintf(format+" ("+format+"-"+format+")", median, lowest, highest)
		}
		fmt.Fprintf(&b, "| %s | %s | %s %% | %s | %s %% |\n", r.Way,
			column(func(s wire.Share) float64 { return s.ServiceCPUs }, "%.2f"),
			column(func(s wire.Share) float64 { return s.WaitedPercent }, "%.1f"),
			column(func(s wire.Share) float64 { return s.BatchCPUs }, "%.2f"),
			column(func(s wire.Share) float64 { return s.BusyPercent }, "%.0f"))
	}
	return b.String()
}

func TestSharesText(t *testing.T) {
	rows := []wire.ShareRow{{Way: "alone", Rounds: []wire.Share{
		{ServiceCPUs: 4, WaitedPercent: 30, BusyPercent: 52},
		{ServiceCPUs: 3.9, WaitedPercent: 10.04, BusyPercent: 50},
		{ServiceCPUs: 4.2, BatchCPUs: 0.5, WaitedPercent: 20, BusyPercent: 51},
	}}}
	text := sharesText(8, rows)
	for _, want := range []string{
		"of 8 emulated CPUs", "Medians of 3 rounds",
		"| alone | 4.00 (3.90-4.20) | 20.0 (10.0-30.0) % | 0.00 (0.00-0.50) | 51 (50-52) % |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Without QEMU the page says that the section was not measured, in the place of an earlier run's results.
func TestPageNamesMissingGuest(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte(earlierPage), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "")
	t.Setenv("QUICK", "")
	t.Setenv("COLOCATION_OUTPUT", page)
	testing.Benchmark(BenchmarkColocationGuest)
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, sections := splitPage(string(data))
	if text := sections[guestTitle]; !strings.HasPrefix(text, "Not measured: ") || !strings.Contains(text, "run scripts/setup-vm") {
		t.Errorf("the section is %q", text)
	}
	if sections[disksTitle] != "| rows of this machine |" {
		t.Errorf("another section became %q", sections[disksTitle])
	}
}
