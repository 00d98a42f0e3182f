package explain

import (
	"strings"
	"unicode/utf8"

	"polder/lib/clip"
	"polder/lib/phrase"
	"polder/lib/tick"
	"polder/lib/usage"
	"polder/report/view"
)

// columns is the width of a line.
const columns = 80

func coresNumber(milliCPU float64) string { return view.Cores(&milliCPU) }

func coresOf(milliCPU float64) string { return view.InCores(milliCPU) }

func bytesOf(v float64) string { return view.Bytes(&v) }

// list joins with commas and an "and".
func list(parts []string) string {
	switch n := len(parts); n {
	case 0:
		return ""
	case 1:
		return parts[0]
	case 2:
		return parts[0] + " and " + parts[1]
	default:
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
}

// short makes text from a tick safe for a terminal and small enough to keep: a line may have 16 MiB in one string.
func short(s string) string {
	const most = 400
	return strings.Clone(clip.Columns(clip.Clean(clip.Bytes(s, 4*most)), most))
}

// nameOf is a pod's name with its namespace.
func nameOf(namespace, name string) string {
	if namespace == "" {
		return short(name)
	}
	return short(namespace + "/" + name)
}

// brief truncates a path or a list that would fill lines.
func brief(s string) string { return clip.Columns(clip.Clean(s), 60) }

// paragraph wraps sentences to lines; the first begins with a heading.
func paragraph(heading string, sentences ...string) string {
	var words []string
	for _, s := range sentences {
		words = append(words, strings.Fields(s)...)
	}
	if len(words) == 0 {
		return ""
	}
	if heading != "" {
		words = append([]string{heading + ":"}, words...)
	}
	return wrap(words, "")
}

// item is a line of a list, wrapped with an indent.
func item(text string) string {
	return "  - " + strings.TrimLeft(wrap(strings.Fields(text), "    "), " ")
}

func wrap(words []string, indent string) string {
	var b strings.Builder
	b.WriteString(indent)
	width := len(indent)
	for i, w := range words {
		n := utf8.RuneCountInString(w)
		if i+1 < len(words) && strings.HasPrefix(words[i+1], "%") {
			n += 1 + utf8.RuneCountInString(words[i+1]) // a number stays with its percent sign
		}
		switch {
		case i == 0:
		case strings.HasPrefix(w, "%"):
			b.WriteString(" " + w)
			continue
		case width+1+n > columns:
			b.WriteString("\n" + indent)
			width = len(indent)
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(w)
		width += n
	}
	return b.String() + "\n"
}

// machine is the node's CPU time in milli-CPU, 0 where it is unknown.
func machine(t *tick.Tick) float64 {
	if all := usage.Capacity(t.Sample); all != nil {
		return *all
	}
	return 0
}

// measure is a finding's figure in the unit of its scope.
func measure(scope, part string, v float64) string {
	switch tick.UnitOf(scope, part) {
	case tick.UnitMilliCPU:
		return coresOf(v)
	case tick.UnitPercent:
		return phrase.Decimal(v, 1) + " %"
	case tick.UnitPages:
		return phrase.Decimal(v, 0) + " pages a second"
	case tick.UnitBytes:
		return bytesOf(v)
	}
	if strings.HasPrefix(scope, "cpu.load") {
		return phrase.Decimal(v, 1) + " threads ready to run"
	}
	return phrase.Decimal(v, 2)
}

// describeScope describes what a scope measures.
func describeScope(scope, part string) string {
	zone := ""
	if number, rest, found := strings.Cut(strings.TrimPrefix(scope, "zone"), "|"); found && strings.HasPrefix(scope, "zone") {
		scope, zone = rest, " on NUMA node "+clip.Clean(number)
	}
	switch {
	case strings.HasSuffix(scope, "reclaimed_millicpu"):
		return "CPU that reclaimed pods request" + zone
	case strings.HasSuffix(scope, "reclaimed_memory"):
		return "memory that reclaimed pods request" + zone
	case scope == "cpu.suppression":
		return "CPU requested for each CPU of the reclaim pool"
	case scope == "cpu.used.percent":
		return "CPU used of the node"
	case scope == "be.cpu.satisfaction.percent":
		return "CPU that batch pods may use, of what they request"
	case scope == "memory.used.percent":
		return "memory used of the node"
	case strings.HasPrefix(scope, "cpu.load"):
		return "load of pool " + clip.Clean(part)
	case scope == "memory" && part == "free":
		return "free memory of the node"
	case scope == "memory" && part == "psi":
		return "time in which tasks wait for memory"
	case scope == "memory" && part == "kswapd":
		return "memory that the kernel reclaims in the background"
	case scope == "memory" && strings.HasPrefix(part, "numa"):
		return "free memory of NUMA node " + clip.Clean(strings.TrimPrefix(part, "numa"))
	}
	return clip.Clean(scope)
}
