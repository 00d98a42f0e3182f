package cluster

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/object"
)

// keeper is a publisher without a cluster, and its log.
func keeper(k kind) (*publisher, *bytes.Buffer) {
	var log bytes.Buffer
	s := session(nil)
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	return &publisher{
		kind: k, session: s, rules: object.Rules{MinChange: 0.05, MinInterval: 30 * time.Second, Resync: time.Hour}, staleAfter: 3 * time.Minute,
		objects: map[string]*seen{}, marks: map[string]string{},
	}, &log
}

// pressed is a tick with a pressure's taint and a reclaimed pod that requests so much; with a negative number the pods are unknown.
func pressed(milli int64, pod float64, keys ...string) object.Figures {
	t := incoming("n", 0, milli).Tick
	t.Eviction = &tick.Eviction{}
	for _, k := range keys {
		t.Eviction.Taints = append(t.Eviction.Taints, tick.Taint{Key: object.TaintPrefix + k, Effect: "NoSchedule"})
	}
	if pod >= 0 {
		t.Sample = &tick.Sample{Pods: []tick.Pod{{UID: "u", Namespace: "d", Name: "p", QoS: tick.QoSReclaimed, Requests: &tick.Resources{ReclaimedMilliCPU: &pod}}}}
	}
	return object.Read(t)
}

