package settings

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/advise/network"
	"polder/lib/tick"
)

// rowOf returns a setting by its name.
func rowOf(t *testing.T, s *Settings, name string) Row {
	t.Helper()
	for _, r := range s.Rows() {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("there is no setting %s", name)
	return Row{}
}

// Rates are in bits per second, and units are decimal, like tc's; the text uses the largest unit that gives at least one.
func TestUnitsOfNetworkRates(t *testing.T) {
	for _, tt := range []struct {
		text  string
		bits  int64
		shown string
	}{
		{"64Kbit", 64_000, "64Kbit"},
		{"999Kbit", 999_000, "999Kbit"},
		{"1000Kbit", 1e6, "1Mbit"},
		{"0.1Mbit", 1e5, "100Kbit"},
		{"100Mbit", 1e8, "100Mbit"},
		{"1000mbit", 1e9, "1Gbit"},
		{"2.5Gbit", 2.5e9, "2.5Gbit"},
		{"1000000Gbit", 1e15, "1000000Gbit"},
	} {
		s := Defaults()
		for _, name := range []string{"network-rate", "batch-network-rate", "batch-network-ceiling"} {
			r := rowOf(t, &s, name)
			if err := r.Set(tt.text); err != nil || r.String() != tt.shown {
				t.Errorf("%s %s is %s, %v; want %s", name, tt.text, r, err, tt.shown)
			}
		}
		want := network.Settings{LinkBitsPerSecond: tt.bits}
		want.Batch.Rate.BitsPerSecond, want.Batch.Ceiling.BitsPerSecond = tt.bits, tt.bits
		if d := cmp.Diff(want, s.Network); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.text, d)
		}
	}
}

// Limits of disks are in bytes and in operations per second, from the smallest that isolate writes to the largest.
func TestLimitsOfDisksAreTakenWithinBounds(t *testing.T) {
	n := tick.Ptr[int64]
	for _, tt := range []struct {
		text string
		want []tick.DiskLimit
	}{
		{"a=read:64Ki", []tick.DiskLimit{{Disk: "a", ReadBytesPerSecond: n(64 << 10)}}},
		{"sda=write:1024Ti", []tick.DiskLimit{{Disk: "sda", WriteBytesPerSecond: n(1 << 50)}}},
		{"sda=reads:4,writes:1073741824", []tick.DiskLimit{{Disk: "sda", ReadsPerSecond: n(4), WritesPerSecond: n(1 << 30)}}},
		{"all=read:100Mi,write:50Mi;/var/lib=reads:200", []tick.DiskLimit{
			{Disk: "all", ReadBytesPerSecond: n(100 << 20), WriteBytesPerSecond: n(50 << 20)}, {Disk: "/var/lib", ReadsPerSecond: n(200)},
		}},
		{"/mnt/a=b=read:1Mi", []tick.DiskLimit{{Disk: "/mnt/a=b", ReadBytesPerSecond: n(1 << 20)}}},
	} {
		s := Defaults()
		r := rowOf(t, &s, "batch-disk-max")
		if err := r.Set(tt.text); err != nil || r.String() != tt.text {
			t.Errorf("%s is %s, %v", tt.text, r, err)
		}
		if d := cmp.Diff(tt.want, s.Disk.Limits); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.text, d)
		}
	}
	checkRejected(t, "batch-disk-max", "a=read:65535", "a=read:1125899906842625", "a=write:1025Ti", "a=reads:3", "a=writes:1073741825",
		"a=reads:9223372036854775808", "a=read:", "a=reads:5,reads:5", "a=read:0")
}

// Costs of disks are in the kernel's units, each within the kernel's bounds.
func TestCostsOfDisksAreTakenWithinBounds(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []tick.DiskCost
	}{
		{"vda", []tick.DiskCost{{Disk: "vda"}}},
		{"vda=rpct:0,rlat:1,wpct:100,wlat:6e+07,min:1,max:10000;vdb", []tick.DiskCost{{
			Disk: "vda", ReadPercentile: new(0.0), ReadLatencyMicroseconds: new(1.0), WritePercentile: new(100.0), WriteLatencyMicroseconds: new(60e6),
			MinPercent: new(1.0), MaxPercent: new(10000.0),
		}, {Disk: "vdb"}}},
		{"all=rpct:100,rlat:6e+07,wpct:0,wlat:1,min:10000,max:1", []tick.DiskCost{{
			Disk: "all", ReadPercentile: new(100.0), ReadLatencyMicroseconds: new(60e6), WritePercentile: new(0.0), WriteLatencyMicroseconds: new(1.0),
			MinPercent: new(10000.0), MaxPercent: new(1.0),
		}}},
	} {
		for i := range tt.want {
			tt.want[i].Enabled = new(true)
		}
		s := Defaults()
		r := rowOf(t, &s, "disk-cost")
		if err := r.Set(tt.text); err != nil || r.String() != tt.text {
			t.Errorf("%s is %s, %v", tt.text, r, err)
		}
		if d := cmp.Diff(tt.want, s.Disk.Costs); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.text, d)
		}
	}
	for word, bad := range map[string][]string{
		"pct": {"-0.1", "100.1", "x", ""}, "lat": {"0.9", "60000001", "5ms"},
	} {
		for _, value := range bad {
			checkRejected(t, "disk-cost", "vda=r"+word+":"+value, "vda=w"+word+":"+value)
		}
	}
	checkRejected(t, "disk-cost", "vda=min:0.9", "vda=max:0.9", "vda=min:10001", "vda=max:10001", "vda=min:5,min:5")
}

// At most 32 disks can be named, each with a different name.
func TestHowManyDisksCanBeNamed(t *testing.T) {
	for setting, value := range map[string]string{"disk-cost": "", "batch-disk-max": "=reads:5"} {
		var disks []string
		for i := range maxDiskNames {
			disks = append(disks, fmt.Sprintf("sd%d%s", i, value))
		}
		s := Defaults()
		if r := rowOf(t, &s, setting); r.Set(strings.Join(disks, ";")) != nil || r.String() != strings.Join(disks, ";") {
			t.Errorf("%s of %d disks is %s", setting, maxDiskNames, r)
		}
		checkRejected(t, setting, strings.Join(append(disks, "more"+value), ";"))
	}
}

// The bounds themselves are valid.
func TestBoundsAreTaken(t *testing.T) {
	for name, values := range map[string][]string{
		"network-links":         {"fifteen-letters", "eth0,eth1"},
		"batch-network-rate":    {"100%", "0.5%", off},
		"batch-network-ceiling": {"100%", "0.5%"},
		"pool-min-cpus":         {"1", "2"},
		"harvest-price":         {"0", "1e+06"},
		"harvest-margin":        {"0%", "100%"},
		"guard-target":          {"0.5", "100000"},
	} {
		s := Defaults()
		for _, text := range values {
			if r := rowOf(t, &s, name); r.Set(text) != nil || r.String() != text {
				t.Errorf("%s %s is not accepted: it is %s", name, text, r)
			}
		}
	}
}

func checkRejected(t *testing.T, name string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		s := Defaults()
		r := rowOf(t, &s, name)
		before := r.String()
		if err := r.Set(text); err == nil || r.String() != before {
			t.Errorf("%s %.60q is accepted, and is now %.60s", name, text, r)
		}
	}
}
