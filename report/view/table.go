package view

import (
	"fmt"
	"strings"
	"time"

	"polder/lib/clip"
	"polder/lib/tick"
	"polder/report/amounts"
)

// rowFormat is a line of the table, with the columns of [TableHeader].
const rowFormat = "%-20s  %-14s %7s %7s %4s  %9s %9s  %5s %7s  %6s  %s"

// TableHeader names the columns of [TableLine].
func TableHeader() string {
	return fmt.Sprintf(rowFormat, "TIME", "NODE", "CPU", "LOAD1", "MEM", "RECLAIMED", "MEMORY", "SHARE", "RECLAIM", "WRITES", "EVICTION")
}

// TableLine is a tick in one line. An unknown value is a dash. In a dry run the writes are the planned ones.
func TableLine(t *tick.Tick, note string) string {
	cpu, load1, mem := missing, missing, missing
	if s := t.Sample; s != nil {
		if s.CPU != nil {
			cpu, load1 = Cores(s.CPU.UsageMilliCPU), load(s.CPU.Load1)
		}
		if s.Memory != nil && s.Memory.TotalBytes != nil && s.Memory.AvailableBytes != nil {
			mem = percent(new(*s.Memory.TotalBytes-*s.Memory.AvailableBytes), s.Memory.TotalBytes)
		}
	}
	offered, memory, share, reclaim := missing, missing, missing, missing
	if a := t.Advice; a != nil {
		if a.Reclaimed != nil {
			offered, memory = Cores(tick.Float(a.Reclaimed.MilliCPU)), Bytes(tick.Float(a.Reclaimed.MemoryBytes))
		}
		share, reclaim = poolCPUs(a, tick.PoolShare), poolCPUs(a, tick.PoolReclaim)
	}
	writes := missing
	if i := t.Isolation; i != nil {
		writes = fmt.Sprint(i.Applied)
		if i.DryRun {
			writes = fmt.Sprintf("%d dry", len(i.Writes))
		}
		if len(i.Errors) > 0 {
			writes += fmt.Sprintf("!%d", len(i.Errors))
		}
	}
	end := evictionText(t.Eviction)
	if note != "" {
		end += "  " + note
	}
	at := t.Time.UTC().Format(time.RFC3339)
	return fmt.Sprintf(rowFormat, at, clip.Clean(t.Node), cpu, load1, mem, offered, memory, share, reclaim, writes, end)
}

func poolCPUs(a *tick.Advice, name string) string {
	if n, found := amounts.PoolCPUs(a, name); found {
		return fmt.Sprint(n)
	}
	return missing
}

func evictionText(e *tick.Eviction) string {
	if e == nil {
		return missing
	}
	var words []string
	if e.Refused != "" {
		words = append(words, "refused")
	}
	for _, x := range e.Evictions {
		words = append(words, StateWord(x.State)+":"+Name(x.Namespace, x.Name))
	}
	for _, x := range e.Taints {
		words = append(words, "taint:"+clip.Clean(shortKey(x.Key)))
	}
	if len(words) == 0 {
		return missing
	}
	return strings.Join(words, " ")
}
