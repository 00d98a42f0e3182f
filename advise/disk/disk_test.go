package disk

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/advise/policy"
	"polder/lib/tick"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// run is a node whose ticks are a second apart.
type run struct {
	st       *State
	second   int
	sample   tick.Sample
	settings Settings
	strategy Strategy
	advice   *tick.Advice
}

func pod(name, class, cgroup string, io bool) tick.Pod {
	p := tick.Pod{UID: name, Name: name, QoS: class, QoSSource: tick.QoSFromRule, Cgroup: cgroup}
	if io {
		p.IO = &tick.IO{ReadBytesPerSecond: new(0.0)}
	}
	return p
}

// newRun returns a host with batch in /batch, whose I/O is known, and a service.
func newRun(version int) *run {
	return &run{sample: tick.Sample{CgroupVersion: version, BatchCgroups: []string{"/batch"}, Pods: []tick.Pod{
		pod("j", tick.QoSReclaimed, "/batch/job", true), pod("k", tick.QoSReclaimed, "/batch/other", true), pod("w", tick.QoSShared, "/web", true),
	}}}
}

func (r *run) tickAfter(seconds int) string {
	r.second += seconds
	r.advice = &tick.Advice{}
	at := begin.Add(time.Duration(r.second) * time.Second)
	r.st = r.st.Advise(&tick.Tick{Node: "n", Time: at, Sample: &r.sample}, r.advice, r.settings, r.strategy)
	if d := cmp.Diff(r.advice.Cgroups, r.advice.Fallback); d != "" {
		return "the fallback differs: " + d
	}
	return text(r.advice.Cgroups)
}

