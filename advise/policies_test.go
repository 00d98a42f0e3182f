package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"polder/advise/cold"
	"polder/advise/guard"
	"polder/advise/policy"
	"polder/advise/settings"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/tests/await"
)

// A state's version identifies its policy.
func TestStateVersionsDiffer(t *testing.T) {
	whose := map[int]string{}
	for _, p := range policies {
		if other := whose[p.StateVersion]; other != "" {
			t.Errorf("%s and %s have the same state version %d", p.Name, other, p.StateVersion)
		}
		whose[p.StateVersion] = p.Name
	}
}

// filled gives every field of a sample a value: one that suits its type, and names that affect decisions.
func filled(t *testing.T) string {
	t.Helper()
	const text = `{"intervalSeconds":1,
	"topology":{"cpus":"0-15","cores":["0,8","1,9","2,10","3,11","4,12","5,13","6,14","7,15"],"sockets":["0-15"],"l3":["0-15"],"numaNodes":[{"id":0,"cpus":"0-3,8-11","memoryBytes":32e9},{"id":1,"cpus":"4-7,12-15","memoryBytes":32e9}]},
	"cpu":{"usageMilliCPU":5000,"load1":9,"load5":8,"load15":7,"pressure":{"some":{"avg10":9},"full":{"avg10":8}}},
	"memory":{"totalBytes":64e9,"freeBytes":20e9,"availableBytes":30e9,"cacheBytes":1e9,"lowWatermarkBytes":1e8,"watermarkScaleFactor":50,"kswapdStealPages":7,"kswapdStealPerSecond":3,"pressure":{"some":{"avg10":9}}},
	"numaNodes":[{"id":0,"usageMilliCPU":4500,"memory":{"totalBytes":32e9,"freeBytes":5e9}},{"id":1,"usageMilliCPU":500,"memory":{"totalBytes":32e9,"freeBytes":15e9}}],
	"capacity":{"milliCPU":16000,"memoryBytes":64e9,"reclaimedMilliCPU":5000,"reclaimedMemoryBytes":1e9},"allocatable":{"milliCPU":15000,"memoryBytes":60e9},
	"cgroupVersion":2,"memoryReclaim":{"boot":"b","bootSeconds":100},"tiers":[{"name":"kubepods","cgroup":"/kubepods"},{"name":"burstable","cgroup":"/kubepods/burstable","cpuIdle":true},{"name":"besteffort","cgroup":"/kubepods/besteffort","cpusetCPUs":"0-15","cpuMaxMilliCPU":-1,"usageMilliCPU":900}],
	"resctrl":{"vendor":"intel","cbmMask":"7ff","minCBMBits":1,"closids":8,"l3":[0],"mb":[0],"mbMinPercent":10,"mbGranularityPercent":10},
	"kubelet":{"cpuManagerPolicy":"none"},"labels":{"kubernetes.io/hostname":"n"},"annotations":{"node.koordinator.sh/reservation":"{\"resources\":{\"cpu\":\"1\"}}"},
	"config":{"koordinator":{"from":"k/c","colocation":{"enable":true,"cpuCalculatePolicy":"maxUsageRequest","midUnallocatedPercent":10},"resourceThreshold":{"enable":true},"cpuBurst":{"policy":"auto"},
		"resourceQOS":{"lsClass":{"memoryQOS":{"enable":true,"minLimitPercent":50,"throttlingPercent":80,"priorityEnable":1,"priority":3},"resctrlQOS":{"enable":true,"catRangeEndPercent":50}},"beClass":{"memoryQOS":{"enable":true,"lowLimitPercent":20},"cpuQOS":{"enable":true,"schedIdle":1},"resctrlQOS":{"enable":true}}}}},
	"pods":[POD]}`
	const pod = `{"uid":"UID","namespace":"default","name":"NAME","qos":"LEVEL","qosSource":"koordinator","kubernetesQOS":"KUBERNETES","priority":PRIORITY,"koordinatorPriority":7,"static":true,"terminating":TERMINATING,"startTime":"2026-01-01T00:00:00Z","phase":"Running",
	"labels":{"koordinator.sh/qosClass":"CLASS"},"annotations":{"koordinator.sh/memoryQOS":"{\"policy\":\"auto\"}","koordinator.sh/cpuBurst":"{\"cpuBurstPercent\":200}"},
	"requests":{"milliCPU":2000,"memoryBytes":2e9,"reclaimedMilliCPU":1000,"reclaimedMemoryBytes":1e9},"limits":{"milliCPU":4000,"memoryBytes":4e9,"reclaimedMilliCPU":1000,"reclaimedMemoryBytes":1e9},
	"cgroup":"/kubepods/burstable/podNAME","usageMilliCPU":1000,"load1":2,"load5":1,"threads":20,"memory":{"usageBytes":3e9,"workingSetBytes":2e9,"rssBytes":1e9,"cacheBytes":1e9,"refaultBytesPerSecond":0},"memoryPressure":{"some":{"avg10":5,"totalMicroseconds":1}},"errors":["x"],
	"containers":[{"name":"main","id":"abc","cgroup":"/kubepods/burstable/podNAME/c","cpusetCPUs":"0-15","usageMilliCPU":1000,"load1":2,"load5":1,"threads":20,"throttledPercent":40,"memory":{"usageBytes":3e9,"workingSetBytes":2e9,"rssBytes":1e9,"cacheBytes":1e9},"numaMemory":[{"id":0,"bytes":3e9}],
		"requests":{"milliCPU":2000,"memoryBytes":2e9,"reclaimedMilliCPU":1000,"reclaimedMemoryBytes":1e9},"limits":{"milliCPU":4000,"memoryBytes":4e9,"reclaimedMilliCPU":1000,"reclaimedMemoryBytes":1e9}}]}`
	var pods []string
	for _, p := range []struct{ name, qos, class, priority, kubernetes, terminating string }{
		{"web", "shared", "LS", "9500", "Burstable", "false"},
		{"own", "dedicated", "LSE", "9500", "Guaranteed", "false"},
		{"spark", "reclaimed", "BE", "5500", "Burstable", "false"},
		{"leaving", "reclaimed", "BE", "5500", "Burstable", "true"},
		{"agent", "system", "SYSTEM", "0", "Burstable", "false"},
	} {
		pods = append(pods, strings.NewReplacer("UID", "uid-"+p.name, "NAME", p.name, "LEVEL", p.qos, "CLASS", p.class, "PRIORITY", p.priority,
			"KUBERNETES", p.kubernetes, "TERMINATING", p.terminating).Replace(pod))
	}
	return strings.NewReplacer("POD", strings.Join(pods, ","), "\n", "", "\t", "").Replace(text)
}

