package plan

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"polder/lib/tick"
)

// However ticks are repeated, reordered, delayed or invented, no time allows two reclaims, none is executed in another boot, and each
// that begins is later than all before it and than the start.
func TestNoReclaimTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Float64Range(0, 1000).Draw(t, "start")
		c := ReclaimClock{Boot: "b", Seconds: start, Last: start}
		begun := map[float64]bool{}
		var asked []tick.MemoryReclaim
		for range rapid.IntRange(1, 60).Draw(t, "ticks") {
			c.Seconds += rapid.Float64Range(0, 20).Draw(t, "step")
			w := tick.MemoryReclaim{Boot: "b", BootSeconds: c.Seconds - rapid.Float64Range(0, 2).Draw(t, "late")}
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				w.Boot = rapid.SampledFrom([]string{"", "c", "B"}).Draw(t, "boot")
			case 1:
				w.BootSeconds = rapid.Float64().Draw(t, "any")
			case 2:
				w.BootSeconds = rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, -1, math.MaxFloat64}).Draw(t, "edge")
			case 3:
				if len(asked) > 0 {
					w = rapid.SampledFrom(asked).Draw(t, "repeat")
				}
			}
			asked = append(asked, w)
			if c.SkipReason(&w) != "" {
				continue
			}
			if w.Boot != "b" || begun[w.BootSeconds] || w.BootSeconds <= c.Last || w.BootSeconds <= start ||
				c.Seconds-w.BootSeconds > MaxReclaimAge || w.BootSeconds > c.Seconds+maxAheadSeconds {
				t.Fatalf("%+v is begun at %+v", w, c)
			}
			begun[w.BootSeconds] = true
			c.Last = w.BootSeconds
		}
	})
}

// An unknown boot ID equals no other tick's.
func TestUnknownBootReclaimsNothing(t *testing.T) {
	if (ReclaimClock{Seconds: 10}).SkipReason(&tick.MemoryReclaim{BootSeconds: 9}) == "" {
		t.Error("it is begun")
	}
	if why := (ReclaimClock{Boot: "b", Seconds: 10, Last: 5}).SkipReason(&tick.MemoryReclaim{Boot: "b", BootSeconds: 9}); why != "" {
		t.Errorf("a good one is skipped: %s", why)
	}
}

// Whatever is requested, the reclaims are bounded, only of pods, and each cgroup occurs once.
func TestReclaimsAreBounded(t *testing.T) {
	paths := []string{
		"/", "/kubepods", "/kubepods/besteffort", "/kubepods.slice/kubepods-besteffort.slice", "/batch/a", "/batch/b", "/jobs",
		"/kubepods/besteffort/pod1", "/kubepods/besteffort/pod1/c", "/x/kubepods.slice",
	}
	rapid.Check(t, func(t *rapid.T) {
		var want []tick.CgroupReclaim
		for range rapid.IntRange(0, 100).Draw(t, "n") {
			w := tick.CgroupReclaim{Cgroup: rapid.SampledFrom(paths).Draw(t, "path"), Bytes: rapid.Int64().Draw(t, "any")}
			if rapid.Bool().Draw(t, "other") {
				w.Cgroup = "/batch/" + rapid.StringMatching(`[a-z]{1,3}`).Draw(t, "name")
			}
			if rapid.Bool().Draw(t, "small") {
				w.Bytes = rapid.Int64Range(1, MaxReclaimBytes).Draw(t, "bytes")
			}
			want = append(want, w)
		}
		list, problems := ValidReclaims(want)
		sum, seen := int64(0), map[string]bool{}
		for _, w := range list {
			if w.Bytes < 1 || w.Cgroup == "/" || isAbovePods(w.Cgroup) || seen[w.Cgroup] {
				t.Fatalf("%+v is done", w)
			}
			seen[w.Cgroup] = true
			sum += w.Bytes
		}
		if sum > MaxReclaimBytes || len(list) > MaxReclaimCgroups {
			t.Fatalf("%d bytes of %d cgroups", sum, len(list))
		}
		if len(list) < len(want) && len(problems) == 0 {
			t.Fatal("something was left out and nothing is reported")
		}
	})
}
