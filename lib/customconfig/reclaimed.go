package customconfig

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"polder/lib/evictconfig"
	"polder/lib/quantity"
)

// sectionReclaimed is the name of advise's part of an AdminQoSConfiguration.
const sectionReclaimed = "reclaimedResourceConfig"

// These are its fields: those with amounts of CPU and memory, and FieldEnable, which has none.
const (
	FieldEnable      = "enableReclaim"
	FieldReserve     = "reservedResourceForAllocate"
	FieldFloor       = "minReclaimedResourceForAllocate"
	FieldWithhold    = "reservedResourceForReport"
	FieldMinimum     = "minReclaimedResourceForReport"
	FieldIgnoreBelow = "minIgnoredReclaimedResourceForReport"
)

// FieldOverlap is the path of a field of advise's outside of that section.
const FieldOverlap = "advisorConfig.cpuAdvisorConfig.allowSharedCoresOverlapReclaimedCores"

// Amounts are an object's CPU and memory; nil if it has none.
type Amounts struct{ MilliCPU, Bytes *int64 }

// Reclaimed are an object's values for advise.
type Reclaimed struct {
	// IsDisabled means that nothing is reclaimed.
	IsDisabled bool
	Amounts    map[string]Amounts // by field
	// AllowsOverlap is whether shared pods also run on the reclaimed CPUs; nil if the object does not say.
	AllowsOverlap *bool
	// Unused are the paths of fields that are set and that advise does not support.
	Unused []string
	// Errs are the fields that are invalid.
	Errs []*FieldError
}

// ReclaimedOf reads advise's part of an object's spec.config. A field that is absent or null sets nothing.
func ReclaimedOf(config Object) *Reclaimed {
	r := &Reclaimed{Amounts: map[string]Amounts{}}
	section, ok := config[sectionReclaimed].(map[string]any)
	if !ok && config[sectionReclaimed] != nil {
		r.addError(errors.New("want an object"))
	}
	for _, name := range slices.Sorted(maps.Keys(section)) {
		switch v := section[name]; name {
		case FieldEnable:
			if v == nil {
				break
			}
			enable, err := evictconfig.ReadBool(v)
			if err != nil {
				r.addError(err, name)
			}
			r.IsDisabled = enable == false
		case FieldReserve, FieldFloor, FieldWithhold, FieldMinimum, FieldIgnoreBelow:
			r.Amounts[name] = r.amounts(name, v)
		default:
			r.unused(v, name)
		}
	}
	r.readOverlap(config)
	return r
}

// readOverlap reads [FieldOverlap].
func (r *Reclaimed) readOverlap(config Object) {
	path := strings.Split(FieldOverlap, ".")
	last := len(path) - 1
	for i, name := range path[:last] {
		if config[name] == nil {
			return
		}
		child, isObject := config[name].(map[string]any)
		if !isObject {
			r.Errs = append(r.Errs, &FieldError{path[:i+1], errors.New("want an object")})
			return
		}
		config = child
	}
	v := config[path[last]]
	if v == nil {
		return
	}
	allow, err := evictconfig.ReadBool(v)
	if err != nil {
		r.Errs = append(r.Errs, &FieldError{path, err})
		return
	}
	r.AllowsOverlap = new(allow == true)
}

// amounts reads {"cpu": "4", "memory": "5Gi"}.
func (r *Reclaimed) amounts(name string, v any) (a Amounts) {
	list, ok := v.(map[string]any)
	if !ok && v != nil {
		r.addError(errors.New("want amounts of cpu and memory"), name)
	}
	for _, resource := range slices.Sorted(maps.Keys(list)) {
		into, read := &a.MilliCPU, quantity.Milli
		switch resource {
		case "cpu":
		case "memory":
			into, read = &a.Bytes, quantity.Integer
		default:
			r.unused(list[resource], name, resource)
			continue
		}
		if list[resource] == nil {
			continue
		}
		amount, err := read(list[resource])
		if err != nil {
			r.addError(err, name, resource)
			continue
		}
		*into = new(int64(amount))
	}
	return a
}

func (r *Reclaimed) addError(err error, path ...string) {
	r.Errs = append(r.Errs, &FieldError{append([]string{sectionReclaimed}, path...), err})
}

func (r *Reclaimed) unused(v any, path ...string) {
	if v != nil && len(r.Unused) < maxUnused {
		r.Unused = append(r.Unused, dotted(path))
	}
}
