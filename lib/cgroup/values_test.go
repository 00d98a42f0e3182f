package cgroup

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseValues(t *testing.T) {
	const v1Stat = "cache 1\nrss 2\ninactive_file 3\nhierarchical_memory_limit 9\ntotal_cache 10\ntotal_rss 20\ntotal_rss_huge 99\ntotal_inactive_file 30\n"
	tests := []struct {
		name, in string
		parse    func(*Values, []byte) error
		want     Values
		ok       bool
	}{
		{"usage", "123456789\n", (*Values).ParseUsage, Values{Has: HasUsage, UsageNanoseconds: 123456789}, true},
		{"usage, empty", "", (*Values).ParseUsage, Values{}, false},
		{"usage, two numbers", "1 2\n", (*Values).ParseUsage, Values{}, false},
		{"memory", "4096\n", (*Values).ParseMemory, Values{Has: HasMemory, MemoryBytes: 4096}, true},
		{"threads", "7\n", (*Values).ParseThreads, Values{Has: HasThreads, Threads: 7}, true},
		{"quota", "50000\n", (*Values).ParseQuota, Values{Has: HasQuota, QuotaMicroseconds: 50000}, true},
		{"quota, none", "-1\n", (*Values).ParseQuota, Values{Has: HasQuota, QuotaMicroseconds: -1}, true},
		{"idle", "1\n", (*Values).ParseIdle, Values{Has: HasIdle, Idle: 1}, true},
		{"not idle", "0\n", (*Values).ParseIdle, Values{Has: HasIdle}, true},
		{"idle, rubbish", "x\n", (*Values).ParseIdle, Values{}, false},
		{"quota, a dash", "-\n", (*Values).ParseQuota, Values{}, false},
		{"quota, rubbish", "-x\n", (*Values).ParseQuota, Values{}, false},
		{"quota, empty", "", (*Values).ParseQuota, Values{}, false},
		{"period", "100000\n", (*Values).ParsePeriod, Values{Has: HasPeriod, PeriodMicroseconds: 100000}, true},
		{"cpu.max", "50000 100000\n", (*Values).ParseCPUMax, Values{Has: HasQuota | HasPeriod, QuotaMicroseconds: 50000, PeriodMicroseconds: 100000}, true},
		{"cpu.max, none", "max 100000\n", (*Values).ParseCPUMax, Values{Has: HasQuota | HasPeriod, QuotaMicroseconds: -1, PeriodMicroseconds: 100000}, true},
		{"cpu.max, no period", "max\n", (*Values).ParseCPUMax, Values{}, false},
		{"cpu.max, rubbish", "maximal 100000\n", (*Values).ParseCPUMax, Values{}, false},
		{"cpuset", "0-3,8\n", (*Values).ParseCPUSet, Values{Has: HasCPUSet, CPUSetCPUs: "0-3,8"}, true},
		{"cpuset that ends in NUL", "0-3,8\n\x00", (*Values).ParseCPUSet, Values{Has: HasCPUSet, CPUSetCPUs: "0-3,8"}, true},
		{"cpuset, empty", "\n", (*Values).ParseCPUSet, Values{Has: HasCPUSet}, true},
		{"cpuset, rubbish", "0-3;\n", (*Values).ParseCPUSet, Values{}, false},
		{"cpuset, cut off", "0-3,40-\n", (*Values).ParseCPUSet, Values{}, false},
		{"cpuset, two ranges in one", "0-3-5\n", (*Values).ParseCPUSet, Values{}, false},
		{"cpuset, negative", "-7--7\n", (*Values).ParseCPUSet, Values{}, false},
		{
			"cpu.stat v1", "nr_periods 10\nnr_throttled 4\nthrottled_time 123\n", (*Values).ParseCPUStat,
			Values{Has: HasThrottling, Periods: 10, ThrottledPeriods: 4},
			true,
		},
		{
			"cpu.stat v2", "usage_usec 5\nuser_usec 3\nnr_periods 10\nnr_throttled 4\n", (*Values).ParseCPUStat,
			Values{Has: HasUsage | HasThrottling, UsageNanoseconds: 5000, Periods: 10, ThrottledPeriods: 4},
			true,
		},
		{"cpu.stat v2 without the controller", "usage_usec 5\nuser_usec 3\n", (*Values).ParseCPUStat, Values{Has: HasUsage, UsageNanoseconds: 5000}, true},
		{"cpu.stat, rubbish", "usage_usec x\n", (*Values).ParseCPUStat, Values{}, false},
		{
			"memory.stat v1, with the cgroups below", v1Stat, (*Values).ParseMemoryStatV1,
			Values{Has: HasMemoryStat, CacheBytes: 10, RSSBytes: 20, InactiveFileBytes: 30},
			true,
		},
		{
			"memory.stat v1 without them", "cache 1\nrss 2\ninactive_file 3\n", (*Values).ParseMemoryStatV1,
			Values{Has: HasMemoryStat, CacheBytes: 1, RSSBytes: 2, InactiveFileBytes: 3},
			true,
		},
		{
			"memory.stat v2", "anon 1\nfile 2\nkernel 9\ninactive_file 3\n", (*Values).ParseMemoryStatV2,
			Values{Has: HasMemoryStat, RSSBytes: 1, CacheBytes: 2, InactiveFileBytes: 3},
			true,
		},
		{"memory.stat, cut off", "anon 1\nfile 2\n", (*Values).ParseMemoryStatV2, Values{}, false},
		{
			"memory.numa_stat v1, pages", "total=1 N0=1\nhierarchical_total=3 N0=1 N3=2\n", (*Values).ParseNUMAStatV1,
			Values{Has: HasNUMA, NUMA: []NodeBytes{{0, 4096}, {3, 8192}}},
			true,
		},
		{
			"memory.numa_stat v2", "anon N0=10 N1=20\nfile N0=1 N1=2\nkernel_stack N0=100 N1=0\nanon_thp N0=5 N1=5\n", (*Values).ParseNUMAStatV2,
			Values{Has: HasNUMA, NUMA: []NodeBytes{{0, 111}, {1, 22}}},
			true,
		},
		{"memory.numa_stat, rubbish", "total=1 N0=x\n", (*Values).ParseNUMAStatV1, Values{}, false},
		{"memory.numa_stat, a node beyond all", "total=1 N99999=1\n", (*Values).ParseNUMAStatV1, Values{}, false},
	}
	pageBytes = 4096
	t.Cleanup(func() { pageBytes = uint64(os.Getpagesize()) })
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var v Values
			err := tt.parse(&v, []byte(tt.in))
			if (err == nil) != tt.ok {
				t.Fatalf("parsed %q: error %v; want ok %v", tt.in, err, tt.ok)
			}
			if !tt.ok && v.Has != 0 {
				t.Errorf("Has = %b after an error", v.Has)
			}
			if diff := cmp.Diff(tt.want, v); tt.ok && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWorkingSet(t *testing.T) {
	for _, tt := range []struct{ memory, inactive, want uint64 }{{10, 4, 6}, {10, 10, 0}, {10, 11, 0}, {0, 0, 0}} {
		v := Values{MemoryBytes: tt.memory, InactiveFileBytes: tt.inactive}
		if got := v.WorkingSetBytes(); got != tt.want {
			t.Errorf("working set of %d less %d = %d; want %d", tt.memory, tt.inactive, got, tt.want)
		}
	}
}

func TestThreadState(t *testing.T) {
	for in, want := range map[string]byte{
		"1 (sh) S 0 1":             'S',
		"1 (a) R (b) D) R 0":       'R',
		"1 (Web Content) D 0":      'D',
		"1 (x)\n":                  0,
		"1 (x) ":                   0,
		"":                         0,
		")":                        0,
		"77 (tmux: server) S 1 77": 'S',
	} {
		if got := ThreadState([]byte(in)); got != want {
			t.Errorf("ThreadState(%q) = %q; want %q", in, got, want)
		}
	}
}

func FuzzParseValues(f *testing.F) {
	for _, seed := range []string{
		"123\n", "0-3,8\n", "usage_usec 5\nnr_periods 10\nnr_throttled 4\n", "anon 1\nfile 2\ninactive_file 3\n",
		"cache 1\nrss 2\ninactive_file 3\ntotal_cache 10\ntotal_rss 20\ntotal_inactive_file 30\n",
		"total=1 N0=1\nhierarchical_total=3 N0=1 N3=2\n", "anon N0=10 N1=20\nfile N0=1 N1=2\n", "1 (a) R (b) D) R 0", "max 100000\n", "-1\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v Values
		for _, file := range slices.Concat(valueFiles, numaFiles, cpuFiles) {
			v.Has = 0
			if err := file.parse(&v, data); err != nil && v.Has != 0 {
				t.Errorf("%s: Has = %b after %v", file.name, v.Has, err)
			}
		}
		if v.WorkingSetBytes() > v.MemoryBytes {
			t.Error("the working set is larger than the memory")
		}
		if milli, known := v.QuotaMilliCPU(); known && milli < -1 {
			t.Errorf("a quota of %d", milli)
		}
		ThreadState(data)
	})
}

func TestQuotaMilliCPU(t *testing.T) {
	for _, c := range []struct {
		quota  string
		period string
		milli  int64
		known  bool
	}{
		{"150000", "100000", 1500, true},
		{"1000", "100000", 10, true},
		{"1", "100000", 0, true},
		{"33333", "100000", 333, true},
		{"25000", "50000", 500, true},
		{"-1", "100000", -1, true},
		{"-1", "", -1, true},
		{"150000", "", 0, false},
		{"150000", "0", 0, false},
		{"18446744073709551615", "1", 0, false},
	} {
		var v Values
		if err := v.ParseQuota([]byte(c.quota)); err != nil {
			t.Fatal(err)
		}
		if c.period != "" {
			if err := v.ParsePeriod([]byte(c.period)); err != nil {
				t.Fatal(err)
			}
		}
		if milli, known := v.QuotaMilliCPU(); known != c.known || known && milli != c.milli {
			t.Errorf("%s of %s: %d, %v; want %d, %v", c.quota, c.period, milli, known, c.milli, c.known)
		}
	}
}
