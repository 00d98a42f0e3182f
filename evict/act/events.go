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

// evictionStep is the step of an eviction that an event reports.
type evictionStep int

const (
	stepCreated   evictionStep = iota // the pod's end was requested
	stepFailed                        // the request failed
	stepSucceeded                     // the pod has ended
	stepTimedOut                      // it has not ended in time
)

// katalystEvent uses Katalyst's own wording.
func katalystEvent(e *tick.PodEviction, step evictionStep, err error) *event {
	switch step {
	case stepCreated:
		return &event{eventNormal, "EvictCreated", "Successfully create eviction; reason: " + e.Reason}
	case stepFailed:
		return &event{eventWarning, "EvictFailed", "Evict failed: " + err.Error()}
	case stepSucceeded:
		return &event{eventNormal, "EvictSucceeded", "Evicted pod has been deleted physically; reason: " + e.Reason}
	}
	return &event{eventWarning, "EvictExceededGracePeriod", "Container runtime did not kill the pod within specified grace period"}
}

// koordinatorEvent uses Koordinator's wording, which reports only the request: as a warning even if it is granted.
func koordinatorEvent(e *tick.PodEviction, step evictionStep, err error) *event {
	name := e.Name
	if e.Reason == reasonEvicted {
		name = e.Namespace + "/" + e.Name
	}
	note := fmt.Sprintf("evict Pod:%s, reason: %s, message: %s", name, e.Reason, e.Message)
	switch step {
	case stepCreated:
		return &event{eventWarning, "evictPodSuccess", note}
	case stepFailed:
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

	closeOnce sync.Once
	series    map[seriesKey]*series
}

// Controller is the events' reportingController, and the name in the API server's audit log.
const Controller = "polder-evict"

const (
	// seriesGap is the same as in Kubernetes' own recorder: an event that comes later starts a new object.
	seriesGap = 6 * time.Minute
	// maxSeries bounds the series that are remembered.
	maxSeries = 512
	maxQueued = 128
	// writeTimeout bounds the write of one event; closeTimeout bounds all pending writes when the tool ends.
	writeTimeout = 5 * time.Second
	closeTimeout = 3 * time.Second
	// maxNoteBytes and maxNameBytes are the API's limits in bytes.
	maxNoteBytes = 1024
	maxNameBytes = 253
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
		queue: make(chan queuedEvent, maxQueued), finished: make(chan struct{}), series: map[seriesKey]*series{},
	}
	go e.run()
	return e
}

// Record queues an event about a pod to be written.
func (e *Events) Record(regarding *tick.PodEviction, x event) {
	x.note = clip.Bytes(x.note, maxNoteBytes)
	select {
	case e.queue <- queuedEvent{*regarding, x, e.now()}:
	default:
		e.log.Warn("event not written: the queue is full", "pod", regarding.Namespace+"/"+regarding.Name, "event", x.reason)
	}
}

// Close writes pending events, for at most closeTimeout. No event may be recorded afterwards.
func (e *Events) Close() {
	e.closeOnce.Do(func() { close(e.queue) })
	select {
	case <-e.finished:
	case <-time.After(closeTimeout):
		e.log.Warn("events not written: the time limit at the end has passed", "queued", len(e.queue))
	}
}

func (e *Events) run() {
	defer close(e.finished)
	for s := range e.queue {
		ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
		if err := e.write(ctx, s); err != nil {
			e.log.Warn("event not written", "pod", s.regarding.Namespace+"/"+s.regarding.Name, "event", s.event.reason, "error", err)
		}
		cancel()
	}
}

func (e *Events) write(ctx context.Context, s queuedEvent) error {
	key := seriesKey{s.regarding.UID, s.event}
	if existing := e.series[key]; existing != nil && s.at.Sub(existing.last) < seriesGap {
		existing.count++
		existing.last = s.at
		patch, err := json.Marshal(kube.Object{"series": kube.Object{"count": existing.count, "lastObservedTime": kube.MicroTime(s.at)}})
		if err != nil {
			return err
		}
		_, err = e.client.Patch(ctx, kube.Events, s.regarding.Namespace, existing.name, kube.MergePatch, patch, Controller)
		if !kube.IsNotFound(err) {
			return err
		} // else it has expired: start over
	}
	e.dropEndedSeries(s.at)
	name := eventName(s.regarding.Name, s.at)
	_, err := e.client.Create(ctx, kube.Events, s.regarding.Namespace, e.object(s, name))
	if err == nil {
		e.series[key] = &series{name: name, count: 1, last: s.at}
	}
	return err
}

// dropEndedSeries drops series that have ended, and all if there are too many: then some events start new objects.
func (e *Events) dropEndedSeries(now time.Time) {
	for k, s := range e.series {
		if now.Sub(s.last) >= seriesGap {
			delete(e.series, k)
		}
	}
	if len(e.series) >= maxSeries {
		clear(e.series)
	}
}

func (e *Events) object(s queuedEvent, name string) kube.Object {
	return kube.Object{
		"apiVersion":          "events.k8s.io/v1",
		"kind":                "Event",
		"metadata":            kube.Object{"name": name, "namespace": s.regarding.Namespace},
		"eventTime":           kube.MicroTime(s.at),
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
	return clip.Bytes(pod, maxNameBytes-len(suffix)) + suffix
}