// Fields that are not decoded for a policy do not affect its advice; a misspelt name, or a name of no field, would fail.
func TestUnreadFieldsAreNotRead(t *testing.T) {
	types := map[string]reflect.Type{}
	for _, v := range []any{tick.Sample{}, tick.Pod{}, tick.Container{}, tick.Memory{}, tick.NodeCPU{}, tick.NodeMemory{}} {
		types[reflect.TypeOf(v).Name()] = reflect.TypeOf(v)
	}
	sample := filled(t)
	for _, p := range policies {
		for _, name := range p.unread {
			owner, field, _ := strings.Cut(name, ".")
			if of := types[owner]; of == nil {
				t.Errorf("%s: %s: no such type", p.Name, name)
			} else if _, ok := of.FieldByName(field); !ok {
				t.Errorf("%s: %s: no such field", p.Name, name)
			}
		}
		decoder := tick.NewDecoder(p.unread...)
		l := loaded{kind: p, Settings: settings.Defaults()}
		l.Cold.Mode, l.Guard.Mode, l.Guard.Disk = cold.Reclaim, guard.On, guard.On // off by default
		whole, lean := p.start(&l), p.start(&l)
		for second := range 5 {
			at := time.Date(2026, 1, 1, 0, second, 0, 0, time.UTC).Format(time.RFC3339)
			line, err := tick.ParseLine([]byte(`{"v":1,"node":"n","time":"` + at + `","sample":` + sample + `}`))
			if err != nil {
				t.Fatal(err)
			}
			all, err := line.Decode(tick.SectionSample)
			if err != nil {
				t.Fatal(err)
			}
			some, err := decoder.Decode(line, tick.SectionSample)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := tick.Marshal(whole.Decide(all))
			got, _ := tick.Marshal(lean.Decide(some))
			if string(got) != string(want) {
				t.Fatalf("%s: without the fields\n%s\nwith them\n%s", p.Name, got, want)
			}
			if second == 4 && !strings.Contains(string(want), `"reclaimed"`) {
				t.Errorf("%s decides nothing: %s", p.Name, want)
			}
		}
	}
}

