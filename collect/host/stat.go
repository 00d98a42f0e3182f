package host

import (
	"bytes"
	"errors"
	"fmt"

	"polder/lib/cpus"
	"polder/lib/kernfile"
)

// TicksPerSecond is the unit of /proc/stat: USER_HZ, 100 on every architecture that Go's Linux ports run on.
const TicksPerSecond = 100

// CPUTime is what one CPU has run since the start.
type CPUTime struct {
	ID        int
	BusyTicks uint64
	// StealTicks is for how long the hypervisor ran something else while the CPU had something to run; 0 on kernels without that column.
	StealTicks uint64
}

// CPUTimes reads /proc/stat into into, which it empties first and returns.
func (h *Host) CPUTimes(into []CPUTime) ([]CPUTime, error) {
	data, err := h.read("proc/stat")
	if err != nil {
		return into[:0], fmt.Errorf("read CPU times: %w", err)
	}
	if into, err = ParseStat(data, into); err != nil {
		return into[:0], fmt.Errorf("read %s: %w", h.Path("proc/stat"), err)
	}
	return into, nil
}

// Columns of a CPU line that do not count as busy: idle, iowait and steal. guest and guest_nice (9 and 10) are already included
// in user and nice.
const (
	columnIdle    = 4
	columnIOWait  = 5
	columnSteal   = 8
	columnsToRead = 8
)

// ParseStat parses /proc/stat's CPU lines ("cpu0 user nice system idle iowait irq softirq steal guest guest_nice",
// proc_stat(5)). The kernel lists online CPUs alone.
func ParseStat(data []byte, into []CPUTime) ([]CPUTime, error) {
	into = into[:0]
	for len(data) > 0 {
		var line []byte
		line, data = kernfile.Line(data)
		if !bytes.HasPrefix(line, []byte("cpu")) {
			break // the CPUs come first; the line of interrupts after them is long
		}
		name, rest := kernfile.Field(line)
		if len(name) == len("cpu") {
			continue // the sum, which counts CPUs that went offline too
		}
		id, ok := kernfile.Uint(name[len("cpu"):])
		if !ok || id > cpus.MaxID {
			return into[:0], fmt.Errorf("%q is not a CPU", kernfile.Clip(name))
		}
		busy, steal, err := busyTicks(rest)
		if err != nil {
			return into[:0], fmt.Errorf("line %q: %w", kernfile.Clip(line), err)
		}
		into = append(into, CPUTime{ID: int(id), BusyTicks: busy, StealTicks: steal})
	}
	if len(into) == 0 {
		return into, errors.New("no line of a CPU")
	}
	return into, nil
}

func busyTicks(columns []byte) (busy, steal uint64, err error) {
	for i := 1; i <= columnsToRead; i++ {
		var field []byte
		if field, columns = kernfile.Field(columns); len(field) == 0 {
			if i <= columnIdle {
				return 0, 0, errors.New("too few columns")
			}
			break // old kernels have fewer
		}
		n, ok := kernfile.Uint(field)
		if !ok {
			return 0, 0, fmt.Errorf("%q is not a number", kernfile.Clip(field))
		}
		switch i {
		case columnIdle, columnIOWait:
		case columnSteal:
			steal = n
		default:
			busy += n
		}
	}
	return busy, steal, nil
}
