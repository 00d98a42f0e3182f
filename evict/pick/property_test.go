package pick

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polder/evict/rule"
	"polder/lib/evictconfig"
	"polder/lib/tick"
)

// world is a node whose pods come and go, under rules that require evictions.
type world struct {
	pods      []*tick.Pod
	created   int
	state     *State
	limits    Limits
	clock     time.Time
	forward   time.Duration // sum of the clock's forward steps: setting it back subtracts nothing
	requests  []requestRecord
	cooldowns map[string][]requestRecord // the requests that began each cooldown and were not refused
}

type requestRecord struct {
	at             time.Duration
	uid, namespace string
}

// covered is the rule whose findings must be covered at one tick.
const covered = "r2"

const cooldown = 2 * time.Minute

func (w *world) addPods(t *rapid.T) {
	for range rapid.IntRange(0, 3).Draw(t, "new pods") {
		w.created++
		p := pod(fmt.Sprintf("p%d", w.created))
		p.Namespace = rapid.SampledFrom([]string{"default", "batch"}).Draw(t, "namespace")
		p.QoS = rapid.SampledFrom([]string{tick.QoSReclaimed, tick.QoSShared, tick.QoSSystem}).Draw(t, "qos")
		p.Phase = rapid.SampledFrom([]string{"", "Running", "Succeeded"}).Draw(t, "phase")
		p.Terminating = rapid.IntRange(0, 9).Draw(t, "terminating") == 0
		if rapid.Bool().Draw(t, "has a priority") {
			p.Priority = new(rapid.SampledFrom([]int64{0, 5, 2_000_000_000}).Draw(t, "priority"))
		}
		if rapid.Bool().Draw(t, "annotated") {
			p.Annotations = rapid.SampledFrom([]map[string]string{{"kubernetes.io/config.source": "file"}, {"polder/evict": "false"}, {"kubernetes.io/config.mirror": ""}}).Draw(t, "annotations")
		}
		w.pods = append(w.pods, p)
	}
}

func (w *world) findings(t *rapid.T) []rule.Finding {
	var findings []rule.Finding
	for i := range rapid.IntRange(0, 5).Draw(t, "findings") {
		var c, others []rule.Candidate
		sum := 0.0
		for _, p := range w.pods {
			amount := float64(rapid.IntRange(0, 5).Draw(t, "amount"))
			switch rapid.IntRange(0, 3).Draw(t, "is candidate") {
			case 0, 1:
				sum += amount
				c = append(c, candidate(p, amount))
			case 2:
				others = append(others, candidate(p, amount))
			}
		}
		f := finding(fmt.Sprintf("r%d", i%3), sum, float64(rapid.IntRange(0, 20).Draw(t, "threshold")), c...)
		f.Scope, f.Others = fmt.Sprintf("s%d", i), others
		f.UntilCovered = f.Rule == covered
		if rapid.Bool().Draw(t, "has a need") {
			f.Need = float64(rapid.IntRange(1, 20).Draw(t, "need"))
		}
		if f.UntilCovered && rapid.Bool().Draw(t, "shares a cooldown") {
			f.SharedCooldown = "all of one kind"
		}
		f.Hard, f.DryRun = rapid.Bool().Draw(t, "hard"), rapid.IntRange(0, 3).Draw(t, "dry") == 0
		if f.Below = rapid.Bool().Draw(t, "below"); f.Below {
			f.Value, f.Threshold = f.Threshold, f.Value
			f.Met = f.Value < f.Threshold
		}
		f.Cooldown = rapid.SampledFrom([]time.Duration{0, cooldown}).Draw(t, "cooldown")
		if rapid.Bool().Draw(t, "tolerant") {
			f.Tolerance = time.Minute
			f.Since = w.clock.Add(-time.Duration(rapid.IntRange(-10, 200).Draw(t, "since")) * time.Second).Format(time.RFC3339Nano)
		}
		findings = append(findings, f)
	}
	return findings
}

// step advances time, mostly forward, and ends some of the pods whose end was requested.
func (w *world) step(t *rapid.T) {
	d := time.Duration(rapid.SampledFrom([]int{1, 5, 60, 600, 3599, 3600, -1, -7200}).Draw(t, "step")) * time.Second
	w.clock = w.clock.Add(d)
	w.forward += max(0, d)
	w.pods = slices.DeleteFunc(w.pods, func(p *tick.Pod) bool {
		return w.state.InProgress.Has(p.UID) && rapid.Bool().Draw(t, "is removed")
	})
	w.addPods(t)
	present := map[string]*tick.Pod{}
	for _, p := range w.pods {
		present[p.UID] = p
	}
	w.state.Observe(w.clock, &tick.Sample{IntervalSeconds: new(d.Seconds())}, Pods{present, rapid.Bool().Draw(t, "complete")})
}

