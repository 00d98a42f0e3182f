package batch

import (
	"fmt"
	"math"
	"time"

	"polder/advise/policy"
	"polder/lib/qos"
	"polder/lib/tick"
)

// Parameters of the prediction of a prod pod's peak: Koordinator's defaults (pkg/koordlet/prediction).
const (
	trainInterval = time.Minute
	minHistory    = 24 * time.Hour
	maxPause      = 10 * time.Minute
	bucketGrowth  = 0.05 // of the buckets' widths
	peakMargin    = 110  // percent
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
	TrainedAt time.Time         `json:"trained,omitzero"`
	Prod      usage             `json:"prod,omitzero"`
	System    usage             `json:"system,omitzero"`
	Pods      map[string]*usage `json:"pods,omitempty"`
}

// usage is the history of one of them: since when, how often it used how much, and its use since the last training.
type usage struct {
	Since  time.Time            `json:"from"`
	Counts [resources]histogram `json:"used"`
	Sum    [resources]float64   `json:"sum"`
	N      [resources]int       `json:"n"`
}

// histogram counts in buckets, each 5 % wider than the last, with decay: a count's weight halves in the half-life.
type histogram struct {
	First  int       `json:"first,omitempty"` // the bucket of the first count
	Counts []float32 `json:"counts,omitempty"`
}

// observe adds the use of the pods and of the system, and trains the histograms once a minute.
func (h *history) observe(now time.Time, pods []pod, system amounts, isKnown resourceFlags) {
	if h.Pods == nil {
		h.Pods = map[string]*usage{}
	}
	if h.TrainedAt.IsZero() || h.TrainedAt.After(now) { // the clock was set back
		h.TrainedAt = now
	}
	elapsed := now.Sub(h.TrainedAt)
	isTraining := elapsed >= trainInterval
	if elapsed > maxPause { // nothing was observed meanwhile: only observed time counts as history
		for _, podUsage := range h.Pods {
			if podUsage != nil { // null in a state file
				podUsage.Since = podUsage.Since.Add(elapsed)
			}
		}
	}
	existing, prod := 0, amounts{}
	for i := range pods {
		p := &pods[i]
		if p.class == qos.Prod {
			for r := range resources {
				prod[r] = add(prod[r], p.current[r])
			}
		}
		if !p.isProd {
			continue
		}
		id := policy.Identity(p.Pod)
		podUsage := h.Pods[id]
		if podUsage == nil {
			if len(h.Pods) >= maxHistories {
				continue
			}
			podUsage = &usage{Since: now}
			h.Pods[id] = podUsage
		}
		existing++
		if podUsage.Since.After(now) {
			podUsage.Since = now
		}
		podUsage.observe(p.current, p.isCurrentKnown, isTraining, elapsed)
	}
	h.Prod.observe(prod, isKnown, isTraining, elapsed)
	h.System.observe(system, isKnown, isTraining, elapsed)
	if isTraining {
		h.TrainedAt = now
	}
	if existing < len(h.Pods) {
		h.removeEnded(pods)
	}
}

// observe adds a use, and at a training counts the average use since the last one.
func (p *usage) observe(current amounts, isKnown resourceFlags, isTraining bool, elapsed time.Duration) {
	for r := range resources {
		if isKnown[r] {
			p.Sum[r] += float64(current[r])
			p.N[r]++
		}
		if !isTraining {
			continue
		}
		p.Counts[r].decay(math.Exp2(-float64(elapsed) / float64(halfLife[r])))
		if p.N[r] > 0 {
			p.Counts[r].count(bucketOf(p.Sum[r]/float64(p.N[r]), firstBucket[r]))
		}
		p.Sum[r], p.N[r] = 0, 0
	}
}

// removeEnded removes the pods that no longer exist, and those of another class now. A pod that still runs and is missing from the
// cluster's list keeps its history: the list may be incomplete for a tick, and without its history the pod would be too young for a day.
func (h *history) removeEnded(pods []pod) {
	existing := make(map[string]*usage, len(h.Pods))
	for i := range pods {
		id := policy.Identity(pods[i].Pod)
		if (pods[i].isProd || pods[i].Missing == tick.MissingCluster) && h.Pods[id] != nil {
			existing[id] = h.Pods[id]
		}
	}
	h.Pods = existing
}

