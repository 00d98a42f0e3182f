package stage

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

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
	maps, err := os.Open("/proc/self/smaps") // maps does not say what was changed
	if err != nil {
		return err
	}
	defer maps.Close()
	ofProgram := func(path string) bool {
		file, err := os.Stat(path)
		return err == nil && os.SameFile(program, file)
	}
	clean, err := cleanMappings(maps, ofProgram)
	if err != nil {
		return err
	}
	for _, m := range clean {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			return os.NewSyscallError("madvise", errno)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ from, to uintptr }

// cleanMappings are those of the program's file that are what the file is, by the kernel's smaps. What may be written holds
// data; so does what could be written once: where a program is linked to run at any address (PIE), the loader has put
// addresses into tables before it made them read-only, and a debugger writes into code. The file does not have those pages.
func cleanMappings(smaps io.Reader, ofProgram func(path string) bool) ([]mapping, error) {
	var clean []mapping
	candidate, said := mapping{}, 0
	dirty := false
	end := func() {
		if candidate.to > 0 && said == len(changed) && !dirty {
			clean = append(clean, candidate)
		}
		candidate, said, dirty = mapping{}, 0, false
	}
	s := bufio.NewScanner(smaps)
	for s.Scan() {
		var m mapping
		var mode, path, device string
		var offset, inode uint64
		switch n, _ := fmt.Sscanf(s.Text(), "%x-%x %s %x %s %d %s", &m.from, &m.to, &mode, &offset, &device, &inode, &path); {
		case n >= 6: // a mapping begins
			end()
			if n == 7 && len(mode) >= 4 && mode[0] == 'r' && mode[1] == '-' && mode[3] == 'p' && ofProgram(path) {
				candidate = m
			}
		case candidate.to > 0:
			for _, name := range changed {
				var kilobytes uint64
				if rest, ok := strings.CutPrefix(s.Text(), name); ok {
					if _, err := fmt.Sscan(rest, &kilobytes); err == nil {
						said++
					}
					dirty = dirty || kilobytes > 0
				}
			}
		}
	}
	end()
	return clean, s.Err()
}

// changed are smaps' amounts of what is not the file's any more: here, and swapped out. Private_Dirty is also that of a program
// which was just installed, until the disk has it.
var changed = []string{"Anonymous:", "Swap:"}
