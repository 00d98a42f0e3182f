package customconfig

import (
	"errors"
	"fmt"
	"slices"

	"polder/lib/evictconfig"
	"polder/lib/quantity"
)

// sectionReclaimed is advise's part of an AdminQoSConfiguration.
const sectionReclaimed = "reclaimedResourceConfig"

// reclaimedAmounts are its fields that have amounts of CPU and memory.
var reclaimedAmounts = []string{
	"reservedResourceForReport", "minReclaimedResourceForReport", "minIgnoredReclaimedResourceForReport",
	"reservedResourceForAllocate", "minReclaimedResourceForAllocate",
}

// checkReclaimed looks at the values that advise uses: an object with one that is none is refused as a whole.
func checkReclaimed(kind Kind, config Object) (errs []*FieldError) {
	if kind != AdminQoS || config[sectionReclaimed] == nil {
		return nil
	}
	wrong := func(err error, path ...string) {
		errs = append(errs, &FieldError{append([]string{sectionReclaimed}, path...), err})
	}
	section, ok := config[sectionReclaimed].(map[string]any)
	if !ok {
		wrong(errors.New("want an object"))
		return errs
	}
	if v := section["enableReclaim"]; v != nil {
		if _, err := evictconfig.ReadTruth(v); err != nil {
			wrong(err, "enableReclaim")
		}
	}
	for _, name := range reclaimedAmounts {
		v := section[name]
		amounts, ok := v.(map[string]any)
		if v != nil && !ok {
			wrong(errors.New("want amounts of cpu and memory"), name)
		}
		for _, resource := range []string{"cpu", "memory"} {
			read := quantity.Milli
			if resource == "memory" {
				read = quantity.Whole
			}
			if amounts[resource] == nil {
				continue
			}
			if _, err := read(amounts[resource]); err != nil {
				wrong(err, name, resource)
			}
		}
	}
	return errs
}

// checkSections are the errors of all parts of an object's spec.config that are read.
func checkSections(kind Kind, config Object) []*FieldError {
	errs := slices.Concat(EvictionOf(kind, config).Errs, checkReclaimed(kind, config))
	if len(errs) > maxProblems {
		more := &FieldError{nil, fmt.Errorf("and %d more", len(errs)-maxProblems)}
		errs = append(errs[:maxProblems], more)
	}
	return errs
}
