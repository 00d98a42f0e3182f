package katalyst

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/advise/class"
	"polder/lib/tick"
)

// service returns a shared cgroup of a plain host with use and loads in cores.
func service(name string, cores float64) tick.Pod {
	p := fromRule(name)
	p.QoS, p.StartTime = tick.QoSShared, "2023-01-03T10:00:00Z"
	c := &p.Containers[0]
	c.UsageMilliCPU, c.Load1, c.Load5 = new(cores*1000), &cores, &cores
	return p
}

// The guide's node with batch and services of a plain host: services that need more than the floor leaves have its CPUs as well, and batch
// has theirs, as long as the kernel gives services all of these first. The pools are the guide's in any case.
func TestServicesRunOnTheFloorWhileTheyAreShort(t *testing.T) {
	const (
		all    = "0-47"
		floor  = "0,12,24,36"
		others = "1-11,13-23,25-35,37-47" // all but the floor
		idle   = "11,22-23,35,46-47"      // the shared pool at one core
	)
	inKubelet := reclaimed("b")
	inKubelet.Cgroup, inKubelet.QoSSource = "/kubepods/besteffort/podb", tick.QoSFromKatalyst
	kubeService := shared("kube", 60)
	dedicatedPod := service("db", 60)
	dedicatedPod.QoS = tick.QoSDedicated
	withConfig := func(value string) tick.Raw {
		return tick.Raw(`{"katalyst":{"adminQoSConfiguration":{"namespace":"ks","name":"qos","config":{"advisorConfig":` + value + `}}}}`)
	}
	allowed := withConfig(`{"cpuAdvisorConfig":{"allowSharedCoresOverlapReclaimedCores":true}}`)
	for _, c := range []struct {
		name     string
		settings func(*Settings)
		config   tick.Raw
		pods     []tick.Pod
		want     map[string]string // CPU lists
		reason   string            // part of one; "" if none may mention the overlap
	}{
		{
			"by default", nil, nil,
			[]tick.Pod{service("web", 60), fromRule("job")},
			map[string]string{"web": all, "job": all},
			"they and batch run on the CPUs of both, services before batch (share-overlap: default)",
		},
		{
			"as many as the floor leaves are enough", nil, nil,
			[]tick.Pod{service("web", 40), fromRule("job")},
			map[string]string{"web": others, "job": floor},
			"",
		},
		{
			"a dedicated one without CPUs of its own", nil, nil,
			[]tick.Pod{service("web", 1), dedicatedPod, fromRule("job")},
			map[string]string{"web": all, "db": all, "job": all},
			"services before batch (share-overlap: default)",
		},
		{
			"reclaim is off: batch keeps to the floor", nil,
			tick.Raw(`{"katalyst":{"adminQoSConfiguration":{"namespace":"ks","name":"qos",` +
				`"config":{"reclaimedResourceConfig":{"enableReclaim":false}}}}}`),
			[]tick.Pod{service("web", 60), fromRule("job")},
			map[string]string{"web": others, "job": floor},
			"",
		},
		{"no batch", nil, nil, []tick.Pod{service("web", 60)}, map[string]string{"web": all}, "services before batch"},
		{
			"batch without a class", func(s *Settings) { s.Class.Class = class.None }, nil,
			[]tick.Pod{service("web", 60), fromRule("job")},
			map[string]string{"web": others, "job": floor},
			"",
		},
		{
			"batch in kubelet's tier is not beside the services", nil, nil,
			[]tick.Pod{service("web", 60), fromRule("job"), inKubelet},
			map[string]string{"web": others, "job": floor, "besteffort/b": floor},
			"",
		},
		{"services in kubelet's tier", nil, nil, []tick.Pod{kubeService, fromRule("job")}, map[string]string{"kube": others, "job": floor}, ""},
		{
			"off", func(s *Settings) { s.Overlap = OverlapOff }, allowed,
			[]tick.Pod{service("web", 60), fromRule("job")},
			map[string]string{"web": others, "job": floor},
			"",
		},
		{
			"on", func(s *Settings) { s.Overlap = OverlapOn }, nil,
			[]tick.Pod{service("web", 1), shared("kube", 0.1), inKubelet},
			map[string]string{"web": all, "kube": all, "besteffort/b": "0-10,12-21,24-34,36-45"},
			"services run on the reclaim pool's CPUs, too (default)",
		},
		{
			"on by the cluster's configuration", nil, allowed,
			[]tick.Pod{shared("kube", 1), inKubelet},
			map[string]string{"kube": all, "besteffort/b": "0-10,12-21,24-34,36-45"},
			"too (AdminQoSConfiguration ks/qos: advisorConfig.cpuAdvisorConfig.allowSharedCoresOverlapReclaimedCores)",
		},
		{
			"off by the cluster's configuration", nil, withConfig(`{"cpuAdvisorConfig":{"allowSharedCoresOverlapReclaimedCores":false}}`),
			[]tick.Pod{service("web", 60), fromRule("job")},
			map[string]string{"web": others, "job": floor},
			"",
		},
		{
			"null", nil, withConfig(`{"cpuAdvisorConfig":{"allowSharedCoresOverlapReclaimedCores":null}}`),
			[]tick.Pod{service("web", 60)},
			map[string]string{"web": all},
			"share-overlap: default",
		},
		{
			"no switch", nil, withConfig(`{"cpuAdvisorConfig":{"allowSharedCoresOverlapReclaimedCores":"yes"}}`),
			[]tick.Pod{shared("kube", 1)},
			map[string]string{"kube": idle},
			`ReclaimedCores: "yes": want true or false: ignored`,
		},
		{
			"no object", nil, withConfig(`{"cpuAdvisorConfig":[1]}`),
			[]tick.Pod{shared("kube", 1)},
			map[string]string{"kube": idle},
			"advisorConfig.cpuAdvisorConfig: want an object: ignored",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Defaults()
			if c.settings != nil {
				c.settings(&s)
			}
			tk := at(0, c.pods...)
			tk.Sample.Config = c.config
			a := New(s).Decide(tk)
			got := map[string]string{}
			for cgroup, list := range listsByCgroup(a.Cgroups) {
				if list != "" {
					got[strings.TrimPrefix(cgroup, "/")] = list
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("CPU lists (-want +got):\n%s", diff)
			}
			reasons := strings.Join(a.Reasons, "\n")
			mentions := strings.Contains(reasons, "reclaim pool's CPUs, too") || strings.Contains(reasons, "the CPUs of both")
			if !strings.Contains(reasons, c.reason) || c.reason == "" && mentions {
				t.Errorf("the reasons are\n%s\nwant %q among them", reasons, c.reason)
			}
		})
	}
}

