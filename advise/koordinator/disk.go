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

// minBPS and minIOPS are the smallest limits that isolate writes, per second.
const (
	minBPS  = 64 << 10
	minIOPS = 4
)

// Koordinator's defaults for a disk of cgroupRoot that names no target.
const (
	defaultLatency    = 3000 // microseconds
	defaultPercentile = 95
)

// diskStrategy returns the blkioQOS of the batch class and of the root. Koordinator has a weight per disk; the smallest one becomes
// batch's.
func diskStrategy(s *sloconfig.Strategies, a *tick.Advice) disk.Strategy {
	var strategy disk.Strategy
	if s.QOS.BE != nil {
		strategy = batchDisks(s.QOS.BE.BlkIO, a)
	}
	if s.QOS.Root != nil {
		strategy.Costs = costsOf(s.QOS.Root.BlkIO, a)
	}
	return strategy
}

// enabledBlocks returns the disks of an enabled blkioQOS.
func enabledBlocks(q *sloconfig.BlkIOQOS) (list []*sloconfig.Block) {
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
	valueOr := func(n *int64, defaultValue float64) *float64 {
		if n == nil {
			return &defaultValue
		}
		return new(float64(*n))
	}
	for _, b := range enabledBlocks(q) {
		name, io := diskName(b), &b.IO
		if slices.ContainsFunc(costs, func(d tick.DiskCost) bool { return d.Disk == name }) {
			continue
		}
		cost := tick.DiskCost{
			Disk: name, Enabled: new(true),
			ReadPercentile: valueOr(io.ReadLatencyPercent, defaultPercentile), ReadLatencyMicroseconds: valueOr(io.ReadLatency, defaultLatency),
			WritePercentile: valueOr(io.WriteLatencyPercent, defaultPercentile), WriteLatencyMicroseconds: valueOr(io.WriteLatency, defaultLatency),
		}
		if sloconfig.IsTrue(io.EnableUserModel) {
			if cost.Model = modelOf(io); cost.Model == nil {
				const text = "disk costs: the model of %s in cgroupRoot lacks some of its six numbers: the kernel's own model applies"
				a.Reasons = append(a.Reasons, fmt.Sprintf(text, policy.Quote(name)))
			}
		}
		costs = append(costs, cost)
	}
	return costs
}

// modelOf returns a disk's cost model, nil if a part of it is missing.
func modelOf(io *sloconfig.IOCfg) *tick.DiskModel {
	var m tick.DiskModel
	for _, field := range []struct {
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
		if field.from == nil || *field.from <= 0 {
			return nil
		}
		*field.into = *field.from
	}
	return &m
}

// batchDisks returns batch's weight and limits. Koordinator has a weight per disk; the smallest one becomes batch's.
func batchDisks(q *sloconfig.BlkIOQOS, a *tick.Advice) disk.Strategy {
	var strategy disk.Strategy
	isRaised := false
	limit := func(n *int64, minimum int64) *int64 {
		if n == nil || *n <= 0 { // Koordinator's value for no limit
			return nil
		}
		isRaised = isRaised || *n < minimum
		return new(max(*n, minimum))
	}
	for _, b := range enabledBlocks(q) {
		if w := b.IO.IOWeightPercent; w != nil && (strategy.Weight == 0 || *w < strategy.Weight) {
			strategy.Weight = *w
		}
		diskLimit := tick.DiskLimit{
			Disk:               diskName(b),
			ReadBytesPerSecond: limit(b.IO.ReadBPS, minBPS), WriteBytesPerSecond: limit(b.IO.WriteBPS, minBPS),
			ReadsPerSecond: limit(b.IO.ReadIOPS, minIOPS), WritesPerSecond: limit(b.IO.WriteIOPS, minIOPS),
		}
		if diskLimit.ReadBytesPerSecond != nil || diskLimit.WriteBytesPerSecond != nil ||
			diskLimit.ReadsPerSecond != nil || diskLimit.WritesPerSecond != nil {
			strategy.Limits = append(strategy.Limits, diskLimit)
		}
	}
	if isRaised {
		const text = "batch disks: limits of blkioQOS below 64 KiB or 4 operations per second are raised to these: a process that waits for a disk cannot be killed"
		a.Reasons = append(a.Reasons, text)
	}
	return strategy
}
