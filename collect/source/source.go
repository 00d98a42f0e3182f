// Package source has collect's sources: one file a source, all of them listed in list.go.
package source

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"time"

	"polder/collect/classify"
	"polder/collect/host"
	"polder/lib/tick"
)

// Source is one kind of data that is read in each round.
type Source struct {
	Name string
	Doc  string
	New  func(*Env) Reader
}

// Reader reads a source into the round's sample. Its error names the values that could not be read, which are absent; the
// round continues. A Reader that is a StateKeeper or an io.Closer is used as such.
type Reader interface {
	Read(*Round) error
}

// StateKeeper is a Reader whose state is saved between two runs.
type StateKeeper interface {
	Save(*State)
	Load(*State)
}

// Env is what all sources share.
type Env struct {
	Host  *host.Host
	Rules *classify.Rules
	// KubeletRoot is kubelet's root directory, relative to Host's root.
	KubeletRoot string
	// CgroupRoot is kubelet's cgroupRoot; empty is the root.
	CgroupRoot string
	Log        *slog.Logger
	// Cluster is nil where there is none: then the rules alone define the pods.
	Cluster Cluster
	// Now is the wall clock, with Go's monotonic reading.
	Now func() time.Time
	// Interval is the time between two rounds, of which reading threads takes a small part at most; with 0 it is not limited.
	Interval time.Duration

	// stackedDisks are the device numbers of disks whose input and output is counted on other disks too, from the disks source.
	// The version counts its changes: counts over other disks cannot be compared.
	stackedDisks   map[string]bool
	stackedVersion int

	pods pods // made by the cgroup source, used by load and pods
	// created receives a value after a cgroup was created.
	created chan struct{}
}

// Round is one reading of everything.
type Round struct {
	Sample *tick.Sample
	// Rescan requests reading also what is otherwise read only when it is known to have changed.
	Rescan bool
	// Clock is the machine's clock.
	Clock *clock

	// Topology is nil until it was read.
	Topology *host.Topology
	// busy has each CPU's busy ticks since the last round, indexed by its id, -1 where they are not known, and
	// busySeconds the time that they cover, 0 where there is no earlier reading.
	busy        []int64
	busySeconds float64
}

// Collector makes samples.
type Collector struct {
	env     *Env
	names   []string
	readers []Reader
	round   Round
	sample  tick.Sample
	clock   clock
	last    float64 // the machine's clock at the last round
	rounds  int

	intervalSeconds float64
}

// New returns a Collector of all sources.
func New(env *Env) *Collector {
	env.created = make(chan struct{}, 1)
	c := &Collector{env: env, clock: clock{host: env.Host, now: env.Now, log: env.Log}}
	for _, s := range All {
		c.names = append(c.names, s.Name)
		c.readers = append(c.readers, s.New(env))
	}
	c.round.Sample, c.round.Clock = &c.sample, &c.clock
	return c
}

// Read reads everything. The sample is valid until the next call.
func (c *Collector) Read(rescan bool) *tick.Sample {
	*c.round.Sample = tick.Sample{Errors: c.sample.Errors[:0]}
	c.clock.startRound()
	at := c.clock.Seconds()
	if c.intervalSeconds = at - c.last; c.last > 0 && c.intervalSeconds > 0 {
		c.intervalSeconds = rounded(c.intervalSeconds, 1000)
		c.sample.IntervalSeconds = &c.intervalSeconds
	}
	c.last = at
	c.round.Rescan = rescan || c.rounds == 0
	c.rounds++
	for i, r := range c.readers {
		c.note(c.names[i], r.Read(&c.round))
	}
	return &c.sample
}

// maxErrors bounds a source's errors in one tick.
const maxErrors = 8

func (c *Collector) note(source string, err error) {
	if err == nil {
		return
	}
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for i, err := range list {
		if i == maxErrors {
			err = errors.New("and more")
		}
		c.sample.Errors = append(c.sample.Errors, tick.SourceError{Source: source, Error: err.Error()})
		if i == maxErrors {
			return
		}
	}
}

// SampleLoad samples the containers' load between two rounds.
func (c *Collector) SampleLoad() {
	c.clock.startRound()
	for i, s := range All {
		if between, ok := c.readers[i].(interface{ between(*Round) error }); ok {
			if err := between.between(&c.round); err != nil {
				c.env.Log.Warn("sample between two ticks", "source", s.Name, "error", err)
			}
		}
	}
}

// Created receives a value after a cgroup was created. [Collector.HasNewBatch] reports whether that matters before the next round.
func (c *Collector) Created() <-chan struct{} { return c.env.created }

// HasNewBatch reports whether a cgroup of batch was created since the last round, or the last call, that has no class yet: none of the
// cgroups above it contains only batch. kubelet's do not count: their tiers have weights and CPU lists for new pods, and to write a
// container's cgroup while the runtime makes it is a risk.
func (c *Collector) HasNewBatch() bool {
	t := c.env.pods.tree
	if t == nil {
		return false
	}
	c.clock.startRound()
	return t.hasNewBatch()
}

// Close ends the sources' watches and closes their files.
func (c *Collector) Close() error {
	var errs []error
	for _, r := range c.readers {
		if closer, ok := r.(io.Closer); ok {
			errs = append(errs, closer.Close())
		}
	}
	return errors.Join(errs...)
}

// rounded rounds to parts of one, so that lines stay short.
func rounded(f, parts float64) float64 { return math.Round(f*parts) / parts }

// known stores the value in where and returns where, or returns nil where the value is not known.
func known(where *float64, value float64, ok bool) *float64 {
	if !ok {
		return nil
	}
	*where = value
	return where
}

// counted is the same for a counter.
func counted(where *float64, value *uint64) *float64 {
	if value == nil {
		return nil
	}
	*where = float64(*value)
	return where
}
