package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"polder/evict/pick"
	"polder/evict/progress"
	"polder/evict/rule"
	"polder/evict/settings"
	"polder/lib/clip"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// explain prints the explanation of each node's last tick.
func (e *engine) explain() error {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(e.nodes)) {
		if text := e.nodes[name].explanation; text != "" { // else only the state file contains the node
			all = append(all, text)
		}
	}
	out, err := e.session.OpenText()
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(out, strings.Join(all, "\n"))
	return errors.Join(err, out.Close())
}

// explain says which pods are evicted at one tick, which are not, and why. It runs at every tick, because a tick's pods must not
// be kept beyond it.
func explain(n *node, t *tick.Tick, s *settings.Settings, section *tick.Eviction, round pick.Round) string {
	var b strings.Builder
	fmt.Fprintf(&b, "NODE %s  %s\n\n", clip.Clean(n.Record.Node()), t.Time.UTC().Format(time.RFC3339Nano))
	writePressures(&b, t.Time, s, n.Strategies.Last, round)
	for _, x := range section.Errors {
		fmt.Fprintf(&b, "! %s\n", clip.Clean(x))
	}
	for _, x := range round.Verdicts {
		if x.Finding.Met && len(x.Candidates) > 0 {
			b.WriteString("\n")
			writeCandidates(&b, t.Time, x, round.Queue)
		}
	}
	writeInProgress(&b, t.Time, n.InProgress)
	s.WriteChanged(&b)
	if x := n.Strategies.Last; x != nil {
		fmt.Fprintf(&b, "\n%s\n", settings.StrategySource(x))
		settings.WriteThresholds(&b, x, settings.StrategyKeys())
	}
	return b.String()
}

// writePressures writes one line per finding. Koordinator's rules have no line if no strategy is configured for them.
func writePressures(b *strings.Builder, now time.Time, s *settings.Settings, koordinator *sloconfig.Strategies, round pick.Round) {
	w := newTable(b)
	writeRow(w, "RULE", "SCOPE", "KIND", "VALUE", "", "THRESHOLD", "MET", "SINCE", "TOLERANCE LEFT", "COOLDOWN LEFT", "OUTCOME")
	selected, _ := s.Selected() // checked when the settings were read
	for _, r := range rule.All {
		measured := false
		for _, v := range round.Verdicts {
			if v.Finding.Rule == r.Name {
				writePressure(w, now, v)
				measured = true
			}
		}
		why := ""
		if r.Strategy != nil {
			why, _ = r.WhyOff(koordinator)
		}
		switch {
		case measured, r.Strategy != nil && koordinator == nil && !slices.Contains(s.Rules, r.Name):
		case slices.Contains(selected, r) && why != "":
			writeRow(w, r.Name, noValue, noValue, noValue, "", noValue, noValue, noValue, noValue, noValue, "off ("+why+")")
		case slices.Contains(selected, r):
			writeRow(w, r.Name, noValue, noValue, noValue, "", noValue, noValue, noValue, noValue, noValue, "not measured")
		default:
			writeRow(w, r.Name, noValue, noValue, noValue, "", noValue, noValue, noValue, noValue, noValue, "off (--rules)")
		}
	}
	w.Flush()
}

func writePressure(w *tabwriter.Writer, now time.Time, v pick.Verdict) {
	f := v.Finding
	kind, comparison, met, since := "hard", ">", "no", noValue
	if !f.Hard {
		kind = "soft"
	}
	if f.Below {
		comparison = "<"
	}
	if f.Met {
		met = "yes"
	}
	if at, err := time.Parse(time.RFC3339Nano, f.Since); err == nil {
		since = now.Sub(at).String()
	}
	writeRow(w, f.Rule, f.About(), kind, formatAmount(f.PressureFinding, f.Value), comparison, formatAmount(f.PressureFinding, f.Threshold),
		met, since, remaining(v.ToleranceLeft), remaining(v.CooldownLeft), outcome(v))
}

