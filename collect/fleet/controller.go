package fleet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"polder/collect/fleet/agents"
	"polder/collect/kubernetes/live"
	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
)

// controller is one run.
type controller struct {
	*options
	session *stage.Session
	live    *live.Fleet
	agents  agents.Fleet
	out     *stage.Source
	lease   *kube.Lease // nil without --lease

	errorSources   string // as last logged
	errorsLoggedAt time.Time
	dropped        int64
}

func (o *options) run(ctx context.Context, s *stage.Session) error {
	s.SetGCPercent(stage.SourceGCPercent)
	c, err := o.open(ctx, s)
	if err != nil {
		return stage.Usagef("%w", err)
	}
	if c.out, err = s.OpenSource(ctx, o.count == 0); err != nil {
		return err
	}
	if o.once {
		waiting, cancel := context.WithTimeout(ctx, live.WaitOnce)
		defer cancel()
		c.live.Wait(waiting)
		return errors.Join(c.put(), c.out.Close())
	}
	err = c.competeForLease(ctx)
	if err == nil {
		err = c.loop(ctx)
	}
	if c.lease != nil && c.lease.Err() != nil {
		return err // without the ticks that still wait: another one may be leading now
	}
	return errors.Join(err, c.out.Close(), c.release())
}

func (o *options) open(ctx context.Context, s *stage.Session) (*controller, error) {
	switch {
	case o.kubeconfig == "" && !o.inCluster:
		return nil, errors.New("want --kubeconfig or --in-cluster")
	case o.kubeconfig != "" && o.inCluster:
		return nil, errors.New("--kubeconfig and --in-cluster: want one of them")
	case o.interval < 100*time.Millisecond:
		return nil, fmt.Errorf("--interval %s: want 100ms or more", o.interval)
	case o.count < 0:
		return nil, fmt.Errorf("--count %d: want 0 or more", o.count)
	case o.once && o.leaseName != "":
		return nil, errors.New("--once and --lease: want one of them")
	}
	if _, err := labels.Parse(o.nodeSelector); err != nil {
		return nil, fmt.Errorf("--node-selector: %w", err)
	}
	agent, err := labels.Parse(o.agentSelector)
	if err != nil {
		return nil, fmt.Errorf("--agent-selector: %w", err)
	}
	if agent.Empty() {
		return nil, errors.New("--agent-selector is empty: every pod would be an agent's")
	}
	if api := s.Metrics.API(); api != nil {
		kube.Observe(api)
	}
	l, err := live.OpenFleet(ctx, live.FleetOptions{
		Kubeconfig: o.kubeconfig, UserAgent: "polder-collect-fleet/" + stage.Version, Nodes: o.nodeSelector, Now: s.Now, Log: s.Log,
		Reading: agents.Reading{Reading: o.reading.Reading(), Agent: agent, AgentNamespace: o.agentNamespace},
	})
	if err != nil {
		return nil, err
	}
	return &controller{options: o, session: s, live: l, agents: agents.Fleet{Interval: o.interval}}, nil
}

// competeForLease begins to compete for the lease.
func (c *controller) competeForLease(ctx context.Context) error {
	if c.leaseName == "" {
		return nil
	}
	namespace, name, ok := strings.Cut(c.leaseName, "/")
	if !ok {
		return stage.Usagef("--lease %q: want NAMESPACE/NAME", c.leaseName)
	}
	holder, err := identity()
	if err != nil {
		return err
	}
	c.lease, err = c.live.Client().Compete(ctx, kube.Election{
		Namespace: namespace, Name: name, Identity: holder,
		Duration: c.leaseDuration, RenewDeadline: c.leaseRenew, RetryPeriod: c.leaseRetry,
	})
	if err != nil {
		return stage.Usagef("--lease: %w", err)
	}
	c.session.Log.Info("waiting for the lease", "lease", c.leaseName, "as", holder)
	return nil
}

