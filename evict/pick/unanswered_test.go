package pick

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// An eviction whose answer was lost is reported as done if its pod terminates, or is gone from a complete list, and only once.
func TestUnansweredEvictionIsReportedAsDone(t *testing.T) {
	running, terminating := pod("a"), pod("a")
	terminating.Terminating = true
	type step struct {
		pod      *tick.Pod
		complete bool
		want     string // the reported state
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"it terminates, and is gone", []step{
			{terminating, true, tick.StateCreated}, {terminating, true, tick.StateCreated}, {nil, true, tick.StateSucceeded}, {nil, true, ""},
		}},
		{"it is gone at once", []step{{nil, true, tick.StateSucceeded}, {nil, true, ""}}},
		{"the list is incomplete", []step{{nil, false, ""}, {nil, true, tick.StateSucceeded}, {nil, true, ""}}},
		{"it still runs", []step{{running, true, ""}, {running, true, ""}}},
	} {
		m := stateWith(nil, nil, nil)
		l := m.RecordRequest(Victim{Pod: running, Eviction: tick.PodEviction{UID: "uid-a"}}, now)
		m.InProgress.NoAnswer("uid-a", "no answer", now.Add(30*time.Second))
		var want, got []string
		for i, s := range tt.steps {
			present := map[string]*tick.Pod{}
			if s.pod != nil {
				present["uid-a"] = s.pod
			}
			reported := ""
			for _, x := range m.Observe(now.Add(time.Minute+time.Duration(i)*time.Second), &tick.Sample{}, Pods{present, s.complete}) {
				reported += x.State + x.Error
			}
			want, got = append(want, s.want), append(got, reported)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: reported (-want +got):\n%s", tt.name, d)
		}
		if l.Eviction.State == tick.StateCreated && (m.InProgress.Unanswered("uid-a") || !m.releases(terminating, now)) {
			t.Errorf("%s: it is still unanswered, or does not count as released", tt.name)
		}
		if !m.LastHour.Has("uid-a") {
			t.Errorf("%s: it is not counted within the hour", tt.name)
		}
	}
}

// A pod that terminates after a lost answer has its whole grace period from then.
func TestAcceptedPodHasItsGracePeriod(t *testing.T) {
	terminating := pod("a")
	terminating.Terminating = true
	m := stateWith(nil, nil, nil)
	m.RecordRequest(Victim{Pod: terminating, Eviction: tick.PodEviction{UID: "uid-a", GracePeriodSeconds: new(int64(60))}}, now)
	m.InProgress.NoAnswer("uid-a", "no answer", now.Add(30*time.Second))
	present := map[string]*tick.Pod{"uid-a": terminating}
	seen := now.Add(4 * time.Minute)
	for _, tt := range []struct {
		after time.Duration
		want  string
	}{{0, tick.StateCreated}, {90 * time.Second, tick.StateCreated}, {90*time.Second + 1, tick.StateFailed}} {
		if got := m.Observe(seen.Add(tt.after), &tick.Sample{}, Pods{present, true}); len(got) != 1 || got[0].State != tt.want {
			t.Errorf("%s after it was seen terminating: %+v; want %s", tt.after, got, tt.want)
		}
	}
}
