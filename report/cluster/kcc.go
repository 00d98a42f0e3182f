package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"polder/lib/customconfig"
	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/object"
	"polder/report/reconcile"
)

const (
	// KCC is the target that writes to each KatalystCustomConfig's status whether its objects are valid.
	KCC = "kcc"
	// kccManager is a separate field manager, because Katalyst's controller writes the same status.
	kccManager = "polder-report-kcc"
	// maxRegistrations bounds the KatalystCustomConfigs that are remembered.
	maxRegistrations = 1000
)

// forgetAfter is for objects that no tick names any more.
const forgetAfter = time.Minute

// registry writes the status of KatalystCustomConfigs from the ticks. A verdict is the same for every node, so that any node's tick
// will do. It writes only changes, and reads an object again every --resync.
type registry struct {
	session *stage.Session
	client  *kube.Client // nil in a dry run
	resync  time.Duration
	queue   *reconcile.Queue[registration, kccJob]
}

// registration is one KatalystCustomConfig.
type registration struct {
	want     customconfig.Verdict
	lastTick time.Time             // of the newest tick that names it
	observed *customconfig.Verdict // its known content, nil where that is not known
	readAt   time.Time             // when it was last read
}

// kccJob is one write.
type kccJob struct {
	want  customconfig.Verdict
	wrote bool
}

func openKCC(ctx context.Context, s *stage.Session, a *Access, resync time.Duration, noFlush bool) (Target, error) {
	r := &registry{session: s, resync: resync}
	if !s.DryRun {
		var err error
		if r.client, err = a.open(); err != nil {
			return nil, err
		}
	}
	q := queueOf(ctx, s, KCC)
	q.Label, q.Limit, q.NoFlush = "config", maxRegistrations, noFlush
	r.queue = reconcile.Start(q, r.target())
	return r, nil
}

func (r *registry) target() reconcile.Target[registration, kccJob] {
	return reconcile.Target[registration, kccJob]{
		New: newRegistration, Due: r.due, Desired: desiredVerdict, Write: r.write, Settle: r.settle, Show: showVerdict,
		Forget:  func(x *registration, now time.Time) bool { return now.Sub(x.lastTick) > forgetAfter },
		Explain: func(err error) error { return explain(kube.KatalystCustomConfigs, err) },
	}
}

// Put notes a tick's verdicts and returns the worst outcome of all objects.
func (r *registry) Put(in stage.Incoming) (tick.Target, error) {
	out := tick.Target{Target: KCC, State: tick.TargetUnchanged}
	if in.Refused != "" {
		return out, nil
	}
	if in.Sample != nil {
		for _, v := range object.Verdicts(in.Sample.Config) {
			// A name that cannot be an object's, or exceeds the bound, is left out.
			_ = r.queue.Set(v.Namespace+"/"+v.Name, in.Time, func(x *registration, now time.Time) { x.want, x.lastTick = v, now })
		}
	}
	rank := []string{tick.TargetUnchanged, tick.TargetWritten, tick.TargetPending, tick.TargetFailed}
	r.queue.Each(in.Time, func(x *registration, t tick.Target) {
		if t.State == tick.TargetWritten || r.client == nil {
			out.Changed = out.Changed || t.Changed
		}
		if slices.Index(rank, t.State) <= slices.Index(rank, out.State) {
			return
		}
		if out.State = t.State; t.Error != "" {
			out.Error = fmt.Sprintf("%s/%s: %s", x.want.Namespace, x.want.Name, t.Error)
		}
	})
	return out, nil
}

// newRegistration checks the names, because they become part of a path on the server.
func newRegistration(key string, _ time.Time) (*registration, error) {
	namespace, name, _ := strings.Cut(key, "/")
	if !nodeName.MatchString(namespace) || !nodeName.MatchString(name) {
		return nil, fmt.Errorf("%.80q is not a name of an object of the cluster", key)
	}
	return &registration{}, nil
}

// due reports whether the object must be read or written.
func (r *registry) due(x *registration, now time.Time) object.Due {
	switch {
	case x.observed == nil || !object.SameVerdict(*x.observed, x.want):
		return object.FiguresChanged
	case r.resync > 0 && now.Sub(x.readAt) >= r.resync && r.client != nil:
		return object.ResyncDue
	}
	return object.NotDue
}

func desiredVerdict(x *registration, _ time.Time) *kccJob { return &kccJob{want: x.want} }

// write writes the status if the object does not have it; it reports whether it wrote.
func (r *registry) write(ctx context.Context, j *kccJob) (bool, error) {
	want := j.want
	have, err := r.client.Get(ctx, kube.KatalystCustomConfigs, want.Namespace, want.Name)
	if r.client.IsAbsent(ctx, kube.KatalystCustomConfigs, err) {
		return false, nil // deleted meanwhile
	}
	if err != nil || object.KCCHolds(have, want) {
		return false, err
	}
	status := object.KCCStatus(want, have, r.session.Now())
	apply := func(force bool) error {
		_, err := r.client.ApplyStatus(ctx, kube.KatalystCustomConfigs, want.Namespace, want.Name, status, kccManager, force)
		return err
	}
	if err = apply(false); kube.IsConflict(err) {
		if want.Valid == nil {
			return false, nil // a kind that is not read here: its reader's status stays
		}
		r.session.Log.Warn("replacing a status that another program has written: does Katalyst's controller run, too?",
			"target", KCC, "config", want.Namespace+"/"+want.Name, "error", err)
		err = apply(true)
	}
	if r.client.IsAbsent(ctx, kube.KatalystCustomConfigs, err) {
		return false, nil
	}
	j.wrote = err == nil
	return j.wrote, err
}

func (r *registry) settle(x *registration, j *kccJob, err error, now time.Time) bool {
	if err != nil {
		x.observed = nil
		return false
	}
	x.observed, x.readAt = &j.want, now
	if j.wrote {
		r.session.Log.Info("status written", "target", KCC, "config", j.want.Namespace+"/"+j.want.Name,
			"reason", j.want.Reason, "message", j.want.Message)
	}
	return true
}

func showVerdict(j *kccJob, now time.Time) (string, error) {
	text, err := tick.Marshal(object.KCCStatus(j.want, nil, now))
	return string(text), err
}

func (r *registry) Close() error { return r.queue.Close() }
