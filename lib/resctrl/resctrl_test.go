package resctrl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// machine writes the files below a root.
func machine(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	at       = Dir + "/"
	genuine  = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel name\t: Xeon\n"
	advanced = "processor\t: 0\nvendor_id\t: AuthenticAMD\n"
)

// The files contain what the kernel writes on such machines (Documentation/filesystems/resctrl.rst).
func TestRead(t *testing.T) {
	xeon := map[string]string{
		"proc/cpuinfo": genuine, at + "schemata": "    MB:0=  100;1=  100\n    L2:0=0ffff\n    L3:0=fffff;1=fffff\n", at + "info/last_cmd_status": "ok\n",
		at + "info/L3/cbm_mask": "fffff\n", at + "info/L3/min_cbm_bits": "1\n", at + "info/L3/num_closids": "16\n", at + "info/L3_MON/num_rmids": "176\n",
		at + "info/L2/num_closids": "15\n", at + "info/MB/num_closids": "8\n", at + "info/MB/min_bandwidth": "10\n", at + "info/MB/bandwidth_gran": "10\n",
	}
	with := func(more map[string]string) map[string]string {
		out := map[string]string{}
		for _, files := range []map[string]string{xeon, more} {
			for name, text := range files {
				if out[name] = text; text == "-" {
					delete(out, name)
				}
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		files  map[string]string
		want   *tick.Resctrl
		failed []string // in the error's lines
	}{
		"not mounted":     {map[string]string{"proc/cpuinfo": genuine, at + "nothing": ""}, nil, nil},
		"xeon":            {xeon, &tick.Resctrl{Vendor: "intel", CBMMask: "fffff", MinCBMBits: 1, CLOSIDs: 8, L3: []int64{0, 1}, MB: []int64{0, 1}, MBMin: 10, MBGranularity: 10}, nil},
		"monitoring only": {map[string]string{"proc/cpuinfo": genuine, at + "info/L3_MON/num_rmids": "176\n"}, &tick.Resctrl{Vendor: "intel"}, nil},
		"epyc": {map[string]string{
			"proc/cpuinfo": advanced, at + "schemata": "  SMBA:0=2048;8=2048\n    MB:0=2048;8=2048\n    L3:0=ffff;8=ffff\n",
			at + "info/L3/cbm_mask": "ffff\n", at + "info/L3/min_cbm_bits": "1\n", at + "info/L3/num_closids": "16\n",
			at + "info/MB/num_closids": "16\n", at + "info/MB/min_bandwidth": "0\n", at + "info/MB/bandwidth_gran": "1\n",
		}, &tick.Resctrl{Vendor: "amd", CBMMask: "ffff", MinCBMBits: 1, CLOSIDs: 16, L3: []int64{0, 8}, MB: []int64{0, 8}, MBGranularity: 1}, nil},
		"code and data": {map[string]string{
			"proc/cpuinfo": genuine, at + "schemata": "L3DATA:0=001ff;1=001ff\nL3CODE:0=001ff;1=001ff\n",
			at + "info/L3CODE/cbm_mask": "fffff\n", at + "info/L3CODE/min_cbm_bits": "1\n", at + "info/L3CODE/num_closids": "8\n", at + "info/L3DATA/num_closids": "8\n",
		}, &tick.Resctrl{Vendor: "intel", CBMMask: "fffff", MinCBMBits: 1, CLOSIDs: 8, L3: []int64{0, 1}, CDP: true}, nil},
		"in MiB/s, by the mount": {
			with(map[string]string{"proc/self/mountinfo": "36 35 0:40 / /sys/fs/resctrl rw,relatime shared:9 - resctrl resctrl rw,mba_MBps\n"}),
			&tick.Resctrl{Vendor: "intel", CBMMask: "fffff", MinCBMBits: 1, CLOSIDs: 8, L3: []int64{0, 1}, MB: []int64{0, 1}, MBMin: 10, MBGranularity: 10, MBps: true}, nil,
		},
		"in MiB/s, by the values": {
			with(map[string]string{at + "schemata": "MB:0=4294967295;1=4294967295\n"}),
			&tick.Resctrl{Vendor: "intel", CLOSIDs: 8, MB: []int64{0, 1}, MBMin: 10, MBGranularity: 10, MBps: true}, nil,
		},
		"mounted otherwise": {
			with(map[string]string{"proc/self/mountinfo": "36 35 0:40 / /sys/fs/resctrl rw shared:9 - resctrl resctrl rw,cdp\n37 35 0:4 / /x rw - tmpfs mba_MBps rw\n"}),
			&tick.Resctrl{Vendor: "intel", CBMMask: "fffff", MinCBMBits: 1, CLOSIDs: 8, L3: []int64{0, 1}, MB: []int64{0, 1}, MBMin: 10, MBGranularity: 10}, nil,
		},
		"no processor known": {
			with(map[string]string{"proc/cpuinfo": "processor\t: 0\nCPU implementer\t: 0x41\n", at + "schemata": "L3:0=f\n"}),
			&tick.Resctrl{CBMMask: "fffff", MinCBMBits: 1, CLOSIDs: 8, L3: []int64{0}}, nil,
		},
		"no mask": {
			with(map[string]string{at + "info/L3/cbm_mask": "-"}),
			&tick.Resctrl{Vendor: "intel", CLOSIDs: 8, MB: []int64{0, 1}, MBMin: 10, MBGranularity: 10},
			[]string{"read how the L3 cache is divided: open", "cbm_mask: no such file"},
		},
		"not a mask": {
			with(map[string]string{at + "info/L3/cbm_mask": "0xfffff\n", at + "info/MB/min_bandwidth": "ten", at + "info/L2/num_closids": "-1\n"}),
			&tick.Resctrl{Vendor: "intel"},
			[]string{`cbm_mask: "0xfffff" is not a mask`, `min_bandwidth: "ten" is not a number`, `num_closids: "-1" is not a number`},
		},
		"no least bits": {
			with(map[string]string{at + "info/L3/min_cbm_bits": "\n", at + "info/MB/bandwidth_gran": "99999999999"}),
			&tick.Resctrl{Vendor: "intel", CLOSIDs: 8},
			[]string{"min_cbm_bits", "bandwidth_gran"},
		},
		"huge": {with(map[string]string{at + "schemata": strings.Repeat("L3:0=f;", 1<<20)}), &tick.Resctrl{Vendor: "intel", CLOSIDs: 8}, nil},
	} {
		root := machine(t, c.files)
		got, err := Read(root)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if (err != nil) != (c.failed != nil) {
			t.Errorf("%s: error %v; want %q", name, err, c.failed)
		}
		for _, text := range c.failed {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: error %v; want %q", name, err, text)
			}
		}
		if _, mounted := Mounted(root); mounted != (c.want != nil) {
			t.Errorf("%s: mounted %v", name, mounted)
		}
	}
}

// BenchmarkUnmounted measures a tick without resctrl.
func BenchmarkUnmounted(b *testing.B) {
	for b.Loop() {
		Mounted("/proc")
	}
}
