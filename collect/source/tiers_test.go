package source

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/collect/classify"
	"polder/lib/tick"
	"polder/lib/tick/ticktest"
)

// tierFiles are a tier's files in one version.
func (m *machine) tier(version int, path, usageMicroseconds, cpus, quota string) {
	m.t.Helper()
	at := "sys/fs/cgroup"
	if version == 2 {
		m.write(at+path+"/cpu.stat", "usage_usec "+usageMicroseconds+"\nnr_periods 0\nnr_throttled 0\n")
		if cpus != "" {
			m.write(at+path+"/cpuset.cpus.effective", cpus+"\n")
		}
		if quota != "" {
			m.write(at+path+"/cpu.max", quota+" 100000\n")
		}
		return
	}
	m.write(at+"/cpuacct"+path+"/cpuacct.usage", usageMicroseconds+"000\n")
	m.write(at+"/cpuset"+path+"/cpuset.effective_cpus", cpus+"\n")
	m.write(at+"/cpu"+path+"/cpu.cfs_quota_us", quota+"\n")
	m.write(at+"/cpu"+path+"/cpu.cfs_period_us", "100000\n")
}

func (m *machine) version(version int) {
	m.t.Helper()
	if version == 2 {
		m.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory pids")
		m.write("sys/fs/cgroup/cpuset.cpus.effective", "0-1\n")
		return
	}
	if err := os.Remove(filepath.Join(m.root, "sys/fs/cgroup/cgroup.controllers")); err != nil {
		m.t.Fatal(err)
	}
	for _, controller := range []string{"cpu", "cpuacct", "cpuset"} {
		m.write("sys/fs/cgroup/"+controller+"/cgroup.procs", "")
	}
}

func (m *machine) kubelet(cgroupRoot string) *Collector {
	m.t.Helper()
	h := m.host()
	text, err := classify.DefaultBelow(cgroupRoot)
	if err != nil {
		m.t.Fatal(err)
	}
	rules, err := classify.Parse("default.yaml", text)
	if err != nil {
		m.t.Fatal(err)
	}
	c := New(&Env{Host: h, Rules: rules, CgroupRoot: cgroupRoot, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	m.t.Cleanup(func() { _ = c.Close() })
	return c
}

// inShort are the tiers in a line each.
func inShort(s *tick.Sample) []string {
	var out []string
	for _, t := range s.Tiers {
		line := t.Name + " " + t.Cgroup + " " + t.CPUSetCPUs
		if t.CPUMaxMilliCPU != nil {
			line += fmt.Sprint(" max ", *t.CPUMaxMilliCPU)
		}
		if t.UsageMilliCPU != nil {
			line += fmt.Sprint(" use ", *t.UsageMilliCPU)
		}
		if t.CPUIdle {
			line += " idle"
		}
		out = append(out, line)
	}
	return out
}

// tierErrors are the tiers' errors.
func tierErrors(s *tick.Sample) (list []string) {
	for _, e := range s.Errors {
		if e.Source == "tiers" {
			list = append(list, e.Error)
		}
	}
	return list
}

func TestTiers(t *testing.T) {
	for _, c := range []struct {
		name, root              string
		top, burstable, bestEff string
	}{
		{"cgroupfs", "", "/kubepods", "/kubepods/burstable", "/kubepods/besteffort"},
		{"systemd", "", "/kubepods.slice", "/kubepods.slice/kubepods-burstable.slice", "/kubepods.slice/kubepods-besteffort.slice"},
		{"cgroupfs below", "/nodes/n-1", "/nodes/n-1/kubepods", "/nodes/n-1/kubepods/burstable", "/nodes/n-1/kubepods/besteffort"},
		{
			"systemd below", "/nodes/n-1", "/nodes.slice/nodes-n_1.slice/nodes-n_1-kubepods.slice", "/nodes.slice/nodes-n_1.slice/nodes-n_1-kubepods.slice/nodes-n_1-kubepods-burstable.slice",
			"/nodes.slice/nodes-n_1.slice/nodes-n_1-kubepods.slice/nodes-n_1-kubepods-besteffort.slice",
		},
	} {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s v%d", c.name, version), func(t *testing.T) {
				m := newMachine(t)
				m.version(version)
				none, quota := "-1", "150000"
				if version == 2 {
					none = "max"
				}
				m.tier(version, c.top, "1000000", "0-1", none)
				m.tier(version, c.burstable, "500000", "0-1", none)
				m.tier(version, c.bestEff, "100000", "1", quota)
				idle := "sys/fs/cgroup" + c.bestEff + "/cpu.idle"
				if version == 1 {
					idle = "sys/fs/cgroup/cpu" + c.bestEff + "/cpu.idle"
				}
				m.write(idle, "0\n")
				collector := m.kubelet(c.root)
				collector.Read(true)
				m.write(idle, "1\n")
				m.write("proc/uptime", "1010.00 1.00")
				m.tier(version, c.top, "11000000", "0-1", none)
				m.tier(version, c.burstable, "1000", "0-1", "2000") // its counter decreased: another cgroup
				m.tier(version, c.bestEff, "5100000", "0", "1")
				want := []string{"kubepods " + c.top + " 0-1 max -1 use 1000", "burstable " + c.burstable + " 0-1 max 20", "besteffort " + c.bestEff + " 0 max 0 use 500 idle"}
				s := collector.Read(false)
				if diff := cmp.Diff(want, inShort(s)); diff != "" || tierErrors(s) != nil {
					t.Errorf("(-want +got):\n%s%q", diff, tierErrors(s))
				}
				line, err := tick.Marshal(&tick.Tick{V: tick.Version, Node: "n", Time: time.Unix(1, 0).UTC(), Sample: s})
				if err != nil {
					t.Fatal(err)
				}
				if err := ticktest.Validate(line); err != nil {
					t.Error(err)
				}
				// A later run continues from the state.
				saved := collector.Save()
				if got := slices.Sorted(maps.Keys(saved.Tiers)); !slices.Contains(got, c.bestEff) || len(got) != 3 {
					t.Errorf("saved %v", got)
				}
				later := m.kubelet(c.root)
				if !later.Load(saved, 60) {
					t.Fatal("the state was refused")
				}
				m.write("proc/uptime", "1020.00 1.00")
				m.write(idle, "0\n")
				m.tier(version, c.bestEff, "6100000", "0", none)
				s = later.Read(true)
				if got := inShort(s)[2]; got != "besteffort "+c.bestEff+" 0 max -1 use 100" {
					t.Errorf("in a later run: %s", got)
				}
				// A round allocates nothing.
				for _, n := range later.names {
					if n == "tiers" {
						r := later.readers[slices.Index(later.names, n)]
						later.round.Rescan = false
						if allocs := testing.AllocsPerRun(100, func() { _ = r.Read(&later.round) }); allocs > 0 {
							t.Errorf("%v allocations a round; want none", allocs)
						}
					}
				}
			})
		}
	}
}

