package window

import (
	"slices"
	"time"
)

// Samples is a sample window of a value, for averages and percentiles. Values in quick succession share a point, so that it does not
// grow with their number. Its zero value is empty; it can be encoded as JSON and decoded again.
type Samples struct {
	Points []Point `json:"points,omitempty"`
}

// Point is the sum and number of some values, and the time of the first of them.
type Point struct {
	At  time.Time `json:"at"`
	Sum float64   `json:"sum"`
	N   int       `json:"n"`
}

// Add adds a value. It joins the last point if that is younger than width. Points older than keep are removed, and so are those
// in the future, after the clock was set back.
func (t *Samples) Add(at time.Time, value float64, width, maxAge time.Duration) {
	for len(t.Points) > 0 && t.Points[len(t.Points)-1].At.After(at) {
		t.Points = t.Points[:len(t.Points)-1]
	}
	if n := len(t.Points); n > 0 && at.Sub(t.Points[n-1].At) < width {
		t.Points[n-1].Sum += value
		t.Points[n-1].N++
	} else {
		t.Points = append(t.Points, Point{at, value, 1})
	}
	old := 0
	for old < len(t.Points) && at.Sub(t.Points[old].At) > maxAge {
		old++
	}
	t.Points = slices.Delete(t.Points, 0, old)
}

// pointsIn returns the points of the time before now.
func (t *Samples) pointsIn(now time.Time, over time.Duration) []Point {
	first := len(t.Points)
	for first > 0 && now.Sub(t.Points[first-1].At) <= over {
		first--
	}
	last := len(t.Points)
	for last > first && t.Points[last-1].At.After(now) {
		last--
	}
	return t.Points[first:last]
}

// Average returns the mean of the values of the time before now; false if there is none.
func (t *Samples) Average(now time.Time, over time.Duration) (float64, bool) {
	sum, n := 0.0, 0
	for _, p := range t.pointsIn(now, over) {
		sum += p.Sum
		n += p.N
	}
	if n == 0 {
		return 0, false
	}
	return sum / float64(n), true
}

// Percentile returns a percentile, with share 0.5 for the median, of the points of the time before now, without interpolation:
// of n points in ascending order the one at n*share - 1, as in Koordinator's metric cache. It returns false if there is none.
func (t *Samples) Percentile(now time.Time, over time.Duration, fraction float64) (float64, bool) {
	points := t.pointsIn(now, over)
	if len(points) == 0 {
		return 0, false
	}
	means := make([]float64, len(points))
	for i, p := range points {
		means[i] = p.Sum / float64(p.N)
	}
	slices.Sort(means)
	at := int(float32(len(means))*float32(fraction)) - 1
	return means[min(max(at, 0), len(means)-1)], true
}

// Span returns the part of the time before now that the points cover, from the first of them to the last.
func (t *Samples) Span(now time.Time, over time.Duration) time.Duration {
	points := t.pointsIn(now, over)
	if len(points) == 0 {
		return 0
	}
	return points[len(points)-1].At.Sub(points[0].At)
}

// Last returns the newest point's mean and its time; false if there is none.
func (t *Samples) Last() (value float64, at time.Time, ok bool) {
	if len(t.Points) == 0 {
		return 0, time.Time{}, false
	}
	p := t.Points[len(t.Points)-1]
	return p.Sum / float64(p.N), p.At, true
}
