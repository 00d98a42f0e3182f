package main

import (
	"fmt"
	"io"
	"strings"

	"polder/evict/rule"
	"polder/lib/sloconfig"
	"polder/lib/stage"
)

// list prints every rule with the settings that it would run with.
func list(s *stage.Session, o *options) error {
	merged, _, err := o.resolve(s)
	if err != nil {
		return err
	}
	merged, from := merged.ofNode(s)
	on, err := switchedOn(merged)
	if err != nil {
		return err
	}
	strategies := merged.strategies()
	var b strings.Builder
	for _, r := range rule.All {
		title, doc, _ := strings.Cut(r.Doc, "\n")
		fmt.Fprintf(&b, "%s: %s\n", r.Name, title)
		if !on[r.Name] {
			b.WriteString("  off (--rules)\n")
		}
		if r.Strategy != nil {
			listStrategy(&b, r, strategies)
		}
		if merged.tries(r.Name) {
			b.WriteString("  only tried (--dry-run-rules)\n")
		}
		for _, scope := range r.Scopes {
			fmt.Fprintf(&b, "  scope %s\n", scope)
		}
		writeKeys(&b, merged, from, r.Keys)
		if strategies != nil {
			writeThresholds(&b, strategies, r.Thresholds)
		} else {
			for _, key := range r.Thresholds {
				fmt.Fprintf(&b, "  %s\n", key)
			}
		}
		fmt.Fprintf(&b, "\n  %s\n\n", strings.ReplaceAll(doc, "\n", "\n  "))
	}
	b.WriteString("for all rules\n")
	writeKeys(&b, merged, from, names(engineKeys))
	_, err = fmt.Fprint(s.Out, strings.ReplaceAll(b.String(), "\n  \n", "\n\n"))
	return err
}

// listStrategy says where a rule of Koordinator's has its thresholds from, and whether it is on with them.
func listStrategy(b *strings.Builder, r *rule.Rule, s *sloconfig.Strategies) {
	if s == nil {
		fmt.Fprintf(b, "  thresholds: %s of each node, from sample.config; off where there is none\n", sloconfig.KeyThreshold)
		return
	}
	fmt.Fprintf(b, "  thresholds: %s\n", source(s))
	if why, _ := r.Off(s); why != "" {
		fmt.Fprintf(b, "  off (%s)\n", clean(why))
	}
}

// checkConfig prints what would be in force with a configuration file, and the flags that are given beside it.
func checkConfig(s *stage.Session, o *options) error {
	with := *o
	with.config = o.checked
	merged, _, err := with.resolve(s)
	if err != nil {
		return err
	}
	merged, from := merged.ofNode(s)
	var b strings.Builder
	writeKeys(&b, merged, from, names(keys))
	if x := merged.strategies(); x != nil {
		for _, r := range rule.All {
			if r.Strategy != nil {
				fmt.Fprintf(&b, "\n%s\n", r.Name)
				listStrategy(&b, r, x)
				writeThresholds(&b, x, r.Thresholds)
			}
		}
		for _, text := range merged.slo.Unsupported {
			fmt.Fprintf(&b, "\nnot supported: %s\n", clean(text))
		}
		for _, err := range merged.slo.Problems {
			fmt.Fprintf(&b, "\n%s\n", clean(err.Error()))
		}
	}
	_, err = fmt.Fprint(s.Out, b.String())
	return err
}

// switchedOn are the rules that are measured.
func switchedOn(s *settings) (map[string]bool, error) {
	selected, err := rule.Select(s.Rules)
	if err != nil {
		return nil, err
	}
	on := map[string]bool{}
	for _, r := range selected {
		on[r.Name] = true
	}
	return on, nil
}

func names(keys []key) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k.name
	}
	return out
}

// writeKeys writes settings with their values and where they come from, in columns.
func writeKeys(w io.Writer, s *settings, from map[string]string, wanted []string) {
	byName := map[string]key{}
	for _, k := range keys {
		byName[k.name] = k
	}
	nameWidth, valueWidth := 31, 6
	for _, name := range wanted {
		nameWidth, valueWidth = max(nameWidth, len(name)), max(valueWidth, len(byName[name].show(s)))
	}
	for _, name := range wanted {
		fmt.Fprintf(w, "  %-*s %-*s %s\n", nameWidth, name, valueWidth, byName[name].show(s), from[name])
	}
}