// bucketOf returns the bucket of a value; bucket b begins at first*(1.05^b - 1)/0.05.
func bucketOf(v, first float64) int {
	b := math.Log(v*bucketGrowth/first+1) / math.Log(1+bucketGrowth)
	switch {
	case !(b > 0):
		return 0
	case b > maxBucket:
		return maxBucket
	}
	return int(b)
}

func bucketStart(b int, first float64) float64 {
	return first * (math.Pow(1+bucketGrowth, float64(b)) - 1) / bucketGrowth
}

// decay reduces the weight of all counts, and removes negligible ones at both ends.
func (h *histogram) decay(factor float64) {
	const negligible = 1e-4
	last := -1
	first := -1
	for i := range h.Counts {
		h.Counts[i] *= float32(factor)
		if h.Counts[i] >= negligible {
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
	if !h.isValid() { // invalid in a state file
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

func (h *histogram) isValid() bool {
	return h.First >= 0 && len(h.Counts) <= maxBucket+1 && h.First <= maxBucket+1-len(h.Counts)
}

// peak returns the upper end of the bucket in which a share of all counts is reached; false if there are no counts.
func (h *histogram) peak(share, first float64) (float64, bool) {
	total := 0.0
	for _, n := range h.Counts {
		total += float64(n)
	}
	if !(total > 0) || !h.isValid() {
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
func (p *usage) peak(r resource) (float64, bool) {
	return p.Counts[r].peak(peakShare[r], firstBucket[r])
}

// withMargin adds the margin to a peak.
func withMargin(peak float64) int64 {
	peak = math.Ceil(peak * peakMargin / 100)
	needed, _ := wholeNumber(&peak)
	return needed
}

// reclaimable returns the part of the prod pods' requests that they will not use: the smallest of the sum of each pod's request beyond its
// own peak, the sum of all requests beyond the common peak of the pods and the system, and the capacity beyond the larger of that peak and
// the sum of the pods' peaks. A pod younger than a day does not count in the first. The CPUs of an LSE pod are exclusive.
func (h *history) reclaimable(now time.Time, pods []pod, capacity amounts) (f forecast) {
	for i := range pods {
		p := &pods[i]
		if !p.isProd {
			continue
		}
		for r := range resources {
			if r != cpu || !p.isLSE {
				f.requests[r] = add(f.requests[r], p.request[r])
			}
		}
		podUsage := h.Pods[policy.Identity(p.Pod)]
		if podUsage == nil || now.Sub(podUsage.Since) < minHistory {
			f.tooYoung++
			continue
		}
		f.withHistory++
		for r := range resources {
			peak, isKnown := podUsage.peak(r)
			if !isKnown {
				continue
			}
			needed := withMargin(peak)
			f.peaks[r] = add(f.peaks[r], needed)
			if r != cpu || !p.isLSE {
				f.beyond[r] = add(f.beyond[r], max(p.request[r]-needed, 0))
			}
		}
	}
	for r := range resources {
		prod, isProdKnown := h.Prod.peak(r)
		system, isKnown := h.System.peak(r)
		if f.known[r] = isProdKnown && isKnown; !f.known[r] {
			continue
		}
		f.commonPeak[r] = withMargin(prod + system)
		largest := max(f.commonPeak[r], f.peaks[r])
		f.reclaimable[r] = max(min(f.beyond[r], subtract(f.requests[r], f.commonPeak[r]), subtract(capacity[r], largest)), 0)
	}
	return f
}

// forecast is the prod pods' reclaimable amount, with its terms.
type forecast struct {
	reclaimable           amounts
	withHistory, tooYoung int           // pods whose peaks are known, or that are too young
	known                 resourceFlags // whether the common peak is known
	// beyond is the requests over the pods' own peaks, requests all of their requests, peaks the sum of their own peaks, and commonPeak the
	// common peak with the system.
	beyond, requests, peaks, commonPeak amounts
}

// text explains the sum.
func (f *forecast) text(r resource, capacity int64, amount func(int64) string) string {
	pods := fmt.Sprintf("%d pods, and %d with too short a history", f.withHistory, f.tooYoung)
	if !f.known[r] {
		return fmt.Sprintf("prod reclaimable %s (earlier use is unknown; %s)", amount(0), pods)
	}
	return fmt.Sprintf("prod reclaimable %s (the smallest of: requests beyond own peaks %s (%s), requests %s - common peak %s, capacity %s - the larger of common peak and sum of own peaks %s)",
		amount(f.reclaimable[r]), amount(f.beyond[r]), pods, amount(f.requests[r]), amount(f.commonPeak[r]), amount(capacity), amount(f.peaks[r]))
}
