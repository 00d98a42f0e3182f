package source

import (
	"errors"
	"io/fs"

	"polder/collect/host"
	"polder/lib/tick"
)

// Links are the machine's network links. A machine without /proc/net has none, which is no error.
var Links = Source{
	Name: "links",
	Doc:  "network links from /proc/1/net/dev, their default routes, and their speed from /sys/class/net",
	New: func(e *Env) Reader {
		return &linksReader{host: e.Host, before: map[string]linkState{}, speeds: map[string]uint64{}}
	},
}

// maxLinks bounds the links of a tick: a node with many pods has a virtual one for each, and those are never uplinks.
const maxLinks = 16

// linkState is the last reading of a link's counters.
type linkState struct {
	seconds        float64
	received, sent uint64
}

type linksReader struct {
	host    *host.Host
	now     []host.Link
	before  map[string]linkState
	uplinks map[string]bool
	speeds  map[string]uint64
}

func (l *linksReader) Read(r *Round) error {
	var err error
	if l.now, err = l.host.Links(l.now); err != nil {
		clear(l.before)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	var routesErr error
	if l.uplinks == nil || r.Rescan {
		var found map[string]bool
		if found, routesErr = l.host.DefaultRoutes(); routesErr == nil || l.uplinks == nil { // else the older ones stay
			l.uplinks = found
		}
		l.readSpeeds()
	}
	seconds := r.Clock.Seconds()
	fresh := make(map[string]linkState, len(l.now))
	for _, uplinks := range []bool{true, false} { // uplinks first, because links beyond maxLinks are not listed
		for _, now := range l.now {
			if l.uplinks[now.Name] != uplinks || len(r.Sample.Links) == maxLinks {
				continue
			}
			link := tick.Link{Name: now.Name, DefaultRoute: uplinks}
			if speed, known := l.speeds[now.Name]; known {
				link.SpeedBitsPerSecond = new(float64(speed))
			}
			before, known := l.before[now.Name]
			if elapsed := seconds - before.seconds; known && elapsed > 0 && now.ReceivedBytes >= before.received && now.SentBytes >= before.sent {
				link.ReceivedBytesPerSecond = new(rounded(float64(now.ReceivedBytes-before.received)/elapsed, 1))
				link.SentBytesPerSecond = new(rounded(float64(now.SentBytes-before.sent)/elapsed, 1))
			}
			fresh[now.Name] = linkState{seconds, now.ReceivedBytes, now.SentBytes}
			r.Sample.Links = append(r.Sample.Links, link)
		}
	}
	l.before = fresh
	return routesErr
}

// readSpeeds reads each driver's speed only in a rescan, because some drivers take a lock for it. The speed of a link that is added later
// is read in the next rescan.
func (l *linksReader) readSpeeds() {
	if !l.host.SeesLinks(l.now) {
		return
	}
	clear(l.speeds)
	for _, link := range l.now {
		if speed, known := l.host.LinkSpeed(link.Name); known {
			l.speeds[link.Name] = speed
		}
	}
}