// recordRequests records the victims, and the results of some of them at once.
func (w *world) recordRequests(t *rapid.T, victims []Victim) {
	for _, v := range victims {
		uid := v.Pod.UID
		if w.state.InProgress.Unanswered(uid) {
			w.forget(uid)
		}
		w.state.RecordRequest(v, w.clock)
		w.requests = append(w.requests, requestRecord{w.forward, uid, v.Pod.Namespace})
		for _, r := range v.Cooldowns {
			w.cooldowns[r] = append(w.cooldowns[r], w.requests[len(w.requests)-1])
		}
		switch rapid.IntRange(0, 5).Draw(t, "result") {
		case 0:
			w.state.Refuse(uid, "refused", w.clock, time.Duration(rapid.IntRange(0, 60).Draw(t, "again"))*time.Second)
			w.forget(uid)
		case 1:
			w.state.InProgress.NoAnswer(uid, "no answer", w.clock)
		case 2:
			w.state.InProgress.Fail(uid, "still there", w.clock, 0)
		case 3:
			w.state.InProgress.End(uid, w.clock)
		}
	}
}

// forget drops a pod's last eviction, which failed, and the cooldowns that it alone began.
func (w *world) forget(uid string) {
	w.requests = withoutLatest(w.requests, uid)
	for key, requests := range w.cooldowns {
		w.cooldowns[key] = withoutLatest(requests, uid)
	}
}

func withoutLatest(requests []requestRecord, uid string) []requestRecord {
	for i, v := range slices.Backward(requests) {
		if v.uid == uid {
			return slices.Delete(requests, i, i+1)
		}
	}
	return requests
}

// restart reads the memory back from the state file's content.
func restart(t rapid.TB, m *State) *State {
	data, err := tick.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	back := new(State)
	if err := tick.Unmarshal(data, back); err != nil {
		t.Fatal(err)
	}
	back.Init()
	return back
}

// TestRounds plays any sequence of ticks, including clock changes: no protected pod is evicted, no limit is exceeded, no
// cooldown is violated, at most one pod more is released than needed, and the same input has the same victims, also after a
// restart.
func TestRounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := func(name string) int { return rapid.IntRange(-1, 4).Draw(t, name) }
		w := &world{state: stateWith(nil, nil, nil), clock: now, cooldowns: map[string][]requestRecord{}}
		w.limits = Limits{
			PerRule: limit("per rule"), PerRuleUntilCovered: limit("per covered rule"), PerTick: limit("burst"),
			PerHour: limit("per hour"), PerNamespace: limit("per namespace"), OptOut: []string{evictconfig.OptOut},
		}
		for range rapid.IntRange(1, 12).Draw(t, "ticks") {
			w.step(t)
			findings := w.findings(t)
			round := Choose(w.clock, findings, w.limits, w.state)

			shuffled := slices.Clone(findings)
			for i := range shuffled {
				shuffled[i].Candidates = rapid.Permutation(shuffled[i].Candidates).Draw(t, "order")
			}
			again := Choose(w.clock, shuffled, w.limits, restart(t, w.state))
			if d := cmp.Diff([][]Victim{round.Victims, round.WouldEvict}, [][]Victim{again.Victims, again.WouldEvict}); d != "" {
				t.Fatalf("same input, other victims:\n%s", d)
			}
			w.checkVictims(t, round)
			for i := range findings {
				w.checkNeed(t, &findings[i], round)
			}
			w.recordRequests(t, round.Victims)
			w.checkHour(t)
			w.state.Queue = round.Queue
		}
	})
}

func (w *world) checkVictims(t *rapid.T, round Round) {
	if len(round.Victims) > w.limits.PerTick && w.limits.PerTick != Unlimited {
		t.Fatalf("%d victims; burst %d", len(round.Victims), w.limits.PerTick)
	}
	for _, victims := range [][]Victim{round.Victims, round.WouldEvict} {
		perRule, seen := map[string]int{}, map[string]bool{}
		for _, v := range victims {
			if why := Protected(v.Pod, w.limits.OptOut); why != "" || seen[v.Pod.UID] || w.state.InProgress.Has(v.Pod.UID) || w.state.InProgress.FailedRecently(v.Pod.UID) {
				t.Fatalf("%s was chosen: %s (chosen already %t, in progress %+v)", v.Pod.Name, why, seen[v.Pod.UID], w.state.InProgress[v.Pod.UID])
			}
			seen[v.Pod.UID] = true
			for _, r := range v.Rules {
				perRule[r]++
			}
		}
		for r, n := range perRule {
			limit := w.limits.PerRule
			if r == covered {
				limit = w.limits.PerRuleUntilCovered
			}
			if n > limit && limit != Unlimited {
				t.Fatalf("rule %s has %d victims in a round; the limit is %d", r, n, limit)
			}
		}
	}
}

