package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"polder/lib/customconfig"
	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/object"
)

const (
	// targetKCC is the one that says in each KatalystCustomConfig's status whether its objects are in order.
	targetKCC = "kcc"
	// kccManager is a field manager of its own: Katalyst's controller writes the same status.
	kccManager = "polder-report-kcc"
	// maxRegistrations bounds what is remembered of KatalystCustomConfigs.
	maxRegistrations = 1000
)

// registry writes the status of KatalystCustomConfigs, as the ticks say. A verdict is every node's alike, so that it does not
// matter which one's tick it is of. It writes on change alone, and looks after an object again every --resync.
type registry struct {
	session *stage.Session
	ctx     context.Context // ends with a signal
	client  *kube.Client    // nil in a dry run
	resync  time.Duration
	noFlush bool // what is due when the input ends is left to the one that comes next

	mu      sync.Mutex
	all     map[string]*registration
	writing int
}

// registration is one KatalystCustomConfig.
type registration struct {
	want    customconfig.Verdict
	heard   time.Time             // of the newest tick that names it
	is      *customconfig.Verdict // what it is known to say, nil where that is not known
	looked  time.Time             // at it
	busy    bool
	retryAt time.Time
	fails   int
	err     error
	news    bool // a write succeeded that no tick has said yet
}

func openKCC(ctx context.Context, s *stage.Session, o *options, _ io.Writer) (target, error) {
	r := &registry{session: s, ctx: ctx, resync: o.cluster.resync, noFlush: o.cluster.noFlush, all: map[string]*registration{}}
	if s.DryRun {
		return r, nil
	}
	var err error
	r.client, err = o.cluster.open()
	return r, err
}

