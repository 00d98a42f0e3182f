package katalyst

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"polder/lib/customconfig"
	"polder/lib/tick"
)

// dynamic is what a tick's configuration contains, as far as this policy uses it.
type dynamic struct {
	raw    tick.Raw // its source
	object string   // "AdminQoSConfiguration katalyst-system/default"

	isOff      bool                 // nothing is reclaimed
	reserve    customconfig.Amounts // kept free for the shared pods
	floor      customconfig.Amounts // kept by the reclaimed side (only CPU)
	withheld   customconfig.Amounts // not offered
	minimum    customconfig.Amounts // offered at least
	negligible customconfig.Amounts // too little to be offered

	reasons []string // values that are invalid, or not used
}

// source names a field and its object.
func (d *dynamic) source(field string) string { return d.object + ": " + field }

// refreshed returns the content of a configuration: d if the configuration has not changed.
func (d *dynamic) refreshed(raw tick.Raw) *dynamic {
	if d == nil || !bytes.Equal(d.raw, raw) {
		return readDynamic(raw)
	}
	return d
}

// readDynamic takes the valid values of a configuration; its reasons name the others.
func readDynamic(raw tick.Raw) *dynamic {
	d := &dynamic{raw: slices.Clone(raw)}
	objects, err := customconfig.Read(raw)
	if err != nil {
		d.reasons = append(d.reasons, err.Error())
	}
	admin := objects[customconfig.AdminQoS.Key]
	if admin == nil {
		return d
	}
	d.object = customconfig.AdminQoS.Name + " " + unquoted(admin.Namespace+"/"+admin.Name)
	if admin.At != "" {
		d.object += " (" + unquoted(admin.At) + ")"
	}
	config, err := admin.Object()
	if err != nil {
		d.reasons = append(d.reasons, fmt.Sprintf("%s: ignored", d.source(err.Error())))
	}
	r := customconfig.ReclaimedOf(config)
	for _, field := range r.Unused {
		d.reasons = append(d.reasons, d.source(unquoted(field))+" is not used by this policy")
	}
	for _, err := range r.Errs {
		d.reasons = append(d.reasons, fmt.Sprintf("%s: ignored", d.source(strings.TrimPrefix(err.Error(), "reclaimedResourceConfig."))))
	}
	d.isOff = r.IsDisabled
	d.reserve, d.floor = r.Amounts[customconfig.FieldReserve], r.Amounts[customconfig.FieldFloor]
	d.withheld, d.minimum, d.negligible = r.Amounts[customconfig.FieldWithhold], r.Amounts[customconfig.FieldMinimum],
		r.Amounts[customconfig.FieldIgnoreBelow]
	if d.floor.Bytes != nil {
		d.reasons = append(d.reasons, d.source(customconfig.FieldFloor)+".memory is not used by this policy")
	}
	return d
}

// unquoted returns untrusted text for a reason, without quotation marks.
func unquoted(text string) string { return strings.Trim(quote(text), `"`) }

// isNull reports whether there is no value. A null in a map is decoded as an empty value.
func isNull(raw tick.Raw) bool { return len(raw) == 0 || string(raw) == "null" }
