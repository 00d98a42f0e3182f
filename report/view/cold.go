package view

import (
	"fmt"
	"strings"

	"polder/lib/clip"
	"polder/lib/phrase"
	"polder/lib/tick"
)

// taken is the cold memory that was reclaimed since the first tick.
type taken struct {
	bytes  float64
	steps  int
	last   tick.Reclaim
	failed int
}

func (c *taken) add(i *tick.Isolation) {
	for _, r := range i.Reclaims {
		switch r.State {
		case tick.ReclaimSkipped:
			continue
		case tick.ReclaimFailed:
			c.failed++
		}
		c.bytes += float64(r.ReclaimedBytes)
		c.steps++
		c.last = r
	}
}

// words describe the states of a reclaim.
var reclaimWords = map[string]string{
	tick.ReclaimDone: "all of it", tick.ReclaimPartial: "no more was found", tick.ReclaimTimeout: "the time was over",
	tick.ReclaimDryRun: "dry run", tick.ReclaimFailed: "it failed",
}

// coldLine is the reclaimed cold memory; nil where there is none.
func (m *Model) coldLine() *line {
	c := &m.taken
	if c.steps == 0 {
		return nil
	}
	word, known := reclaimWords[c.last.State]
	if !known {
		word = clip.Clean(c.last.State)
	}
	l := (&line{}).add(heading, fit("cold", labelWidth))
	if !m.partial {
		l.add(good, Bytes(&c.bytes)).add(plain, " reclaimed from batch in "+phrase.Count(c.steps, "step"))
	}
	cgroup := strings.TrimRight(fitPath(clip.Clean(c.last.Cgroup), 40), " ")
	l.add(dim, "  last ").add(plain, Bytes(new(float64(c.last.ReclaimedBytes)))+" of "+cgroup).add(dim, " ("+word+")")
	if c.failed > 0 && !m.partial {
		l.add(bad, fmt.Sprintf("  %d failed", c.failed))
	}
	return l
}
