package qemu

import (
	"fmt"
	"sync"
	"time"
)

// timeStamp is the host's time stamp counter.
func timeStamp() uint64

// frequency sets the kernel's frequency of its time stamp counter: it is the host's. A guest that measures it itself, on a busy host,
// is now and then wrong by a factor, and so is its clock then. If the guest's clock is slower the counter has more ticks in each of its
// seconds.
func frequency(dilation int) string {
	return fmt.Sprintf("tsc_early_khz=%d", hostKHz()*int64(dilation))
}

var hostKHz = sync.OnceValue(timeStampKHz)

func timeStampKHz() int64 {
	begin, first := moment()
	time.Sleep(100 * time.Millisecond)
	end, last := moment()
	return int64(float64(last-first) / end.Sub(begin).Seconds() / 1000)
}

// moment reads the clock and the counter at the same time: of several readings it returns the one that was interrupted least.
func moment() (now time.Time, stamp uint64) {
	least := uint64(1<<64 - 1)
	for range 20 {
		before := timeStamp()
		at := time.Now()
		after := timeStamp()
		if after-before < least {
			least, now, stamp = after-before, at, before+(after-before)/2
		}
	}
	return now, stamp
}
