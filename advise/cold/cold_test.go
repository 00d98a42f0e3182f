package cold

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"polder/lib/tick"
)

const gib = 1 << 30

var beginning = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// run is a node whose pods the test sets.
type run struct {
	t      *testing.T
	st     *State
	second float64
	sample tick.Sample
	advice *tick.Advice
	mode   string
}

func podOf(name, qos, cgroup string, use float64) tick.Pod {
	return tick.Pod{
		UID: name, Namespace: "batch", Name: name, QoS: qos, Cgroup: cgroup,
		Memory:         &tick.Memory{UsageBytes: &use, RefaultBytesPerSecond: new(0.0)},
		MemoryPressure: &tick.Pressure{Some: &tick.PressureLine{}},
	}
}

func newRun(t *testing.T) *run {
	return &run{t: t, mode: Reclaim, sample: tick.Sample{
		MemoryReclaim: &tick.ReclaimClock{Boot: "b"},
		Pods:          []tick.Pod{podOf("job", tick.QoSReclaimed, "/batch/job", 10*gib), podOf("web", tick.QoSShared, "/web", 10*gib)},
	}}
}

// tickAfter runs a tick some seconds later, in which the job waited for a part of the time, and had refaults bytes of refaults per second.
func (r *run) tickAfter(seconds, stalled, refaults float64) *run {
	r.second += seconds
	j := &r.sample.Pods[0]
	if j.MemoryPressure != nil {
		j.MemoryPressure.Some.TotalMicroseconds += stalled * seconds * 1e6
	}
	if j.Memory != nil && j.Memory.RefaultBytesPerSecond != nil {
		*j.Memory.RefaultBytesPerSecond = refaults
	}
	return r.repeat()
}

// repeat repeats the same tick.
func (r *run) repeat() *run {
	if r.sample.MemoryReclaim != nil {
		r.sample.MemoryReclaim.BootSeconds = 1000 + r.second
	}
	r.advice = &tick.Advice{}
	x := &tick.Tick{Node: "n", Time: beginning.Add(time.Duration(r.second * float64(time.Second))), Sample: &r.sample}
	r.st = r.st.Advise(x, r.advice, Settings{r.mode})
	return r
}

// requestedMiB returns the MiB requested of the job; -1 if there is any other request.
func (r *run) requestedMiB() float64 {
	m := r.advice.MemoryReclaim
	if m == nil {
		return 0
	}
	if m.Boot != "b" || m.BootSeconds != 1000+r.second || len(m.Cgroups) != 1 || m.Cgroups[0].Cgroup != "/batch/job" {
		return -1
	}
	return math.Round(10*float64(m.Cgroups[0].Bytes)/mebibyte) / 10
}

func (r *run) want(mib float64, reason string) {
	r.t.Helper()
	if got := r.requestedMiB(); got != mib || !strings.Contains(strings.Join(r.advice.Reasons, "\n"), reason) {
		r.t.Errorf("after %v s %v MiB are requested, want %v; %q, want %q", r.second, got, mib, r.advice.Reasons, reason)
	}
}

// A pod that is not affected gives 1 % every 6 s, by the time of the sample; a repeated tick requests nothing.
func TestReclaimFromAnUnaffectedPod(t *testing.T) {
	r := newRun(t)
	r.tickAfter(1, 0, 0).want(0, "nothing to reclaim now")
	r.tickAfter(5, 0, 0).want(0, "nothing")
	r.tickAfter(1, 0, 0).want(102.4, "reclaim 102.4 MiB from 1 pod")
	r.repeat().want(0, "nothing")
	for range 5 {
		r.tickAfter(1, 0, 0).want(0, "nothing")
	}
	r.tickAfter(1, 0, 0).want(102.4, "102.4 MiB")
	r.tickAfter(9, 0, 0).want(153.6, "153.6 MiB")
	r.tickAfter(100, 0, 0).want(204.8, "") // never more than twice
}

func TestWaitingSlowsDown(t *testing.T) {
	r := newRun(t).tickAfter(1, 0, 0)
	r.tickAfter(6, 0.0005, 0).want(51.2, "51.2 MiB")
	r.tickAfter(6, 0.0009, 0).want(10.2, "")
	r.tickAfter(6, 0.001, 0).want(0, "1 pod: all in use")
	r.tickAfter(6, 0.005, 0).want(0, "all in use")
	r.tickAfter(6, 0, 0).want(102.4, "")
}

