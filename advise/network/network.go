// Package network decides how the uplinks' packets are shaped: batch has a guaranteed part of each uplink, may borrow idle bandwidth up to
// a ceiling, and services have priority. It has no state: each tick's advice depends only on that tick. If there is no decision there is no
// advice, and isolate undoes what is not advised for some time.
package network

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"polder/advise/policy"
	"polder/lib/phrase"
	"polder/lib/tick"
)

// Names of the classes.
const (
	Services = "services"
	Batch    = "batch"
)

// Bandwidth is a part of a link's rate, or an absolute rate; the zero value is not set.
type Bandwidth struct {
	// Percent is of the link's rate; at most one of the two is positive.
	Percent       float64
	BitsPerSecond int64
}

// IsSet reports whether the bandwidth is set.
func (b Bandwidth) IsSet() bool { return b.Percent > 0 || b.BitsPerSecond > 0 }

// bitsOf returns the bandwidth of a link of rate bits per second, or defaultValue if none is set.
func (b Bandwidth) bitsOf(rate, defaultValue int64) int64 {
	switch {
	case b.Percent > 0:
		return int64(float64(rate) * min(b.Percent, 100) / 100)
	case b.BitsPerSecond > 0:
		return min(b.BitsPerSecond, rate)
	}
	return defaultValue
}

// Share is the bandwidth of a class.
type Share struct{ Rate, Ceiling Bandwidth }

// Settings are what an administrator or the cluster's configuration sets.
type Settings struct {
	// Batch is batch's share; nothing is advised for the network if its rate is not set. The default of its ceiling is the link's rate.
	Batch Share
	// Services is the services' share; the default of their rate is all that is not batch's.
	Services Share
	// Links are the links that are shaped; empty means all links of default routes.
	Links []string
	// LinkBitsPerSecond is each link's rate; 0 means the driver's value.
	LinkBitsPerSecond int64
}

// WithDefaults returns the settings with those of another source in place of each that is not set.
func (s Settings) WithDefaults(other Settings) Settings {
	for _, bandwidth := range []struct {
		into  *Bandwidth
		other Bandwidth
	}{
		{&s.Batch.Rate, other.Batch.Rate},
		{&s.Batch.Ceiling, other.Batch.Ceiling},
		{&s.Services.Rate, other.Services.Rate},
		{&s.Services.Ceiling, other.Services.Ceiling},
	} {
		if !bandwidth.into.IsSet() {
			*bandwidth.into = bandwidth.other
		}
	}
	if len(s.Links) == 0 {
		s.Links = other.Links
	}
	if s.LinkBitsPerSecond == 0 {
		s.LinkBitsPerSecond = other.LinkBitsPerSecond
	}
	return s
}

const (
	// minBits is the smallest rate of a class: a packet of 1500 bytes in 0.2 seconds.
	minBits = 64_000
	// maxBits is the largest valid rate.
	maxBits = 1e15
	// usablePart is the part of the driver's speed that the classes share. HTB does not count preamble, gap and checksum of a frame (24 bytes
	// of 1538), and orders only packets in its own queue: at the full speed packets would queue in the device, services' behind batch's.
	usablePart = 0.95
	// maxBatchPart is the largest guaranteed part of a link for batch: services always keep a part.
	maxBatchPart = 0.5
	// maxCgroups bounds the advice, whatever a sample contains.
	maxCgroups = 2000
)

// Advise adds the desired shaping to the advice.
func Advise(t *tick.Tick, a *tick.Advice, s Settings) {
	if !s.Batch.Rate.IsSet() || t.Sample == nil || t.Sample.Fleet != nil || t.Sample.Agent != nil {
		return
	}
	addReason := func(format string, args ...any) {
		a.Reasons = append(a.Reasons, "network: "+fmt.Sprintf(format, args...))
	}
	if policy.PodsUnknown(t.Sample) {
		addReason("it is unknown which pods are batch: no advice on the links")
		return
	}
	links := s.links(t.Sample, addReason)
	if len(links) == 0 {
		return
	}
	cgroups := batchCgroups(t.Sample)
	n := &tick.Network{}
	for _, l := range links {
		if desired, why := s.link(l, cgroups); desired != nil {
			n.Links = append(n.Links, *desired)
			addReason("%s", describe(desired, why, len(cgroups)))
		} else {
			addReason("%s: %s", policy.Quote(l.Name), why)
		}
	}
	if len(n.Links) > 0 {
		a.Network = n
	}
}

