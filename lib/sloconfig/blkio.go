package sloconfig

import (
	"fmt"

	"polder/lib/fields"
)

// These bound a disk's settings, per second for amounts.
const (
	maxBlocks     = 64
	maxDiskBytes  = 1 << 50
	maxDiskNumber = 1 << 30
	maxLatency    = 60_000_000 // microseconds
)

// ioNumber is one of the numbers of [IOCfg].
type ioNumber struct {
	name             string
	value            *int64
	minimum, maximum int64
	ofRoot           bool // it is read only for the root, the others only for batch
}

// numbers returns all numbers of [IOCfg], set or not.
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
		c.addFault(in+"blocks", "%d of them: want %d at most", len(b.Blocks), maxBlocks)
	}
	for i := range b.Blocks[:min(len(b.Blocks), maxBlocks)] {
		for _, n := range b.Blocks[i].IO.numbers() {
			c.within(fmt.Sprintf("%sblocks[%d].ioCfg.%s", in, i, n.name), n.value, n.minimum, n.maximum)
		}
	}
}

// unused returns the blocks that are not disks, and of the others the root's settings that apply only to batch, and vice versa.
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
