package engine

import (
	"log/slog"

	"polder/lib/stage"
)

// input counts the ticks by usability: an input without a usable tick is an error of the command line, and not of a single tick.
type input struct {
	ticks, refused, withAdvice int
	lastRefusal                string
}

func (h *input) add(in stage.Incoming) {
	h.ticks++
	if in.Refused != "" {
		h.refused++
		h.lastRefusal = in.Refused
	}
	if in.Advice != nil {
		h.withAdvice++
	}
}

// warnIfUnusable warns at the end of an input in which no tick could be measured, or none completely.
func (h *input) warnIfUnusable(log *slog.Logger) {
	switch {
	case h.ticks == 0:
	case h.refused == h.ticks:
		log.Warn("every tick was refused, so no rule was measured (a recording needs --dry-run)", "ticks", h.ticks, "refused", h.lastRefusal)
	case h.withAdvice == 0:
		log.Warn("no tick has the section advice, so rules that need the offer or the pools were not measured: "+
			"put advise before evict, as in: advise < FILE | evict --dry-run", "ticks", h.ticks)
	}
}
