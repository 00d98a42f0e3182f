package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"polder/collect/classify"
	"polder/collect/host"
	"polder/collect/loadavg"
	"polder/collect/source"
	"polder/lib/stage"
	"polder/lib/tick"
)

// options are the tool's own flags.
type options struct {
	interval, onceOver, rescan time.Duration
	once, printClassify        bool
	count                      int
	classify, checked          string
	root, node                 string
	kubeletRoot                string
	cluster                    clusterOptions
}

func (o *options) flags(f *stage.Flags) {
	f.Category("Sampling")
	f.Duration(&o.interval, "interval", time.Second, "time between two ticks")
	f.Bool(&o.once, "once", "write one tick and end\nIts rates cover the time since the run that left --state, or --once-over without one.")
	f.Duration(&o.onceOver, "once-over", 200*time.Millisecond, "time that the rates of --once cover")
	f.Int(&o.count, "count", 0, "end after this many ticks (0 is never)\nAll of them are written, however slow the next stage is.")
	f.Duration(&o.rescan, "rescan", 30*time.Second, "look for new cgroups in all directories this often\nThis finds the cgroups that inotify missed.")
	f.Category("What is sampled")
	f.Path(&o.classify, "classify", "", "read the rules that select the cgroups that are pods from `FILE`")
	f.Path(&o.checked, "check-config", "", "print the rules of `FILE`, or its errors, and end\nThe exit status is 0 or 2.")
	f.Bool(&o.printClassify, "print-classify", "print the default rules and end")
	f.Path(&o.root, "root", "/", "read /proc and /sys under `DIR`\nDIR is a copy, or another machine's root, mounted here.")
	f.Path(&o.kubeletRoot, "kubelet-root", "/var/lib/kubelet", "kubelet's `DIR`, under --root\nThe state of its CPU manager is read there.")
	f.String(&o.node, "node", "", "the node's `NAME` (default $NODE_NAME, or the host's name)\nThe ticks have it, and collect looks for it in the cluster.")
	o.cluster.flags(f)
}

func (o *options) run(ctx context.Context, s *stage.Session) error {
	s.SetGCPercent(stage.SourceGCPercent)
	if o.printClassify {
		rules, err := o.defaultRules()
		if err != nil {
			return stage.Usagef("%w", err)
		}
		_, err = s.Out.Write(rules)
		return err
	}
	if o.checked != "" {
		return o.checkConfig(s)
	}
	s.OneProcessor()
	c, err := o.open(ctx, s)
	if err != nil {
		return err
	}
	live := !o.once && o.count == 0 // with --count every tick is written
	if c.out, err = s.OpenSource(ctx, live); err != nil {
		return err
	}
	if o.once {
		err = c.once(ctx)
	} else {
		err = c.loop(ctx)
	}
	return errors.Join(c.saver.SaveAtEnd(err), c.out.Close(), c.collector.Close())
}

// open checks the options and opens the machine.
func (o *options) open(ctx context.Context, s *stage.Session) (*run, error) {
	switch {
	case o.interval < 10*time.Millisecond:
		return nil, stage.Usagef("--interval %s: want 10ms or more", o.interval)
	case o.rescan <= 0:
		return nil, stage.Usagef("--rescan %s: want a time span", o.rescan)
	case o.once && o.onceOver < 10*time.Millisecond:
		return nil, stage.Usagef("--once-over %s: want 10ms or more", o.onceOver)
	case o.count < 0:
		return nil, stage.Usagef("--count %d: want 0 or more", o.count)
	}
	rules, err := o.rules()
	if err != nil {
		return nil, stage.Usagef("%w", err)
	}
	h, err := host.New(o.root)
	if err != nil {
		return nil, stage.Usagef("--root: %w", err)
	}
	node, err := o.nodeName(s, h)
	if err != nil {
		return nil, stage.Usagef("%w", err)
	}
	cluster, err := o.cluster.open(ctx, s, node, o.once)
	if err != nil {
		return nil, err
	}
	env := &source.Env{
		Host: h, Rules: rules, KubeletRoot: o.kubeletRoot, CgroupRoot: o.cluster.cgroupRoot, Cluster: cluster, Log: s.Log, Now: s.Now,
		Interval: o.interval,
	}
	if o.once {
		env.Interval = loadavg.Every // no next tick is waiting
	}
	r := &run{options: o, session: s, collector: source.New(env), tick: tick.Tick{V: tick.Version, Node: node}}
	r.saver = s.NewSaver(source.StateVersion, 0, func() (tick.Raw, error) { return tick.Marshal(r.collector.Save()) })
	return r, nil
}

