package koordinator

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/advise/disk"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Koordinator's blkioQOS of the batch class: 0 means no limit, the smallest weight becomes batch's, and an invalid disk is omitted.
func TestDiskStrategy(t *testing.T) {
	n := tick.Ptr[int64]
	s := sloconfig.Defaults()
	if got := diskStrategy(&s, &tick.Advice{}); got.Weight != 0 || got.Limits != nil {
		t.Errorf("by default: %+v", got)
	}
	s.QOS.BE.BlkIO = &sloconfig.BlkIOQOS{Blocks: []sloconfig.Block{
		{Name: "/dev/sdb", Type: sloconfig.BlockDevice, IO: sloconfig.IOCfg{ReadBPS: n(1 << 20), WriteIOPS: n(0), IOWeightPercent: n(60)}},
		{Name: "sdc", Type: sloconfig.BlockDevice, IO: sloconfig.IOCfg{WriteIOPS: n(1), WriteBPS: n(5), IOWeightPercent: n(40)}},
		{Name: "pool", Type: "volumegroup", IO: sloconfig.IOCfg{ReadBPS: n(1 << 20), IOWeightPercent: n(1)}},
		{Name: "sdd", Type: sloconfig.BlockDevice, IO: sloconfig.IOCfg{ReadIOPS: n(0)}},
	}}
	if got := diskStrategy(&s, &tick.Advice{}); got.Weight != 0 || got.Limits != nil {
		t.Errorf("not enabled: %+v", got)
	}
	s.QOS.BE.BlkIO.Enable = new(true)
	a := &tick.Advice{}
	want := disk.Strategy{Weight: 40, Limits: []tick.DiskLimit{
		{Disk: "sdb", ReadBytesPerSecond: n(1 << 20)}, {Disk: "sdc", WriteBytesPerSecond: n(64 << 10), WritesPerSecond: n(4)},
	}}
	if d := cmp.Diff(want, diskStrategy(&s, a)); d != "" {
		t.Errorf("strategy (-want +got):\n%s", d)
	}
	if len(a.Reasons) != 1 {
		t.Errorf("reasons %q; want one of the limits that were raised", a.Reasons)
	}
}

// A limit at the least is no tighter one, and nothing is advised for it.
func TestMinimumDiskLimit(t *testing.T) {
	n := tick.Ptr[int64]
	s := sloconfig.Defaults()
	for _, tt := range []struct {
		bytes, operations int64
		isRaised          bool
	}{{minBPS, minIOPS, false}, {minBPS + 1, minIOPS + 1, false}, {minBPS - 1, minIOPS, true}, {minBPS, minIOPS - 1, true}} {
		s.QOS.BE.BlkIO = &sloconfig.BlkIOQOS{Enable: new(true), Blocks: []sloconfig.Block{
			{Name: "sda", Type: sloconfig.BlockDevice, IO: sloconfig.IOCfg{ReadBPS: &tt.bytes, ReadIOPS: &tt.operations}},
		}}
		a := &tick.Advice{}
		want := []tick.DiskLimit{{Disk: "sda", ReadBytesPerSecond: n(max(tt.bytes, minBPS)), ReadsPerSecond: n(max(tt.operations, minIOPS))}}
		if d := cmp.Diff(want, diskStrategy(&s, a).Limits); d != "" || (len(a.Reasons) > 0) != tt.isRaised {
			t.Errorf("%+v: %q, limits (-want +got):\n%s", tt, a.Reasons, d)
		}
	}
}

// The blkioQOS of Koordinator's cgroupRoot gives the disks' costs: its defaults without a target, a model if all parts of it are set, each
// disk once. Other classes have none.
func TestCostsOf(t *testing.T) {
	n := tick.Ptr[int64]
	s := sloconfig.Defaults()
	model := sloconfig.IOCfg{
		EnableUserModel: new(true), ModelReadBPS: n(100), ModelWriteBPS: n(90), ModelReadSeqIOPS: n(80), ModelWriteSeqIOPS: n(70), ModelReadRandIOPS: n(60), ModelWriteRandIOPS: n(50),
	}
	part := model
	part.ModelWriteSeqIOPS = nil
	off := model
	off.EnableUserModel = new(false)
	blkio := &sloconfig.BlkIOQOS{Blocks: []sloconfig.Block{
		{Name: "/dev/vda", Type: sloconfig.BlockDevice, IO: sloconfig.IOCfg{ReadLatency: n(5000), WriteLatencyPercent: n(0)}},
		{Name: "vda", Type: sloconfig.BlockDevice, IO: sloconfig.IOCfg{ReadLatency: n(1)}},
		{Name: "pool", Type: "volumegroup"},
		{Name: "vdb", Type: sloconfig.BlockDevice, IO: model},
		{Name: "vdc", Type: sloconfig.BlockDevice, IO: part},
		{Name: "vdd", Type: sloconfig.BlockDevice, IO: off},
	}}
	s.QOS.Root = &sloconfig.RootQOS{BlkIO: blkio}
	if got := diskStrategy(&s, &tick.Advice{}); got.Costs != nil {
		t.Errorf("not enabled: %+v", got.Costs)
	}
	blkio.Enable = new(true)
	a := &tick.Advice{}
	cost := func(name string, readLatency, writePercentile float64, m *tick.DiskModel) tick.DiskCost {
		return tick.DiskCost{
			Disk: name, Enabled: new(true), ReadPercentile: new(95.0), ReadLatencyMicroseconds: &readLatency, WritePercentile: &writePercentile,
			WriteLatencyMicroseconds: new(3000.0), Model: m,
		}
	}
	want := []tick.DiskCost{cost("vda", 5000, 0, nil), cost("vdb", 3000, 95, &tick.DiskModel{
		ReadBytesPerSecond: 100, WriteBytesPerSecond: 90, SequentialReadsPerSecond: 80, SequentialWritesPerSecond: 70, RandomReadsPerSecond: 60, RandomWritesPerSecond: 50,
	}), cost("vdc", 3000, 95, nil), cost("vdd", 3000, 95, nil)}
	got := diskStrategy(&s, a)
	if d := cmp.Diff(want, got.Costs); d != "" || got.Weight != 0 || got.Limits != nil {
		t.Errorf("weight %d, limits %+v, costs (-want +got):\n%s", got.Weight, got.Limits, d)
	}
	if want := []string{`disk costs: the model of "vdc" in cgroupRoot lacks some of its six numbers: the kernel's own model applies`}; !cmp.Equal(a.Reasons, want) {
		t.Errorf("reasons %q; want %q", a.Reasons, want)
	}
	s = sloconfig.Defaults()
	s.QOS.LS.BlkIO = blkio
	if got := diskStrategy(&s, &tick.Advice{}); got.Costs != nil {
		t.Errorf("of the class LS: %+v", got.Costs)
	}
}
