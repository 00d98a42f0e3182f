package settings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"polder/evict/rule"
	"polder/lib/clip"
	"polder/lib/evictconfig"
	"polder/lib/sloconfig"
	"polder/lib/stage"
	"polder/lib/tick"
)

// List prints every rule with its settings in force.
func (o *Options) List(s *stage.Session) error {
	merged, err := o.Resolve(s)
	if err != nil {
		return err
	}
	merged = merged.forSessionNode(s)
	selected, err := merged.Selected()
	if err != nil {
		return err
	}
	strategies := merged.fileStrategies()
	var b strings.Builder
	for _, r := range rule.All {
		title, doc, _ := strings.Cut(r.Doc, "\n")
		fmt.Fprintf(&b, "%s: %s\n", r.Name, title)
		if !slices.Contains(selected, r) {
			b.WriteString("  off (--rules)\n")
		}
		if r.Strategy != nil {
			writeStrategy(&b, r, strategies)
		}
		if merged.IsDryRun(r.Name) {
			b.WriteString("  dry run (--dry-run-rules)\n")
		}
		for _, scope := range r.Scopes {
			fmt.Fprintf(&b, "  scope %s\n", scope)
		}
		if r.Rows != nil {
			merged.write(&b, r.Rows(&merged.Settings))
		}
		if strategies != nil {
			WriteThresholds(&b, strategies, r.Thresholds)
		} else {
			for _, key := range r.Thresholds {
				fmt.Fprintf(&b, "  %s\n", key)
			}
		}
		fmt.Fprintf(&b, "\n  %s\n\n", strings.ReplaceAll(doc, "\n", "\n  "))
	}
	b.WriteString("for all rules\n")
	merged.write(&b, merged.EngineRows())
	_, err = fmt.Fprint(s.Out, strings.ReplaceAll(b.String(), "\n  \n", "\n\n"))
	return err
}

// Check prints the settings that would be in force with a configuration file, and with the flags given beside it.
func (o Options) Check(s *stage.Session, path string) error {
	o.Config = path
	merged, err := o.Resolve(s)
	if err != nil {
		return err
	}
	merged = merged.forSessionNode(s)
	var b strings.Builder
	merged.write(&b, merged.Rows())
	if x := merged.fileStrategies(); x != nil {
		for _, r := range rule.All {
			if r.Strategy != nil {
				fmt.Fprintf(&b, "\n%s\n", r.Name)
				writeStrategy(&b, r, x)
				WriteThresholds(&b, x, r.Thresholds)
			}
		}
		for _, text := range merged.SLO.Unsupported {
			fmt.Fprintf(&b, "\nnot supported: %s\n", clip.Clean(text))
		}
		for _, err := range merged.SLO.Problems {
			fmt.Fprintf(&b, "\n%s\n", clip.Clean(err.Error()))
		}
	}
	_, err = fmt.Fprint(s.Out, b.String())
	return err
}

// write writes settings with their values and sources.
func (s *Settings) write(b *strings.Builder, rows []evictconfig.Row) { WriteRows(b, rows, s.From) }

// WriteChanged writes the settings that differ from the defaults, with their sources.
func (s *Settings) WriteChanged(b *strings.Builder) {
	rows := slices.DeleteFunc(s.Rows(), func(row evictconfig.Row) bool { return s.From[row.Name] == FromDefault })
	if len(rows) > 0 {
		b.WriteString("\nsettings that differ from the defaults\n")
		s.write(b, rows)
	}
}

// writeStrategy writes the source of the thresholds of a rule of Koordinator, and whether they enable the rule.
func writeStrategy(b *strings.Builder, r *rule.Rule, s *sloconfig.Strategies) {
	if s == nil {
		fmt.Fprintf(b, "  thresholds: %s of each node, from sample.config; off without it\n", sloconfig.KeyThreshold)
		return
	}
	fmt.Fprintf(b, "  thresholds: %s\n", StrategySource(s))
	if why, _ := r.WhyOff(s); why != "" {
		fmt.Fprintf(b, "  off (%s)\n", clip.Clean(why))
	}
}

// WriteThresholds writes the values of a node's strategy for some of Koordinator's rules.
func WriteThresholds(b *strings.Builder, s *sloconfig.Strategies, keys []string) {
	values := map[string]tick.Raw{}
	if raw, err := tick.Marshal(s.Threshold); err == nil {
		_ = tick.Unmarshal(raw, &values)
	}
	width := 0
	for _, key := range keys {
		width = max(width, len(key))
	}
	for _, key := range keys {
		fmt.Fprintf(b, "  %-*s %s\n", width, key, clip.Clean(cmp.Or(strings.Trim(string(values[key]), `"`), "not set")))
	}
}

// StrategySource returns the source of the strategies.
func StrategySource(s *sloconfig.Strategies) string {
	from := sloconfig.KeyThreshold + " of " + s.From
	if entry := s.Entries[sloconfig.KeyThreshold]; entry != "" {
		from += ", node entry " + entry
	}
	return clip.Clean(from)
}