// outcome returns the result of a finding in a few words.
func outcome(v pick.Verdict) string {
	out := v.Why
	if out == "" {
		chosen := 0
		for _, x := range v.Candidates {
			if x.Chosen {
				chosen++
			}
		}
		switch {
		case chosen > 0:
			out = fmt.Sprintf("%d of %d candidates chosen", chosen, len(v.Candidates))
		case len(v.Candidates) == 0:
			out = "no candidates"
		default:
			out = fmt.Sprintf("none of %d candidates chosen", len(v.Candidates))
		}
	}
	if v.Finding.DryRun {
		out += " (dry run)"
	}
	return out
}

func writeCandidates(b *strings.Builder, now time.Time, v pick.Verdict, queue pick.Queue) {
	f := v.Finding
	fmt.Fprintf(b, "%s, %s: %s\n", clip.Clean(f.Rule), clip.Clean(f.About()), clip.Clean(cmp.Or(f.Message, "met")))
	w := newTable(b)
	writeRow(w, " ", "POD", "CLASS", "PRIORITY", "RANK", "RELEASES", "WAITS", "VERDICT")
	for i, x := range v.Candidates {
		rank := make([]string, len(x.Rank))
		for j, r := range x.Rank {
			rank[j] = noValue // no pod has an amount as large: it stands for an unknown priority
			if math.Abs(r) < math.MaxInt64 {
				rank[j] = formatNumber(r)
			}
		}
		priority, waiting, why := noValue, noValue, x.Why
		if p := x.Pod.Priority; p != nil {
			priority = strconv.FormatInt(*p, 10)
		}
		if since, ok := queue[x.Pod.UID]; ok && !f.Hard && !f.DryRun {
			waiting = now.Sub(since).String()
		}
		if why == "" {
			why = v.Why
		}
		writeRow(w, strconv.Itoa(i+1), progress.PodName(x.Pod.Namespace, x.Pod.Name), x.Pod.QoS, priority, strings.Join(rank, " "),
			formatNumber(x.Releases), waiting, why)
	}
	w.Flush()
}

func writeInProgress(b *strings.Builder, now time.Time, inProgress pick.InProgress) {
	if len(inProgress) == 0 {
		return
	}
	b.WriteString("\nevictions already requested\n")
	w := newTable(b)
	writeRow(w, "POD", "RULE", "STATE", "FOR", "ERROR")
	for _, uid := range slices.Sorted(maps.Keys(inProgress)) {
		x := inProgress[uid].Eviction
		since := now.Sub(inProgress[uid].RequestedAt).String()
		writeRow(w, progress.PodName(x.Namespace, x.Name), x.Rule, x.State, since, cmp.Or(x.Error, noValue))
	}
	w.Flush()
}

// noValue stands for a missing value.
const noValue = "-"

func newTable(b *strings.Builder) *tabwriter.Writer { return tabwriter.NewWriter(b, 0, 0, 2, ' ', 0) }

func writeRow(w *tabwriter.Writer, cells ...string) {
	for i, c := range cells {
		cells[i] = clip.Clean(c)
	}
	fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

// remaining formats a remaining time.
func remaining(d time.Duration) string {
	if d <= 0 {
		return noValue
	}
	return d.String()
}

// formatAmount formats a finding's value or threshold as the messages do.
func formatAmount(f tick.PressureFinding, v float64) string {
	switch f.Unit() {
	case tick.UnitMilliCPU:
		return formatNumber(v) + "m"
	case tick.UnitBytes:
		return formatNumber(v/(1<<20)) + "Mi"
	case tick.UnitPercent:
		return formatNumber(v) + "%"
	case tick.UnitPages:
		return formatNumber(v) + "/s"
	}
	return formatNumber(v)
}

// formatNumber formats a number with three decimals, and a very large one with an exponent.
func formatNumber(v float64) string {
	if math.Abs(v) >= 1e15 || math.IsNaN(v) {
		return strconv.FormatFloat(v, 'g', 6, 64)
	}
	return strconv.FormatFloat(math.Round(v*1000)/1000+0, 'f', -1, 64) // + 0: -0 is 0
}
