package cgroup

import (
	"fmt"
	"maps"
	"testing"
)

// ofV1 is a copy of a machine of version 1 with one cgroup, and a function that writes its files.
func ofV1(t *testing.T) (*Hierarchy, func(controller, file, text string)) {
	t.Helper()
	root := t.TempDir()
	base := root + "/sys/fs/cgroup/"
	for _, controller := range []string{"cpu", "cpuacct", "memory", "cpuset", "pids"} {
		put(t, base+controller+"/cgroup.procs", "")
	}
	h, err := Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	return h, func(controller, file, text string) { put(t, base+controller+"/a/"+file, text) }
}

// No value is older than its pace allows, in whatever second the cgroup was found, and none is read more often than that without a sign.
// Every file contains the second in which it was written.
func TestNoValueIsOlderThanItsPace(t *testing.T) {
	h, write := ofV1(t)
	r := NewReader(h, false)
	type ages map[string]int
	oldest := func(from, until int, g *Group, memory, periods, threads func(second int) int) ages {
		found := ages{}
		for second := from; second < until; second++ {
			write("cpuacct", "cpuacct.usage", fmt.Sprint(second))
			write("memory", "memory.usage_in_bytes", fmt.Sprint(memory(second)))
			write("memory", "memory.stat", fmt.Sprintf("cache %d\nrss 2\ninactive_file 3\n", second))
			write("cpu", "cpu.stat", fmt.Sprintf("nr_periods %d\nnr_throttled %d\n", periods(second), second))
			write("cpuset", "cpuset.effective_cpus", fmt.Sprint(second))
			write("pids", "pids.current", fmt.Sprint(threads(second)))
			if err := g.Read(float64(second)); err != nil {
				t.Fatal(err)
			}
			v := &g.Values
			if want := HasUsage | HasMemory | HasMemoryStat | HasThrottling | HasCPUSet | HasThreads; v.Has != want {
				t.Fatalf("in second %d it has %b; want %b", second, v.Has, want)
			}
			var list int
			if _, err := fmt.Sscan(v.CPUSetCPUs, &list); err != nil {
				t.Fatal(err)
			}
			for what, of := range map[string]int{
				"usage": int(v.UsageNanoseconds), "stat": int(v.CacheBytes), "throttled": int(v.ThrottledPeriods), "list": list,
			} {
				found[what] = max(found[what], second-of)
			}
			found["memory"] = max(found["memory"], memory(second)-int(v.MemoryBytes))
			found["threads"] = max(found["threads"], threads(second)-int(v.Threads))
			if at := g.At(HasMemoryStat); int(at) != int(v.CacheBytes) {
				t.Fatalf("memory.stat of second %d has the time %v", v.CacheBytes, at)
			}
		}
		return found
	}
	same := func(int) int { return 7 }
	second := func(s int) int { return s }
	for found := range 40 {
		from := 1000 * (found + 1)
		write("cpuacct", "cpuacct.usage", "1") // the directory
		g, err := r.Open("/a")
		if err != nil {
			t.Fatal(err)
		}
		write("memory", "memory.usage_in_bytes", "7")
		for _, f := range [][2]string{{"memory", "memory.stat"}, {"cpu", "cpu.stat"}, {"cpuset", "cpuset.effective_cpus"}, {"pids", "pids.current"}} {
			write(f[0], f[1], "")
		}
		if err := g.Reopen(); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			what string
			got  ages
			want ages
		}{
			{
				"its first two readings", oldest(from, from+2, g, same, same, second),
				ages{"usage": 0, "memory": 0, "stat": 0, "throttled": 0, "list": 0, "threads": 0},
			},
			{
				"nothing stirs", oldest(from+2, from+60, g, same, same, second),
				ages{"usage": 0, "memory": 0, "stat": 4, "throttled": 1, "list": 1, "threads": 1},
			},
			{"the memory changes, a quota counts", oldest(from+60, from+62, g, second, second, second), nil}, // a quota is found with its next reading
			{
				"and continues to", oldest(from+62, from+120, g, second, second, second),
				ages{"usage": 0, "memory": 0, "stat": 0, "throttled": 0, "list": 1, "threads": 1},
			},
		} {
			if tt.want != nil && !maps.Equal(tt.got, tt.want) {
				t.Errorf("found in second %d, %s: ages %v; want %v", from, tt.what, tt.got, tt.want)
			}
			if tt.got["throttled"] > 1 || tt.got["stat"] > 4 || tt.got["memory"] > 0 {
				t.Errorf("found in second %d, %s: ages %v", from, tt.what, tt.got)
			}
		}
		oldest(from+120, from+125, g, same, same, func(int) int { return 0 })
		if got := oldest(from+125, from+126, g, same, same, func(int) int { return 9 }); got["threads"] != 0 {
			t.Errorf("found in second %d: the first thread of an empty cgroup is found %d late", from, got["threads"])
		}
		g.Close()
	}
}

// If the clock stands still, as that of a copy, every value is read each time.
func TestACopyIsReadEachTime(t *testing.T) {
	h, write := ofV1(t)
	write("cpuset", "cpuset.effective_cpus", "0")
	g, err := NewReader(h, false).Open("/a")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for i := range 9 {
		write("cpuset", "cpuset.effective_cpus", fmt.Sprint(i))
		if err := g.Read(1000); err != nil || g.Values.CPUSetCPUs != fmt.Sprint(i) {
			t.Errorf("reading %d: %q, %v", i, g.Values.CPUSetCPUs, err)
		}
	}
}
