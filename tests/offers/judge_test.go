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

// series is the services' use of a resource, as parts of the machine.
type series struct {
	at   []time.Time
	used []float64
}

// judge compares offers, as parts of the machine, with what the services used afterwards.
func judge(use series, offers []float64) (s score) {
	const noise = 1e-6 // of whole milli-CPU
	each := 100 / float64(len(offers))
	for i, offer := range offers {
		s.offered += offer * each
		if i+1 < len(offers) && offer > 1-use.used[i+1]+noise {
			s.oversold += each
		}
		if i > 0 && math.Abs(offer-offers[i-1]) > 0.05+noise {
			s.moves += each
		}
		if offer > 1-use.peak(i)+noise {
			s.hour += each
		}
	}
	return s
}

// peak is the largest use of the hour after a sample.
func (use series) peak(i int) (most float64) {
	for j := i + 1; j < len(use.used) && use.at[j].Sub(use.at[i]) <= time.Hour; j++ {
		most = max(most, use.used[j])
	}
	return most
}

// offers are advise's for a machine, as parts of it: of CPU at each sample, of memory at each sample that has it; 0 without advice.
type offers struct{ cpu, memory []float64 }

// resource is one of those that are offered.
type resource struct {
	name   string
	use    func(*trace) series
	offers func(offers) []float64
}

var resources = []resource{
	{"CPU", (*trace).cpu, func(all offers) []float64 { return all.cpu }},
	{"memory", (*trace).memory, func(all offers) []float64 { return all.memory }},
}

// advised rates advise's offers for the machines of a set.
func (r resource) advised(s set, of []offers) score {
	return r.mean(s, func(machine int, _ series) []float64 { return r.offers(of[machine]) })
}

// ruled rates a rule on the machines of a set.
func (r resource) ruled(s set, simple rule) score {
	return r.mean(s, func(_ int, use series) []float64 { return simple.offer(use) })
}

func (r resource) mean(s set, offer func(machine int, use series) []float64) (all score) {
	for i := range s.traces {
		use := r.use(&s.traces[i])
		all = all.plus(judge(use, offer(i, use)), 1/float64(len(s.traces)))
	}
	return all
}

// rule computes an offer from the usage so far, oldest first.
type rule struct {
	name  string
	offer func(use series) []float64
}

// rules are the best rules of one line, and one with perfect knowledge.
var rules = []rule{
	{"the largest of the last 60 samples + 5 %, raised only after 10 samples", func(use series) (offers []float64) {
		least, n := 0.0, 0
		for i := range use.used {
			most := 0.0
			for j := max(0, i-59); j <= i; j++ {
				most = max(most, use.used[j])
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
	{"mean + 4 standard deviations of the last 60 samples", func(use series) (offers []float64) {
		for i := range use.used {
			sum, squares, n := 0.0, 0.0, 0.0
			for j := max(0, i-59); j <= i; j++ {
				u := use.used[j]
				sum, squares, n = sum+u, squares+u*u, n+1
			}
			mean := sum / n
			offers = append(offers, max(1-mean-4*math.Sqrt(max(squares/n-mean*mean, 0)), 0))
		}
		return offers
	}},
	{"perfect knowledge of the next hour's peak", func(use series) (offers []float64) {
		for i := range use.used {
			offers = append(offers, 1-use.peak(i))
		}
		return offers
	}},
}
