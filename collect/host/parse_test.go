package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseStat(t *testing.T) {
	const sum = "cpu  999 9 9 9 9 9 9 9 9 9\n"
	tests := []struct {
		name, in string
		want     []CPUTime
		ok       bool
	}{
		{
			"busy is neither idle, iowait nor steal, which is counted apart; guests are in user",
			sum + "cpu0 100 20 30 9000 50 6 7 800 40 4\ncpu2 1 0 0 0 0 0 0 0 0 0\nintr 5 cpu9\n",
			[]CPUTime{{0, 163, 800}, {2, 1, 0}},
			true,
		},
		{"an old kernel's columns", "cpu0 1 2 3 4\n", []CPUTime{{0, 6, 0}}, true},
		{"no newline at the end", "cpu11 1 2 3 4 5 6 7", []CPUTime{{11, 19, 0}}, true},
		{"empty", "", nil, false},
		{"only the sum", sum, nil, false},
		{"too few columns", "cpu0 1 2 3\n", nil, false},
		{"no number", "cpu0 1 2 x 4\n", nil, false},
		{"no CPU", "cpux 1 2 3 4\n", nil, false},
		{"a CPU beyond all", "cpu8192 1 2 3 4\n", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseStat([]byte(tt.in), make([]CPUTime, 3, 9))
			if (err == nil) != tt.ok {
				t.Fatalf("ParseStat: error %v; want ok %v", err, tt.ok)
			}
			if diff := cmp.Diff(tt.want, got); tt.ok && diff != "" {
				t.Errorf("ParseStat (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseKswapdSteal(t *testing.T) {
	tests := []struct {
		name, in string
		want     uint64
		ok       bool
	}{
		{"now", "pgsteal_anon 9\npgsteal_kswapd 42\npgsteal_kswapd_other 1\n", 42, true},
		{"a line a zone before 4.8", "pgsteal_kswapd_dma 1\npgsteal_kswapd_normal 2\npgsteal_direct_normal 9\n", 3, true},
		{"none", "pgsteal_direct 1\n", 0, false},
		{"no number", "pgsteal_kswapd x\n", 0, false},
		{"nothing behind the name", "pgsteal_kswapd\n", 0, false},
	}
	for _, tt := range tests {
		if got, err := ParseKswapdSteal([]byte(tt.in)); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: ParseKswapdSteal = %d, %v; want %d, ok %v", tt.name, got, err, tt.want, tt.ok)
		}
	}
}

func TestParseLowWatermark(t *testing.T) {
	tests := []struct {
		name, in string
		want     uint64
		ok       bool
	}{
		{"zones", "Node 0, zone      DMA\n  pages free     2816\n        boost    0\n        min      10\n        low      13\n        high     15\nNode 1, zone   Normal\n        low      100\n", 113, true},
		{"none", "Node 0, zone      DMA\n", 0, false},
		{"no number", "  low x\n", 0, false},
		{"too large", "  low 18446744073709551615\n", 0, false},
	}
	for _, tt := range tests {
		if got, err := ParseLowWatermark([]byte(tt.in)); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: ParseLowWatermark = %d, %v; want %d, ok %v", tt.name, got, err, tt.want, tt.ok)
		}
	}
}

func TestParseNodeMeminfo(t *testing.T) {
	m, err := ParseNodeMeminfo([]byte("\nNode 0 MemTotal:        4024540 kB\nNode 0 MemFree:         100 kB\nNode 0 MemUsed:          180164 kB\n"))
	if err != nil || *m.TotalBytes != 4024540<<10 || *m.FreeBytes != 100<<10 {
		t.Errorf("ParseNodeMeminfo = %v, %v", m, err)
	}
	for _, in := range []string{"", "Node 0 MemFree: 1 kB\n", "Node 0 MemTotal: x kB\n", "Node 0 MemTotal: 18446744073709551615 kB\n"} {
		if _, err := ParseNodeMeminfo([]byte(in)); err == nil {
			t.Errorf("ParseNodeMeminfo(%q): no error", in)
		}
	}
}

// write makes a machine of the given files under proc.
func write(t *testing.T, files map[string]string) *Host {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, content := range files {
		path = filepath.Join(root, "proc", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestSmallFiles(t *testing.T) {
	h := write(t, map[string]string{
		"loadavg":                       "1.50 0.25 nan 3/456 789\n",
		"uptime":                        "350735.47 234388.90\n",
		"sys/kernel/hostname":           "node7\n",
		"sys/vm/watermark_scale_factor": "10\n",
		"meminfo":                       "MemTotal:       24684100 kB\nMemFree:        100 kB\nCached:         7 kB\n",
	})
	if up, err := h.UptimeSeconds(); up != 350735.47 || err != nil {
		t.Errorf("UptimeSeconds() = %v, %v", up, err)
	}
	if name, err := h.Name(); name != "node7" || err != nil {
		t.Errorf("Name() = %q, %v", name, err)
	}
	if n, err := h.WatermarkScaleFactor(); n != 10 || err != nil {
		t.Errorf("WatermarkScaleFactor() = %d, %v", n, err)
	}
	if _, _, _, err := h.LoadAverage(); err == nil {
		t.Error("LoadAverage() with NaN: no error")
	}
	m, err := h.Memory()
	if err != nil || *m.TotalBytes != 24684100<<10 || *m.CachedBytes != 7<<10 || m.AvailableBytes != nil {
		t.Errorf("Memory() = %+v, %v; want what is there, and nil for what is not", m, err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("cpu  1 2 3 4\ncpu0 100 20 30 9000 50 6 7 800 40 4\nintr 5\n"))
	f.Add([]byte("cpu8191 18446744073709551615 1 1 1 1 1 1 1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		times, err := ParseStat(data, nil)
		if (err == nil) == (len(times) == 0) {
			t.Errorf("%d CPUs, error %v", len(times), err)
		}
	})
}

func FuzzParseMemory(f *testing.F) {
	f.Add([]byte("pgsteal_kswapd 42\n"))
	f.Add([]byte("pgsteal_kswapd_dma 1\npgsteal_kswapd_"))
	f.Add([]byte("Node 0, zone DMA\n        low      13\n"))
	f.Add([]byte("Node 0 MemTotal:        4024540 kB\nNode 0 MemFree:         100 kB\n"))
	f.Add([]byte("350735.47 234388.90\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = ParseKswapdSteal(data)
		_, _ = ParseLowWatermark(data)
		if m, err := ParseNodeMeminfo(data); err == nil && m.TotalBytes == nil {
			t.Error("no error, and no memory")
		}
		if up, err := ParseUptime(data); err == nil && !(up >= 0) {
			t.Errorf("uptime %v", up)
		}
	})
}

func FuzzParseMask(f *testing.F) {
	f.Add("ffff,00000000")
	f.Add("+f,")
	f.Fuzz(func(t *testing.T, mask string) {
		if set, err := ParseMask(mask); err == nil && !set.IsEmpty() && set.List()[set.Size()-1] > 8191 {
			t.Errorf("ParseMask(%q) = %s", mask, set)
		}
	})
}

// FuzzTopology reads a machine whose lists are arbitrary: every CPU is in at most one set of a kind.
func FuzzTopology(f *testing.F) {
	f.Add("0-3", "0,2", "0-3", "0-1")
	f.Add("1-2", "0-8191", "3,1", "")
	f.Add("0", "x", "-", "0-")
	f.Fuzz(func(t *testing.T, online, core, socket, node string) {
		h := tree{"cpu/online": online}.cpu(0, core, socket, socket).cpu(1, socket, core, core).cpu(2, core, core, node).node(0, node, 1).host(t)
		top, _ := h.Topology()
		if n := top.CPUs.Size(); n > 64 {
			return
		}
		inCores := 0
		for _, c := range top.Cores {
			inCores += c.Size()
			if !c.IsSubsetOf(top.CPUs) || c.IsEmpty() {
				t.Errorf("core %s of CPUs %s", c, top.CPUs)
			}
		}
		if inCores != top.CPUs.Size() {
			t.Errorf("cores hold %d CPUs of %d", inCores, top.CPUs.Size())
		}
	})
}