// A class only counts among siblings: batch comes after a service if that is below the parent of batch's outermost cgroup, and only then
// both run on all CPUs.
func TestOverlapNeedsBatchBesideAllServices(t *testing.T) {
	for _, tt := range []struct {
		name         string
		job          string
		batchCgroups []string
		services     []string
		want         bool
	}{
		{"at the top", "jobs/1", []string{"/jobs"}, []string{"web", "app/db"}, true},
		{"beside all services", "system.slice/job", nil, []string{"system.slice/web", "system.slice/app/db"}, true},
		{"beside one of two services", "app/job", nil, []string{"app/web", "db"}, false},
		{"in a cgroup that may contain others", "jobs/1", nil, []string{"web"}, false},
		{"beside a service, and one of kubelet's", "app/job", nil, []string{"app/web", "kubepods/podx"}, false},
	} {
		pods := []tick.Pod{fromRule(tt.job)}
		for _, name := range tt.services {
			pods = append(pods, service(name, 60))
		}
		tk := at(0, pods...)
		tk.Sample.BatchCgroups = tt.batchCgroups
		lists := listsByCgroup(New(Defaults()).Decide(tk).Cgroups)
		for _, p := range pods {
			if got := lists[p.Cgroup] == "0-47"; got != tt.want {
				t.Errorf("%s: %s has CPUs %s; want all CPUs: %t", tt.name, p.Cgroup, lists[p.Cgroup], tt.want)
			}
		}
	}
}

// A shortage has the pools' hold-down: after it services and batch have their pools alone again. Where advise has stopped services keep all
// CPUs, and batch the floor.
func TestOverlapEndsAfterTheHoldDown(t *testing.T) {
	d := New(Defaults())
	for i, step := range []struct {
		seconds, cores float64
		list           string
	}{
		{0, 60, "0-47"},
		{1, 1, "0-47"},
		{29.9, 1, "0-47"},
		{30, 1, "2-11,13-23,26-35,37-47"}, // and the first step of the shared pool
		{31, 45, "0-47"},
		{-3600, 1, "0-47"}, // the clock was set back
		{-3571, 1, "0-47"},
		{-3570, 1, "2-11,13-23,26-35,37-47"},
	} {
		a := d.Decide(at(step.seconds, service("web", step.cores), fromRule("job")))
		if got := listsByCgroup(a.Cgroups)["/web"]; got != step.list {
			t.Errorf("at %v s: CPUs %s; want %s", step.seconds, got, step.list)
		}
		if got := listsByCgroup(a.Cgroups)["/job"]; (got == "0-47") != (step.list == "0-47") {
			t.Errorf("at %v s: batch has CPUs %s, and services %s; want all for both, or for none", step.seconds, got, step.list)
		}
		if got := listsByCgroup(a.Fallback); i == 0 && (got["/web"] != "0-47" || got["/job"] != "0,12,24,36") {
			t.Errorf("CPUs in the fallback: %v; want all for the service, and the floor for batch", got)
		}
		d = restarted(t, d)
	}
}

// Pods of a named pool also run on the reclaim pool's CPUs, and on no other pool's.
func TestOverlapOfANamedPool(t *testing.T) {
	s := Defaults()
	s.Overlap = OverlapOn
	named := shared("named", 3)
	named.Annotations = map[string]string{cpuEnhancement: `{"cpuset_pool":"web"}`}
	a := New(s).Decide(at(0, named, shared("a", 3)))
	pools := poolsOf(a)
	want := newShapeUnion(t, pools["web"], pools["reclaim"])
	if got := listsByCgroup(a.Cgroups)["named"]; got != want || want == "0-47" {
		t.Errorf("CPUs %s; want %s of the pools %v", got, want, pools)
	}
}

func newShapeUnion(t *testing.T, lists ...string) string {
	t.Helper()
	s := new(shape)
	return s.union(s.parse(lists[0]), s.parse(lists[1])).list
}

// A guessed need of the first ticks causes no overlap that lasts.
func TestGuessedShortageEnds(t *testing.T) {
	d := New(Defaults())
	unread := service("web", 0)
	unread.Containers = []tick.Container{}
	for i := range 12 { // 4 cores each
		unread.Containers = append(unread.Containers, tick.Container{Name: strings.Repeat("c", i+1), Cgroup: "/web"})
	}
	tk := at(0, unread)
	tk.Sample.IntervalSeconds = new(1.0)
	d.Decide(tk)
	a := d.Decide(at(1, service("web", 1)))
	if got := listsByCgroup(a.Cgroups)["/web"]; got != "11,22-23,35,46-47" {
		t.Errorf("CPUs %s; want the shared pool's", got)
	}
}