func text(list []tick.Cgroup) string {
	var out []string
	for _, c := range list {
		one := c.Cgroup
		if c.IOWeight != nil {
			one += fmt.Sprintf(" weight %d", *c.IOWeight)
		}
		for _, d := range c.IOMax {
			one += " " + d.Disk + ":"
			for _, n := range []*int64{d.ReadBytesPerSecond, d.WriteBytesPerSecond, d.ReadsPerSecond, d.WritesPerSecond} {
				one += fmt.Sprintf("%d ", *n)
			}
		}
		out = append(out, strings.TrimSpace(one))
	}
	return strings.Join(out, "; ")
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestShare(t *testing.T) {
	r := newRun(2)
	expect(t, "off", r.tickAfter(1), "")
	r.settings.Share = Idle
	expect(t, "idle", r.tickAfter(1), "/batch weight 1")
	if len(r.advice.Reasons) != 1 || r.advice.Reasons[0] != "batch disks: weight 1 of 1 cgroup" {
		t.Errorf("reasons %q", r.advice.Reasons)
	}
	r.sample.Pods[0].IO, r.sample.Pods[1].IO = nil, nil
	expect(t, "unknown once", r.tickAfter(1), "/batch weight 1")
	r.settings.Share = None
	expect(t, "switched off", r.tickAfter(1), "/batch weight -1")
	expect(t, "for a minute", r.tickAfter(59), "/batch weight -1")
	expect(t, "and then nothing", r.tickAfter(1), "")
	if r.st != nil {
		t.Errorf("%+v is remembered", r.st)
	}
	r.settings.Share = Idle
	expect(t, "never known", r.tickAfter(1), "")

	r = newRun(1)
	r.settings.Share = Idle
	r.sample.BatchCgroups = nil
	r.sample.Tiers = []tick.Tier{{Name: tick.TierBestEffort, Cgroup: "/batch"}}
	expect(t, "kubelet's tier", r.tickAfter(1), "/batch weight 1")
	r.sample.Pods[2].Cgroup = "/batch/web"
	expect(t, "with a service in it", r.tickAfter(1), "/batch weight -1; /batch/job weight 1; /batch/other weight 1")
}

// A batch pod that was deleted from the cluster keeps its weight while its processes run.
func TestDeletedBatchKeepsItsWeight(t *testing.T) {
	r := newRun(2)
	r.settings.Share = Idle
	r.sample.BatchCgroups = nil
	deleted := pod("d", tick.QoSReclaimed, "/kubepods/burstable/pod-d", true)
	deleted.QoSSource = tick.QoSFromKatalyst
	r.sample.Pods = []tick.Pod{deleted}
	expect(t, "before", r.tickAfter(1), "/kubepods/burstable/pod-d weight 1")
	r.sample.Pods[0].Missing = tick.MissingCluster
	expect(t, "deleted", r.tickAfter(1), "/kubepods/burstable/pod-d weight 1")
	r.sample.Pods[0].Missing = tick.MissingCgroup
	expect(t, "gone", r.tickAfter(1), "/kubepods/burstable/pod-d weight -1")
}

func TestLimits(t *testing.T) {
	r := newRun(2)
	r.settings.Limits = []tick.DiskLimit{{Disk: "all", ReadBytesPerSecond: new(int64(1 << 20))}, {Disk: "/var", WritesPerSecond: new(int64(100))}}
	expect(t, "version 2", r.tickAfter(1), "/batch all:1048576 -1 -1 -1  /var:-1 -1 -1 100")
	if want := `batch disks: at most 1.00 MiB/s read on "all"; 100 writes/s on "/var", divided among 1 cgroup`; len(r.advice.Reasons) != 1 || r.advice.Reasons[0] != want {
		t.Errorf("reasons %q", r.advice.Reasons)
	}
	r.sample.CgroupVersion = 1
	r.settings.Limits = r.settings.Limits[:1]
	expect(t, "version 1", r.tickAfter(1), "/batch /var:-1 -1 -1 -1  all:-1 -1 -1 -1; /batch/job all:524288 -1 -1 -1; /batch/other all:524288 -1 -1 -1")
	r.settings.Limits[0].ReadBytesPerSecond = new(int64(70_000))
	expect(t, "never under the least", r.tickAfter(60), "/batch/job all:65536 -1 -1 -1; /batch/other all:65536 -1 -1 -1")
	r.sample.Pods = r.sample.Pods[1:]
	expect(t, "an ended pod is undone for a while", r.tickAfter(1), "/batch/job all:-1 -1 -1 -1; /batch/other all:70000 -1 -1 -1")
	r.settings.Limits = nil
	expect(t, "off", r.tickAfter(61), "/batch/other all:-1 -1 -1 -1")
	expect(t, "off for long", r.tickAfter(60), "")
}

// The policy's strategy applies without settings, and so does a weight that the policy itself desires.
func TestStrategy(t *testing.T) {
	r := newRun(2)
	r.strategy = Strategy{Weight: 60, Limits: []tick.DiskLimit{{Disk: "sdb", ReadsPerSecond: new(int64(10))}}}
	expect(t, "the policy's", r.tickAfter(1), "/batch weight 60 sdb:-1 -1 10 -1")
	r.settings.Share = Idle
	expect(t, "a setting", r.tickAfter(1), "/batch weight 1 sdb:-1 -1 10 -1")
	r.settings.Share = None
	expect(t, "another", r.tickAfter(1), "/batch weight -1 sdb:-1 -1 10 -1")
}

func TestFleetAndClock(t *testing.T) {
	r := newRun(2)
	r.settings.Share = Idle
	r.sample.Fleet = &tick.Fleet{}
	expect(t, "from collect fleet", r.tickAfter(1), "")
	r.sample.Fleet = nil
	r.tickAfter(100)
	r.settings.Share = ""
	expect(t, "off", r.tickAfter(0), "/batch weight -1")
	expect(t, "the clock was set back", r.tickAfter(-90), "/batch weight -1")
	expect(t, "a minute after that", r.tickAfter(60), "")
}

// FuzzAdvise decides on arbitrary samples after an arbitrary state: the advice is for cgroups, within bounds, and the state can be written
// again.
func FuzzAdvise(f *testing.F) {
	const sample = `{"cgroupVersion":1,"batchCgroups":["/b","x","/"],"tiers":[{"name":"besteffort","cgroup":"/k"}],"pods":[{"uid":"j","qos":"reclaimed","cgroup":"/b/j","io":{}},
		{"uid":"k","qos":"reclaimed","cgroup":"/k/j","io":{"readsPerSecond":1e308},"containers":[{"cgroup":"/k/j/c"},{"cgroup":"/"},{"cgroup":"x"}]},{"uid":"w","qos":"shared","cgroup":"/w"}]}`
	const state = `{"set":{"/b":{"weight":true,"disks":["all","x"],"undo":{"disks":["y"]},"undoAt":"9999-01-01T00:00:00Z"},"":{},"/gone":null}}`
	f.Add(sample, `{}`, "all", int64(65536))
	f.Add(sample, state, "", int64(-5))
	f.Fuzz(func(t *testing.T, sample, state, disk string, limit int64) {
		x := &tick.Tick{V: 1, Node: "n", Sample: new(tick.Sample)}
		var st *State
		if tick.Unmarshal([]byte(sample), x.Sample) != nil || x.Sample == nil {
			return
		}
		if tick.Unmarshal([]byte(state), &st) != nil {
			st = nil
		}
		for i := range 6 {
			x.Time = begin.Add(time.Duration(i) * 17 * time.Second)
			a := &tick.Advice{}
			s := Settings{Share: Idle, Limits: []tick.DiskLimit{{Disk: disk, ReadBytesPerSecond: &limit, WritesPerSecond: &limit}}}
			if i > 2 {
				s = Settings{}
			}
			st = st.Advise(x, a, s, Strategy{})
			for _, c := range a.Cgroups {
				if !policy.IsCgroup(c.Cgroup) || len(c.IOMax) > 4*maxDisks {
					t.Fatalf("advised %+v", c)
				}
				for _, d := range c.IOMax {
					if *d.ReadBytesPerSecond >= 0 && *d.ReadBytesPerSecond < minBytes || *d.WritesPerSecond >= 0 && *d.WritesPerSecond < minOperations {
						t.Fatalf("advised %s", Text(&d))
					}
				}
			}
			if _, err := tick.Marshal(st); err != nil {
				t.Fatalf("what is remembered cannot be written: %v", err)
			}
		}
	})
}