// A Node under pressure: the offer at each tick, and whether it is written.
func TestHeldNode(t *testing.T) {
	p, log := keeper(nodeKind)
	e, now := newEntry("n", noon), noon
	for _, step := range []struct {
		name  string
		f     object.Figures
		want  int64
		write object.Due
		note  string
	}{
		{"calm", pressed(44000, 2000), 44000, object.FiguresChanged, ""},
		{"pressure", pressed(44000, 2000, "CPUPressure"), 2000, object.FiguresChanged, "the reclaimed pods request"},
		{"the offer moves above", pressed(40000, 2000, "CPUPressure"), 2000, object.NotDue, "the reclaimed pods request"},
		{"a pod uses a little less", pressed(44000, 1990, "CPUPressure"), 1990, object.FiguresChanged, "the reclaimed pods request"},
		{"the pods are not known", pressed(44000, -1, "CPUPressure"), 1990, object.NotDue, "is published"},
		{"nor is there a taint any more", pressed(44000, -1), 44000, object.FiguresChanged, ""},
		{"a taint, and the pods are not known", pressed(44000, -1, "CPUPressure"), 44000, object.NotDue, "is published"},
		{"the offer shrinks", pressed(30000, -1, "CPUPressure"), 30000, object.FiguresChanged, "is published"},
		{"and would be more again", pressed(44000, -1, "CPUPressure"), 30000, object.NotDue, "is published"},
		{"no pods at all", pressed(44000, 0, "CPUPressure"), 0, object.FiguresChanged, "the reclaimed pods request"},
		{"over", pressed(44000, 0), 44000, object.FiguresChanged, ""},
	} {
		now = now.Add(time.Second)
		e.memory.Take(step.f, now)
		want := p.want(e, now)
		p.logNote(e, want.Note)
		if want.Reclaimed.MilliCPU == nil || *want.Reclaimed.MilliCPU != step.want || want.Taints != nil {
			t.Errorf("%s: %+v; want %d", step.name, want, step.want)
		}
		if got := e.next(p, now); got != step.write {
			t.Errorf("%s: %d; want %d", step.name, got, step.write)
		}
		if (e.note != "") != (step.note != "") || !strings.Contains(e.note, step.note) {
			t.Errorf("%s: its note is %q; want %q", step.name, e.note, step.note)
		}
		if step.write != object.NotDue {
			e.wrote(p, job{node: "n", figures: want}, nil, now)
		}
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 4 {
		t.Errorf("logged %d times; want each change of the reason once:\n%s", n, log)
	}
	// A process that starts under pressure, and knows neither the pods nor anything but the Node's offer.
	e = newEntry("n", noon)
	e.observed = see(kube.Object{"metadata": kube.Object{"name": "n"}, "status": kube.Object{"allocatable": kube.Object{object.ReclaimedMilliCPU: "7k"}}})
	e.memory.Take(pressed(44000, -1, "CPUPressure"), noon)
	if want := p.want(e, noon); want.Reclaimed.MilliCPU == nil || *want.Reclaimed.MilliCPU != 7000 {
		t.Errorf("after a start: %+v; want what is published", want)
	}
	e.observed = nodeWith("1", nil)
	if got := e.next(p, noon); got != object.NotDue {
		t.Errorf("nothing is published, and the pods are not known: %d; want nothing written", got)
	}
	// A CustomNodeResource has the true figures.
	c, _ := keeper(cnrKind)
	e = newEntry("n", noon)
	e.memory.Take(pressed(44000, 2000, "CPUPressure"), noon)
	if want := c.want(e, noon); *want.Reclaimed.MilliCPU != 44000 || len(want.Taints) != 1 || want.ReducedByTaint {
		t.Errorf("a CustomNodeResource: %+v", want)
	}
}

// The fleet controller's mark withdraws the offer at once, even that of an earlier process, and withdraws restored ones again.
func TestMarkedNode(t *testing.T) {
	for _, k := range []kind{nodeKind, cnrKind} {
		p, log := keeper(k)
		e, now := newEntry("n", noon), noon
		offers := func(version string) *seen {
			x := nodeWith(version, "44k")
			if k.target == "cnr" {
				o := object.CNRStatus("n", offer(44000))
				o["metadata"] = kube.Object{"name": "n", "resourceVersion": version}
				x = see(o)
			}
			return x
		}
		step := func(name string, want object.Due, empty bool, note string) {
			t.Helper()
			f := p.want(e, now)
			p.logNote(e, f.Note)
			if got := e.next(p, now); got != want || f.Empty() != empty {
				t.Errorf("%s, %s: %d, %+v; want %d", k.target, name, got, f, want)
			}
			if !strings.Contains(e.note, note) || (e.note == "") != (note == "") {
				t.Errorf("%s, %s: its note is %q", k.target, name, e.note)
			}
		}
		const reason = "marked polder/withdrawn: agent not ready"
		e.observed = offers("1")
		step("before the first tick", object.NotDue, true, "")
		p.marks["n"] = "agent not ready"
		step("marked before the first tick", object.FiguresChanged, true, reason)
		e.wrote(p, job{figures: p.want(e, now)}, nodeWith("2", nil), now)
		e.memory.Take(pressed(44000, 2000, "CPUPressure"), now)
		if k.target == "cnr" { // its taints stay ours
			step("a tick", object.FiguresChanged, true, reason)
			e.wrote(p, job{figures: p.want(e, now)}, nodeWith("3", nil), now)
		}
		step("nothing to do", object.NotDue, true, reason)
		now = now.Add(time.Minute)
		if e.see(offers("4"), k, now); e.isAsWritten || e.next(p, now) != object.ChangedExternally {
			t.Errorf("%s: another program offers in spite of the mark: %d; want it removed", k.target, e.next(p, now))
		}
		e.wrote(p, job{figures: p.want(e, now)}, nodeWith("5", nil), now)
		delete(p.marks, "n")
		e.memory.Take(pressed(44000, -1), now)
		step("the mark is gone", object.FiguresChanged, false, "")
		if n := strings.Count(log.String(), "nothing is offered"); n != 1 {
			t.Errorf("%s: logged %d times:\n%s", k.target, n, log)
		}
	}
}

// The Node's taints are written without an offer, and removed when no tick has them any more.
func TestNodeTaintsEntry(t *testing.T) {
	p, _ := keeper(nodeTaintsKind)
	node := func(version string, keys ...string) *seen {
		o := kube.Object{"metadata": kube.Object{"name": "n", "resourceVersion": version}, "spec": kube.Object{}}
		var list []any
		for _, k := range keys {
			list = append(list, kube.Object{"key": object.TaintPrefix + k, "effect": "NoSchedule"})
			o["metadata"] = kube.Object{"name": "n", "resourceVersion": version, "annotations": kube.Object{"polder/taints": object.TaintPrefix + k + ":NoSchedule"}}
		}
		o["spec"] = kube.Object{"taints": list}
		return see(o)
	}
	tainted := func(keys ...string) object.Figures {
		f := pressed(44000, -1, keys...)
		f.Reclaimed = object.Amounts{}
		return f
	}
	e := newEntry("n", noon)
	e.observed = node("1", "Old")
	if got := e.next(p, noon.Add(p.staleAfter-1)); got != object.NotDue {
		t.Errorf("before the first tick: %d; want what is there left for a while", got)
	}
	if got := e.next(p, noon.Add(p.staleAfter)); got != object.FiguresChanged {
		t.Errorf("no tick yet: %d; want it removed", got)
	}
	e.memory.Take(tainted("CPUPressure"), noon)
	if got := e.next(p, noon); got != object.FiguresChanged {
		t.Errorf("a taint: %d", got)
	}
	e.wrote(p, job{figures: p.want(e, noon)}, node("2", "CPUPressure"), noon)
	if got := e.next(p, noon); got != object.NotDue {
		t.Errorf("written: %d", got)
	}
	if e.see(node("3"), p.kind, noon); e.next(p, noon) != object.ChangedExternally {
		t.Error("removed externally: want it restored")
	}
	e.wrote(p, job{figures: p.want(e, noon)}, node("4", "CPUPressure"), noon)
	p.marks["n"] = "x"
	if got := e.next(p, noon); got != object.NotDue {
		t.Errorf("the mark is about the offer, not about taints: %d", got)
	}
	e.memory.Take(tainted(), noon)
	if got := e.next(p, noon); got != object.FiguresChanged {
		t.Errorf("no taint any more: %d", got)
	}
	e.wrote(p, job{figures: p.want(e, noon)}, node("5"), noon)
	e.memory.Take(tainted("CPUPressure"), noon)
	e.wrote(p, job{figures: p.want(e, noon)}, node("6", "CPUPressure"), noon)
	if got := e.next(p, noon.Add(p.staleAfter)); got != object.FiguresChanged {
		t.Errorf("no tick has confirmed it: %d; want it taken away", got)
	}
	// A process that starts on a clean node and gets no taint writes nothing.
	e = newEntry("n", noon)
	e.observed = node("1")
	e.memory.Take(tainted(), noon)
	if got := e.next(p, noon); got != object.NotDue {
		t.Errorf("nothing to do: %d", got)
	}
}

// A dry run shows taints without an offer, too.
func TestPretendTaints(t *testing.T) {
	p, log := keeper(nodeTaintsKind)
	p.session.DryRun = true
	p.start(t)
	in := stage.Incoming{Tick: &tick.Tick{V: 1, Node: "n", Time: noon, Eviction: &tick.Eviction{Taints: []tick.Taint{{Key: object.TaintPrefix + "CPUPressure", Effect: "NoSchedule"}}}}}
	if got := put(t, p, in); got.State != tick.TargetPending || got.Target != NodeTaints {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(log.String(), `CPUPressure`) || strings.Contains(log.String(), "qosLevel") {
		t.Errorf("log: %s", log)
	}
}