func (o *options) rules() (*classify.Rules, error) {
	if o.classify != "" {
		return classify.Read(o.classify)
	}
	data, err := o.defaultRules()
	if err != nil {
		return nil, err
	}
	return classify.Parse("default.yaml", data)
}

func (o *options) defaultRules() ([]byte, error) {
	return classify.DefaultBelow(o.cluster.cgroupRoot)
}

func (o *options) nodeName(s *stage.Session, h *host.Host) (string, error) {
	name := o.node
	if name == "" && h.Root() == "/" {
		name = s.Getenv("NODE_NAME")
	}
	if name == "" {
		var err error
		if name, err = h.Name(); err != nil {
			return "", fmt.Errorf("%w (give it with --node)", err)
		}
		if o.cluster.given() {
			name = strings.ToLower(name) // kubelet lowers the host's name too
		}
	}
	if err := tick.CheckName(name); err != nil {
		return "", fmt.Errorf("the node's name: %w (give another with --node)", err)
	}
	return name, nil
}

// run is one run of the tool.
type run struct {
	*options
	session   *stage.Session
	collector *source.Collector
	out       *stage.Source
	tick      tick.Tick

	periodSeconds float64

	rescanned time.Time
	saver     *stage.Saver
	dropped   int64 // ticks that were logged
	droppedAt time.Time
}

// once writes one tick.
func (r *run) once(ctx context.Context) error {
	if r.load(anyAge) {
		return r.put()
	}
	r.rescanned = r.session.Now()
	r.collector.Read(true)
	select {
	case <-time.After(r.onceOver):
	case <-ctx.Done():
		return nil
	}
	return r.put()
}

// saveEvery is how often a running collect saves its state, in case it is killed.
const saveEvery = time.Minute

// A tick that comes early, because of new batch, waits for minSettle until what was created with it is there too, and comes minSpan after
// the last tick at the earliest: the kernel counts the CPUs' time in steps of 10 ms, so that rates over less would be inexact.
const (
	minSettle = 50 * time.Millisecond
	minSpan   = 200 * time.Millisecond
)

// loop writes ticks until ctx ends. Samples of the load come every 5 s even where ticks are rarer. New batch without a scheduling class
// brings the next tick early, but never twice in a row, so that batch that starts and ends all the time costs less than twice as much.
func (r *run) loop(ctx context.Context) error {
	r.load(max(3*r.interval, time.Minute))
	ticks := time.NewTicker(r.interval)
	defer ticks.Stop()
	var samples <-chan time.Time
	if r.interval > loadavg.Every {
		t := time.NewTicker(loadavg.Every)
		defer t.Stop()
		samples = t.C
	}
	saves := time.NewTicker(saveEvery)
	defer saves.Stop()
	isEarly := false
	for n := 1; ; n++ {
		begun := time.Now()
		if err := r.put(); err != nil {
			return err
		}
		if n == r.count {
			return nil
		}
		created := r.collector.Created()
		if isEarly || r.count > 0 { // who counts ticks wants them at the interval
			created = nil
		}
		isEarly = false
		var early <-chan time.Time
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return nil
			case <-ticks.C:
				waiting = false
			case <-created:
				if r.collector.HasNewBatch() {
					created, early = nil, time.After(max(minSettle, time.Until(begun.Add(minSpan))))
				}
			case <-early:
				ticks.Reset(r.interval)
				isEarly, waiting = true, false
			case <-samples:
				r.collector.SampleLoad()
			case <-saves.C:
				r.saver.SaveIfDue()
			}
		}
	}
}

// put reads everything and writes a tick.
func (r *run) put() error {
	at := r.session.Now()
	r.out.Begin()
	rescan := at.Sub(r.rescanned) >= r.rescan
	if rescan {
		r.rescanned = at
	}
	r.tick.Time = at.UTC().Truncate(time.Millisecond)
	r.tick.Sample = r.collector.Read(rescan)
	r.tick.Sample.DroppedTicks = r.out.Dropped()
	if !r.options.once {
		r.periodSeconds = r.interval.Seconds()
		r.tick.Sample.PeriodSeconds = &r.periodSeconds
	}
	r.logDropped(at)
	return r.out.Put(&r.tick)
}

// droppedEvery is how often dropped ticks are logged at most.
const droppedEvery = 10 * time.Second

func (r *run) logDropped(at time.Time) {
	total := r.out.Dropped()
	if total == r.dropped || at.Sub(r.droppedAt) < droppedEvery {
		return
	}
	r.session.Log.Warn("the next stage is slow: dropped ticks for newer ones", "dropped", total-r.dropped, "total", total)
	r.dropped, r.droppedAt = total, at
}
