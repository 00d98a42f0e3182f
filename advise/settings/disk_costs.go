package settings

import (
	"fmt"
	"strconv"
	"strings"

	"polder/lib/tick"
)

// costKeys are the kernel's keys of io.cost.qos, with their bounds.
var costKeys = []struct {
	word        string
	least, most float64
	at          func(*tick.DiskCost) **float64
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
	const want = "DISK or DISK=rpct:PERCENT,rlat:MICROSECONDS,wpct:PERCENT,wlat:MICROSECONDS,min:PERCENT,max:PERCENT, and a semicolon between disks"
	return row(name, into, want, func(text string) ([]tick.DiskCost, error) {
		var list []tick.DiskCost
		seen := map[string]bool{}
		for entry := range strings.SplitSeq(text, ";") {
			disk, words := entry, ""
			if at := strings.LastIndexByte(entry, '='); at >= 0 { // a mount point may contain "="
				disk, words = entry[:at], entry[at+1:]
			}
			one := tick.DiskCost{Disk: strings.TrimSpace(disk), Enabled: new(true)}
			if seen[one.Disk] || one.Disk == "" {
				return nil, fmt.Errorf("%q: want each disk once, by a name of /sys/block, a mount point, or %s", entry, tick.AllDisks)
			}
			seen[one.Disk] = true
			if words == "" && disk != entry {
				return nil, fmt.Errorf("%q: want %s", entry, want)
			}
			for word := range strings.FieldsFuncSeq(words, func(r rune) bool { return r == ',' }) {
				if err := setCost(&one, strings.TrimSpace(word)); err != nil {
					return nil, err
				}
			}
			list = append(list, one)
		}
		if len(list) > maxDiskNames {
			return nil, fmt.Errorf("%d disks: want %d at most", len(list), maxDiskNames)
		}
		return list, nil
	}, showCosts, usage)
}

func setCost(d *tick.DiskCost, text string) error {
	word, value, _ := strings.Cut(text, ":")
	for _, key := range costKeys {
		if key.word != word {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || !(n >= key.least && n <= key.most) {
			return fmt.Errorf("%q: want a number from %v to %v", text, key.least, key.most)
		}
		if *key.at(d) != nil {
			return fmt.Errorf("%q: %s is there twice", text, word)
		}
		*key.at(d) = &n
		return nil
	}
	return fmt.Errorf("%q: want rpct, rlat, wpct, wlat, min or max, a colon and a number", text)
}

func showCosts(list []tick.DiskCost) string {
	var entries []string
	for i := range list {
		var words []string
		for _, key := range costKeys {
			if n := *key.at(&list[i]); n != nil {
				words = append(words, key.word+":"+plain(*n))
			}
		}
		entry := list[i].Disk
		if len(words) > 0 {
			entry += "=" + strings.Join(words, ",")
		}
		entries = append(entries, entry)
	}
	return strings.Join(entries, ";")
}
