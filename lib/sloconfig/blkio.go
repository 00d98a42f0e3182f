package sloconfig

import (
	"fmt"

	"polder/lib/fields"
)

// Bounds of a disk's settings, in a second where it is an amount.
const (
	maxBlocks     = 64
	maxDiskBytes  = 1 << 50
	maxDiskNumber = 1 << 30
	maxLatency    = 60_000_000 // microseconds
)

// ioNumber is one of the numbers of [IOCfg].
type ioNumber struct {
	name        string
	value       *int64
	least, most int64
	ofRoot      bool // it is read of the root alone, the others of batch alone
}

// numbers are all that [IOCfg] has, set or not.
func (c *IOCfg) numbers() []ioNumber {
	return []ioNumber{
		{"readIOPS", c.ReadIOPS, 0, maxDiskNumber, false},
		{"writeIOPS", c.WriteIOPS, 0, maxDiskNumber, false},
		{"readBPS", c.ReadBPS, 0, maxDiskBytes, false},
		{"writeBPS", c.WriteBPS, 0, maxDiskBytes, false},
		{"ioWeightPercent", c.IOWeightPercent, 1, 100, false},
		{"readLatency", c.ReadLatency, 1, maxLatency, true},
		{"writeLatency", c.WriteLatency, 1, maxLatency, true},
		{"readLatencyPercent", c.ReadLatencyPercent, 0, 100, true},
		{"writeLatencyPercent", c.WriteLatencyPercent, 0, 100, true},
		{"modelReadBPS", c.ModelReadBPS, 1, maxDiskBytes, true},
		{"modelWriteBPS", c.ModelWriteBPS, 1, maxDiskBytes, true},
		{"modelReadSeqIOPS", c.ModelReadSeqIOPS, 1, maxDiskNumber, true},
		{"modelWriteSeqIOPS", c.ModelWriteSeqIOPS, 1, maxDiskNumber, true},
		{"modelReadRandIOPS", c.ModelReadRandIOPS, 1, maxDiskNumber, true},
		{"modelWriteRandIOPS", c.ModelWriteRandIOPS, 1, maxDiskNumber, true},
	}
}

func (c *checks) blkio(in string, b *BlkIOQOS) {
	if len(b.Blocks) > maxBlocks {
		c.wrong(in+"blocks", "%d of them: want %d at most", len(b.Blocks), maxBlocks)
	}
	for i := range b.Blocks[:min(len(b.Blocks), maxBlocks)] {
		for _, n := range b.Blocks[i].IO.numbers() {
			c.within(fmt.Sprintf("%sblocks[%d].ioCfg.%s", in, i, n.name), n.value, n.least, n.most)
		}
	}
}

// unused are the blocks that are not disks, and of the others the settings for the root that hold only for batch, or the other way round.
func (b *BlkIOQOS) unused(in string, root bool) (paths []string) {
	for i := range b.Blocks {
		one := &b.Blocks[i]
		if one.Type != BlockDevice {
			paths = append(paths, fmt.Sprintf("%sblocks[%d] (type %q)", in, i, fields.Clip(one.Type)))
			continue
		}
		for _, n := range one.IO.numbers() {
			if n.value != nil && n.ofRoot != root {
				paths = append(paths, fmt.Sprintf("%sblocks[%d].ioCfg.%s", in, i, n.name))
			}
		}
		if one.IO.EnableUserModel != nil && !root {
			paths = append(paths, fmt.Sprintf("%sblocks[%d].ioCfg.enableUserModel", in, i))
		}
	}
	return paths
}