// identity is this process's in the lease. The host's name is the pod's, and a pod's name may be used again: the random part differs.
func identity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read the host name: %w", err)
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // it never fails
	return host + "_" + hex.EncodeToString(random[:]), nil
}

// releaseWithin is how long releasing the lease may take. After a release the others need not wait until the lease expires.
const releaseWithin = 2 * time.Second

func (c *controller) release() error {
	if c.lease == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
	defer cancel()
	if err := c.lease.Release(ctx); err != nil {
		c.session.Log.Warn("release the lease: it expires by itself", "error", err)
	}
	return nil
}

// loop makes a round an interval until ctx ends or the lease is lost. It also watches while another process leads, so that it
// knows since when each agent has its state when it becomes the leader.
func (c *controller) loop(ctx context.Context) error {
	var acquired, lost <-chan struct{}
	if c.lease != nil {
		acquired, lost = c.lease.Acquired(), c.lease.Lost()
	}
	waiting, cancel := context.WithTimeout(ctx, live.WaitLoop)
	c.live.Wait(waiting)
	cancel()
	rounds := time.NewTicker(c.interval)
	defer rounds.Stop()
	for n := 0; ; {
		if err := c.put(); err != nil {
			return err
		}
		if acquired == nil {
			n++
		}
		if n == c.count && n > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
			return fmt.Errorf("no longer leading: %w", c.lease.Err())
		case <-acquired:
			acquired = nil
			c.session.Log.Info("became leader", "lease", c.leaseName)
		case <-rounds.C:
		}
	}
}

// put updates the state of all agents, and writes a tick a node if this process leads.
func (c *controller) put() error {
	now := c.session.Now()
	c.out.Begin()
	seen := c.live.Seen()
	ticks := c.agents.Observe(now, seen)
	c.log(now, seen)
	c.touch(now, seen)
	if c.lease != nil && !c.lease.IsHeld() {
		return nil
	}
	for _, t := range ticks {
		t.Sample.DroppedTicks = c.out.Dropped()
	}
	return c.out.PutAll(ticks)
}

// touch updates --ready-file while this process is ready to lead.
func (c *controller) touch(now time.Time, seen agents.Seen) {
	path := c.readyFile
	if path == "" || !isCurrent(seen) || c.lease != nil && c.lease.LastError() != nil {
		return
	}
	if os.Chtimes(path, now, now) == nil {
		return
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		c.session.Log.Warn("touch --ready-file", "error", err)
	}
}

// isCurrent reports whether everything that decisions are made from is current. The configuration objects do not count: they are read only
// to report their errors, and a kind that the cluster does not have would keep every fleet controller from ever being ready.
func isCurrent(seen agents.Seen) bool {
	return !slices.ContainsFunc(seen.Errors, func(e tick.SourceError) bool { return e.Source != live.ConfigSource })
}

// errorLogInterval is how often errors that last are logged.
const errorLogInterval = time.Minute

// log reports what no tick can contain while none is written: that nothing was read yet, or that the lease cannot be acquired.
func (c *controller) log(now time.Time, seen agents.Seen) {
	var sources, texts []string
	for _, e := range seen.Errors {
		sources, texts = append(sources, e.Source), append(texts, e.Error)
	}
	if c.lease != nil {
		if err := c.lease.LastError(); err != nil {
			sources, texts = append(sources, "lease"), append(texts, kube.Cause(err))
		}
	}
	staleSources := strings.Join(sources, ", ")
	if staleSources != c.errorSources || staleSources != "" && now.Sub(c.errorsLoggedAt) >= errorLogInterval {
		if staleSources == "" {
			c.session.Log.Info("all sources are current again")
		} else {
			c.session.Log.Warn("some sources are stale: no decision is made from them", "sources", staleSources, "error", strings.Join(texts, "; "))
		}
		c.errorSources, c.errorsLoggedAt = staleSources, now
	}
	if total := c.out.Dropped(); total != c.dropped {
		c.session.Log.Warn("the next stage is slow: dropped ticks for newer ones", "rounds", total-c.dropped, "total", total)
		c.dropped = total
	}
}
