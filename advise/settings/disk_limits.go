package settings

import (
	"fmt"
	"strconv"
	"strings"

	"polder/lib/quantity"
	"polder/lib/tick"
)

// Bounds of a limit, per second: those that isolate writes.
const (
	minDiskBytes      = 64 << 10
	maxDiskBytes      = 1 << 50
	minDiskOperations = 4
	maxDiskOperations = 1 << 30
	maxDiskNames      = 32
)

// diskLimits are limits by disk: "all=read:100Mi,write:50Mi;/var/lib=reads:200".
func diskLimits(name string, into *[]tick.DiskLimit, usage string) Row {
	const format = "DISK=read:BYTES,write:BYTES,reads:NUMBER,writes:NUMBER, separated by semicolons"
	return row(name, into, format, func(text string) ([]tick.DiskLimit, error) {
		var list []tick.DiskLimit
		seen := map[string]bool{}
		for entry := range strings.SplitSeq(text, ";") {
			at := strings.LastIndexByte(entry, '=') // a mount point may contain "="
			if at < 1 {
				return nil, fmt.Errorf("%q: want %s", entry, format)
			}
			disk := tick.DiskLimit{Disk: strings.TrimSpace(entry[:at])}
			if seen[disk.Disk] || disk.Disk == "" {
				return nil, fmt.Errorf("%q: want each disk once: a name of /sys/block, a mount point, or %s", entry, tick.AllDisks)
			}
			seen[disk.Disk] = true
			for limit := range strings.SplitSeq(entry[at+1:], ",") {
				if err := setLimit(&disk, strings.TrimSpace(limit)); err != nil {
					return nil, err
				}
			}
			list = append(list, disk)
		}
		if len(list) > maxDiskNames {
			return nil, fmt.Errorf("%d disks: the maximum is %d", len(list), maxDiskNames)
		}
		return list, nil
	}, showLimits, usage)
}

// diskLimitKeys are the keys of the limits.
var diskLimitKeys = []struct {
	name    string
	isBytes bool
	field   func(*tick.DiskLimit) **int64
}{
	{"read", true, func(d *tick.DiskLimit) **int64 { return &d.ReadBytesPerSecond }},
	{"write", true, func(d *tick.DiskLimit) **int64 { return &d.WriteBytesPerSecond }},
	{"reads", false, func(d *tick.DiskLimit) **int64 { return &d.ReadsPerSecond }},
	{"writes", false, func(d *tick.DiskLimit) **int64 { return &d.WritesPerSecond }},
}

func setLimit(d *tick.DiskLimit, text string) error {
	name, value, _ := strings.Cut(text, ":")
	for _, key := range diskLimitKeys {
		if key.name != name {
			continue
		}
		var n int64
		if key.isBytes {
			var bytes quantity.Bytes
			if err := bytes.Set(value); err != nil || bytes < minDiskBytes || bytes > maxDiskBytes {
				return fmt.Errorf("%q: want at least %d bytes per second, such as %s:50Mi", text, minDiskBytes, name)
			}
			n = int64(bytes)
		} else {
			var err error
			if n, err = strconv.ParseInt(value, 10, 64); err != nil || n < minDiskOperations || n > maxDiskOperations {
				return fmt.Errorf("%q: want at least %d operations per second, such as %s:200", text, minDiskOperations, name)
			}
		}
		if *key.field(d) != nil {
			return fmt.Errorf("%q: %s occurs twice", text, name)
		}
		*key.field(d) = &n
		return nil
	}
	return fmt.Errorf("%q: want read, write, reads or writes, a colon and a number", text)
}

func showLimits(list []tick.DiskLimit) string {
	var entries []string
	for i := range list {
		disk := &list[i]
		var limits []string
		for _, key := range diskLimitKeys {
			switch n := *key.field(disk); {
			case n == nil:
			case key.isBytes:
				limits = append(limits, key.name+":"+quantity.Bytes(*n).String())
			default:
				limits = append(limits, key.name+":"+strconv.FormatInt(*n, 10))
			}
		}
		entries = append(entries, disk.Disk+"="+strings.Join(limits, ","))
	}
	return strings.Join(entries, ";")
}
