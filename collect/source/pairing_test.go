package source

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/collect/classify"
	"polder/collect/kubernetes"
	"polder/lib/customconfig"
	"polder/lib/sloconfig"
	"polder/lib/tick"
	"polder/lib/tick/ticktest"
)

// fakeCluster is a cluster whose observed state the test sets.
type fakeCluster struct {
	pods      []*kubernetes.Pod
	version   uint64
	asked     int // how often the list was read
	podsErr   error
	recover   func() // called after the next question about the list; nil for none
	node      *kubernetes.Node
	nodeErr   error
	config    tick.Raw
	configErr error
	kept      map[string]*customconfig.Chosen

	strategies *sloconfig.Saved
}

func (c *fakeCluster) PodsVersion() uint64 {
	defer c.answered()
	return c.version
}

func (c *fakeCluster) Pods() []*kubernetes.Pod {
	c.asked++
	return c.pods
}

func (c *fakeCluster) PodsError() error {
	defer c.answered()
	return c.podsErr
}
func (c *fakeCluster) Node() (*kubernetes.Node, error)                 { return c.node, c.nodeErr }
func (c *fakeCluster) Config() (tick.Raw, error)                       { return c.config, c.configErr }
func (c *fakeCluster) SaveConfig() map[string]*customconfig.Chosen     { return c.kept }
func (c *fakeCluster) LoadConfig(kept map[string]*customconfig.Chosen) { c.kept = kept }
func (c *fakeCluster) SaveStrategies() *sloconfig.Saved                { return c.strategies }
func (c *fakeCluster) LoadStrategies(saved *sloconfig.Saved)           { c.strategies = saved }

func (c *fakeCluster) answered() {
	if f := c.recover; f != nil {
		c.recover = nil
		f()
	}
}

func (c *fakeCluster) set(pods ...*kubernetes.Pod) {
	c.pods = pods
	c.version++
}

