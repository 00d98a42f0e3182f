package act

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"polder/lib/clip"
	"polder/lib/kube"
	"polder/lib/tick"
)

// Event types, and the events' action.
const (
	eventNormal  = "Normal"
	eventWarning = "Warning"
	eventAction  = "Evicting"
)

type event struct{ kind, reason, note string }

// happening is the step of an eviction that an event reports.
type happening int

const (
	created   happening = iota // the pod's end was requested
	failed                     // the request failed
	succeeded                  // the pod has ended
	exceeded                   // it has not ended in time
)

// katalyst uses Katalyst's own wording.
func katalyst(e *tick.PodEviction, what happening, err error) *event {
	switch what {
	case created:
		return &event{eventNormal, "EvictCreated", "Successfully create eviction; reason: " + e.Reason}
	case failed:
		return &event{eventWarning, "EvictFailed", "Evict failed: " + err.Error()}
	case succeeded:
		return &event{eventNormal, "EvictSucceeded", "Evicted pod has been deleted physically; reason: " + e.Reason}
	}
	return &event{eventWarning, "EvictExceededGracePeriod", "Container runtime did not kill the pod within specified grace period"}
}

// koordinator uses Koordinator's wording, which reports only the request: as a warning even if it is granted.
func koordinator(e *tick.PodEviction, what happening, err error) *event {
	name := e.Name
	if e.Reason == reasonEvicted {
		name = e.Namespace + "/" + e.Name
	}
	note := fmt.Sprintf("evict Pod:%s, reason: %s, message: %s", name, e.Reason, e.Message)
	switch what {
	case created:
		return &event{eventWarning, "evictPodSuccess", note}
	case failed:
		return &event{eventWarning, "evictPodFail", note + ": " + err.Error()}
	}
	return nil
}

// reasonEvicted is the reason of Koordinator's newer rules, which name the namespace beside the pod.
const reasonEvicted = "evicted"

// Events reports evictions to the cluster in parallel with them: an event that cannot be written is logged, and
// blocks nothing. The same event of the same pod within seriesGap becomes a series in one object.
type Events struct {
	client   *kube.Client
	node     string
	log      *slog.Logger
	now      func() time.Time
	queue    chan queuedEvent
	finished chan struct{}

	closing sync.Once
	series  map[seriesKey]*series
}

// Controller is the events' reportingController, and the name in the API server's audit log.
const Controller = "polder-evict"

const (
	// seriesGap is the same as in Kubernetes' own recorder: an event that comes later starts a new object.
	seriesGap = 6 * time.Minute
	// mostSeries bounds the series that are remembered.
	mostSeries = 512
	mostQueued = 128
	// writeWithin bounds the write of one event; closeWithin bounds all pending writes when the tool ends.
	writeWithin = 5 * time.Second
	closeWithin = 3 * time.Second
	// mostNote and mostName are the API's limits in bytes.
	mostNote = 1024
	mostName = 253
)

type queuedEvent struct {
	regarding tick.PodEviction
	event     event
	at        time.Time
}

type seriesKey struct {
	uid   string
	event event
}

type series struct {
	name  string
	count int64
	last  time.Time
}

// NewEvents starts writing events about pods of a node.
func NewEvents(client *kube.Client, node string, log *slog.Logger, now func() time.Time) *Events {
	e := &Events{
		client: client, node: node, log: log, now: now,
		queue: make(chan queuedEvent, mostQueued), finished: make(chan struct{}), series: map[seriesKey]*series{},
	}
	go e.run()
	return e
}

// Record queues an event about a pod to be written.
func (e *Events) Record(about *tick.PodEviction, x event) {
	x.note = clip.Bytes(x.note, mostNote)
	select {
	case e.queue <- queuedEvent{*about, x, e.now()}:
	default:
		e.log.Warn("event not written: too many wait", "pod", about.Namespace+"/"+about.Name, "event", x.reason)
	}
}

// Close writes pending events, for at most closeWithin. No event may be recorded afterwards.
func (e *Events) Close() {
	e.closing.Do(func() { close(e.queue) })
	select {
	case <-e.finished:
	case <-time.After(closeWithin):
		e.log.Warn("events are left unwritten", "waiting", len(e.queue))
	}
}

func (e *Events) run() {
	defer close(e.finished)
	for s := range e.queue {
		ctx, cancel := context.WithTimeout(context.Background(), writeWithin)
		if err := e.write(ctx, s); err != nil {
			e.log.Warn("event not written", "pod", s.regarding.Namespace+"/"+s.regarding.Name, "event", s.event.reason, "error", err)
		}
		cancel()
	}
}

func (e *Events) write(ctx context.Context, s queuedEvent) error {
	key := seriesKey{s.regarding.UID, s.event}
	if known := e.series[key]; known != nil && s.at.Sub(known.last) < seriesGap {
		known.count++
		known.last = s.at
		patch, err := json.Marshal(kube.Object{"series": kube.Object{"count": known.count, "lastObservedTime": micro(s.at)}})
		if err != nil {
			return err
		}
		_, err = e.client.Patch(ctx, kube.Events, s.regarding.Namespace, known.name, kube.MergePatch, patch, Controller)
		if !kube.IsNotFound(err) {
			return err
		} // else it has expired: start over
	}
	e.forget(s.at)
	name := eventName(s.regarding.Name, s.at)
	_, err := e.client.Create(ctx, kube.Events, s.regarding.Namespace, e.object(s, name))
	if err == nil {
		e.series[key] = &series{name: name, count: 1, last: s.at}
	}
	return err
}

// forget drops series that have ended, and all if there are too many: then some events start new objects.
func (e *Events) forget(now time.Time) {
	for k, s := range e.series {
		if now.Sub(s.last) >= seriesGap {
			delete(e.series, k)
		}
	}
	if len(e.series) >= mostSeries {
		clear(e.series)
	}
}

func (e *Events) object(s queuedEvent, name string) kube.Object {
	return kube.Object{
		"apiVersion":          "events.k8s.io/v1",
		"kind":                "Event",
		"metadata":            kube.Object{"name": name, "namespace": s.regarding.Namespace},
		"eventTime":           micro(s.at),
		"reportingController": Controller,
		"reportingInstance":   clip.Bytes(e.node, 128),
		"action":              eventAction,
		"reason":              s.event.reason,
		"note":                s.event.note,
		"type":                s.event.kind,
		"regarding": kube.Object{
			"apiVersion": "v1", "kind": "Pod",
			"namespace": s.regarding.Namespace, "name": s.regarding.Name, "uid": s.regarding.UID,
		},
	}
}

// eventName is unique by its time, as in Kubernetes' recorder.
func eventName(pod string, at time.Time) string {
	suffix := fmt.Sprintf(".%x", at.UnixNano())
	return clip.Bytes(pod, mostName-len(suffix)) + suffix
}

// micro formats a time as the API's MicroTime.
func micro(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }
