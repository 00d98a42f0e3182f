package koordinator

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/advise/disk"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Koordinator's blkioQOS of the batch class: 0 is no limit, the smallest weight is batch's, and what is no disk is left out.
func TestDiskOf(t *testing.T) {
	n := tick.Ptr[int64]
	s := sloconfig.Defaults()
	if got := diskOf(&s, &tick.Advice{}); got.Weight != 0 || got.Limits != nil {
		t.Errorf("by default: %+v", got)
	}
	s.QOS.BE.BlkIO = &sloconfig.BlkIOQOS{Blocks: []sloconfig.Block{
		{Name: "/dev/sdb", Type: sloconfig.BlockDevice, IO: sloconfig.IOCfg{ReadBPS: n(1 << 20), WriteIOPS: n(0), IOWeightPercent: n(60)}},
		{Name: "sdc", Type: sloconfig.BlockDevice, IO: sloconfig.IOCfg{WriteIOPS: n(1), WriteBPS: n(5), IOWeightPercent: n(40)}},
		{Name: "pool", Type: "volumegroup", IO: sloconfig.IOCfg{ReadBPS: n(1 << 20), IOWeightPercent: n(1)}},
		{Name: "sdd", Type: sloconfig.BlockDevice, IO: sloconfig.IOCfg{ReadIOPS: n(0)}},
	}}
	if got := diskOf(&s, &tick.Advice{}); got.Weight != 0 || got.Limits != nil {
		t.Errorf("not enabled: %+v", got)
	}
	s.QOS.BE.BlkIO.Enable = new(true)
	a := &tick.Advice{}
	want := disk.Strategy{Weight: 40, Limits: []tick.DiskLimit{
		{Disk: "sdb", ReadBytesPerSecond: n(1 << 20)}, {Disk: "sdc", WriteBytesPerSecond: n(64 << 10), WritesPerSecond: n(4)},
	}}
	if d := cmp.Diff(want, diskOf(&s, a)); d != "" {
		t.Errorf("strategy (-want +got):\n%s", d)
	}
	if len(a.Reasons) != 1 {
		t.Errorf("reasons %q; want one of the limits that were raised", a.Reasons)
	}
}

// A limit at the least is no other one, and nothing is advised for it.
func TestALimitOfDisksAtTheLeastHolds(t *testing.T) {
	n := tick.Ptr[int64]
	s := sloconfig.Defaults()
	for _, tt := range []struct {
		bytes, operations int64
		isRaised          bool
	}{{leastBPS, leastIOPS, false}, {leastBPS + 1, leastIOPS + 1, false}, {leastBPS - 1, leastIOPS, true}, {leastBPS, leastIOPS - 1, true}} {
		s.QOS.BE.BlkIO = &sloconfig.BlkIOQOS{Enable: new(true), Blocks: []sloconfig.Block{
			{Name: "sda", Type: sloconfig.BlockDevice, IO: sloconfig.IOCfg{ReadBPS: &tt.bytes, ReadIOPS: &tt.operations}},
		}}
		a := &tick.Advice{}
		want := []tick.DiskLimit{{Disk: "sda", ReadBytesPerSecond: n(max(tt.bytes, leastBPS)), ReadsPerSecond: n(max(tt.operations, leastIOPS))}}
		if d := cmp.Diff(want, diskOf(&s, a).Limits); d != "" || (len(a.Reasons) > 0) != tt.isRaised {
			t.Errorf("%+v: %q, limits (-want +got):\n%s", tt, a.Reasons, d)
		}
	}
}