func (r *registry) put(in stage.Incoming) (tick.Target, error) {
	if in.Refused != "" {
		return tick.Target{Target: targetKCC, State: tick.TargetUnchanged}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.session.Now()
	if in.Sample != nil {
		for _, v := range object.Verdicts(in.Sample.Config) {
			r.hear(v, now)
		}
	}
	out := said(targetKCC, tick.TargetUnchanged, false, nil)
	for name, x := range r.all {
		if now.Sub(x.heard) > forgetAfter && !x.busy {
			delete(r.all, name)
			continue
		}
		if r.client == nil {
			r.pretend(x, &out)
			continue
		}
		if r.due(x, now) {
			r.start(x, now)
		}
		r.say(x, now, &out)
	}
	return out, nil
}

// forgetAfter is for objects that no tick names any more.
const forgetAfter = time.Minute

func (r *registry) hear(v customconfig.Verdict, now time.Time) {
	name := v.Namespace + "/" + v.Name
	x := r.all[name]
	if x == nil {
		if len(r.all) >= maxRegistrations || !nodeName.MatchString(v.Namespace) || !nodeName.MatchString(v.Name) {
			return // these are names in a path on the server
		}
		x = &registration{}
		r.all[name] = x
	}
	x.want, x.heard = v, now
}

// due reports whether there is something to look at, or to write.
func (r *registry) due(x *registration, now time.Time) bool {
	return x.is == nil || !object.SameVerdict(*x.is, x.want) || r.resync > 0 && now.Sub(x.looked) >= r.resync
}

func (r *registry) start(x *registration, now time.Time) {
	if x.busy || now.Before(x.retryAt) || r.writing >= writesAtOnce {
		return
	}
	x.busy = true
	r.writing++
	want := x.want
	go func() {
		ctx, done := context.WithTimeout(context.WithoutCancel(r.ctx), 3*requestLimit)
		defer done()
		wrote, err := r.write(ctx, want)
		r.finish(x, want, wrote, err)
	}()
}

// write makes the object say so; it reports whether it did not before.
func (r *registry) write(ctx context.Context, want customconfig.Verdict) (bool, error) {
	have, err := r.client.Get(ctx, kube.KatalystCustomConfigs, want.Namespace, want.Name)
	if kube.IsNotFound(err) {
		return false, nil // deleted meanwhile
	}
	if err != nil || object.KCCHolds(have, want) {
		return false, err
	}
	status := object.KCCStatus(want, have, r.session.Now())
	_, err = r.client.ApplyStatus(ctx, kube.KatalystCustomConfigs, want.Namespace, want.Name, status, kccManager, false)
	if kube.IsConflict(err) {
		if want.Valid == nil {
			return false, nil // a kind that is not read here: whoever reads it knows better
		}
		r.session.Log.Warn("taking over a status that somebody else has written: does Katalyst's controller run, too?", "target", targetKCC, "object", want.Namespace+"/"+want.Name, "error", err)
		_, err = r.client.ApplyStatus(ctx, kube.KatalystCustomConfigs, want.Namespace, want.Name, status, kccManager, true)
	}
	if kube.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (r *registry) finish(x *registration, want customconfig.Verdict, wrote bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.session.Now()
	x.busy = false
	r.writing--
	if err != nil {
		longest, retry := longestPause, kube.RetryAfter(err)
		if hopeless(err) {
			longest = hopelessPause
		}
		err = explain(kube.KatalystCustomConfigs, err)
		if x.err == nil {
			r.session.Log.Error("not written", "target", targetKCC, "object", want.Namespace+"/"+want.Name, "error", err)
		}
		x.retryAt = now.Add(max(jittered(min(firstPause<<x.fails, longest)), retry))
		x.fails, x.err, x.is = min(x.fails+1, 10), err, nil
		return
	}
	x.err, x.fails, x.retryAt = nil, 0, time.Time{}
	x.is, x.looked = &want, now
	if wrote {
		x.news = true
		r.session.Log.Info("status written", "target", targetKCC, "object", want.Namespace+"/"+want.Name, "reason", want.Reason, "message", want.Message)
	}
}

// say adds what has become of one object to what a tick says of all: the worst of it.
func (r *registry) say(x *registration, now time.Time, out *tick.Target) {
	switch {
	case x.err != nil:
		*out = said(targetKCC, tick.TargetFailed, out.Changed, fmt.Errorf("%s/%s: %w", x.want.Namespace, x.want.Name, x.err))
	case out.State == tick.TargetFailed:
	case x.busy || r.due(x, now):
		out.State = tick.TargetPending
	case x.news:
		x.news = false
		out.Changed = true
		if out.State == tick.TargetUnchanged {
			out.State = tick.TargetWritten
		}
	}
}

// pretend shows what would be written.
func (r *registry) pretend(x *registration, out *tick.Target) {
	if x.is != nil && object.SameVerdict(*x.is, x.want) {
		return
	}
	v := x.want
	x.is = &v
	text, err := tick.Marshal(object.KCCStatus(v, nil, x.heard))
	if err != nil {
		*out = said(targetKCC, tick.TargetFailed, true, err)
		return
	}
	r.session.Log.Info("would be written", "target", targetKCC, "object", string(text))
	*out = said(targetKCC, tick.TargetPending, true, nil)
}

// close waits for what is being written, and at the end of the input for what is to be.
func (r *registry) close() error {
	if r.client == nil {
		return nil
	}
	patience := flushPatience
	if r.leaves() {
		patience = stopPatience
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		waiting, err := r.unwritten()
		switch {
		case waiting == 0:
			return nil
		case time.Now().After(deadline) && r.leaves():
			return nil // the one that comes next writes it
		case time.Now().After(deadline):
			return fmt.Errorf("%s: not written at the end of the input: %w", targetKCC, err)
		}
	}
}

// leaves reports whether nothing new is to be written at the end.
func (r *registry) leaves() bool { return r.noFlush || r.ctx.Err() != nil }

func (r *registry) unwritten() (waiting int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.session.Now()
	err = fmt.Errorf("the API server has not answered yet")
	for _, x := range r.all {
		if r.due(x, now) && !r.leaves() {
			r.start(x, now)
		}
		if x.busy || !r.leaves() && r.due(x, now) {
			waiting++
			if x.err != nil {
				err = x.err
			}
		}
	}
	return waiting, err
}
