package koordinator

import (
	"strings"

	"polder/advise/disk"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// leastBPS and leastIOPS are the least limits that isolate writes, in a second.
const (
	leastBPS  = 64 << 10
	leastIOPS = 4
)

// diskOf is the batch class's blkioQOS. Koordinator has a weight for each disk; the smallest one is batch's.
func diskOf(s *sloconfig.Strategies, a *tick.Advice) disk.Strategy {
	var out disk.Strategy
	if s.QOS.BE == nil || s.QOS.BE.BlkIO == nil || !sloconfig.IsTrue(s.QOS.BE.BlkIO.Enable) {
		return out
	}
	raised := false
	limit := func(n *int64, least int64) *int64 {
		if n == nil || *n <= 0 { // Koordinator's word for none
			return nil
		}
		raised = raised || *n < least
		return new(max(*n, least))
	}
	for i := range s.QOS.BE.BlkIO.Blocks {
		b := &s.QOS.BE.BlkIO.Blocks[i]
		if b.Type != sloconfig.BlockDevice {
			continue
		}
		if w := b.IO.IOWeightPercent; w != nil && (out.Weight == 0 || *w < out.Weight) {
			out.Weight = *w
		}
		one := tick.DiskLimit{
			Disk:               strings.TrimPrefix(b.Name, "/dev/"),
			ReadBytesPerSecond: limit(b.IO.ReadBPS, leastBPS), WriteBytesPerSecond: limit(b.IO.WriteBPS, leastBPS),
			ReadsPerSecond: limit(b.IO.ReadIOPS, leastIOPS), WritesPerSecond: limit(b.IO.WriteIOPS, leastIOPS),
		}
		if one.ReadBytesPerSecond != nil || one.WriteBytesPerSecond != nil || one.ReadsPerSecond != nil || one.WritesPerSecond != nil {
			out.Limits = append(out.Limits, one)
		}
	}
	if raised {
		const text = "batch disks: limits of blkioQOS under 64 KiB or 4 operations a second are those: what waits for a disk cannot be ended"
		a.Reasons = append(a.Reasons, text)
	}
	return out
}
