package engine

import (
	"log/slog"

	"polder/lib/stage"
)

// input counts the ticks by usability: an input without a usable tick is an error of the command line, and not of a single tick.
type input struct {
	ticks, refused, withAdvice int
}

func (h *input) add(in stage.Incoming) {
	h.ticks++
	if in.Refused != "" {
		h.refused++
	}
	if in.Advice != nil {
		h.withAdvice++
	}
}

// warnIfUnusable warns at the end of an input in which no tick could be measured completely. The stage has warned if every tick was
// refused.
func (h *input) warnIfUnusable(log *slog.Logger) {
	switch {
	case h.refused == h.ticks:
	case h.withAdvice == 0:
		log.Warn("no tick has the section advice, so rules that need the offer or the pools were not measured: "+
			"put advise before evict, as in: advise < FILE | evict --dry-run", "ticks", h.ticks)
	}
}
