package katalyst

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// configured returns a configuration as collect writes it.
func configured(fields string) tick.Raw {
	return tick.Raw(`{"katalyst":{"adminQoSConfiguration":{"namespace":"katalyst-system","name":"default","config":{"reclaimedResourceConfig":` + fields + `}}}}`)
}

const admin = "AdminQoSConfiguration katalyst-system/default: "

func TestDynamicConfiguration(t *testing.T) {
	const total = 195924424 * 1024
	for _, c := range []struct {
		name     string
		config   tick.Raw
		cores    float64 // the shared pod's load
		milliCPU int64
		bytes    int64
		reason   string
	}{
		{"none", nil, 1, 42000, total - 5<<30 - 1, "share: reserve 4000m (default) + "},
		{"null", tick.Raw(`null`), 1, 42000, total - 5<<30 - 1, ""},
		{"the guide's kind alone", tick.Raw(`{"katalyst":{"evictionConfiguration":{"config":{}}}}`), 1, 42000, total - 5<<30 - 1, ""},
		{"no reclaimedResourceConfig", tick.Raw(`{"katalyst":{"adminQoSConfiguration":{"config":{"evictionConfig":{}}}}}`), 1, 42000, total - 5<<30 - 1, ""},
		{
			"reserve", configured(`{"enableReclaim":true,"reservedResourceForAllocate":{"cpu":"8","memory":"10Gi"}}`), 1, 38000, total - 10<<30 - 1,
			"share: reserve 8000m (" + admin + "reservedResourceForAllocate) + need 1000m",
		},
		{"reserve of none", configured(`{"reservedResourceForAllocate":{"cpu":"0","memory":"0"}}`), 3, 44000, total - 1, "share: reserve 0m ("},
		{"amounts as numbers", configured(`{"reservedResourceForAllocate":{"cpu":8,"memory":10737418240}}`), 1, 38000, total - 10<<30 - 1, ""},
		{"memory alone: the CPU default applies", configured(`{"reservedResourceForAllocate":{"memory":"10Gi"}}`), 1, 42000, total - 10<<30 - 1, "reserve 4000m (default)"},
		{
			"floor", configured(`{"minReclaimedResourceForAllocate":{"cpu":"6"}}`), 60, 6000, total - 5<<30 - 1,
			"the reclaimed pool keeps its floor of 6 CPUs (" + admin + "minReclaimedResourceForAllocate)",
		},
		{"a floor of memory", configured(`{"minReclaimedResourceForAllocate":{"memory":"6Gi"}}`), 1, 42000, total - 5<<30 - 1, admin + "minReclaimedResourceForAllocate.memory is not used by this policy"},
		{"withheld", configured(`{"reservedResourceForReport":{"cpu":"1500m","memory":"1Gi"}}`), 1, 40500, total - 6<<30 - 1, "reclaimed CPU: 1500m are withheld (" + admin + "reservedResourceForReport)"},
		{"more withheld than there is", configured(`{"reservedResourceForReport":{"cpu":"100","memory":"1Ti"}}`), 1, 0, 0, "withheld"},
		{"raised", configured(`{"minReclaimedResourceForReport":{"cpu":"10"}}`), 60, 10000, total - 5<<30 - 1, "reclaimed CPU: 4000m are raised to 10000m (" + admin + "minReclaimedResourceForReport)"},
		{"raised to what there is", configured(`{"minReclaimedResourceForReport":{"cpu":"1k","memory":"1Pi"}}`), 1, 48000, total, "raised to 48000m"},
		{"withheld, then raised", configured(`{"reservedResourceForReport":{"cpu":"40"},"minReclaimedResourceForReport":{"cpu":"3"}}`), 1, 3000, total - 5<<30 - 1, ""},
		{"negligible", configured(`{"minIgnoredReclaimedResourceForReport":{"cpu":"4","memory":"1Gi"}}`), 60, 0, 0, "NUMA node 0: the reclaimed amount is negligible and not offered (" + admin + "minIgnoredReclaimedResourceForReport)"},
		{"negligible memory", configured(`{"reservedResourceForAllocate":{"memory":"186Gi"},"minIgnoredReclaimedResourceForReport":{"memory":"100Gi"}}`), 1, 0, 0, "the reclaimed amount is negligible and not offered"},
		{"not negligible", configured(`{"minIgnoredReclaimedResourceForReport":{"cpu":"100m","memory":"100Mi"}}`), 1, 42000, total - 5<<30 - 1, ""},
		{"off", configured(`{"enableReclaim":false,"minReclaimedResourceForReport":{"cpu":"4"}}`), 1, 0, 0, "nothing is reclaimed (" + admin + "enableReclaim): the reclaimed pods run at their floor"},
		{"a field of another policy", configured(`{"cpuHeadroomConfig":{"utilBasedConfig":{"enable":true}}}`), 1, 42000, total - 5<<30 - 1, admin + "cpuHeadroomConfig is not used by this policy"},
		{"a field that is null", configured(`{"reservedResourceForAllocate":null,"enableReclaim":null}`), 1, 42000, total - 5<<30 - 1, ""},
		{"no amount", configured(`{"reservedResourceForAllocate":{"cpu":"many","memory":"10Gi"}}`), 1, 42000, total - 10<<30 - 1, admin + `reservedResourceForAllocate.cpu: "many" is not an amount`},
		{"a negative amount", configured(`{"minReclaimedResourceForAllocate":{"cpu":"-6"}}`), 60, 4000, total - 5<<30 - 1, `minReclaimedResourceForAllocate.cpu: "-6" is negative`},
		{"another resource", configured(`{"reservedResourceForAllocate":{"gpu\n":"1"}}`), 1, 42000, total - 5<<30 - 1, `reservedResourceForAllocate.gpu\n is not used by this policy`},
		{"no map", configured(`{"reservedResourceForAllocate":"8"}`), 1, 42000, total - 5<<30 - 1, "reservedResourceForAllocate: want amounts of cpu and memory: ignored"},
		{"no switch", configured(`{"enableReclaim":"no"}`), 1, 42000, total - 5<<30 - 1, `enableReclaim: "no": want true or false: ignored`},
		{"no object", configured(`[1]`), 1, 42000, total - 5<<30 - 1, admin + "reclaimedResourceConfig: want an object: ignored"},
		{"no configuration", tick.Raw(`{"katalyst":[]}`), 1, 42000, total - 5<<30 - 1, "sample.config is not in collect's format: ignored"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := New(Defaults())
			for range 2 { // read, and cached
				tk := at(0, shared("a", c.cores), reclaimed("b"))
				tk.Sample.Config = c.config
				a := d.Decide(tk)
				if *a.Reclaimed.MilliCPU != c.milliCPU || *a.Reclaimed.MemoryBytes != c.bytes {
					t.Errorf("reclaimed %dm, %d bytes; want %dm, %d: %q", *a.Reclaimed.MilliCPU, *a.Reclaimed.MemoryBytes, c.milliCPU, c.bytes, a.Reasons)
				}
				sum := int64(0)
				for _, numa := range a.Reclaimed.NUMANodes {
					sum += *numa.MilliCPU
				}
				if sum != c.milliCPU {
					t.Errorf("the NUMA nodes have %dm; want %dm", sum, c.milliCPU)
				}
				wantReason(t, a, c.reason)
			}
		})
	}
}

