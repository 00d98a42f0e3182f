package host

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"polder/lib/tick"
)

// FuzzProcfs has the same arbitrary text in every file that the library parses, or that has a parser of one line: what
// comes back is an error or numbers that a tick can carry.
func FuzzProcfs(f *testing.F) {
	for _, seed := range []string{
		"0.00 0.01 0.05 1/234 5678\n",
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=1.50 avg60=NaN avg300=+Inf total=18446744073709551615\n",
		"MemTotal:       24684100 kB\nMemFree: 7 kB\nCached: -1 kB\nBuffers:\n", "10\n", "node-1\n", "350735.47 234388.90\n", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		root := t.TempDir()
		for _, name := range []string{"proc/loadavg", "proc/pressure/cpu", "proc/pressure/memory", "proc/diskstats", "proc/meminfo", "proc/vmstat", "proc/zoneinfo", "proc/uptime", "proc/stat", "proc/sys/vm/watermark_scale_factor", "proc/sys/kernel/hostname", "proc/sys/kernel/random/boot_id"} {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(root, "sys"), 0o755); err != nil {
			t.Fatal(err)
		}
		h, err := New(root)
		if err != nil {
			t.Fatal(err)
		}
		sane := func(what string, values ...float64) {
			t.Helper()
			for _, v := range values {
				if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
					t.Errorf("%s of %q = %v; want a number or an error", what, data, v)
				}
			}
		}
		if l1, l5, l15, err := h.LoadAverage(); err == nil {
			sane("LoadAverage", l1, l5, l15)
		}
		for _, resource := range []string{"cpu", "memory"} {
			var p Pressure
			err := h.ReadPressure(resource, &p)
			for _, l := range []*tick.PressureLine{p.Some, p.Full} {
				if err == nil && l != nil {
					sane("Pressure", l.Avg10, l.Avg60, l.Avg300)
				}
			}
		}
		if up, err := h.UptimeSeconds(); err == nil {
			sane("UptimeSeconds", up)
		}
		if name, err := h.Name(); err == nil && name == "" {
			t.Errorf("Name of %q is empty", data)
		}
		_, _ = h.Memory()
		_, _ = h.KswapdStealPages()
		_, _ = h.LowWatermarkBytes()
		_, _ = h.WatermarkScaleFactor()
		_, _ = h.CPUTimes(nil)
		_, _ = h.DiskCounts(nil)
		h.BootID()
	})
}
