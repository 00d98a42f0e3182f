package main

import (
	"fmt"
	"strings"

	"polder/evict/rule"
	"polder/lib/stage"
)

// list prints every rule with the settings that it would run with.
func list(s *stage.Session, o *options) error {
	merged, from, err := o.resolve(s)
	if err != nil {
		return err
	}
	selected, err := rule.Select(merged.Rules)
	if err != nil {
		return err
	}
	on := map[*rule.Rule]bool{}
	for _, r := range selected {
		on[r] = true
	}
	byName := map[string]key{}
	for _, k := range keys {
		byName[k.name] = k
	}
	var b strings.Builder
	for _, r := range rule.All {
		title, doc, _ := strings.Cut(r.Doc, "\n")
		fmt.Fprintf(&b, "%s: %s\n", r.Name, title)
		if !on[r] {
			b.WriteString("  off (--rules)\n")
		}
		for _, scope := range r.Scopes {
			fmt.Fprintf(&b, "  scope %s\n", scope)
		}
		for _, name := range r.Keys {
			fmt.Fprintf(&b, "  %-31s %-6s %s\n", name, byName[name].show(merged), from[name])
		}
		fmt.Fprintf(&b, "\n  %s\n\n", strings.ReplaceAll(doc, "\n", "\n  "))
	}
	b.WriteString("for all rules\n")
	for _, name := range []string{"burst", "taint-transition-period", "opt-out"} {
		fmt.Fprintf(&b, "  %-31s %-6s %s\n", name, byName[name].show(merged), from[name])
	}
	_, err = fmt.Fprint(s.Out, strings.ReplaceAll(b.String(), "\n  \n", "\n\n"))
	return err
}
