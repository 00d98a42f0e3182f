package hosttest

import (
	"fmt"
	"testing"
)

// The rules result in the known properties of the machines: a sample of facts that were recorded independently of the rules.
func TestAnswers(t *testing.T) {
	for _, want := range []struct {
		name                   string
		cores, packages, l3    int
		firstCore, lastPackage string
		node                   int
		nodeCPUs               string
	}{
		{"amd-epyc7451-2s-8numa-16l3-96cpu", 48, 2, 16, "0,48", "24-47,72-95", 3, "18-23,66-71"},
		{"intel-2s-snc-4numa-ht-80cpu", 40, 2, 2, "0,40", "20-39,60-79", 1, "3-4,7-9,13-14,17-19,43-44,47-49,53-54,57-59"},
		{"intel-2s-6numa-pmem-112cpu", 56, 2, 2, "0,56", "", 4, ""},
		{"intel-4s-4numa-ht-144cpu", 72, 4, 4, "0,72", "54-71,126-143", 1, "18-35,90-107"},
		{"intel-hybrid-smt1+2-16cpu", 12, 1, 1, "0-1", "0-15", 0, "0-15"},
		{"arm64-gb10-biglittle-20cpu", 20, 1, 2, "0", "0-19", 0, "0-19"},
		{"intel-desktop-ht-20cpu", 10, 1, 1, "0,10", "0-19", 0, "0-19"},
		{"riscv-4numa-64cpu", 64, 1, 0, "0", "0-63", 1, "8-15,24-31"},
		{"intel-xeon4108-2s-2numa-ht-32cpu", 16, 2, 2, "0,16", "8-15,24-31", 0, "0-7,16-23"},
		{"power-guest-2numa-smt4-32cpu", 8, 1, 8, "0-3", "0-31", 1, "16-31"},
		{"power-guest-2numa-smt8of4-64cpu", 8, 1, 0, "0-3", "0-3,8-11,16-19,24-27,32-35,40-43,48-51,56-59", 0, "0-3,8-11,16-19,24-27"},
		{"power9-2s-6numa-smt4-160cpu", 40, 2, 20, "0-3", "80-159", 8, "80-159"},
		{"intel-2s-2numa-offline-32cpu", 15, 2, 2, "1,17", "8-15,24,26-31", 0, "1-4,6-7,16-20,22-23"},
		{"arm64-2s-4numa-clusters-128cpu", 128, 2, 4, "0", "64-127", 2, "64-95"},
		{"amd-1s-4numa-cxl-32cpu", 16, 1, 4, "0,16", "0-31", 3, ""},
		{"guest-2cpu", 2, 2, 0, "0", "1", 0, ""},
	} {
		a := answer(t, want.name)
		got := fmt.Sprint(len(a.Cores), len(a.Packages), len(a.L3), a.Cores[0])
		if expected := fmt.Sprint(want.cores, want.packages, want.l3, want.firstCore); got != expected {
			t.Errorf("%s: cores, packages, L3, first core: %s; want %s", want.name, got, expected)
		}
		if last := a.Packages[len(a.Packages)-1]; last != want.lastPackage && want.lastPackage != "" {
			t.Errorf("%s: last package %s; want %s", want.name, last, want.lastPackage)
		}
		for _, n := range a.Nodes {
			if n.ID == want.node && n.CPUs != want.nodeCPUs {
				t.Errorf("%s: node %d has %s; want %s", want.name, n.ID, n.CPUs, want.nodeCPUs)
			}
		}
	}
}

func answer(t *testing.T, name string) Answer {
	t.Helper()
	for _, m := range Machines() {
		if m.Name == name {
			return m.Answer()
		}
	}
	t.Fatalf("no machine %s", name)
	return Answer{}
}

// The tree is what the kernel writes: seven CPUs of 40 possible, one of them offline.
func TestTree(t *testing.T) {
	m := Machine{
		CPUs: 7, Possible: 40, Offline: []int{6}, At: threads(4, 4, 4), NodeKB: map[int]uint64{0: 8, 2: 16},
		Kernel: Kernel{Ending: "\n\x00"},
	}
	files := m.files()
	const cpu, node = "sys/devices/system/cpu/", "sys/devices/system/node/"
	for path, want := range map[string]string{
		cpu + "online":                             "0-5\n\x00",
		cpu + "present":                            "0-6\n\x00",
		cpu + "possible":                           "0-39\n\x00",
		cpu + "offline":                            "6-39\n\x00",
		cpu + "cpu6/online":                        "0\n",
		cpu + "cpu5/online":                        "1\n",
		cpu + "cpu1/topology/core_cpus_list":       "1,5\n\x00",
		cpu + "cpu1/topology/core_cpus":            "00,00000022\n\x00",
		cpu + "cpu2/topology/thread_siblings_list": "2\n\x00",
		cpu + "cpu0/topology/package_cpus_list":    "0-5\n\x00",
		cpu + "cpu0/topology/physical_package_id":  "0\n",
		cpu + "cpu0/cache/index2/level":            "3\n",
		cpu + "cpu0/cache/index2/shared_cpu_list":  "0-5\n\x00",
		node + "online":                            "0,2\n\x00",
		node + "has_cpu":                           "0\n\x00",
		node + "node2/cpulist":                     "\n\x00",
		node + "node2/cpumap":                      "00,00000000\n\x00",
		node + "node2/meminfo":                     "Node 2 MemTotal:       16 kB\nNode 2 MemFree:        8 kB\n",
	} {
		if got, ok := files[path]; !ok || got != want {
			t.Errorf("%s = %q, %v; want %q", path, got, ok, want)
		}
	}
	for _, path := range []string{cpu + "cpu6/topology/core_id", cpu + "cpu0/online", cpu + "cpu7/online", node + "node1/cpulist"} {
		if _, ok := files[path]; ok {
			t.Errorf("%s is there; want it absent", path)
		}
	}
}