// Much too much waiting stops it for a minute, and twice as long each time; the same time without a mistake halves that.
func TestHoldDownAfterAMistake(t *testing.T) {
	r := newRun(t).tickAfter(1, 0, 0)
	r.tickAfter(6, 0.012, 0).want(0, `cold memory: pod "batch/job" waited for memory 1.2 % of the time: no reclaim for 1m0s`)
	for range 9 {
		r.tickAfter(6, 0, 0).want(0, "1 pod in hold-down, the first for ")
	}
	r.tickAfter(6, 0, 0).want(102.4, "")
	r.tickAfter(6, 0, 20<<20).want(0, "refaulted 20.0 MiB/s: no reclaim for 2m0s")
	r.tickAfter(119, 0, 0).want(0, "the first for 1s more")
	r.tickAfter(1, 0, 0).want(0, "") // within 6 s of the last reading
	r.tickAfter(6, 0, 0).want(119.5, "")
	for range 20 {
		r.tickAfter(6, 0, 8<<20).want(102.4, "") // a little less than half of the reclaimed memory
	}
	r.tickAfter(6, 0.5, 0).want(0, "no reclaim for 2m0s") // earlier mistakes count half
	for range 3 {
		r.tickAfter(119, 0, 0)
		r.tickAfter(7, 0, 0)
	}
	r.want(119.5, "")
	for range 6 {
		r.tickAfter(100, 0.5, 0)
	}
	r.want(0, "in hold-down")
	if r.st.Pods["/batch/job"].Hold > maxHold {
		t.Error("it is in hold-down for too long")
	}
}

// An unknown value is not 0: no step is evaluated with it.
func TestUnknownIsNotZero(t *testing.T) {
	for name, forget := range map[string]func(p *tick.Pod){
		"the use":             func(p *tick.Pod) { p.Memory.UsageBytes = nil },
		"the refaults":        func(p *tick.Pod) { p.Memory.RefaultBytesPerSecond = nil },
		"the pressure":        func(p *tick.Pod) { p.MemoryPressure = nil },
		"the memory":          func(p *tick.Pod) { p.Memory = nil },
		"a NaN of the total":  func(p *tick.Pod) { p.MemoryPressure.Some.TotalMicroseconds = math.NaN() },
		"a negative use":      func(p *tick.Pod) { p.Memory.UsageBytes = new(-5.0) },
		"what it is":          func(p *tick.Pod) { p.Missing = tick.MissingCluster },
		"whether it ends":     func(p *tick.Pod) { p.Terminating = true },
		"where it is":         func(p *tick.Pod) { p.Cgroup = "" },
		"whether it runs":     func(p *tick.Pod) { p.Phase = "Succeeded" },
		"that it is no batch": func(p *tick.Pod) { p.QoS = tick.QoSShared },
	} {
		r := newRun(t).tickAfter(1, 0, 0)
		forget(&r.sample.Pods[0])
		for range 10 {
			if r.tickAfter(6, 0, 0); r.advice.MemoryReclaim != nil {
				t.Fatalf("without %s: %+v", name, r.advice.MemoryReclaim)
			}
		}
	}
	r := newRun(t).tickAfter(1, 0, 0)
	r.sample.MemoryReclaim = nil
	r.tickAfter(6, 0, 0).want(0, "cgroups have no memory.reclaim")
	r = newRun(t)
	r.mode = None
	if r.tickAfter(1, 0, 0).tickAfter(6, 0, 0); r.st != nil || len(r.advice.Reasons) > 0 || r.advice.MemoryReclaim != nil {
		t.Errorf("switched off: %+v", r.advice)
	}
}

// Another pod in a cgroup of the same name starts without history, and so does one whose counter or clock was set back.
func TestAnotherPod(t *testing.T) {
	r := newRun(t).tickAfter(1, 0, 0)
	r.sample.Pods[0].UID = "other"
	r.tickAfter(6, 0, 0).want(0, "nothing")
	r.sample.Pods[0].MemoryPressure.Some.TotalMicroseconds = 5
	r.tickAfter(6, 0, 0)
	r.sample.Pods[0].MemoryPressure.Some.TotalMicroseconds = 0
	r.tickAfter(6, 0, 0).want(0, "nothing")
	r.tickAfter(6, 0, 0).want(102.4, "")
	r.tickAfter(-3600, 0, 0).want(0, "nothing")
	r.tickAfter(6, 0, 0).want(102.4, "")
	r.sample.Pods = append(r.sample.Pods, podOf("thief", tick.QoSReclaimed, "/batch/job", 10*gib))
	r.tickAfter(6, 0, 0).want(0, "2 pods with unknown values")
}

// A pod that uses a part of its memory keeps that part, however long reclaim continues: what is reclaimed of it refaults, and makes the pod
// wait.
func TestReclaimStopsAtMemoryInUse(t *testing.T) {
	r := newRun(t).tickAfter(1, 0, 0)
	const inUse = 6.0 * gib
	use, taken, mistakes := r.sample.Pods[0].Memory.UsageBytes, 0.0, 0
	for range 3600 {
		back := max(inUse-*use, 0) // refaults within the second
		*use += back
		r.tickAfter(1, min(back/(100*mebibyte)*0.05, 1), back)
		if back > 0 {
			mistakes++
		}
		if m := r.advice.MemoryReclaim; m != nil {
			*use -= float64(m.Cgroups[0].Bytes)
			taken += float64(m.Cgroups[0].Bytes)
		}
	}
	if *use < inUse*0.98 || *use > inUse*1.05 {
		t.Errorf("after an hour it holds %.2f GiB; want about the %.0f in use", *use/gib, inUse/gib)
	}
	if mistakes > 10 {
		t.Errorf("it was wrong %d times in an hour", mistakes)
	}
}

