package offers

import (
	"math"
	"time"
)

// score rates a way to offer on a machine, in percent: of the machine, and of the samples.
type score struct {
	offered  float64 // of the machine, on average
	oversold float64 // samples whose next one left less than was offered
	moves    float64 // samples in which the offer moved by more than a twentieth of the machine
	hour     float64 // samples whose next hour left less at some time
}

func (s score) plus(o score, part float64) score {
	return score{s.offered + o.offered*part, s.oversold + o.oversold*part, s.moves + o.moves*part, s.hour + o.hour*part}
}

// judge compares offers, as parts of the machine, with what the services used afterwards.
func judge(t *trace, offers []float64) (s score) {
	const noise = 1e-6 // of whole milli-CPU
	each := 100 / float64(len(offers))
	for i, offer := range offers {
		s.offered += offer * each
		if i+1 < len(offers) && offer > 1-t.part(i+1)+noise {
			s.oversold += each
		}
		if i > 0 && math.Abs(offer-offers[i-1]) > 0.05+noise {
			s.moves += each
		}
		if offer > 1-t.peak(i)+noise {
			s.hour += each
		}
	}
	return s
}

// peak is the largest use of the hour after a sample.
func (t *trace) peak(i int) (most float64) {
	for j := i + 1; j < len(t.samples) && t.samples[j].at.Sub(t.samples[i].at) <= time.Hour; j++ {
		most = max(most, t.part(j))
	}
	return most
}

// rule computes an offer from the usage so far, oldest first.
type rule struct {
	name  string
	offer func(t *trace) []float64
}

// rules are the best rules of one line, and one with perfect knowledge.
var rules = []rule{
	{"the largest of the last 60 samples + 5 %, raised only after 10 samples", func(t *trace) (offers []float64) {
		least, n := 0.0, 0
		for i := range t.samples {
			most := 0.0
			for j := max(0, i-59); j <= i; j++ {
				most = max(most, t.part(j))
			}
			can := max(1-most-0.05, 0)
			switch {
			case i == 0 || can <= offers[i-1]:
				offers, n = append(offers, can), 0
				continue
			case n == 0:
				least = can
			}
			least = min(least, can)
			if n++; n < 10 {
				offers = append(offers, offers[i-1])
			} else {
				offers, n = append(offers, least), 0
			}
		}
		return offers
	}},
	{"mean + 4 standard deviations of the last 60 samples", func(t *trace) (offers []float64) {
		for i := range t.samples {
			sum, squares, n := 0.0, 0.0, 0.0
			for j := max(0, i-59); j <= i; j++ {
				u := t.part(j)
				sum, squares, n = sum+u, squares+u*u, n+1
			}
			mean := sum / n
			offers = append(offers, max(1-mean-4*math.Sqrt(max(squares/n-mean*mean, 0)), 0))
		}
		return offers
	}},
	{"perfect knowledge of the next hour's peak", func(t *trace) (offers []float64) {
		for i := range t.samples {
			offers = append(offers, 1-t.peak(i))
		}
		return offers
	}},
}
