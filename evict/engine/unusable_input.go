package engine

import (
	"log/slog"

	"polder/lib/stage"
)

// input counts the ticks by usability: an input without a usable tick is an error of the command line, and not of a single tick.
type input struct {
	ticks, refused, advised int
	why                     string // the last refusal
}

func (h *input) add(in stage.Incoming) {
	h.ticks++
	if in.Refused != "" {
		h.refused++
		h.why = in.Refused
	}
	if in.Advice != nil {
		h.advised++
	}
}

// tell warns at the end of an input in which no tick could be measured, or none completely.
func (h *input) tell(log *slog.Logger) {
	switch {
	case h.ticks == 0:
	case h.refused == h.ticks:
		log.Warn("every tick was refused, and nothing was measured: measure a recording with --dry-run", "ticks", h.ticks, "refused", h.why)
	case h.advised == 0:
		log.Warn("no tick had an advice: what is measured against the offer or in pools was not measured: "+
			"put advise in front, as in: advise < FILE | evict --dry-run", "ticks", h.ticks)
	}
}
