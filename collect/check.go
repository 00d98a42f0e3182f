package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"polder/collect/classify"
	"polder/lib/stage"
	"polder/lib/tick"
)

// checkConfig prints the rules of a file of classification, in the order in which they are tried.
func (o *options) checkConfig(s *stage.Session) error {
	rules, err := classify.Read(o.checked)
	if err != nil {
		return stage.Usagef("%w", err)
	}
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RULE\tCGROUP\tCLASS\tCONTAINERS\tNAMESPACE\tNAME\tREQUESTS\tLIMITS")
	for _, r := range rules.All() {
		class, containers := r.Class, "self"
		switch {
		case !r.IsPod():
			class, containers = "none", "-"
		case r.ChildContainers:
			containers = "children"
		}
		fmt.Fprintf(w, "%s:%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", o.checked, r.Line, r.Cgroup(), class, containers,
			orDash(r.Namespace), orDash(r.Name), amounts(r.Requests), amounts(r.Limits))
	}
	return w.Flush()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// amounts formats resources as one word, with the names that the file uses.
func amounts(r *tick.Resources) string {
	if r == nil {
		return "-"
	}
	var parts []string
	for _, of := range []struct {
		name  string
		value *float64
	}{
		{"milliCPU", r.MilliCPU},
		{"memoryBytes", r.MemoryBytes},
		{"reclaimedMilliCPU", r.ReclaimedMilliCPU},
		{"reclaimedMemoryBytes", r.ReclaimedMemoryBytes},
	} {
		if of.value != nil {
			parts = append(parts, fmt.Sprintf("%s=%.0f", of.name, *of.value))
		}
	}
	return orDash(strings.Join(parts, ","))
}
