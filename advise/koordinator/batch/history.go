package batch

import (
	"fmt"
	"math"
	"time"

	"polder/advise/policy"
	"polder/lib/qos"
)

// Parameters of the prediction of a prod pod's peak: Koordinator's defaults (pkg/koordlet/prediction).
const (
	trainEvery = time.Minute
	coldStart  = 24 * time.Hour
	growth     = 0.05 // of the buckets' widths
	peakMargin = 110  // percent
)

var (
	halfLife    = [resources]time.Duration{12 * time.Hour, 24 * time.Hour}
	peakShare   = [resources]float64{0.95, 0.98}
	firstBucket = [resources]float64{25, 5 << 20} // milli-CPU, bytes: smaller values are insignificant
)

// maxHistories bounds the pods in the history, maxBucket the buckets: the last one begins at about 10^9 times the first.
const (
	maxHistories = 512
	maxBucket    = 400
)

// history is the use of each prod pod, of all together, and of the system, from which their peaks are predicted.
type history struct {
	Trained time.Time        `json:"trained,omitzero"`
	Prod    past             `json:"prod,omitzero"`
	System  past             `json:"system,omitzero"`
	Pods    map[string]*past `json:"pods,omitempty"`
}

// past is the history of one of them: since when, how often it used how much, and its use since the last training.
type past struct {
	From time.Time            `json:"from"`
	Used [resources]histogram `json:"used"`
	Sum  [resources]float64   `json:"sum"`
	N    [resources]int       `json:"n"`
}

// histogram counts in buckets, each 5 % wider than the last, with decay: a count's weight halves in the half-life.
type histogram struct {
	First  int       `json:"first,omitempty"` // the bucket of the first count
	Counts []float32 `json:"counts,omitempty"`
}

// observe adds the use of the pods and of the system, and trains the histograms once a minute.
func (h *history) observe(now time.Time, pods []pod, system amounts, measured has) {
	if h.Pods == nil {
		h.Pods = map[string]*past{}
	}
	if h.Trained.IsZero() || h.Trained.After(now) { // the clock was set back
		h.Trained = now
	}
	since := now.Sub(h.Trained)
	train := since >= trainEvery
	present, prod := 0, amounts{}
	for i := range pods {
		p := &pods[i]
		if p.class == qos.Prod {
			for r := range resources {
				prod[r] = add(prod[r], p.now[r])
			}
		}
		if !p.prod {
			continue
		}
		id := policy.Identity(p.Pod)
		own := h.Pods[id]
		if own == nil {
			if len(h.Pods) >= maxHistories {
				continue
			}
			own = &past{From: now}
			h.Pods[id] = own
		}
		present++
		if own.From.After(now) {
			own.From = now
		}
		own.observe(p.now, p.measured, train, since)
	}
	h.Prod.observe(prod, measured, train, since)
	h.System.observe(system, measured, train, since)
	if train {
		h.Trained = now
	}
	if present < len(h.Pods) {
		h.forget(pods)
	}
}

// observe adds a use, and at a training counts the average use since the last one.
func (p *past) observe(now amounts, measured has, train bool, since time.Duration) {
	for r := range resources {
		if measured[r] {
			p.Sum[r] += float64(now[r])
			p.N[r]++
		}
		if !train {
			continue
		}
		p.Used[r].decay(math.Exp2(-float64(since) / float64(halfLife[r])))
		if p.N[r] > 0 {
			p.Used[r].count(bucketOf(p.Sum[r]/float64(p.N[r]), firstBucket[r]))
		}
		p.Sum[r], p.N[r] = 0, 0
	}
}

// forget removes the pods that no longer exist.
func (h *history) forget(pods []pod) {
	present := make(map[string]*past, len(h.Pods))
	for i := range pods {
		if id := policy.Identity(pods[i].Pod); pods[i].prod && h.Pods[id] != nil {
			present[id] = h.Pods[id]
		}
	}
	h.Pods = present
}

// bucketOf returns the bucket of a value; bucket b begins at first*(1.05^b - 1)/0.05.
func bucketOf(v, first float64) int {
	b := math.Log(v*growth/first+1) / math.Log(1+growth)
	switch {
	case !(b > 0):
		return 0
	case b > maxBucket:
		return maxBucket
	}
	return int(b)
}

func bucketStart(b int, first float64) float64 {
	return first * (math.Pow(1+growth, float64(b)) - 1) / growth
}