// For any samples and state only batch pods are named, each once, within the bounds, and never for more than their memory over the least.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1e12), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, math.MaxFloat64}))
		var st *State
		if rapid.Bool().Draw(t, "state") {
			_ = tick.Unmarshal([]byte(rapid.SampledFrom([]string{
				`{"pods":{"/batch/a":null,"/batch/b":{"at":"9999-01-01T00:00:00Z","seen":"9999-01-01T00:00:00Z","until":"9999-01-01T00:00:00Z","hold":9223372036854775807}}}`,
				`{"pods":{"/batch/a":{"uid":"a","at":"2025-12-31T23:59:58Z","seen":"2025-12-31T23:59:59Z","stallMicroseconds":-1e308,"refaultBytes":-1e308,"hold":-5}}}`,
				`{"pods":{"":{},"/":{}}}`,
			}).Draw(t, "text")), &st)
		}
		now := beginning
		for range rapid.IntRange(1, 12).Draw(t, "ticks") {
			now = now.Add(time.Duration(rapid.IntRange(-5, 40).Draw(t, "seconds")) * time.Second)
			s := &tick.Sample{MemoryReclaim: &tick.ReclaimClock{Boot: "b", BootSeconds: 5}}
			hold := map[string]float64{}
			for i := range rapid.IntRange(0, 100).Draw(t, "pods") {
				p := podOf(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "uid"), rapid.SampledFrom([]string{"reclaimed", "reclaimed", "shared", "", "dedicated"}).Draw(t, "qos"),
					rapid.SampledFrom([]string{"/batch/a", "/batch/b", "", "/", "x"}).Draw(t, "cgroup"), amount.Draw(t, "use"))
				if i > 3 {
					p.Cgroup = "/many/" + string(rune('a'+i%26)) + string(rune('a'+i/26))
				}
				*p.Memory.RefaultBytesPerSecond = amount.Draw(t, "refaults")
				p.MemoryPressure.Some.TotalMicroseconds = amount.Draw(t, "stall")
				if p.QoS == tick.QoSReclaimed {
					hold[p.Cgroup] = *p.Memory.UsageBytes
				}
				s.Pods = append(s.Pods, p)
			}
			a := &tick.Advice{}
			st = st.Advise(&tick.Tick{Node: "n", Time: now, Sample: s}, a, Settings{Reclaim})
			if _, err := tick.Marshal(st); err != nil {
				t.Fatalf("what is remembered cannot be written: %v", err)
			}
			if a.MemoryReclaim == nil {
				continue
			}
			sum, seen := int64(0), map[string]bool{}
			for _, c := range a.MemoryReclaim.Cgroups {
				use, batch := hold[c.Cgroup]
				if !batch || seen[c.Cgroup] || c.Bytes < 1 || c.Bytes > maxStep || float64(c.Bytes) > use-minUse || float64(c.Bytes) > 2*stepPart*use {
					t.Fatalf("%+v of a cgroup that holds %v (batch %t)", c, use, batch)
				}
				seen[c.Cgroup] = true
				sum += c.Bytes
			}
			if sum > maxPerTick || len(seen) > maxPods {
				t.Fatalf("%d bytes of %d cgroups", sum, len(seen))
			}
			if again := (&tick.Advice{}); st.Advise(&tick.Tick{Node: "n", Time: now, Sample: s}, again, Settings{Reclaim}) != nil && again.MemoryReclaim != nil {
				t.Fatalf("the same tick asks again: %+v", again.MemoryReclaim)
			}
		}
	})
}

// A tick takes at most 512 MiB, so that not all pods have their turn in it: the others have it in later ticks, first those that have waited
// longest, and are not reported as pods that need all of their memory.
func TestPodsTakeTurns(t *testing.T) {
	for _, seconds := range []float64{1, 60, 120} {
		r := newRun(t)
		const n = 12
		r.sample.Pods = nil
		for i := range n {
			r.sample.Pods = append(r.sample.Pods, podOf(string(rune('a'+i)), tick.QoSReclaimed, "/batch/"+string(rune('a'+i)), 100*gib))
		}
		requests := map[string]int{}
		for i := range 60 {
			r.tickAfter(seconds, 0, 0)
			text := strings.Join(r.advice.Reasons, "\n")
			if strings.Contains(text, "all in use") {
				t.Fatalf("tick %d: %s", i, text)
			}
			const want = "reclaim 512.0 MiB from 2 pods; 10 pods in a later tick: at most 512.0 MiB per tick"
			if i == int(max(6/seconds, 1)) && !strings.Contains(text, want) {
				t.Errorf("tick %d: %s", i, text)
			}
			if r.advice.MemoryReclaim != nil {
				for _, c := range r.advice.MemoryReclaim.Cgroups {
					requests[c.Cgroup]++
				}
			}
		}
		most := 0
		for _, count := range requests {
			most = max(most, count)
		}
		for i := range r.sample.Pods {
			if count := requests[r.sample.Pods[i].Cgroup]; count < most-1 || count == 0 {
				t.Errorf("a tick every %v s: %d requests of %s, up to %d of others", seconds, count, r.sample.Pods[i].Cgroup, most)
			}
		}
	}
}
