package stage

// refusals counts the ticks of an input that a tool must not act on. A single one is normal, and its section has the reason. If there is no
// other tick, the command line does not match the input, and nothing but a warning tells a user who does not look at the sections.
type refusals struct {
	ticks, refused int64
	last           string // the reason for the last refusal
}

// count counts a tick, and why it was refused; empty if it was not.
func (r *refusals) count(reason string) {
	r.ticks++
	if reason != "" {
		r.refused++
		r.last = reason
	}
}

// warnIfAll warns at the end of an input whose ticks were all refused.
func (r *refusals) warnIfAll(s *Session) {
	if r.ticks == 0 || r.refused < r.ticks {
		return
	}
	remedy := "--max-age 0"
	if s.Node != "" { // a tool for all nodes has no --node
		remedy = "--node NODE --max-age 0"
	}
	s.Log.Warn("every tick was refused, so none was acted on: for a recording give "+remedy+", or --dry-run",
		"ticks", r.ticks, "lastReason", r.last)
}