// A value of the command line or the file takes precedence over the tick's configuration.
func TestPrecedence(t *testing.T) {
	s := Defaults()
	s.ReserveMilliCPU, s.Sources = 6000, map[string]string{"reserve-cpu": "--reserve-cpu"}
	tk := at(0, shared("a", 1))
	tk.Sample.Config = configured(`{"reservedResourceForAllocate":{"cpu":"20","memory":"10Gi"}}`)
	a := New(s).Decide(tk)
	wantReason(t, a, "share: reserve 6000m (--reserve-cpu) + ")
	if want := int64(195924424*1024 - 10<<30 - 1); *a.Reclaimed.MilliCPU != 40000 || *a.Reclaimed.MemoryBytes != want {
		t.Errorf("reclaimed %d, %d; want 40000 by the flag, %d by the configuration", *a.Reclaimed.MilliCPU, *a.Reclaimed.MemoryBytes, want)
	}
	s = Defaults()
	s.Hold, s.ShrinkStepMilliCPU = 0, 4000
	s.Sources = map[string]string{"hold": "--hold", "shrink-step": "shrink-step in a.yaml"}
	d := New(s)
	d.Decide(at(0, shared("a", 40)))
	wantReason(t, d.Decide(at(1, shared("a", 1))), "6 CPUs are needed: it shrinks by 4 per step (shrink-step: shrink-step in a.yaml)")
}

