package katalyst

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"polder/lib/quantity"
	"polder/lib/tick"
)

// FieldReserve and FieldFloor are the fields of reclaimedResourceConfig that set what settings of this policy set, too.
const (
	FieldReserve = "reservedResourceForAllocate"
	FieldFloor   = "minReclaimedResourceForAllocate"
)

// Fields of reclaimedResourceConfig that act beside these.
const (
	fieldEnable     = "enableReclaim"
	fieldWithhold   = "reservedResourceForReport"
	fieldLeast      = "minReclaimedResourceForReport"
	fieldNegligible = "minIgnoredReclaimedResourceForReport"
)

// amounts are CPU and memory as a configuration object gives them; nil where it does not.
type amounts struct{ milliCPU, bytes *int64 }

// dynamic is what a tick's configuration says, as far as this policy has it.
type dynamic struct {
	raw    tick.Raw // what it was made from
	object string   // "AdminQoSConfiguration katalyst-system/default"

	off        bool    // nothing is reclaimed
	reserve    amounts // kept free for the shared pods
	floor      amounts // kept by the reclaimed side (CPU alone)
	withheld   amounts // not offered
	least      amounts // offered at least
	negligible amounts // not worth an offer

	reasons []string // what is not as it must be, or not used
}

// from names a field and its object.
func (d *dynamic) from(field string) string { return d.object + ": " + field }

// renew is what a configuration says: d where it is the same.
func (d *dynamic) renew(raw tick.Raw) *dynamic {
	if d == nil || !bytes.Equal(d.raw, raw) {
		return readDynamic(raw)
	}
	return d
}

// readDynamic takes what is sound from a configuration; the rest is named in its reasons.
func readDynamic(raw tick.Raw) *dynamic {
	d := &dynamic{raw: slices.Clone(raw)}
	if null(raw) {
		return d
	}
	var top struct {
		Katalyst *struct {
			Admin *struct {
				Namespace string   `json:"namespace"`
				Name      string   `json:"name"`
				Config    tick.Raw `json:"config"`
				At        string   `json:"at"` // its place, where it is of a file
			} `json:"adminQoSConfiguration"`
		} `json:"katalyst"`
	}
	if err := tick.Unmarshal(raw, &top); err != nil {
		d.refuse("config", "want objects as collect writes them")
		return d
	}
	if top.Katalyst == nil || top.Katalyst.Admin == nil {
		return d
	}
	admin := top.Katalyst.Admin
	d.object = "AdminQoSConfiguration " + strings.Trim(quote(admin.Namespace+"/"+admin.Name), `"`)
	if admin.At != "" {
		d.object += " (" + strings.Trim(quote(admin.At), `"`) + ")"
	}
	var config struct {
		Reclaimed tick.Raw `json:"reclaimedResourceConfig"`
	}
	if !object(admin.Config, &config) {
		d.refuse("config", "want an object")
		return d
	}
	fields := map[string]tick.Raw{}
	if !object(config.Reclaimed, &fields) {
		d.refuse("reclaimedResourceConfig", "want an object")
		return d
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		d.field(name, fields[name])
	}
	return d
}

// object decodes JSON that may be missing.
func object(raw tick.Raw, into any) bool {
	return null(raw) || tick.Unmarshal(raw, into) == nil
}

// null reports whether there is no value. A null in a map is decoded as nothing at all.
func null(raw tick.Raw) bool { return len(raw) == 0 || string(raw) == "null" }

func (d *dynamic) field(name string, raw tick.Raw) {
	if null(raw) {
		return
	}
	switch name {
	case fieldEnable:
		enable := true
		if tick.Unmarshal(raw, &enable) != nil {
			d.refuse(name, "want true or false")
			return
		}
		d.off = !enable
	case FieldReserve:
		d.reserve = d.amounts(name, raw)
	case FieldFloor:
		d.floor = d.amounts(name, raw)
		if d.floor.bytes != nil {
			d.reasons = append(d.reasons, d.from(name)+".memory is not used by this policy")
		}
	case fieldWithhold:
		d.withheld = d.amounts(name, raw)
	case fieldLeast:
		d.least = d.amounts(name, raw)
	case fieldNegligible:
		d.negligible = d.amounts(name, raw)
	default:
		d.reasons = append(d.reasons, d.from(strings.Trim(quote(name), `"`))+" is not used by this policy")
	}
}

// amounts reads {"cpu": "4", "memory": "5Gi"}.
func (d *dynamic) amounts(field string, raw tick.Raw) (a amounts) {
	values := map[string]tick.Raw{}
	if tick.Unmarshal(raw, &values) != nil {
		d.refuse(field, "want amounts of cpu and memory")
		return a
	}
	for _, resource := range slices.Sorted(maps.Keys(values)) {
		where := field + "." + strings.Trim(quote(resource), `"`)
		into, read := &a.milliCPU, quantity.Milli
		switch resource {
		case "cpu":
		case "memory":
			into, read = &a.bytes, quantity.Whole
		default:
			d.refuse(where, "want cpu or memory")
			continue
		}
		if null(values[resource]) {
			continue
		}
		text := string(values[resource]) // a number is an amount, too
		if text[0] == '"' && tick.Unmarshal(values[resource], &text) != nil {
			text = ""
		}
		amount, err := read(text)
		if err != nil {
			d.refuse(where, err.Error())
			continue
		}
		*into = new(int64(amount))
	}
	return a
}

func (d *dynamic) refuse(field, why string) {
	if d.object == "" {
		d.reasons = append(d.reasons, fmt.Sprintf("sample.%s: %s: not used", field, why))
		return
	}
	d.reasons = append(d.reasons, fmt.Sprintf("%s: %s: not used", d.from(field), why))
}