// checkNeed checks the victims that a finding chose itself, without the last of them.
func (w *world) checkNeed(t *rapid.T, f *rule.Finding, round Round) {
	released := map[string]float64{}
	need := f.Value - f.Threshold
	if f.Below {
		need = -need
	}
	if f.Need > 0 {
		need = f.Need
	}
	for _, x := range slices.Concat(f.Candidates, f.Others) {
		released[x.Pod.UID] = x.Releases
		if w.state.releases(x.Pod, w.clock) {
			need -= x.Releases
		}
	}
	var isOwn []Victim
	for _, v := range slices.Concat(round.Victims, round.WouldEvict) {
		if len(isOwn) == 0 && !w.state.releases(v.Pod, w.clock) && (v.Eviction.Rule != f.Rule || v.Eviction.Scope != f.Scope) {
			need -= released[v.Pod.UID] // it is evicted already, for another finding
		}
		if v.Eviction.Rule == f.Rule && v.Eviction.Scope == f.Scope {
			isOwn = append(isOwn, v)
		}
	}
	if len(isOwn) == 0 {
		return
	}
	for _, v := range isOwn[:len(isOwn)-1] {
		need -= released[v.Pod.UID]
	}
	if !f.Met || need <= 0 {
		t.Fatalf("%v are evicted for %+v, the last one without need", names(isOwn), f)
	}
	if since, err := time.Parse(time.RFC3339Nano, f.Since); f.Tolerance > 0 && (err != nil || w.clock.Sub(since) < f.Tolerance) {
		t.Fatalf("%v are evicted within the tolerance, since %s", names(isOwn), f.Since)
	}
	asksNew := slices.ContainsFunc(isOwn, func(v Victim) bool { return !w.state.InProgress.Unanswered(v.Pod.UID) })
	for _, last := range w.cooldowns[f.CooldownKey()] {
		if asksNew && w.forward-last.at < f.Cooldown {
			t.Fatalf("%v are evicted %s after %s, in the rule's cooldown", names(isOwn), w.forward-last.at, last.uid)
		}
	}
	if !f.Hard && len(isOwn) > 1 {
		t.Fatalf("%v are evicted for a soft finding; want one", names(isOwn))
	}
}

// checkHour counts the pods whose end was requested within an hour, however the clock was set.
func (w *world) checkHour(t *rapid.T) {
	all, in := 0, map[string]int{}
	for _, a := range w.requests {
		if w.forward-a.at < time.Hour {
			all++
			in[a.namespace]++
		}
	}
	if all > w.limits.PerHour && w.limits.PerHour != Unlimited {
		t.Fatalf("%d pods within the hour; the limit is %d", all, w.limits.PerHour)
	}
	for namespace, n := range in {
		if n > w.limits.PerNamespace && w.limits.PerNamespace != Unlimited {
			t.Fatalf("%d pods of %s within the hour; the limit is %d", n, namespace, w.limits.PerNamespace)
		}
	}
}

// TestNeverMoreThanNeeded plays rounds without evictions in progress: what is released stays within the need plus the last
// victim, and reaches the need.
func TestNeverMoreThanNeeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c []rule.Candidate
		sum := 0.0
		for i := range rapid.IntRange(0, 10).Draw(t, "pods") {
			amount := float64(rapid.IntRange(1, 9).Draw(t, "amount"))
			sum += amount
			c = append(c, candidate(pod(fmt.Sprintf("p%d", i)), amount))
		}
		threshold := float64(rapid.IntRange(0, 40).Draw(t, "threshold"))
		f := finding("r", sum, threshold, c...)
		f.Cooldown = 0
		if f.Below = rapid.Bool().Draw(t, "below"); f.Below {
			f.Value, f.Threshold = threshold, sum
		}
		f.Hard = rapid.Bool().Draw(t, "hard")
		limits := unlimited()
		limits.PerRule = rapid.IntRange(1, 4).Draw(t, "per rule")
		m := stateWith(nil, nil, nil)
		var released, last float64
		for range len(c) + 2 {
			for _, v := range Choose(now, []rule.Finding{f}, limits, m).Victims {
				m.RecordRequest(v, now)
				i := slices.IndexFunc(c, func(x rule.Candidate) bool { return x.Pod == v.Pod })
				last = c[i].Releases
				released += last
			}
		}
		need := max(0, sum-threshold)
		if released < need {
			t.Fatalf("released %v of %v", released, need)
		}
		if need == 0 && released > 0 || need > 0 && released-last >= need {
			t.Fatalf("released %v, the last one %v, needed %v", released, last, need)
		}
	})
}