func (m *machine) clustered(c *fakeCluster) *Collector {
	m.t.Helper()
	rules := defaultRules(m.t)
	collector := New(&Env{Host: m.host(), Rules: rules, Cluster: c, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	m.t.Cleanup(func() { _ = collector.Close() })
	return collector
}

func clusterPod(name, uid, class string, containers ...kubernetes.Container) *kubernetes.Pod {
	return &kubernetes.Pod{
		CgroupUID: uid, Containers: containers,
		Tick: tick.Pod{UID: "api-" + uid, Namespace: "shop", Name: name, QoS: class, QoSSource: tick.QoSFromKatalyst, Phase: "Running"},
	}
}

// lines are the pods in short: UID, name, class, what is missing, and the containers.
func lines(s *tick.Sample) []string {
	var out []string
	for i := range s.Pods {
		p := &s.Pods[i]
		line := strings.Join([]string{p.UID, p.Name, p.QoS, p.Missing}, " ")
		for _, c := range p.Containers {
			line += " " + c.Name
			if c.UsageMilliCPU != nil {
				line += "*"
			}
		}
		out = append(out, line)
	}
	return out
}

const (
	uidA = "aaaaaaaa-0000-4000-8000-000000000001"
	uidB = "bbbbbbbb-0000-4000-8000-000000000002"
	uidC = "cccccccc-0000-4000-8000-000000000003"
)

func TestJoin(t *testing.T) {
	m := newMachine(t)
	a := "/kubepods/burstable/pod" + uidA
	b := "/kubepods/besteffort/pod" + uidB
	m.cgroup(a+"/x", "1000000")
	m.cgroup(a+"/sandbox", "1000000")
	m.cgroup(b+"/y", "1000000")
	m.cgroup("/system.slice", "1")
	c := &fakeCluster{podsErr: errors.New("the pod list was never read")}
	collector := m.clustered(c)
	expect := func(what string, want ...string) *tick.Sample {
		t.Helper()
		s := collector.Read(true)
		if diff := cmp.Diff(want, lines(s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		line, err := tick.Marshal(&tick.Tick{V: tick.Version, Node: "n", Time: time.Unix(1, 0).UTC(), Sample: s})
		if err != nil {
			t.Fatal(err)
		}
		if err := ticktest.Validate(line); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return s
	}

	// Before the list is read all pods are unknown: none counts as reclaimed, although the rule has that class.
	s := expect("never read", uidB+" pod"+uidB+" shared cluster y", uidA+" pod"+uidA+" shared cluster sandbox x", "/system.slice system.slice system  system.slice")
	if !slices.Contains(s.Errors, tick.SourceError{Source: "pods", Error: "the pod list was never read"}) {
		t.Errorf("reported errors %v; want that of the pods", s.Errors)
	}

	c.podsErr = nil
	c.set(
		clusterPod("web", uidA, tick.QoSDedicated, kubernetes.Container{Name: "main", ID: "x", Awaited: true, Requests: &tick.Resources{MilliCPU: new(5.0)}}),
		clusterPod("batch", uidB, tick.QoSReclaimed, kubernetes.Container{Name: "stress", ID: "y", Awaited: true}),
		clusterPod("new", uidC, tick.QoSShared, kubernetes.Container{Name: "new", Awaited: true}),
	)
	m.write("proc/uptime", "1010.00 1.00")
	joined := []string{
		"api-" + uidB + " batch reclaimed  stress*", "api-" + uidA + " web dedicated  main*",
		"/system.slice system.slice system  system.slice*", "api-" + uidC + " new shared cgroup",
	}
	s = expect("read", joined...)
	if r := s.Pods[1].Containers[0].Requests; r == nil || *r.MilliCPU != 5 || s.Pods[1].Cgroup != a ||
		slices.ContainsFunc(s.Errors, func(e tick.SourceError) bool { return e.Source == "pods" }) {
		t.Errorf("pod %+v, errors %v", s.Pods[1], s.Errors)
	}

	// Nothing is assembled again where nothing has changed.
	asked := c.asked
	expect("again", joined...)
	if c.asked != asked {
		t.Error("the list is read although it has not changed")
	}

	// The third pod starts, first its sandbox, then its container, which is not in the status yet.
	m.cgroup("/kubepods/pod"+uidC+"/s", "1")
	withC := []string{joined[0], joined[1], "api-" + uidC + " new shared ", joined[2]}
	expect("a sandbox", withC...)
	m.cgroup("/kubepods/pod"+uidC+"/z", "1")
	withC[2] += " s z"
	expect("a container without a status", withC...)
	c.set(c.pods[0], c.pods[1], clusterPod("new", uidC, tick.QoSShared, kubernetes.Container{Name: "new", ID: "z", Awaited: true}))
	withC[2] = "api-" + uidC + " new shared  new"
	expect("its status", withC...)

	// A pod object is deleted before its cgroup: what is known of the pod stays while the cgroup does.
	c.set(c.pods[0], c.pods[2])
	withC[0] = "api-" + uidB + " batch reclaimed cluster stress*"
	expect("the object is gone", withC...)
	if err := os.RemoveAll(filepath.Join(m.root, "sys/fs/cgroup", b)); err != nil {
		t.Fatal(err)
	}
	expect("both are gone", withC[1:]...)
	m.cgroup(b+"/y", "1")
	withC[0] = uidB + " pod" + uidB + " shared cluster y"
	expect("a cgroup of the name again, of which nothing is known", withC...)

	// A pod that has ended needs no cgroup.
	ended := clusterPod("done", "dddddddd-0000-4000-8000-000000000004", tick.QoSShared)
	ended.Tick.Phase = "Succeeded"
	c.set(c.pods[0], c.pods[1], ended)
	expect("an ended pod", withC...)
}

// Values of the node object replace the machine's in the sample; those that it lacks do not.
func TestNodeObject(t *testing.T) {
	m := newMachine(t)
	c := &fakeCluster{nodeErr: errors.New("the node object was never read"), config: tick.Raw(`{"katalyst":{}}`)}
	collector := m.clustered(c)
	s := collector.Read(true)
	if *s.Capacity.MilliCPU != 2000 || s.Allocatable != nil || s.Labels != nil {
		t.Errorf("without a node object: %+v, allocatable %+v; want the machine's own capacity, and what is allocatable unknown",
			s.Capacity, s.Allocatable)
	}
	if !slices.Contains(s.Errors, tick.SourceError{Source: "node", Error: c.nodeErr.Error()}) {
		t.Errorf("reported errors %v; want the node's", s.Errors)
	}
	c.nodeErr = nil
	c.node = &kubernetes.Node{
		Allocatable: &tick.Resources{MilliCPU: new(1500.0)}, Labels: map[string]string{"kubernetes.io/hostname": "n"}, Problems: []string{"odd"},
	}
	s = collector.Read(true)
	if *s.Capacity.MilliCPU != 2000 || *s.Allocatable.MilliCPU != 1500 || s.Labels["kubernetes.io/hostname"] != "n" || string(s.Config) != `{"katalyst":{}}` {
		t.Errorf("with one: %+v, %+v, %v, %s", s.Capacity, s.Allocatable, s.Labels, s.Config)
	}
	c.node = &kubernetes.Node{Capacity: &tick.Resources{MilliCPU: new(2000.0)}}
	if s := collector.Read(true); s.Allocatable != nil {
		t.Errorf("with one that has just registered: allocatable %+v; want unknown", s.Allocatable)
	}
	c.node = &kubernetes.Node{Problems: []string{"odd"}}
	s = collector.Read(true)
	if !slices.Contains(s.Errors, tick.SourceError{Source: "node", Error: "odd"}) {
		t.Errorf("reported errors %v; want those of the object", s.Errors)
	}
}

// The configuration in force survives a restart of collect and a reboot.
func TestConfigIsKept(t *testing.T) {
	m := newMachine(t)
	m.write("proc/sys/kernel/random/boot_id", "one")
	chosen := map[string]*customconfig.Chosen{"adminQoSConfiguration": {Namespace: "n", Name: "c", Config: []byte(`{"a":1}`)}}
	before := m.clustered(&fakeCluster{kept: chosen})
	before.Read(true)
	data, err := tick.Marshal(before.Save())
	if err != nil {
		t.Fatal(err)
	}
	for _, boot := range []string{"one", "two"} {
		m.write("proc/sys/kernel/random/boot_id", boot)
		var state State
		if err := tick.Unmarshal(data, &state); err != nil {
			t.Fatal(err)
		}
		after := &fakeCluster{}
		if ok := m.clustered(after).Load(&state, 60); ok != (boot == "one") {
			t.Errorf("start %s: loaded %v", boot, ok)
		}
		if diff := cmp.Diff(chosen, after.kept); diff != "" {
			t.Errorf("start %s: %s", boot, diff)
		}
	}
}

// A user's own rules find pods too. A cgroup whose name only resembles a pod's, or that is outside of kubelet's cgroups, is described by
// the rules alone; of two cgroups in cgroups that are named like kubelet's, the one below the configured cgroupRoot is the pod's.
func TestJoinByRules(t *testing.T) {
	m := newMachine(t)
	m.cgroup("/own/kubepods/pod"+uidA, "1")
	m.cgroup("/kubepods/pod"+uidB, "1")
	m.cgroup("/batch.slice/a/pod"+uidA, "1")
	m.cgroup("/batch.slice/kubepods/pod"+uidB, "1")
	m.cgroup("/podman.slice", "1")
	m.cgroup("/batch.slice", "1")
	rules, err := classify.Parse("own.yaml", []byte("rules: [{cgroup: /**/kubepods/pod*, class: shared}, "+
		"{cgroup: /*.slice, class: reclaimed}, {cgroup: /batch.slice/a/*, class: reclaimed}]"))
	if err != nil {
		t.Fatal(err)
	}
	h := m.host()
	c := &fakeCluster{}
	c.set(clusterPod("web", uidA, tick.QoSShared), clusterPod("db", uidB, tick.QoSDedicated))
	for _, p := range c.pods {
		p.Tick.UID = p.CgroupUID
	}
	collector := New(&Env{Host: h, Rules: rules, Cluster: c, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	defer collector.Close()
	want := []string{
		"/batch.slice batch.slice", "/batch.slice/a/pod" + uidA + " pod" + uidA,
		"/batch.slice/kubepods/pod" + uidB + " pod" + uidB + " missing: cluster",
		"/kubepods/pod" + uidB + " db", "/own/kubepods/pod" + uidA + " web", "/podman.slice podman.slice",
	}
	var got []string
	for _, p := range collector.Read(true).Pods {
		line := p.Cgroup + " " + p.Name
		if p.Missing != "" {
			line += " missing: " + p.Missing
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A pod's own cgroup is found by the UID from the API server, even if it has a static pod's hash.
func TestAForgedHashHidesNoCgroup(t *testing.T) {
	for name, hash := range map[string]string{"of nothing": "0123456789abcdef0123456789abcdef", "of a static pod": uidB} {
		m := newMachine(t)
		for _, uid := range []string{uidA, uidB} {
			m.cgroup("/kubepods/burstable/pod"+uid+"/x", "1")
		}
		forged := clusterPod("batch", hash, tick.QoSReclaimed)
		forged.Tick.UID = uidA
		forged.Tick.Static = true
		static := clusterPod("static", uidB, tick.QoSSystem)
		static.Tick.Static = true
		c := &fakeCluster{}
		c.set(forged, static)
		for _, p := range m.clustered(c).Read(true).Pods {
			if want := p.Name == "static"; p.Static != want {
				t.Errorf("%s: pod %s: static %v; want %v", name, p.Name, p.Static, want)
			}
		}
		want := []string{uidA + " batch reclaimed ", "api-" + uidB + " static system "}
		got := lines(m.clustered(c).Read(true))
		for i := range got {
			got[i] = strings.TrimSuffix(got[i], " x")
		}
		if len(got) != 2 || !strings.HasPrefix(got[0], want[0]) || !strings.HasPrefix(got[1], want[1]) {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}
}

// A hash is an annotation, which anybody can write: it finds neither another pod's cgroup nor one that two pods claim.
func TestJoinForged(t *testing.T) {
	m := newMachine(t)
	for _, uid := range []string{uidA, uidB, uidC} {
		m.cgroup("/kubepods/burstable/pod"+uid+"/x", "1")
	}
	own := clusterPod("web", uidA, tick.QoSShared)
	own.Tick.UID = uidA
	c := &fakeCluster{}
	c.set(clusterPod("thief", uidA, tick.QoSReclaimed), own, clusterPod("static", uidB, tick.QoSSystem),
		clusterPod("one", uidC, tick.QoSReclaimed), clusterPod("two", uidC, tick.QoSReclaimed))
	collector := m.clustered(c)
	for range 20 { // the list comes from a map
		slices.Reverse(c.pods)
		c.version++
		want := []string{uidA + " web shared ", "api-" + uidB + " static system ", uidC + " pod" + uidC + " shared cluster x"}
		got := lines(collector.Read(true))
		if len(got) > 3 {
			got = got[:3] // after them come pods without a cgroup
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
	}
}

// A pod that only claims the cgroup of another one, which was deleted and still runs, does not get it, nor one that has ended.
func TestClaimOfADeletedPodsCgroup(t *testing.T) {
	m := newMachine(t)
	m.cgroup("/kubepods/pod"+uidA+"/x", "1000000")
	m.cgroup("/kubepods/pod"+uidC+"/y", "1000000")
	c := &fakeCluster{}
	victim := clusterPod("victim", uidA, tick.QoSDedicated, kubernetes.Container{Name: "main", ID: "x", Awaited: true})
	victim.Tick.UID = uidA
	forged := clusterPod("forged", uidA, tick.QoSReclaimed)
	forged.Tick.UID = uidB
	ended := clusterPod("ended", uidC, tick.QoSReclaimed)
	ended.Tick.Phase = "Failed"
	c.set(victim, forged, ended)
	collector := m.clustered(c)
	collector.Read(true)
	c.set(forged, ended)
	want := []string{
		uidA + " victim dedicated cluster main", uidC + " pod" + uidC + " shared cluster y", uidB + " forged reclaimed cgroup",
	}
	got := lines(collector.Read(true))
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// A pod that has ended stays in the cluster, and does not hide a static pod's cgroup by its hash.
func TestAnEndedPodClaimsNoCgroup(t *testing.T) {
	m := newMachine(t)
	m.cgroup("/kubepods/burstable/pod"+uidB+"/x", "1")
	ended := clusterPod("forged", uidB, tick.QoSReclaimed)
	ended.Tick.Phase = "Failed"
	c := &fakeCluster{}
	c.set(ended, clusterPod("static", uidB, tick.QoSSystem))
	if diff := cmp.Diff([]string{"api-" + uidB + " static system "}, lines(m.clustered(c).Read(true))); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// A list that becomes current while a sample is made does not count as current before its content is in the sample.
func TestListThatBecomesCurrent(t *testing.T) {
	m := newMachine(t)
	c := &fakeCluster{podsErr: errors.New("the pod list is stale")}
	collector := m.clustered(c)
	collector.Read(true)
	c.recover = func() {
		c.podsErr = nil
		c.set(clusterPod("new", uidC, tick.QoSShared))
	}
	for range 2 {
		s := collector.Read(false)
		isListed := slices.ContainsFunc(s.Pods, func(p tick.Pod) bool { return p.Name == "new" })
		if !isListed && !s.IsUnread("pods") {
			t.Errorf("the sample has neither the new pod nor an error: %v", lines(s))
		}
	}
}
