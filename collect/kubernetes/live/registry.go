package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"polder/lib/customconfig"
	"polder/lib/kube"
)

// retryInterval is how often Katalyst's kinds are requested again of a server that does not know them.
const retryInterval = 2 * time.Minute

// registry is one watch each of the KatalystCustomConfigs and of the kinds of configuration objects that they name.
type registry struct {
	ctx    context.Context
	client *kube.Client
	now    func() time.Time

	targets *kube.Watch[*customconfig.Target]
	kinds   map[customconfig.Kind]*kube.Watch[*customconfig.Candidate] // those that a target names

	log    *slog.Logger                    // nil for none
	logged map[string]customconfig.Verdict // by name
}

func openRegistry(ctx context.Context, client *kube.Client, now func() time.Time) registry {
	return registry{
		ctx: ctx, client: client, now: now,
		targets: kube.Start(
			ctx, client, kube.Selection{Resource: kube.KatalystCustomConfigs, RetryUnknown: retryInterval}, now, customconfig.TargetOf,
		),
		kinds: map[customconfig.Kind]*kube.Watch[*customconfig.Candidate]{},
	}
}

// wait waits until everything was read once, or ctx ends.
func (g *registry) wait(ctx context.Context) {
	if g.targets.WaitSynced(ctx) != nil {
		return
	}
	g.follow()
	for _, w := range g.kinds {
		if w.WaitSynced(ctx) != nil {
			return
		}
	}
}

// follow begins to watch the kinds that targets name. A kind that was named once stays watched.
func (g *registry) follow() {
	for _, t := range g.targets.List() {
		for _, kind := range customconfig.Kinds {
			if t.Resource == kind.Resource && g.kinds[kind] == nil {
				r := kube.AdminQoSConfigurations
				if kind == customconfig.Eviction {
					r = kube.EvictionConfigurations
				}
				read := func(o kube.Object) *customconfig.Candidate { return customconfig.CandidateOf(kind, o) }
				g.kinds[kind] = kube.Start(g.ctx, g.client, kube.Selection{Resource: r, RetryUnknown: retryInterval}, g.now, read)
			}
		}
	}
}

// configs are the objects as last read.
func (g *registry) configs() customconfig.Configs {
	in := customconfig.Configs{Targets: g.targets.List(), Candidates: map[customconfig.Kind][]*customconfig.Candidate{}}
	for kind, w := range g.kinds {
		switch s := w.State(); {
		case s.Absent:
			in.Absent = append(in.Absent, kind)
		case s.Synced:
			in.Candidates[kind] = w.List()
		}
	}
	return in
}

// verdicts returns the verdicts on the KatalystCustomConfigs, and logs each when it changes.
func (g *registry) verdicts(in *customconfig.Configs) []customconfig.Verdict {
	all := in.Verdicts(g.now())
	current := map[string]customconfig.Verdict{}
	for _, v := range all {
		name := v.Namespace + "/" + v.Name
		current[name] = v
		before, known := g.logged[name]
		switch {
		case g.log == nil || known && before.Reason == v.Reason && before.Message == v.Message:
		case v.Reason != customconfig.ReasonNormal:
			g.log.Warn("configuration objects are invalid", "katalystCustomConfig", name, "reason", v.Reason, "message", v.Message)
		case known:
			g.log.Info("configuration objects are valid again", "katalystCustomConfig", name)
		}
	}
	g.logged = current
	return all
}

// isRead reports whether the objects of all kinds that targets name were read once.
func (g *registry) isRead() bool {
	for _, w := range g.kinds {
		if !w.State().Synced {
			return false
		}
	}
	return g.targets.State().Synced
}

// configErrors returns an error for each list that is not current.
func (g *registry) configErrors() (errs []error) {
	if err := g.listError("the list of KatalystCustomConfigs", g.targets.State()); err != nil {
		return []error{err} // the others are read by the same server
	}
	for _, kind := range customconfig.Kinds {
		if w := g.kinds[kind]; w != nil {
			if err := g.listError("the list of "+kind.Resource, w.State()); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// listError returns why a list is not current, nil where it is.
func (g *registry) listError(what string, s kube.State) error {
	switch {
	case s.Err == nil && s.Synced:
		return nil
	case s.Err == nil:
		return fmt.Errorf("%s is being read for the first time", what)
	}
	silentFor := g.now().Sub(s.Since).Round(time.Second)
	cause := kube.Cause(s.Err)
	answer := "not reachable"
	if !kube.IsUnreachable(s.Err) {
		answer = "does not answer"
		if kube.Reason(s.Err) != "" {
			answer = "refuses"
		}
	}
	if errors.Is(s.Err, kube.ErrNoResponse) {
		answer = "has not answered"
		cause = "the first request is under way"
	}
	if !s.Synced {
		return fmt.Errorf("%s was never read: API server %s %s for %s (%s)", what, g.client.Server(), answer, silentFor, cause)
	}
	return fmt.Errorf("%s is stale: API server %s %s for %s (%s)", what, g.client.Server(), answer, silentFor, cause)
}
