package settings

import (
	"fmt"
	"strconv"
	"strings"

	"polder/lib/tick"
)

// costKeys are the kernel's keys of io.cost.qos, with their bounds.
var costKeys = []struct {
	name     string
	min, max float64
	field    func(*tick.DiskCost) **float64
}{
	{"rpct", 0, 100, func(d *tick.DiskCost) **float64 { return &d.ReadPercentile }},
	{"rlat", 1, 60e6, func(d *tick.DiskCost) **float64 { return &d.ReadLatencyMicroseconds }},
	{"wpct", 0, 100, func(d *tick.DiskCost) **float64 { return &d.WritePercentile }},
	{"wlat", 1, 60e6, func(d *tick.DiskCost) **float64 { return &d.WriteLatencyMicroseconds }},
	{"min", 1, 10000, func(d *tick.DiskCost) **float64 { return &d.MinPercent }},
	{"max", 1, 10000, func(d *tick.DiskCost) **float64 { return &d.MaxPercent }},
}

// diskCosts are disks that are shared by cost: "all", or "vda=rpct:95,rlat:5000;vdb".
func diskCosts(name string, into *[]tick.DiskCost, usage string) Row {
	const format = "DISK or DISK=rpct:PERCENT,rlat:MICROSECONDS,wpct:PERCENT,wlat:MICROSECONDS,min:PERCENT,max:PERCENT, separated by semicolons"
	return row(name, into, format, func(text string) ([]tick.DiskCost, error) {
		var list []tick.DiskCost
		seen := map[string]bool{}
		for entry := range strings.SplitSeq(text, ";") {
			disk, parameters := entry, ""
			if at := strings.LastIndexByte(entry, '='); at >= 0 { // a mount point may contain "="
				disk, parameters = entry[:at], entry[at+1:]
			}
			cost := tick.DiskCost{Disk: strings.TrimSpace(disk), Enabled: new(true)}
			if seen[cost.Disk] || cost.Disk == "" {
				return nil, fmt.Errorf("%q: want each disk once: a name of /sys/block, a mount point, or %s", entry, tick.AllDisks)
			}
			seen[cost.Disk] = true
			if parameters == "" && disk != entry {
				return nil, fmt.Errorf("%q: want %s", entry, format)
			}
			for parameter := range strings.FieldsFuncSeq(parameters, func(r rune) bool { return r == ',' }) {
				if err := setCost(&cost, strings.TrimSpace(parameter)); err != nil {
					return nil, err
				}
			}
			list = append(list, cost)
		}
		if len(list) > maxDiskNames {
			return nil, fmt.Errorf("%d disks: the maximum is %d", len(list), maxDiskNames)
		}
		return list, nil
	}, showCosts, usage)
}

func setCost(d *tick.DiskCost, text string) error {
	name, value, _ := strings.Cut(text, ":")
	for _, key := range costKeys {
		if key.name != name {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || !(n >= key.min && n <= key.max) {
			return fmt.Errorf("%q: want a number from %v to %v", text, key.min, key.max)
		}
		if *key.field(d) != nil {
			return fmt.Errorf("%q: %s occurs twice", text, name)
		}
		*key.field(d) = &n
		return nil
	}
	return fmt.Errorf("%q: want rpct, rlat, wpct, wlat, min or max, a colon and a number", text)
}

func showCosts(list []tick.DiskCost) string {
	var entries []string
	for i := range list {
		var parameters []string
		for _, key := range costKeys {
			if n := *key.field(&list[i]); n != nil {
				parameters = append(parameters, key.name+":"+formatNumber(*n))
			}
		}
		entry := list[i].Disk
		if len(parameters) > 0 {
			entry += "=" + strings.Join(parameters, ",")
		}
		entries = append(entries, entry)
	}
	return strings.Join(entries, ";")
}
