package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"polder/lib/clip"
	"polder/lib/phrase"
	"polder/lib/tick"
	"polder/report/view"
)

// balance is the sum from which a policy computed what the services keep. It is parsed from the policy's reason, which alone has
// it. A reason with another wording is quoted.
type balance struct {
	reserve, need, system float64 // milli-CPU
	reserveFrom           string
	raw                   float64 // their sum
	size                  float64 // what the services have
	whole                 bool    // in whole CPUs
	bound                 string  // why the size is not the sum
}

// share is advise's sum for the services under the policy katalyst: with pools in CPUs, without them in milli-CPU.
var share = regexp.MustCompile(`^share: reserve (\d+)m(?: of \d+m)? \((.*?)\) \+ need (\d+)m of \d+ containers?(?: \+ system (\d+)m)? = (\d+)m -> (\d+)( CPUs in whole cores|m)(?:; (.*))?$`)

func shareOf(reasons []string) (b balance, found bool) {
	for _, r := range reasons {
		m := share.FindStringSubmatch(r)
		if m == nil {
			continue
		}
		b = balance{
			reserve: number(m[1]), reserveFrom: m[2], need: number(m[3]), system: number(m[4]), raw: number(m[5]),
			size: number(m[6]), whole: m[7] != "m", bound: m[8],
		}
		if b.whole {
			b.size *= 1000
		}
		return b, true
	}
	return b, false
}

// describe returns the sum in sentences; all is the machine.
func (b balance) describe(all float64) string {
	text := fmt.Sprintf("The services had %s of %s. They needed %s", coresNumber(b.size), coresOf(all), coresOf(b.need))
	if b.whole {
		text = fmt.Sprintf("The services had %.0f of %.0f CPUs. They needed %s", b.size/1000, all/1000, coresOf(b.need))
	}
	if b.system > 0 {
		text += fmt.Sprintf(", processes outside all pods %s", coresOf(b.system))
	}
	text += fmt.Sprintf(", and %s were kept in reserve (%s): %s in all", coresOf(b.reserve), clip.Clean(b.reserveFrom), coresOf(b.raw))
	if b.whole {
		text += ", in whole cores"
	}
	return text + "." + b.binding()
}

// Clauses with the reason why the services have another amount than the sum, also in the wording of version 0.1.
var (
	heldAt   = regexp.MustCompile(`^(?:hold-down:|held at) (\d+)( CPUs|m) for (\d+)s more \(hold ([^:]+): (.*)\)$`)
	shrinks  = regexp.MustCompile(`^(\d+) CPUs (?:are needed:|would do,) it shrinks by (\d+) (?:per|a) step \(shrink-step: (.*)\)$`)
	keepsOwn = regexp.MustCompile(`^the reclaimed (?:pool keeps its|pods keep their) floor of (\d+)( CPUs|m) \((.*)\)$`)
	off      = regexp.MustCompile(`^nothing is reclaimed, so it has all but the floor of`)
)

func (b balance) binding() string {
	if b.bound == "" {
		return ""
	}
	if m := heldAt.FindStringSubmatch(b.bound); m != nil {
		return fmt.Sprintf(" Less would suffice, but services keep what they got for %s more (hold %s, %s).",
			phrase.Count(int(number(m[3])), "second"), clip.Clean(m[4]), clip.Clean(m[5]))
	}
	if m := shrinks.FindStringSubmatch(b.bound); m != nil {
		return fmt.Sprintf(" %s CPUs would suffice; the rest is given back %s at a time (shrink-step, %s).",
			m[1], phrase.Count(int(number(m[2])), "CPU"), clip.Clean(m[3]))
	}
	if m := keepsOwn.FindStringSubmatch(b.bound); m != nil {
		floor := number(m[1])
		if m[2] != "m" {
			floor *= 1000
		}
		return fmt.Sprintf(" That is more than there is: only the floor of %s was left to reclaimed pods (%s).",
			coresOf(floor), clip.Clean(m[3]))
	}
	if off.MatchString(b.bound) {
		return " Reclaiming was switched off, so that only the floor was left to reclaimed pods."
	}
	return " Advise adds: " + plain(b.bound) + "."
}

// suppression is advise's sum for batch pods under the policy koordinator.
var suppression = regexp.MustCompile(`^suppression: capacity (\d+)m \* (\d+) % \((\w+)\) - services (\d+)m \((.*?)\) - system (\d+)m \((.*?)\) = (-?\d+)m(?:, (at least .*?))? -> (.*)$`)

func describeSuppression(reasons []string) (text string, found bool) {
	for _, r := range reasons {
		m := suppression.FindStringSubmatch(r)
		if m == nil {
			continue
		}
		text = fmt.Sprintf("Batch pods may have what is left of %s %% of the machine's %s (%s) after the services' %s and the system's %s (%s)",
			m[2], coresOf(number(m[1])), m[3], coresOf(number(m[4])), coresOf(number(m[6])), plain(m[7]))
		if m[9] != "" {
			m[10] = m[9] + ", " + m[10]
		}
		return text + fmt.Sprintf(": %s, so %s.", coresOf(number(m[8])), plain(m[10])), true
	}
	return "", false
}

// systemUse is the reason that has the parts of the share's term for the system.
var systemUse = regexp.MustCompile(`^system: \d+m are used (?:outside of|beside)`)

// plain is a reason or a message with its figures in cores and GiB, safe for a terminal.
func plain(text string) string { return view.Amounts(short(text)) }

func number(digits string) float64 {
	v, _ := strconv.ParseFloat(digits, 64) // an optional term without digits is 0
	return v
}

// otherReasons are the reasons that have no sentences of their own, those about the pod first, at most so many.
func otherReasons(t *tick.Tick, about *tick.Pod, most int) []string {
	if t.Advice == nil {
		return nil
	}
	var own, rest []string
	for _, r := range t.Advice.Reasons {
		switch {
		case strings.HasPrefix(r, coldReason): // has a paragraph of its own
		case share.MatchString(r) || suppression.MatchString(r) || systemUse.MatchString(r) ||
			about != nil && (strings.HasPrefix(r, "batch class idle:") || strings.HasPrefix(r, "batch class weight:")):
		case diskReason.MatchString(r) || diskStep.MatchString(r): // describeDisks has them
		case about != nil && (about.Cgroup != "" && strings.Contains(r, about.Cgroup) || strings.Contains(r, about.Name)):
			own = append(own, plain(r))
		case about == nil || !strings.Contains(r, "memory") && !strings.Contains(r, "NUMA") && !strings.HasPrefix(r, "mid-"):
			rest = append(rest, plain(r))
		}
	}
	all := slices.Concat(own, rest)
	if over := len(all) - most; over > 0 {
		all = append(all[:most:most], fmt.Sprintf("and %d more", over))
	}
	return all
}