// decay reduces the weight of all counts, and removes negligible ones at both ends.
func (h *histogram) decay(by float64) {
	const nothing = 1e-4
	last := -1
	first := -1
	for i := range h.Counts {
		h.Counts[i] *= float32(by)
		if h.Counts[i] >= nothing {
			last = i
			if first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		*h = histogram{}
		return
	}
	h.Counts = append(h.Counts[:0], h.Counts[first:last+1]...)
	h.First += first
}

// count adds one to a bucket.
func (h *histogram) count(b int) {
	if !h.sound() { // invalid in a state file
		*h = histogram{}
	}
	switch {
	case len(h.Counts) == 0:
		h.First, h.Counts = b, append(h.Counts, 0)
	case b < h.First:
		h.Counts = append(make([]float32, h.First-b, h.First-b+len(h.Counts)), h.Counts...)
		h.First = b
	}
	for b >= h.First+len(h.Counts) {
		h.Counts = append(h.Counts, 0)
	}
	h.Counts[b-h.First]++
}

func (h *histogram) sound() bool {
	return h.First >= 0 && len(h.Counts) <= maxBucket+1 && h.First <= maxBucket+1-len(h.Counts)
}

// peak returns the upper end of the bucket in which a share of all counts is reached; false if there are no counts.
func (h *histogram) peak(share, first float64) (float64, bool) {
	total := 0.0
	for _, n := range h.Counts {
		total += float64(n)
	}
	if !(total > 0) || !h.sound() {
		return 0, false
	}
	sum := 0.0
	for i, n := range h.Counts {
		if sum += float64(n); sum >= share*total {
			return bucketStart(h.First+i+1, first), true
		}
	}
	return bucketStart(h.First+len(h.Counts), first), true
}

// peak returns the predicted peak; false if there are no counts.
func (p *past) peak(r resource) (float64, bool) { return p.Used[r].peak(peakShare[r], firstBucket[r]) }

// withMargin adds the margin to a peak.
func withMargin(peak float64) int64 {
	peak = math.Ceil(peak * peakMargin / 100)
	needed, _ := whole(&peak)
	return needed
}

// reclaimable returns the part of the prod pods' requests that they will not use: the smallest of the sum of each pod's request beyond its
// own peak, the sum of all requests beyond the common peak of the pods and the system, and the capacity beyond the larger of that peak and
// the sum of the pods' peaks. A pod younger than a day does not count in the first. The CPUs of an LSE pod are exclusive.
func (h *history) reclaimable(now time.Time, pods []pod, capacity amounts) (f forecast) {
	for i := range pods {
		p := &pods[i]
		if !p.prod {
			continue
		}
		for r := range resources {
			if r != cpu || !p.lse {
				f.requests[r] = add(f.requests[r], p.request[r])
			}
		}
		own := h.Pods[policy.Identity(p.Pod)]
		if own == nil || now.Sub(own.From) < coldStart {
			f.cold++
			continue
		}
		f.warm++
		for r := range resources {
			peak, ok := own.peak(r)
			if !ok {
				continue
			}
			needed := withMargin(peak)
			f.peaks[r] = add(f.peaks[r], needed)
			if r != cpu || !p.lse {
				f.beyond[r] = add(f.beyond[r], max(p.request[r]-needed, 0))
			}
		}
	}
	for r := range resources {
		prod, known := h.Prod.peak(r)
		system, ok := h.System.peak(r)
		if f.known[r] = known && ok; !f.known[r] {
			continue
		}
		f.together[r] = withMargin(prod + system)
		f.free[r] = max(min(f.beyond[r], less(f.requests[r], f.together[r]), less(capacity[r], max(f.together[r], f.peaks[r]))), 0)
	}
	return f
}

// forecast is the prod pods' reclaimable amount, with its terms.
type forecast struct {
	free       amounts
	warm, cold int // pods whose peaks are known, or that are too young
	known      has // whether the common peak is known
	// beyond is the requests over the pods' own peaks, requests all of their requests, peaks the sum of their own peaks, and together the
	// common peak with the system.
	beyond, requests, peaks, together amounts
}

// sentence explains the sum.
func (f *forecast) sentence(r resource, capacity int64, amount func(int64) string) string {
	pods := fmt.Sprintf("%d pods, and %d too young to tell", f.warm, f.cold)
	if !f.known[r] {
		return fmt.Sprintf("prod reclaimable %s (nothing is known of earlier use; %s)", amount(0), pods)
	}
	return fmt.Sprintf("prod reclaimable %s (the smallest of: requests beyond own peaks %s (%s), requests %s - common peak %s, capacity %s - the larger of common peak and sum of own peaks %s)",
		amount(f.free[r]), amount(f.beyond[r]), pods, amount(f.requests[r]), amount(f.together[r]), amount(capacity), amount(f.peaks[r]))
}