// Missing tiers are left out, new and removed ones are noticed, and of two drivers' cgroups those with pods count.
func TestTiersChange(t *testing.T) {
	m := newMachine(t)
	m.version(2)
	c := m.kubelet("")
	expect := func(what string, want ...string) {
		t.Helper()
		s := c.Read(true)
		if diff := cmp.Diff(want, inShort(s)); diff != "" || tierErrors(s) != nil {
			t.Errorf("%s (-want +got):\n%s%q", what, diff, tierErrors(s))
		}
	}
	expect("no kubelet")
	m.tier(2, "/kubepods", "1", "", "") // no controllers are delegated: the list in force is the parent's, and the quota is unknown
	expect("the first alone", "kubepods /kubepods 0-1")
	m.tier(2, "/kubepods/besteffort", "1", "", "max")
	expect("another", "kubepods /kubepods 0-1", "besteffort /kubepods/besteffort 0-1 max -1")
	m.tier(2, "/kubepods.slice", "1", "0", "max")
	m.cgroup("/kubepods.slice/kubepods-pod"+uidA+".slice", "1")
	expect("the other driver's, with a pod", "kubepods /kubepods.slice 0 max -1")
	if err := os.RemoveAll(filepath.Join(m.root, "sys/fs/cgroup/kubepods.slice")); err != nil {
		t.Fatal(err)
	}
	c.Read(true)
	expect("gone again", "kubepods /kubepods 0-1", "besteffort /kubepods/besteffort 0-1 max -1")
	m.write("sys/fs/cgroup/kubepods/besteffort/cpu.max", "rubbish\n")
	if s := c.Read(false); len(tierErrors(s)) != 1 || s.Tiers[1].CPUMaxMilliCPU != nil || s.Tiers[1].CPUSetCPUs != "0-1" {
		t.Errorf("rubbish: %q, %v", tierErrors(s), inShort(s))
	}
	m.write("sys/fs/cgroup/kubepods/besteffort/cpu.max", "max 100000\n")
	if err := os.RemoveAll(filepath.Join(m.root, "sys/fs/cgroup/kubepods")); err != nil {
		t.Fatal(err)
	}
	expect("no kubelet any more")
}
