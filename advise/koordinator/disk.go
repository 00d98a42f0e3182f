package koordinator

import (
	"fmt"
	"slices"
	"strings"

	"polder/advise/disk"
	"polder/advise/policy"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// leastBPS and leastIOPS are the smallest limits that isolate writes, per second.
const (
	leastBPS  = 64 << 10
	leastIOPS = 4
)

// Koordinator's defaults for a disk of cgroupRoot that names no target.
const (
	defaultLatency    = 3000 // microseconds
	defaultPercentile = 95
)

// diskOf returns the blkioQOS of the batch class and of the root. Koordinator has a weight per disk; the smallest one becomes batch's.
func diskOf(s *sloconfig.Strategies, a *tick.Advice) disk.Strategy {
	var out disk.Strategy
	if s.QOS.BE != nil {
		out = batchDisks(s.QOS.BE.BlkIO, a)
	}
	if s.QOS.Root != nil {
		out.Costs = costsOf(s.QOS.Root.BlkIO, a)
	}
	return out
}

// blocks returns the disks of an enabled blkioQOS.
func blocks(q *sloconfig.BlkIOQOS) (list []*sloconfig.Block) {
	if q == nil || !sloconfig.IsTrue(q.Enable) {
		return nil
	}
	for i := range q.Blocks {
		if b := &q.Blocks[i]; b.Type == sloconfig.BlockDevice {
			list = append(list, b)
		}
	}
	return list
}

// diskName returns a block's name as in /sys/block.
func diskName(b *sloconfig.Block) string { return strings.TrimPrefix(b.Name, "/dev/") }

// costsOf returns the disks that the kernel shares by cost: Koordinator's cgroupRoot. The first block of a disk applies.
func costsOf(q *sloconfig.BlkIOQOS, a *tick.Advice) (costs []tick.DiskCost) {
	number := func(n *int64, otherwise float64) *float64 {
		if n == nil {
			return &otherwise
		}
		return new(float64(*n))
	}
	for _, b := range blocks(q) {
		name, io := diskName(b), &b.IO
		if slices.ContainsFunc(costs, func(d tick.DiskCost) bool { return d.Disk == name }) {
			continue
		}
		one := tick.DiskCost{
			Disk: name, Enabled: new(true),
			ReadPercentile: number(io.ReadLatencyPercent, defaultPercentile), ReadLatencyMicroseconds: number(io.ReadLatency, defaultLatency),
			WritePercentile: number(io.WriteLatencyPercent, defaultPercentile), WriteLatencyMicroseconds: number(io.WriteLatency, defaultLatency),
		}
		if sloconfig.IsTrue(io.EnableUserModel) {
			if one.Model = modelOf(io); one.Model == nil {
				const text = "disk costs: the model of %s in cgroupRoot has not all of its six numbers: the kernel's own is kept"
				a.Reasons = append(a.Reasons, fmt.Sprintf(text, policy.Quote(name)))
			}
		}
		costs = append(costs, one)
	}
	return costs
}

// modelOf returns a disk's cost model, nil if a part of it is missing.
func modelOf(io *sloconfig.IOCfg) *tick.DiskModel {
	var m tick.DiskModel
	for _, one := range []struct {
		from *int64
		into *int64
	}{
		{io.ModelReadBPS, &m.ReadBytesPerSecond},
		{io.ModelWriteBPS, &m.WriteBytesPerSecond},
		{io.ModelReadSeqIOPS, &m.SequentialReadsPerSecond},
		{io.ModelWriteSeqIOPS, &m.SequentialWritesPerSecond},
		{io.ModelReadRandIOPS, &m.RandomReadsPerSecond},
		{io.ModelWriteRandIOPS, &m.RandomWritesPerSecond},
	} {
		if one.from == nil || *one.from <= 0 {
			return nil
		}
		*one.into = *one.from
	}
	return &m
}

// batchDisks returns batch's weight and limits. Koordinator has a weight per disk; the smallest one becomes batch's.
func batchDisks(q *sloconfig.BlkIOQOS, a *tick.Advice) disk.Strategy {
	var out disk.Strategy
	raised := false
	limit := func(n *int64, least int64) *int64 {
		if n == nil || *n <= 0 { // Koordinator's value for no limit
			return nil
		}
		raised = raised || *n < least
		return new(max(*n, least))
	}
	for _, b := range blocks(q) {
		if w := b.IO.IOWeightPercent; w != nil && (out.Weight == 0 || *w < out.Weight) {
			out.Weight = *w
		}
		one := tick.DiskLimit{
			Disk:               diskName(b),
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
