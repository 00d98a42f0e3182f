package revert

import (
	"testing"
	"time"

	"polder/lib/tick"
)

type entry struct {
	Last
	n int
}

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A cgroup's own values are advised for ten minutes from the first tick without others. A time in the future becomes now, and null in a
// state file is dropped.
func TestExpiredCgroupsAreRemoved(t *testing.T) {
	reverts := func(at time.Time) *entry { return &entry{Last: Last{At: at, IsReverting: true}} }
	c := Cgroups[entry, *entry]{"old": reverts(now.Add(-Duration - 1)), "kept": reverts(now.Add(-Duration)), "ahead": reverts(now.Add(time.Hour)), "null": nil}
	c.RemoveExpired(now)
	if len(c) != 2 || c["kept"] == nil || c["ahead"] == nil || !c["ahead"].At.Equal(now) {
		t.Errorf("left: %v", c)
	}
}

// After any gap, a cgroup's own values are advised for ten minutes after it, and again if it had others in between.
func TestRevertAfterMissingTicks(t *testing.T) {
	c := Cgroups[entry, *entry]{"/p": {Last: Last{At: now}}}
	at := func(after time.Duration, has, left bool) {
		t.Helper()
		if e := c["/p"]; has && e != nil {
			e.At = now.Add(after)
		}
		c.RemoveExpired(now.Add(after))
		if (c["/p"] != nil) != left {
			t.Errorf("after %s: left %t; want %t", after, c["/p"] != nil, left)
		}
	}
	at(0, true, true)
	at(time.Hour, false, true)
	at(time.Hour+Duration/2, false, true)
	at(time.Hour+Duration, true, true)
	at(2*time.Hour, false, true)
	at(2*time.Hour+Duration, false, true)
	at(2*time.Hour+Duration+1, false, false)
}

// A pod that the API server does not know keeps its values and its containers', and no entry is created for one without values.
func TestKeepPod(t *testing.T) {
	pod := &tick.Pod{Cgroup: "/p", Containers: []tick.Container{{Cgroup: "/p/a"}, {Cgroup: "/p/b"}}}
	for _, tt := range []struct {
		has  []string
		want int
	}{{nil, 0}, {[]string{"/other"}, 0}, {[]string{"/p"}, 1}, {[]string{"/p/b"}, 1}, {[]string{"/p", "/p/a", "/p/b", "/p/c"}, 3}} {
		var c Cgroups[entry, *entry]
		for _, name := range tt.has {
			c.Entry(name).n = 1
		}
		if got := len(c.EntriesOf(pod)); got != tt.want {
			t.Errorf("%v: %d of the pod; want %d", tt.has, got, tt.want)
		}
		if got := c.KeepPod(pod, now); got != (tt.want > 0) {
			t.Errorf("%v: kept %v", tt.has, got)
		}
		for name, e := range c {
			if isPods := name != "/other" && name != "/p/c"; e.At.Equal(now) != isPods || c.Entry(name).n != 1 {
				t.Errorf("%v: %s at %s", tt.has, name, e.At)
			}
		}
	}
}