// The time between two ticks is decoded for each policy: what runs rarely, as from cron, has long pauses that are none.
func TestIntervalIsDecoded(t *testing.T) {
	for _, p := range policies {
		decoder := tick.NewDecoder(p.unread...)
		for _, field := range []string{"periodSeconds", "intervalSeconds"} {
			line, err := tick.ParseLine([]byte(`{"v":1,"node":"n","time":"2026-01-01T00:00:00Z","sample":{"` + field + `":300}}`))
			if err != nil {
				t.Fatal(err)
			}
			got, err := decoder.Decode(line, tick.SectionSample)
			if err != nil {
				t.Fatal(err)
			}
			if interval := got.Sample.Interval(); interval != 5*time.Minute {
				t.Errorf("%s: %s is %s; want 5 minutes", p.Name, field, interval)
			}
		}
	}
}

// A pod on the CPUs of a partition needs none of the shared ones: its use and requests do not affect the offer.
func TestPodOnCPUsOfAPartitionNeedsNoneOfTheOthers(t *testing.T) {
	sample := filled(t)
	offers := func(p policyKind, milliCPU float64) (out []float64) {
		decider := p.start(&loaded{kind: p})
		for second := range 5 {
			at := time.Date(2026, 1, 1, 0, second, 0, 0, time.UTC).Format(time.RFC3339)
			line, err := tick.ParseLine([]byte(`{"v":1,"node":"n","time":"` + at + `","sample":` + sample + `}`))
			if err != nil {
				t.Fatal(err)
			}
			in, err := line.Decode(tick.SectionSample)
			if err != nil {
				t.Fatal(err)
			}
			in.Sample.Partitions = []tick.Partition{{Cgroup: "/realtime", CPUs: "12-15"}}
			own := in.Sample.Pods[0]
			own.UID, own.Name, own.Cgroup = "uid-realtime", "realtime", "/realtime/pod"
			own.UsageMilliCPU, own.Requests = &milliCPU, &tick.Resources{MilliCPU: &milliCPU}
			own.Containers = []tick.Container{{Name: "main", Cgroup: "/realtime/pod/main", UsageMilliCPU: &milliCPU, Requests: own.Requests}}
			in.Sample.Pods = append(in.Sample.Pods, own)
			in.Sample.CPU.UsageMilliCPU = new(*in.Sample.CPU.UsageMilliCPU + milliCPU)
			seen, finish := policy.WithoutPartitions(in)
			advice := decider.Decide(seen)
			finish(advice)
			for _, c := range advice.Cgroups {
				if strings.HasPrefix(c.Cgroup, "/realtime") && c.CPUSetCPUs != "" {
					t.Errorf("%s: %s gets the CPUs %s", p.Name, c.Cgroup, c.CPUSetCPUs)
				}
			}
			if advice.Reclaimed != nil && advice.Reclaimed.MilliCPU != nil {
				out = append(out, float64(*advice.Reclaimed.MilliCPU))
			}
		}
		return out
	}
	for _, p := range policies {
		idle, busy := offers(p, 0), offers(p, 3000)
		if len(idle) == 0 || !slices.Equal(idle, busy) {
			t.Errorf("%s offers %v beside an idle pod with CPUs of its own, and %v beside a busy one", p.Name, idle, busy)
		}
	}
}

