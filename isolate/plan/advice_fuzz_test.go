package plan

import (
	"strings"
	"testing"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// FuzzAdvice plans for arbitrary advice and arbitrary present values: every write is to a file that isolate may write, of a
// cgroup that the advice names, and has one line.
func FuzzAdvice(f *testing.F) {
	for _, seed := range []string{
		`[{"cgroup":"/batch","cpusetCPUs":"0-3","cpuMaxMilliCPU":500,"cpuWeight":5,"cpuIdle":true,"memoryMaxBytes":1,"ioWeight":7}]`,
		`[{"cgroup":"/batch","cpusetCPUs":"0-99999999"},{"cgroup":"/batch"},{"cgroup":"/../x","cpuWeight":1},{"cgroup":"","cpuIdle":false}]`,
		`[{"cgroup":"/a\n","cpuMaxMilliCPU":9223372036854775807},{"cgroup":"/a/b","cpuMaxMilliCPU":-1,"memoryHighBytes":-9223372036854775808}]`,
		`[{"cgroup":"/a","cpuBurstMilliCPU":10000,"cpuMaxMilliCPU":500},{"cgroup":"/a/b","cpuBurstMilliCPU":-1},{"cgroup":"/a/c","cpuBurstMilliCPU":9223372036854775807}]`,
		`[{"cgroup":"/a","memoryMinBytes":9223372036854775807,"memoryLowBytes":4096},{"cgroup":"/a/b","memoryMinBytes":8192,"memoryLowBytes":0,"memoryHighBytes":-1}]`,
		`[{"cgroup":"/a","ioMax":[{"disk":"all","readBytesPerSecond":65536},{"disk":"/boot","writesPerSecond":-1},{"disk":"../x","readsPerSecond":9223372036854775807}]}]`,
		`[{"cgroup":"/a","memoryOOMGroup":true,"memoryUsePriorityOOM":false,"memoryPriority":13,"memoryWmarkRatioPercent":95,"memoryWmarkScalePermille":0,"memoryWmarkMinAdjPercent":-26}]`,
	} {
		for _, present := range []string{"", "max", "100000", "0-7", "-1", "max 100000", "default 100", "x\ny"} {
			f.Add(seed, present, "100000")
		}
	}
	f.Fuzz(func(t *testing.T, advice, present, period string) {
		var desired []tick.Cgroup
		if err := tick.Unmarshal([]byte(advice), &desired); err != nil {
			return
		}
		named := map[string]bool{}
		for _, c := range desired {
			named[c.Cgroup] = true
		}
		for _, version := range []int{1, 2} {
			m := machine(version, cpus.New(0, 1, 2, 3, 4, 5, 6, 7))
			m.Disks = diskMachine(version).Disks
			settings, _ := Translate(m, desired)
			for i := range settings {
				settings[i].Observed, settings[i].Period = present, period
				settings[i].Quota, settings[i].Burst, settings[i].OriginalBurst = present, period, present
			}
			writes, _ := Make(m, settings, nil)
			for _, w := range writes {
				if !IsKnown(w.File) || !named[w.Cgroup] || strings.ContainsAny(w.New, "\n\x00") || w.New == "" && !isList(w.Name) {
					t.Errorf("advice %s with %q present: write %+v", advice, present, w)
				}
			}
		}
	})
}
