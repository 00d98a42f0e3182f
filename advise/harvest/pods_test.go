package harvest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

// observe evaluates one tick with the given pods.
func (ps *pods) observe(after time.Duration, list ...tick.Pod) {
	r := ps.begin(start.Add(after))
	for i := range list {
		r.addPod(&list[i], list[i].UsageMilliCPU, list[i].Memory.WorkingSetBytes, Defaults())
	}
	r.end()
}

// A peak counts for at least half an hour, and for at most an hour.
func TestPeaksCountForHalfAnHour(t *testing.T) {
	ps := &pods{}
	for _, step := range []struct {
		minute   int
		use      float64
		maximum  float64
		whatFor  string
		clockSet bool
	}{
		{0, 900, 900, "the first", false},
		{29, 100, 900, "half an hour is not over", false},
		{30, 100, 900, "the half before counts, too", false},
		{59, 50, 900, "still", false},
		{60, 50, 100, "it was an hour ago", false},
		{-600, 70, 70, "the clock was set back, and turns with it", true},
		{-570, 60, 70, "half an hour later", false},
	} {
		ps.observe(time.Duration(step.minute)*time.Minute, podOf("web", tick.QoSShared, step.use))
		if p := ps.ByIdentity["web"]; max(p.Peak, p.PreviousPeak) != step.maximum && !step.clockSet {
			t.Errorf("minute %d (%s): peaks %v and %v, want %v", step.minute, step.whatFor, p.Peak, p.PreviousPeak, step.maximum)
		}
		if step.clockSet && !ps.ResetAt.Equal(start.Add(-600*time.Minute)) {
			t.Errorf("%s: the peaks started over at %s", step.whatFor, ps.ResetAt)
		}
	}
}

// The reasons name the three pods with the largest peaks, and none without use.
func TestTheLargestPeaksAreNamed(t *testing.T) {
	ps := &pods{}
	if got := ps.reasons(); got != "" {
		t.Errorf("without pods: %q", got)
	}
	ps.observe(0, podOf("idle", tick.QoSShared, 0.4))
	if got := ps.reasons(); got != "" {
		t.Errorf("beside an idle pod: %q", got)
	}
	ps.observe(0, podOf("idle", tick.QoSShared, 0.4), podOf("c", tick.QoSShared, 5), podOf("b", tick.QoSShared, 5), podOf("d", tick.QoSShared, 4), podOf("a", tick.QoSShared, 9))
	if got, want := ps.reasons(), `largest peaks of the last hour: "shop/a" 9m, "shop/b" 5m, "shop/c" 5m`; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// A pod is new for ten minutes after it was first seen or started; pods that exist when the node is first seen are not new. A pod with an
// unknown value, because it has not started, counts with its request at any age.
func TestHowLongAPodIsNew(t *testing.T) {
	amount := new(1.0)
	for _, tt := range []struct {
		name     string
		begun    bool
		first    time.Duration // when it was first seen
		started  string
		use, set *float64
		missing  string
		want     bool
	}{
		{"it was there", false, 0, "", amount, amount, "", false},
		{"it was there, and began a minute ago", false, 0, "2025-12-31T23:59:00Z", amount, amount, "", true},
		{"it came", true, 0, "", amount, amount, "", true},
		{"it came, and began an hour ago", true, 0, "2025-12-31T23:00:00Z", amount, amount, "", false},
		{"its start is in the future", false, 0, "2026-01-02T00:00:00Z", amount, amount, "", false},
		{"for less than ten minutes", true, -10*time.Minute + 1, "", amount, amount, "", true},
		{"for ten minutes", true, -10 * time.Minute, "", amount, amount, "", false},
		{"the clock was set back", true, time.Hour, "", amount, amount, "", true},
		{"its use is unknown", true, -time.Hour, "", nil, amount, "", true},
		{"its memory is unknown", true, -time.Hour, "", amount, nil, "", false},
		{"it has none, as it is not there", true, -time.Hour, "", amount, nil, tick.MissingCgroup, true},
		{"it has memory, and the cluster does not know it", true, -time.Hour, "", amount, amount, tick.MissingCluster, false},
	} {
		ps := &pods{WasSeen: tt.begun}
		if tt.first != 0 {
			ps.ByIdentity = map[string]*pod{"a": {FirstSeen: start.Add(tt.first)}, "null": nil}
		}
		r := ps.begin(start)
		p := tick.Pod{UID: "a", StartTime: tt.started, Missing: tt.missing}
		if got := r.addPod(&p, tt.use, tt.set, Defaults()); got != tt.want {
			t.Errorf("%s: new is %t", tt.name, got)
		}
	}
}

// Up to a thousand pods with names that are not too long are remembered; others count as new ones.
func TestHistoryOfPods(t *testing.T) {
	ps := &pods{}
	r := ps.begin(start)
	see := func(uid string) bool {
		return r.addPod(&tick.Pod{UID: uid}, new(1.0), new(1.0), Defaults())
	}
	if see(strings.Repeat("x", maxIdentity)) || !see(strings.Repeat("y", maxIdentity+1)) || len(r.ByIdentity) != 1 {
		t.Errorf("of a name of %d bytes and a longer one %d are remembered", maxIdentity, len(r.ByIdentity))
	}
	for i := 1; i < maxPods; i++ {
		if see(fmt.Sprint(i)) {
			t.Fatalf("pod %d is new", i)
		}
	}
	if !see("one more") || len(r.ByIdentity) != maxPods {
		t.Errorf("%d pods are remembered", len(r.ByIdentity))
	}
}

// A pod that no longer exists is removed in the first tick without it.
func TestEndedPodsAreRemoved(t *testing.T) {
	ps := &pods{}
	a, b := tick.Pod{UID: "a", Memory: &tick.Memory{}}, tick.Pod{UID: "b", Memory: &tick.Memory{}}
	ps.observe(0, a, b)
	if ps.observe(time.Second, b); len(ps.ByIdentity) != 1 {
		t.Errorf("%d pods are remembered; want only b", len(ps.ByIdentity))
	}
}