// With reclaiming off the services have all but the floor, the existing reclaimed pods run on the floor, and the offer returns in steps.
func TestReclaimOff(t *testing.T) {
	d := New(Defaults())
	off := func(seconds float64, off bool, pods ...tick.Pod) *tick.Tick {
		tk := at(seconds, pods...)
		tk.Sample.Config = configured(fmt.Sprintf(`{"enableReclaim":%v}`, !off))
		return tk
	}
	a := d.Decide(off(0, true, shared("a", 1), reclaimed("b")))
	want := map[string]string{"share": "1-11,13-23,25-35,37-47", "reclaim": "0,12,24,36"}
	if diff := cmp.Diff(want, poolsOf(a)); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	wantReason(t, a, "nothing is reclaimed, so it has all but the floor of 4 CPUs (default)")
	if a = d.Decide(off(31, false, shared("a", 1), reclaimed("b"))); *a.Reclaimed.MilliCPU != 6000 {
		t.Errorf("on again: reclaimed %d; want 6000, a step", *a.Reclaimed.MilliCPU)
	}
	a = New(Defaults()).Decide(off(0, true, shared("a", 1), pooled("c", "batch", 9), reclaimed("b"))) // 4 and 12 of 16
	if share, batch := mustParse(t, poolsOf(a)["share"]).Size(), mustParse(t, poolsOf(a)["batch"]).Size(); share+batch != 44 || batch != 34 {
		t.Errorf("share %d, batch %d; want 44, in whole cores as near to 1 to 3 as rounding lets", share, batch)
	}
	small := off(0, true, shared("a", 0.1), reclaimed("b"))
	small.Sample.Topology = &tick.Topology{CPUs: "0-3"}
	a = New(Defaults()).Decide(small)
	if *a.Reclaimed.MilliCPU != 0 || len(a.Cgroups) != 1 || *a.Cgroups[0].CPUMaxMilliCPU != 400 {
		t.Errorf("on a small machine: reclaimed %d, %+v; want none, and the floor of 400m", *a.Reclaimed.MilliCPU, a.Cgroups)
	}
}

// unreadConfig returns a tick whose configuration could not be read, with what it has beside Katalyst's part.
func unreadConfig(seconds float64, config string) *tick.Tick {
	tk := at(seconds, shared("a", 1), reclaimed("b"))
	tk.Sample.Config, tk.Sample.Errors = tick.Raw(config), []tick.SourceError{{Source: "config", Error: "no answer"}}
	return tk
}

// While the configuration cannot be read the last one stays in force, over a restart too: that nothing is reclaimed, and that there is
// none.
func TestUnreadConfigurationIsNotNone(t *testing.T) {
	const unreadText = "the cluster's configuration could not be read: the last settings stay in force"
	for _, tt := range []struct {
		config     tick.Raw
		want, next int64 // while it is unread, and with another one
	}{
		{configured(`{"enableReclaim":false}`), 0, 6000}, // a step from the floor
		{configured(`{"reservedResourceForAllocate":{"cpu":"8"}}`), 38000, 26000},
		{tick.Raw(`{"katalyst":{}}`), 42000, 26000},
		{nil, 42000, 26000},
	} {
		d := New(Defaults())
		read := at(0, shared("a", 1), reclaimed("b"))
		read.Sample.Config = tt.config
		d.Decide(read)
		for i, config := range []string{"", `{"koordinator":{"from":"k/c"}}`, ""} {
			if i == 2 {
				d = restarted(t, d)
			}
			a := d.Decide(unreadConfig(float64(i+1), config))
			if a.Reclaimed == nil || *a.Reclaimed.MilliCPU != tt.want {
				t.Errorf("unread after %s, tick %d: %+v; want %dm: %q", tt.config, i, a.Reclaimed, tt.want, a.Reasons)
			}
			wantReason(t, a, unreadText)
		}
		next := string(configured(`{"reservedResourceForAllocate":{"cpu":"20"}}`))
		if a := d.Decide(unreadConfig(40, next)); *a.Reclaimed.MilliCPU != tt.next {
			t.Errorf("an error beside objects, after %s: %dm; want them to apply", tt.config, *a.Reclaimed.MilliCPU)
		}
		if a := d.Decide(at(1000, shared("a", 1), reclaimed("b"))); slices.Contains(a.Reasons, unreadText) || *a.Reclaimed.MilliCPU == 0 {
			t.Errorf("read as none after %s: %dm, %q", tt.config, *a.Reclaimed.MilliCPU, a.Reasons)
		}
	}
}

