package settings

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"polder/advise/network"
)

// networkRows are the settings of the uplinks' shaping, for all policies.
func (s *Settings) networkRows() []Row {
	n := &s.Network
	rate := bandwidth("batch-network-rate", &n.Batch.Rate,
		"batch's guaranteed rate on each uplink, such as 10%\nA `RATE` is a part of the uplink's rate, or a rate such as 100Mbit. Batch may also use what services leave idle. isolate --only network applies it.")
	rate.Koordinator = "`beClass.networkQOS.egressRequest`"
	ceiling := bandwidth("batch-network-ceiling", &n.Batch.Ceiling, "batch's maximum rate on an idle uplink").
		withDefaultText("100%")
	ceiling.Koordinator = "`beClass.networkQOS.egressLimit`"
	linkRate := bitRate("network-rate", &n.LinkBitsPerSecond,
		"`RATE` of each uplink (default 95% of what its driver reports)\n"+
			"Most virtual links do not report it. It must not exceed the real rate of the link, or the provider's limit.").
		withDefaultText("95% of what its driver reports")
	linkRate.Koordinator = "`totalNetworkBandwidth` of `system-config`, or the node's annotation `node.koordinator.sh/network-bandwidth`"
	return []Row{
		rate,
		ceiling,
		linkNames("network-links", &n.Links, "the uplinks' `NAMES` (default those with a default route)\nThey must be among the machine's own links.").
			withDefaultText("those with a default route"),
		linkRate,
	}
}

// off is the value for no bandwidth.
const off = "off"

// bandwidth is a part of a link's rate, or bits per second.
func bandwidth(name string, into *network.Bandwidth, usage string) Row {
	const format = "off, a part of the link's rate such as 10%, or a rate such as 100Mbit"
	return row(name, into, format, func(text string) (network.Bandwidth, error) {
		if text == off {
			return network.Bandwidth{}, nil
		}
		if digits, isPercent := strings.CutSuffix(text, "%"); isPercent {
			if f, err := numberWithin(digits, 100); err == nil && f > 0 {
				return network.Bandwidth{Percent: f}, nil
			}
			return network.Bandwidth{}, fmt.Errorf("%q: want %s, above 0%% and up to 100%%", text, format)
		}
		n, err := bitsPerSecond(text)
		if err != nil {
			return network.Bandwidth{}, fmt.Errorf("%q: want %s", text, format)
		}
		return network.Bandwidth{BitsPerSecond: n}, nil
	}, func(b network.Bandwidth) string {
		switch {
		case b.Percent > 0:
			return formatNumber(b.Percent) + "%"
		case b.BitsPerSecond > 0:
			return bitsText(b.BitsPerSecond)
		}
		return off
	}, usage)
}

// bitRate is a link's rate.
func bitRate(name string, into *int64, usage string) Row {
	const format = "a rate such as 100Mbit or 10Gbit"
	return row(name, into, format, func(text string) (int64, error) {
		n, err := bitsPerSecond(text)
		if err != nil {
			return 0, fmt.Errorf("%q: want %s", text, format)
		}
		return n, nil
	}, bitsText, usage)
}

// rateUnits are the units of rates, decimal like tc's, the largest first.
var rateUnits = []struct {
	name string
	bits float64
}{{"Gbit", 1e9}, {"Mbit", 1e6}, {"Kbit", 1e3}}

// bitsPerSecond reads a rate. It rejects a bare number, which might mean bits, bytes or Mbit.
func bitsPerSecond(text string) (int64, error) {
	const minBits, maxBits = 64_000, 1e15
	for _, u := range rateUnits {
		digits, found := strings.CutSuffix(strings.ToLower(text), strings.ToLower(u.name))
		if !found {
			continue
		}
		f, err := numberWithin(digits, maxBits/u.bits)
		if err == nil && f*u.bits < minBits {
			err = errBounds
		}
		return int64(f * u.bits), err
	}
	return 0, fmt.Errorf("%q has no unit", text)
}

// bitsText formats a rate in the format of the setting.
func bitsText(n int64) string {
	for _, u := range rateUnits {
		if f := float64(n) / u.bits; f >= 1 {
			return strconv.FormatFloat(f, 'f', -1, 64) + u.name
		}
	}
	return ""
}

// linkNames are the names of links.
func linkNames(name string, into *[]string, usage string) Row {
	const format, maxLength = "names of links, such as eth0,eth1", 15
	return row(name, into, format, func(text string) ([]string, error) {
		names := strings.Split(text, ",")
		for _, name := range names {
			if name == "" || len(name) > maxLength || strings.ContainsAny(name, "/: \t\n") {
				return nil, fmt.Errorf("%q: want %s", text, format)
			}
		}
		slices.Sort(names)
		return slices.Compact(names), nil
	}, func(names []string) string { return strings.Join(names, ",") }, usage)
}
