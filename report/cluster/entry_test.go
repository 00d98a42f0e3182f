package cluster

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"polder/lib/kube"
	"polder/lib/tick"
	"polder/report/object"
	"polder/report/reconcile"
)

func offer(milli int64) object.Figures {
	return object.Figures{Reclaimed: object.Amounts{MilliCPU: &milli}}
}

// nodeWith is a node from a watch.
func nodeWith(version string, milli any) *seen {
	list := func() kube.Object {
		l := kube.Object{"cpu": "48"}
		if milli != nil {
			l[object.ReclaimedMilliCPU] = milli
		}
		return l
	}
	return see(kube.Object{"metadata": kube.Object{"name": "n", "resourceVersion": version}, "status": kube.Object{"capacity": list(), "allocatable": list()}})
}

// Every external change is noticed; a watch that is behind is not an external change.
func TestUndone(t *testing.T) {
	p, _ := keeper(nodeKind)
	e, now := newEntry("n", noon), noon
	e.memory.Take(offer(44000), noon)
	wrote := func(version string) {
		f := offer(44000)
		e.written, e.observed, e.isAsWritten = object.Written{Figures: &f, At: now}, nodeWith(version, "44k"), true
	}
	wrote("100")
	for _, x := range []*seen{nodeWith("99", nil), nodeWith("100", "44k"), nil, nodeWith("101", "44000")} {
		if e.see(x, nodeKind, now); !e.isAsWritten || e.next(p, now) != object.NotDue {
			t.Fatalf("%+v counts as an external change", x)
		}
	}
	for i := range 7 {
		now = now.Add(time.Second)
		e.see(nodeWith("200", "0"), nodeKind, now)
		if got := e.next(p, now); e.isAsWritten || got != object.ChangedExternally {
			t.Errorf("undone for the %d. time: %d; want it restored", i+1, got)
		}
		wrote("100")
	}
	wrote("400")
	now = now.Add(reconcile.FirstRestore)
	if e.see(nil, nodeKind, now); e.isAsWritten {
		t.Error("a deleted object is intact")
	}
}

// The offer of an earlier process stays until it is stale, and nothing is withdrawn only because no tick has come yet.
func TestBeforeTheFirstTick(t *testing.T) {
	p := &publisher{kind: nodeKind, rules: object.Rules{MinChange: 0.05}, staleAfter: 3 * time.Minute}
	e := newEntry("n", noon)
	for _, tt := range []struct {
		name  string
		have  *seen
		after time.Duration
		want  object.Due
	}{
		{"no node", nil, time.Hour, object.NotDue},
		{"nothing there", nodeWith("1", nil), time.Hour, object.NotDue},
		{"figures of an earlier process", nodeWith("1", "44k"), 3*time.Minute - 1, object.NotDue},
		{"which no tick confirms", nodeWith("1", "44k"), 3 * time.Minute, object.FiguresChanged},
	} {
		e.observed = tt.have
		if got := e.next(p, noon.Add(tt.after)); got != tt.want {
			t.Errorf("%s: %d; want %d", tt.name, got, tt.want)
		}
	}
	e.memory.Take(offer(1), noon)
	if got := e.next(p, noon); got != object.FiguresChanged {
		t.Errorf("the first tick: %d", got)
	}
}

// start starts the publisher's queue.
func (p *publisher) start(t *testing.T) {
	p.queue = reconcile.Start(queueOf(t.Context(), p.session, p.target), p.reconciled())
}

func TestReportedStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers, k := make(chan error, 1), nodeKind
		k.write = func(context.Context, *writer, job) (*seen, error) {
			return nodeWith("1", "44k"), <-answers
		}
		p, _ := keeper(k)
		now := noon
		p.session.Now = func() time.Time { return now }
		p.start(t)
		expect := func(milli int64, want string, changed bool) {
			t.Helper()
			synctest.Wait()
			in := incoming("n", 0, milli)
			if milli == 0 {
				in.Tick = &tick.Tick{V: 1, Node: "n", Time: noon}
			}
			if got := put(t, p, in); got.State != want || got.Changed != changed || (got.Error != "") != (want == tick.TargetFailed) {
				t.Errorf("%d: %+v; want %s, changed %v", milli, got, want, changed)
			}
		}
		expect(0, tick.TargetUnchanged, false)
		expect(44000, tick.TargetPending, true)
		answers <- errors.New("away")
		expect(44000, tick.TargetFailed, true)
		now = now.Add(time.Second)
		expect(44000, tick.TargetFailed, true) // it is written again
		answers <- nil
		expect(44000, tick.TargetWritten, true)
		expect(44000, tick.TargetUnchanged, false)
		now = now.Add(p.rules.Resync)
		expect(44000, tick.TargetPending, false)
		answers <- nil
		expect(44000, tick.TargetWritten, false)
		now = now.Add(p.rules.Resync)
		expect(44000, tick.TargetPending, false)
		answers <- errors.New("away")
		expect(44000, tick.TargetFailed, true) // the object's content is no longer known
		now = now.Add(time.Second)
		expect(44000, tick.TargetFailed, true)
		answers <- nil
		expect(44000, tick.TargetWritten, true)
		expect(45000, tick.TargetUnchanged, false) // under 5 %
		expect(43000, tick.TargetPending, true)
		answers <- nil
		expect(43000, tick.TargetWritten, true)
	})
}

// batch is an offer of Koordinator's policy.
func batch(milli int64) object.Figures {
	return object.Figures{Dialect: object.Koordinator, Reclaimed: object.Amounts{MilliCPU: &milli}}
}