// links returns the machine's links that are shaped.
func (s Settings) links(sample *tick.Sample, addReason func(string, ...any)) (links []*tick.Link) {
	if len(sample.Links) == 0 {
		addReason("the machine's links are unknown: no advice on them")
		return nil
	}
	byName := map[string]*tick.Link{}
	for i := range sample.Links {
		if l := &sample.Links[i]; l.Name != "" && byName[l.Name] == nil {
			byName[l.Name] = l
			if len(s.Links) == 0 && l.DefaultRoute {
				links = append(links, l)
			}
		}
	}
	for i, name := range s.Links {
		switch l := byName[name]; {
		case slices.Contains(s.Links[:i], name):
		case l == nil:
			addReason("the machine has no link %s", policy.Quote(name))
		default:
			links = append(links, l)
		}
	}
	if len(s.Links) == 0 && len(links) == 0 {
		addReason("no link has a default route: name the uplinks (--network-links)")
	}
	return links
}

// link returns the desired shaping of one link, and the source of its rate; nil, and why, if the rate is unknown.
func (s Settings) link(l *tick.Link, cgroups []string) (desired *tick.NetworkLink, why string) {
	rate, why := s.LinkBitsPerSecond, "as configured"
	if rate == 0 {
		speed := policy.Amount(l.SpeedBitsPerSecond)
		if speed == 0 {
			return nil, "its speed is unknown: set it (--network-rate)"
		}
		rate, why = int64(speed*usablePart), fmt.Sprintf("%.0f %% of its speed", 100*usablePart)
	}
	if rate < 4*minBits || rate > maxBits {
		return nil, fmt.Sprintf("a rate of %d bit/s cannot be divided", rate)
	}
	batch := tick.NetworkClass{Class: Batch, Priority: 7, Cgroups: cgroups}
	batch.RateBitsPerSecond = min(max(s.Batch.Rate.bitsOf(rate, 0), minBits), int64(float64(rate)*maxBatchPart))
	batch.CeilingBitsPerSecond = max(s.Batch.Ceiling.bitsOf(rate, rate), batch.RateBitsPerSecond)
	rest := rate - batch.RateBitsPerSecond
	services := tick.NetworkClass{Class: Services, Default: true}
	services.RateBitsPerSecond = min(max(s.Services.Rate.bitsOf(rate, rest), minBits), rest)
	services.CeilingBitsPerSecond = max(s.Services.Ceiling.bitsOf(rate, rate), services.RateBitsPerSecond)
	return &tick.NetworkLink{Link: strings.Clone(l.Name), RateBitsPerSecond: rate, Classes: []tick.NetworkClass{services, batch}}, why
}

func describe(l *tick.NetworkLink, why string, cgroups int) string {
	batch := l.Classes[1]
	return fmt.Sprintf("%s: %s (%s); batch: %s guaranteed, %s at most; services first; %s", policy.Quote(l.Link), bits(l.RateBitsPerSecond), why,
		bits(batch.RateBitsPerSecond), bits(batch.CeilingBitsPerSecond), phrase.Count(cgroups, "batch cgroup"))
}

// bits formats a rate.
func bits(n int64) string {
	switch {
	case n >= 1e10:
		return fmt.Sprintf("%.1f Gbit/s", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f Mbit/s", float64(n)/1e6)
	}
	return fmt.Sprintf("%d kbit/s", n/1000)
}

// batchCgroups returns the cgroups of the running batch pods, sorted.
func batchCgroups(s *tick.Sample) (list []string) {
	seen := map[string]bool{}
	for i := range s.Pods {
		p := &s.Pods[i]
		cgroup := p.Cgroup
		if !policy.IsRunningBatch(p) || seen[cgroup] || len(list) == maxCgroups || path.Clean(cgroup) != cgroup {
			continue
		}
		seen[cgroup] = true
		list = append(list, strings.Clone(cgroup))
	}
	slices.Sort(list)
	return list
}
