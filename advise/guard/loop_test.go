package guard

import (
	"fmt"
	"math"
	"testing"
	"time"

	"polder/advise/class"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// plant is a machine of 8 CPUs with one service and one batch pod, in a closed loop with the guard: batch runs on the CPUs that the guard
// leaves it, and the service waits if both together demand more than there is. The reading of the waiting is the mean of the last two
// seconds, plus noise.
type plant struct {
	state    *State
	settings Settings
	quota    bool // the policy has no CPU lists, so that only quota can be taken
	now      time.Time

	load        func(second int) float64 // of the service, in CPUs
	ownWaiting  float64                  // the service's waiting that batch does not cause, in thousandths
	perBatchCPU float64                  // its waiting for each CPU that batch uses, in thousandths
	batchDemand float64                  // batch's demand, in CPUs
	batch       float64                  // batch's limit, in CPUs
	second      int
	waited      []float64
	changes     []int     // the seconds in which the number of steps changed
	steps       []int     // after each second
	waitings    []float64 // in each second
	advice      *tick.Advice
}

var begin = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

var usual = Settings{Mode: On, MarginPermille: DefaultMarginPermille}

var eight = class.Machine{MilliCPU: 8000, FloorMilliCPU: 800, CgroupVersion: 2}

// noise returns a value between -1 and 1, the same in each run.
func noise(second int) float64 {
	return math.Sin(float64(second)*12.9898) * math.Cos(float64(second)*78.233)
}

func (p *plant) run(t *testing.T, seconds int) {
	t.Helper()
	if p.now.IsZero() {
		p.now, p.batch = begin, 8
	}
	for range seconds {
		service := p.load(p.second)
		batch := min(p.batchDemand, p.batch)
		waiting := 5 + p.ownWaiting + p.perBatchCPU*min(batch, max(8-service, 0.8)) + 200*max(0, service+batch-8) + 2*noise(p.second)
		p.waited = append(p.waited, waiting)
		read := p.waited[len(p.waited)-1]
		if n := len(p.waited); n > 1 {
			read = (read + p.waited[n-2]) / 2
		}
		p.tick(t, service, min(batch, max(8-service, 0.8)), read)
		p.waitings = append(p.waitings, waiting)
		p.second++
		p.now = p.now.Add(time.Second)
	}
}

// tick runs the guard once on the plant's readings.
func (p *plant) tick(t *testing.T, service, batch, waiting float64) {
	t.Helper()
	x := &tick.Tick{V: 1, Node: "n", Time: p.now, Sample: &tick.Sample{
		CgroupVersion: 2, Topology: &tick.Topology{CPUs: "0-7", Cores: []string{"0,4", "1,5", "2,6", "3,7"}},
		Pods: []tick.Pod{
			{UID: "web", Name: "web", QoS: tick.QoSShared, Cgroup: "/web", CPUWaitPermille: new(max(waiting, 0)), UsageMilliCPU: new(1000 * service)},
			{UID: "job", Name: "job", QoS: tick.QoSReclaimed, Cgroup: "/job", QoSSource: tick.QoSFromRule, UsageMilliCPU: new(1000 * batch)},
		},
	}}
	a := &tick.Advice{}
	if !p.quota {
		a.Cgroups = []tick.Cgroup{{Cgroup: "/job", CPUSetCPUs: "0-7"}}
		a.Fallback = []tick.Cgroup{{Cgroup: "/job", CPUSetCPUs: "3"}}
	}
	p.state = p.state.Advise(x, a, p.settings, eight)
	p.advice = a
	p.batch = 8
	for _, c := range a.Cgroups {
		if c.CPUSetCPUs != "" {
			set, err := cpus.Parse(c.CPUSetCPUs)
			if err != nil || set.IsEmpty() {
				t.Fatalf("batch's list %q: %v", c.CPUSetCPUs, err)
			}
			p.batch = float64(set.Size())
		}
		if c.CPUMaxMilliCPU != nil && *c.CPUMaxMilliCPU >= 0 {
			if *c.CPUMaxMilliCPU < eight.FloorMilliCPU {
				t.Fatalf("second %d: a quota of %dm, under the floor", p.second, *c.CPUMaxMilliCPU)
			}
			p.batch = min(p.batch, float64(*c.CPUMaxMilliCPU)/1000)
		}
	}
	steps := 0
	if p.state != nil {
		steps = len(p.state.Steps)
	}
	if n := len(p.steps); n > 0 && p.steps[n-1] != steps {
		p.changes = append(p.changes, p.second)
		if diff := steps - p.steps[n-1]; diff > 1 || diff < -1 && steps > 0 {
			t.Errorf("second %d: from %d steps to %d", p.second, p.steps[n-1], steps)
		}
	}
	p.steps = append(p.steps, steps)
}

func wave(period int, low, high float64) func(int) float64 {
	return func(second int) float64 {
		if second%period < period/2 {
			return low
		}
		return high
	}
}

// learn shows the guard the service without batch, for a whole period of its wave.
func (p *plant) learn(t *testing.T, seconds int) {
	t.Helper()
	hungry := p.batchDemand
	p.batchDemand = 0
	p.run(t, seconds)
	p.batchDemand = hungry
	if len(p.changes) > 0 {
		t.Fatalf("steps without batch: %v", p.changes)
	}
}

// A square wave of ten minutes: each edge causes a few changes, the service exceeds its target only for some seconds after an edge, and
// batch has the whole machine again in each long trough.
func TestNoOscillationOnASquareWave(t *testing.T) {
	for _, quota := range []bool{false, true} {
		for _, period := range []int{10, 60, 120, 300} {
			t.Run(fmt.Sprintf("quota %v, period %d s", quota, period), func(t *testing.T) {
				p := &plant{load: wave(period, 1, 5), batchDemand: 7, settings: usual, quota: quota}
				p.learn(t, 120)
				p.run(t, 600)
				edges := 2 * 600 / period
				const perEdge = 6 // all steps of CPUs and quota
				if maximum := min(perEdge*edges, 12*perEdge); len(p.changes) > maximum {
					t.Errorf("%d changes at %d edges: %v; want at most %d", len(p.changes), edges, p.changes, maximum)
				}
				late := 0
				for _, w := range p.waitings[120:] {
					if w > 5+DefaultMarginPermille+10 {
						late++
					}
				}
				if maximum := 24 * edges / 2; late > maximum {
					t.Errorf("the service waits too long in %d of 600 seconds; want at most %d, 24 of each peak", late, maximum)
				}
				t.Logf("%d changes at %d edges, waiting too long in %d s", len(p.changes), edges, late)
			})
		}
	}
}

// A constant load causes no limit cycle: steps are taken until the service no longer waits, and the time between attempts to revert one
// doubles.
func TestNoLimitCycleOnAConstantLoad(t *testing.T) {
	for _, load := range []float64{0.5, 1.5, 3, 4.5, 6, 7.5} {
		for _, quota := range []bool{false, true} {
			t.Run(fmt.Sprintf("load %v, quota %v", load, quota), func(t *testing.T) {
				p := &plant{load: func(int) float64 { return load }, batchDemand: 8, settings: usual, quota: quota}
				p.learn(t, 60)
				p.run(t, 6*3600)
				// Up to 8 steps at first; then attempts after 30 s, 1, 2, 4 ... minutes, each of two changes: 10 in 6 hours.
				if maximum := 8 + 2*10; len(p.changes) > maximum {
					t.Errorf("%d changes in six hours: %v; want at most %d", len(p.changes), p.changes, maximum)
				}
				var tries []int
				for i := 1; i < len(p.changes); i++ {
					if at := p.changes[i]; p.steps[at] < p.steps[at-1] {
						tries = append(tries, at)
					}
				}
				for i := 2; i < len(tries); i++ {
					if one, other := tries[i-1]-tries[i-2], tries[i]-tries[i-1]; other < one*3/2 {
						t.Errorf("tries at %v: %d s after %d s; want them ever rarer", tries, other, one)
						break
					}
				}
				t.Logf("changes at %v, %d steps at the end", p.changes, p.steps[len(p.steps)-1])
			})
		}
	}
}

// A service that waits independently of batch cannot be helped by the guard: batch is at its floor for some seconds, then that waiting
// counts as the service's own and all steps are reverted.
func TestAServiceThatWaitsByItself(t *testing.T) {
	p := &plant{load: func(int) float64 { return 1 }, batchDemand: 4, settings: usual}
	p.learn(t, 60)
	p.ownWaiting = 300
	p.run(t, 3600)
	squeezed := 0
	for _, n := range p.steps {
		if n > 0 {
			squeezed++
		}
	}
	if squeezed > 60 {
		t.Errorf("something was taken from batch for %d s of an hour; want a minute at most", squeezed)
	}
	if n := p.steps[len(p.steps)-1]; n > 0 {
		t.Errorf("%d steps after an hour; want none: %v", n, p.advice.Reasons)
	}
	if len(p.changes) > 30 {
		t.Errorf("%d changes in an hour: %v", len(p.changes), p.changes)
	}
}

// varying runs an hour in which the service's own waiting varies about a level: every so many seconds it changes by up to the width. It
// returns for how many seconds something was taken from batch, and how much longer than by itself the service waited on average.
func (p *plant) varying(t *testing.T, level, width float64, every int) (held int, excess float64) {
	t.Helper()
	for s := range 3600 {
		p.ownWaiting = max(level+width*noise(s/every), 0)
		p.run(t, 1)
		if p.steps[len(p.steps)-1] > 0 {
			held++
		}
		excess += (p.waitings[len(p.waitings)-1] - 5 - p.ownWaiting) / 3600
	}
	return held, excess
}

// eachVariation calls do for services whose waiting varies, known ones and those that the guard never saw without batch.
func eachVariation(t *testing.T, do func(p *plant, level, width float64, every int) string) {
	t.Helper()
	for _, quota := range []bool{false, true} {
		for _, known := range []bool{false, true} {
			for _, level := range []float64{80, 100, 200} {
				for _, width := range []float64{50, 100} {
					for _, every := range []int{4, 15} {
						p := &plant{load: func(int) float64 { return 1 }, batchDemand: 4, settings: usual, quota: quota}
						if known {
							p.learn(t, 60)
						}
						if trouble := do(p, level, width, every); trouble != "" {
							t.Errorf("quota %t, known %t, %v ms changing by %v ms every %d s: %s", quota, known, level, width, every, trouble)
						}
					}
				}
			}
		}
	}
}

// Batch that is not the cause of a waiting that varies about its target is not held back for long, although the service neither waits too
// long all the time nor waits little for as long as the hold-down.
func TestWaitingThatVaries(t *testing.T) {
	sum, n := 0, 0
	eachVariation(t, func(p *plant, level, width float64, every int) string {
		held, _ := p.varying(t, level, width, every)
		sum, n = sum+held, n+1
		if held > 1200 {
			return fmt.Sprintf("something was taken from batch for %d s of an hour; want a third at most", held)
		}
		return ""
	})
	if sum/n > 300 {
		t.Errorf("something was taken for %d s of an hour on average; want 300 at most", sum/n)
	}
	t.Logf("something was taken for %d s of an hour on average", sum/n)
}

// Batch that is the cause of a part of such a waiting is held back.
func TestWaitingThatVariesAndBatchIsItsCause(t *testing.T) {
	const perCPU = 50
	sum, n := 0.0, 0.0
	eachVariation(t, func(p *plant, level, width float64, every int) string {
		p.perBatchCPU = perCPU
		_, excess := p.varying(t, level, width, every)
		part := excess / (4 * perCPU)
		sum, n = sum+part, n+1
		if part > 0.75 {
			return fmt.Sprintf("the service waits for batch for %.0f ms, of %d", excess, 4*perCPU)
		}
		return ""
	})
	if sum/n > 0.4 {
		t.Errorf("of %d ms for batch the service waits %.0f %%; want 40 at most", 4*perCPU, 100*sum/n)
	}
	t.Logf("of %d ms for batch the service waits %.0f %%", 4*perCPU, 100*sum/n)
}