// After a change of the policy, names under which this process may have offered something are removed, until that has succeeded; all
// others belong to another program.
func TestPolicyChanges(t *testing.T) {
	p, _ := keeper(nodeKind)
	e, now := newEntry("n", noon), noon
	names := func() string {
		var all []string
		for name, v := range p.want(e, now).Resources(object.Prefix) {
			if v != nil {
				name += "=" + strconv.FormatInt(*v, 10)
			}
			all = append(all, name[strings.LastIndex(name, "/")+1:])
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	const katalyst = "reclaimed_memory reclaimed_millicpu"
	for _, step := range []struct {
		name     string
		f        object.Figures
		begun    bool // a write
		ends     error
		succeeds bool
		want     string
	}{
		{"no tick yet", object.Figures{}, false, nil, false, "batch-cpu batch-memory mid-cpu mid-memory " + katalyst},
		{"Koordinator's: an earlier process may have offered under Katalyst's names", batch(4541), true, nil, false, "batch-cpu=4541 batch-memory mid-cpu mid-memory " + katalyst},
		{"another policy while it is written", object.Figures{Dialect: object.Katalyst, Reclaimed: offer(44000).Reclaimed}, false, nil, false, "batch-cpu batch-memory mid-cpu mid-memory reclaimed_memory reclaimed_millicpu=44000"},
		{"and after that failed: it may be there all the same", object.Figures{}, true, errors.New("timeout"), false, "batch-cpu batch-memory mid-cpu mid-memory reclaimed_memory reclaimed_millicpu=44000"},
		{"written", object.Figures{}, false, nil, true, "reclaimed_memory reclaimed_millicpu=44000"},
		{"back", batch(5000), true, nil, false, "batch-cpu=5000 batch-memory mid-cpu mid-memory " + katalyst},
		{"which is written", object.Figures{}, false, nil, true, "batch-cpu=5000 batch-memory mid-cpu mid-memory"},
		{"withdrawn", object.Figures{Dialect: object.Koordinator, WithdrawnReason: "disabled"}, true, nil, true, "batch-cpu batch-memory mid-cpu mid-memory"},
		{"and nothing is left of it with another policy", object.Figures{Dialect: object.Katalyst, Reclaimed: offer(1).Reclaimed}, false, nil, false, "reclaimed_memory reclaimed_millicpu=1"},
	} {
		now = now.Add(time.Second)
		e.memory.Take(step.f, now)
		if step.begun {
			e.noteAttempt(p.want(e, now))
		}
		if step.ends != nil {
			e.failed(kube.IsNotFound(step.ends))
		}
		if step.succeeds {
			e.wrote(p, job{node: "n", figures: p.want(e, now)}, nil, now)
		}
		if got := names(); got != step.want {
			t.Errorf("%s: %s; want %s", step.name, got, step.want)
		}
	}
}

// After a change of the policy over a restart, an earlier process's offer under Katalyst's names is removed with the first write that
// succeeds, even where nothing is offered; values under Koordinator's names may be another program's, and stay.
func TestPolicyChangedBefore(t *testing.T) {
	both := func(node *seen) *seen {
		for _, part := range []string{"capacity", "allocatable"} {
			node.object["status"].(kube.Object)[part].(kube.Object)["kubernetes.io/batch-cpu"] = "4541"
		}
		return node
	}
	gone := object.Figures{Dialect: object.Koordinator, WithdrawnReason: "disabled"}
	for _, tt := range []struct {
		name       string
		have       *seen
		f          object.Figures
		due        object.Due
		left, kept string // of the names that are spoken of
	}{
		{"Koordinator's", nodeWith("1", "44k"), batch(4541), object.FiguresChanged, "reclaimed_millicpu", ""},
		{"of the same amount as is there", both(nodeWith("1", "44k")), batch(4541), object.FiguresChanged, "reclaimed_millicpu", ""},
		{"Koordinator's, which offers nothing", nodeWith("1", "44k"), gone, object.FiguresChanged, "reclaimed_millicpu", ""},
		{"which offers nothing on a clean node", nodeWith("1", nil), gone, object.NotDue, "reclaimed_millicpu", ""},
		{"Katalyst's", both(nodeWith("1", "44k")), object.Figures{Dialect: object.Katalyst, Reclaimed: offer(44000).Reclaimed}, object.FiguresChanged, "", "batch-cpu"},
	} {
		p, _ := keeper(nodeKind)
		e := newEntry("n", noon)
		e.observed = tt.have
		e.memory.Take(tt.f, noon)
		if got := e.next(p, noon); got != tt.due {
			t.Errorf("%s: %d; want %d", tt.name, got, tt.due)
		}
		speaks := func(part string) (is, null bool) {
			for name, v := range p.want(e, noon).Resources(object.Prefix) {
				if strings.HasSuffix(name, part) {
					return true, v == nil
				}
			}
			return false, false
		}
		if tt.left != "" {
			if is, null := speaks(tt.left); !is || !null {
				t.Errorf("%s: %s is not removed", tt.name, tt.left)
			}
		}
		if tt.kept != "" {
			if is, _ := speaks(tt.kept); is {
				t.Errorf("%s: %s is not left alone", tt.name, tt.kept)
			}
		}
		if tt.due == object.NotDue {
			continue
		}
		e.failed(false)
		if is, _ := speaks("reclaimed_millicpu"); !is {
			t.Errorf("%s: after a failure Katalyst's names are left", tt.name)
		}
		e.noteAttempt(p.want(e, noon))
		e.wrote(p, job{node: "n", figures: p.want(e, noon)}, nil, noon)
		if is, _ := speaks("reclaimed_millicpu"); is != (tt.f.Dialect == object.Katalyst) {
			t.Errorf("%s: after the write: Katalyst's names are left: %v", tt.name, is)
		}
		if got := e.next(p, noon); got != object.NotDue {
			t.Errorf("%s: written: %d", tt.name, got)
		}
	}
	c, _ := keeper(cnrKind) // whose names are the same for both
	e := newEntry("n", noon)
	e.memory.Take(batch(4541), noon)
	e.wrote(c, job{node: "n", figures: c.want(e, noon)}, nil, noon)
	if got := e.next(c, noon); got != object.NotDue || c.want(e, noon).Left != nil {
		t.Errorf("a CustomNodeResource: %d, %+v", got, c.want(e, noon))
	}
}

// Growth waits although a write has failed in between, except of an object that was deleted.
func TestGrowthWaitsAfterFailedWrite(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		p, _ := keeper(nodeKind)
		p.growInterval = time.Minute
		e, at := newEntry("n", noon), noon.Add(time.Second)
		e.settle(offer(44000), noon)
		e.settle(offer(40000), at)
		e.failed(deleted)
		want := int64(40000)
		if deleted {
			want = 44000
		}
		if got := *e.withoutEarlyGrowth(p, offer(44000), at.Add(time.Second)).Reclaimed.MilliCPU; got != want {
			t.Errorf("deleted %t: %dm; want %dm", deleted, got, want)
		}
	}
}

// Each dialect is written by its own rules: by Polder's 8 % more are written at once, and 0.9 % less after a while; by Koordinator's
// neither is written before the ConfigMap's time has passed.
func TestRulesOfTheDialect(t *testing.T) {
	p, _ := keeper(nodeKind)
	for _, tt := range []struct {
		name    string
		dialect object.Dialect
		config  string
		milli   int64
		after   time.Duration
		want    object.Due
	}{
		{"Katalyst, 8 % more", object.Katalyst, "", 10800, time.Second, object.FiguresChanged},
		{"Koordinator, 8 % more", object.Koordinator, "", 10800, time.Second, object.NotDue},
		{"Koordinator, 8 % more by a strict ConfigMap", object.Koordinator, `{"resourceDiffThreshold":0.05}`, 10800, time.Second, object.FiguresChanged},
		{"Katalyst does not use that ConfigMap", object.Katalyst, `{"resourceDiffThreshold":0.5}`, 10800, time.Second, object.FiguresChanged},
		{"Katalyst, less", object.Katalyst, "", 9910, time.Minute, object.FiguresChanged},
		{"Koordinator, less", object.Koordinator, "", 9910, time.Minute, object.NotDue},
		{"Koordinator, less, and it is time", object.Koordinator, "", 9910, 5*time.Minute + 1, object.ResyncDue},
		{"Koordinator, less, and it is the ConfigMap's time", object.Koordinator, `{"updateTimeThresholdSeconds":20}`, 9910, time.Minute, object.ResyncDue},
	} {
		e := newEntry("n", noon)
		if tt.config != "" {
			_ = e.strategies.Update(&tick.Sample{Config: tick.Raw(`{"koordinator":{"colocation":` + tt.config + `}}`)})
		}
		f := batch(10000)
		f.Dialect = tt.dialect
		e.memory.Take(f, noon)
		e.wrote(p, job{node: "n", figures: p.want(e, noon)}, nil, noon)
		e.resync = p.rules.Resync
		at := noon.Add(tt.after)
		next := batch(tt.milli)
		next.Dialect = tt.dialect
		e.memory.Take(next, at)
		if got := e.next(p, at); got != tt.want {
			t.Errorf("%s: %d; want %d", tt.name, got, tt.want)
		}
	}
}

// A node that is deleted has nothing due, unless ticks of it still come. One that was never there, and one that is there again, has.
func TestDeletedNode(t *testing.T) {
	p, _ := keeper(nodeKind)
	e, now := newEntry("n", noon), noon
	e.memory.Take(offer(44000), noon)
	for _, step := range []struct {
		name string
		has  bool
		tick bool
		want object.Due
	}{
		{"not in the cluster", false, true, object.FiguresChanged},
		{"there", true, true, object.FiguresChanged},
		{"deleted", false, false, object.NotDue},
		{"still deleted", false, false, object.NotDue},
		{"with a tick", false, true, object.FiguresChanged},
		{"after that tick", false, false, object.FiguresChanged},
		{"there again", true, false, object.FiguresChanged},
		{"deleted again", false, false, object.NotDue},
	} {
		now = now.Add(time.Second)
		e.seeNode(step.has, now)
		if step.tick {
			now = now.Add(time.Millisecond)
			e.lastTick = now
		}
		if got := e.next(p, now); got != step.want {
			t.Errorf("%s: %d; want %d", step.name, got, step.want)
		}
	}
	e.seeNode(false, now)
	e.lastTick = now
	now = now.Add(p.staleAfter)
	if got := e.next(p, now); got != object.NotDue {
		t.Errorf("without a tick for long: %d", got)
	}
}