// The policy does not change while the tool runs: a file that names another one is rejected, and the settings in force stay.
func TestPolicyStaysOnReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "advise.yaml")
	write := func(text string) {
		t.Helper()
		if err := stage.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("reserve-cpu: 8\n")
	in, input := io.Pipe()
	output, out := io.Pipe()
	log := &await.Log{}
	done := make(chan int)
	go func() {
		done <- command().Execute(t.Context(), stage.Env{Args: []string{"advise", "--config", path}, In: in, Out: out, Err: log, Getenv: os.Getenv, Now: time.Now})
		out.Close()
	}()
	lines := bufio.NewScanner(output)
	policy := func() string {
		t.Helper()
		if _, err := io.WriteString(input, `{"v":1,"node":"n","time":"2026-01-01T00:00:00Z","sample":{"intervalSeconds":1,"topology":{"cpus":"0-47"}}}`+"\n"); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() {
			t.Fatalf("no tick: %v", lines.Err())
		}
		l, err := tick.ParseLine(lines.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := l.Decode(tick.SectionAdvice)
		if err != nil {
			t.Fatal(err)
		}
		return decoded.Advice.Policy
	}
	if got := policy(); got != "katalyst" {
		t.Errorf("policy %s; want katalyst", got)
	}
	write("policy: koordinator\n")
	log.Await(t, waitLimit, "policy koordinator: policy katalyst is running, a change needs a restart", 1)
	if got := policy(); got != "katalyst" {
		t.Errorf("policy %s; want katalyst", got)
	}
	write("reserve-cpu: 9\n")
	log.Await(t, waitLimit, "configuration read again", 1)
	input.Close()
	if got := <-done; got != 0 {
		t.Errorf("exit status %d: %s", got, log)
	}
}

// After a reboot, earlier advice is not undone on cgroups that have the same names now; the history of pods stays.
func TestRebootForgetsCgroups(t *testing.T) {
	for _, tt := range []struct{ policy, state, want string }{
		{
			"katalyst", `{"n":{"share":"0-3","dedicated":{"a/b":"4-5"},"bound":{"x":true},"started":{"y":5},"fallback":[{"cgroup":"/a"}],"given":"6","pools":true,"quota":true,"tier":"/k"},"null":null}`,
			`"share":"0-3".*"dedicated":{"a/b":"4-5"},"given":"6",`,
		},
		{
			"koordinator", `{"n":{"batch":{"seen":"2026-11-21T12:00:00Z"},"suppress":{"mode":"cpuset","given":"6","tier":"/k","held":{"/a":3}},"burst":{"cgroups":{"/b":{"quota":true}}},"memory":{"cgroups":{"/c":{}}},"resctrl":{"used":["BE"]},"fallback":[{"cgroup":"/a"}]},"null":null}`,
			`"seen":"2026-11-21T12:00:00Z".*"suppress":{"given":"6"},"burst":{"usage":{}},"memory":{},"resctrl":{}}`,
		},
		{
			"harvest", `{"n":{"known":"2026-11-21T12:00:00Z","offered":{"part":0.5,"known":true},"place":{"kept":"0-1","confined":true},"class":{"set":{"/a":"idle"}},"fallback":[{"cgroup":"/a"}]},"null":null}`,
			`"offered":{"part":0.5.*"place":{"needed":"[^"]*"}|"offered":{"part":0.5.*"place":{}}`,
		},
	} {
		i := slices.IndexFunc(policies, func(k policyKind) bool { return k.Name == tt.policy })
		d := policies[i].start(&loaded{})
		if err := tick.Unmarshal([]byte(tt.state), d.State()); err != nil {
			t.Fatal(err)
		}
		d.Reboot()
		got, err := tick.Marshal(d.State())
		if err != nil || !regexp.MustCompile(tt.want).Match(got) {
			t.Errorf("%s: %s, %v; want %s", tt.policy, got, err, tt.want)
		}
	}
}

// No policy widens what an administrator set of a cgroup that a rule names (systemd's CPUQuota and MemoryMax): neither by a rule's limit,
// nor when the rule has none any more, nor in a tick without the topology.
func TestAnAdministratorsLimitsAreKept(t *testing.T) {
	const text = `{"v":1,"node":"n","sample":{"cgroupVersion":2,"intervalSeconds":2,TOPOLOGY
	"capacity":{"milliCPU":8000,"memoryBytes":16e9},"cpu":{"usageMilliCPU":1000},
	"memory":{"totalBytes":16e9,"availableBytes":12e9,"freeBytes":10e9},
	"config":{"koordinator":{"from":"k/c","colocation":{"enable":true},"resourceThreshold":{"enable":true,"cpuSuppressPolicy":"cfsQuota"},
		"resourceQOS":{"beClass":{"memoryQOS":{"enable":true,"throttlingPercent":80}}}}},
	"pods":[{"uid":"/web","name":"web","qos":"shared","qosSource":"rule","cgroup":"/web","usageMilliCPU":500},
		{"uid":"/batch","name":"batch","qos":"reclaimed","qosSource":"rule","cgroup":"/batch","usageMilliCPU":400,
			"memory":{"usageBytes":1e9,"rssBytes":1e9},"containers":[{"name":"batch","cgroup":"/batch","usageMilliCPU":400}]LIMITS}]}}`
	const topology = `"topology":{"cpus":"0-7","cores":["0,4","1,5","2,6","3,7"]},`
	const limits = `,"limits":{"reclaimedMilliCPU":2000,"reclaimedMemoryBytes":2e9}`
	for _, p := range policies {
		d, quotas := p.start(&loaded{Settings: settings.Defaults()}), 0
		for second, replaced := range [][2]string{{topology, limits}, {topology, limits}, {"", limits}, {topology, ""}, {topology, ""}} {
			x := &tick.Tick{}
			if err := tick.Unmarshal([]byte(strings.NewReplacer("TOPOLOGY", replaced[0], "LIMITS", replaced[1]).Replace(text)), x); err != nil {
				t.Fatal(err)
			}
			x.Time = time.Date(2026, 1, 1, 0, 0, 2*second, 0, time.UTC)
			a := d.Decide(x)
			for _, c := range slices.Concat(a.Cgroups, a.Fallback) {
				limitsMemory := c.MemoryMaxBytes != nil || c.MemoryHighBytes != nil
				if c.CPUMaxMilliCPU != nil && !c.CPUMaxTighterOnly || limitsMemory && !c.MemoryTighterOnly {
					t.Errorf("%s: tick %d: limits of %s may be wider than its own: %+v", p.Name, second, c.Cgroup, c)
				}
				if c.CPUMaxMilliCPU != nil {
					quotas++
				}
			}
		}
		if quotas == 0 {
			t.Errorf("%s: no quota was advised", p.Name)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A list that cannot be written is a failure.
func TestListFails(t *testing.T) {
	var log strings.Builder
	env := stage.Env{
		Args: []string{"advise", "--list"}, In: strings.NewReader(""), Out: fullDisk{}, Err: &log, Getenv: os.Getenv, Now: time.Now,
	}
	if status := command().Execute(t.Context(), env); status != 1 || !strings.Contains(log.String(), "no space left") {
		t.Errorf("status %d: %s; want 1 and the reason", status, &log)
	}
}