// Before the configuration was ever read there is no decision for a minute, as the reason tells; then there may never be a reading.
func TestFirstReadingOfTheConfigurationIsAwaited(t *testing.T) {
	d := New(Defaults())
	for _, tt := range []struct {
		second    float64
		isDecided bool
	}{{0, false}, {59, false}, {-30, false}, {29, false}, {30, true}, {600, true}} {
		a := d.Decide(unreadConfig(tt.second, ""))
		if (a.Reclaimed != nil) != tt.isDecided || (len(a.Pools) > 0) != tt.isDecided {
			t.Errorf("second %v: offer %+v, pools %v: %q", tt.second, a.Reclaimed, a.Pools, a.Reasons)
		}
		if tt.isDecided {
			wantReason(t, a, "the cluster's configuration was never read: the settings without it are in force")
		}
	}
	wantReason(t, New(Defaults()).Decide(unreadConfig(0, "")),
		"the cluster's configuration of this node is not read yet, and is awaited until 2023-01-03T16:19:31Z: no decision")
	if a := New(Defaults()).Decide(unreadConfig(0, `{"katalyst":{}}`)); a.Reclaimed == nil {
		t.Errorf("an error beside a part that was read: %q", a.Reasons)
	}
}

// A configuration that is larger than any of collect's is used, and not kept.
func TestLargeConfigurationIsNotKept(t *testing.T) {
	d := New(Defaults())
	tk := at(0, shared("a", 1), reclaimed("b"))
	tk.Sample.Config = configured(`{"enableReclaim":false,"x":"` + strings.Repeat("x", maxConfigBytes) + `"}`)
	if a := d.Decide(tk); *a.Reclaimed.MilliCPU != 0 {
		t.Errorf("offered %dm", *a.Reclaimed.MilliCPU)
	}
	if n := d.Nodes["n"]; n.Config != nil || n.WasConfigRead {
		t.Errorf("%d bytes are kept", len(n.Config))
	}
}

func FuzzDynamic(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{", `{"katalyst":null}`, string(configured(`{"enableReclaim":false,"reservedResourceForAllocate":{"cpu":"1","memory":"1Gi"}}`)),
		string(configured(`{"minReclaimedResourceForAllocate":{"cpu":1e9},"minReclaimedResourceForReport":{"memory":"8Pi"},"":{}}`)),
		string(configured(`{"minIgnoredReclaimedResourceForReport":{"cpu":"","memory":null}}`)),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, cpus := range []string{"0-47", "0-3"} {
			tk := at(0, shared("a", 1), reclaimed("b"))
			tk.Sample.Config = tick.Raw(text)
			tk.Sample.Topology = &tick.Topology{CPUs: cpus}
			a := New(Defaults()).Decide(tk)
			all := int64(mustParse(t, cpus).Size()) * 1000
			if m := *a.Reclaimed.MilliCPU; m < 0 || m > all {
				t.Errorf("%s: reclaimed %dm of %dm", text, m, all)
			}
			if b := *a.Reclaimed.MemoryBytes; b < 0 || b > 195924424*1024 {
				t.Errorf("%s: reclaimed %d bytes", text, b)
			}
			if _, err := tick.Marshal(a); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
}

// For any annotation the pod has CPUs, and the pools' names are valid.
func FuzzEnhancement(f *testing.F) {
	for _, seed := range []string{"", "{", "{}", "null", `{"cpuset_pool":"batch"}`, `{"cpuset_pool":"reclaim"}`, `{"cpuset_pool":["a"]}`, `{"cpuset_pool":null,"numa_binding":null}`, `{"numa_binding":"true","numa_exclusive":"true"}`, `{"numa_binding":"yes"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a := New(Defaults()).Decide(at(0, enhancedBy(shared("s", 1), cpuEnhancement, text), enhancedBy(dedicated("d", 2000), memoryEnhancement, text)))
		if len(a.Cgroups) != 2 || a.Cgroups[0].CPUSetCPUs == "" || a.Cgroups[1].CPUSetCPUs == "" {
			t.Errorf("%q: %+v", text, a.Cgroups)
		}
		for _, p := range a.Pools {
			if !strings.HasPrefix(p.Name, "dedicated/default/d") && !poolName.MatchString(p.Name) || p.CPUs == "" {
				t.Errorf("%q: pool %+v", text, p)
			}
		}
	})
}
