package stage

import (
	"bufio"
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// settledAfter is the number of ticks after which a tool has done everything once: decoders are built by the first ones.
const settledAfter = 3

// settled counts the ticks, and gives back what the first ones alone needed.
func (s *Session) settled() {
	if s.release == nil || s.ticks > settledAfter {
		return
	}
	if s.ticks++; s.ticks == settledAfter {
		s.release()
	}
}

// releaseStartup gives back the pages of the program's file that only its start has touched: packages' initialization runs
// through megabytes of code and tables once, for protocols that the tool may never speak. They are the file's, unchanged:
// what is needed again is mapped again from the page cache, a fault each. What cannot be given back stays.
func releaseStartup() error {
	program, err := os.Stat("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for s := bufio.NewScanner(bytes.NewReader(maps)); s.Scan(); {
		var from, to uintptr
		var mode, path string
		var offset, inode uint64
		var device string
		if n, _ := fmt.Sscanf(s.Text(), "%x-%x %s %x %s %d %s", &from, &to, &mode, &offset, &device, &inode, &path); n < 7 {
			continue // not a file's
		}
		if len(mode) < 4 || mode[0] != 'r' || mode[1] != '-' || mode[3] != 'p' {
			continue // what may be written holds data
		}
		if file, err := os.Stat(path); err != nil || !os.SameFile(program, file) {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return os.NewSyscallError("madvise", errno)
		}
	}
	return nil
}
