package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"polder/lib/clip"
	"polder/lib/phrase"
	"polder/lib/reason"
	"polder/lib/tick"
	"polder/report/view"
)

// balance is the sum from which policy katalyst computed what the services keep. Only a reason has it.
type balance reason.Share

func shareOf(reasons []string) (balance, bool) {
	for _, r := range reasons {
		if s, ok := reason.ParseShare(r); ok {
			return balance(s), true
		}
	}
	return balance{}, false
}

// size is what the services have, in milli-CPU.
func (b balance) size() float64 { return float64(b.Size.MilliCPU) }

// services names the services of the sum: where there are several shared pools it is that of the pods in none of the others.
func (b balance) services() string {
	if b.ReserveOfMilliCPU > 0 {
		return "the services of the pool share"
	}
	return "the services"
}

// describe returns the sum in sentences; all is the machine.
func (b balance) describe(all float64) string {
	text := fmt.Sprintf("had %s of %s. They needed %s", coresNumber(b.size()), coresOf(all), coresOf(b.NeedMilliCPU))
	if b.Size.IsWhole {
		text = fmt.Sprintf("had %.0f of %s CPUs. They needed %s", b.size()/1000, phrase.Decimal(all/1000, 0), coresOf(b.NeedMilliCPU))
	}
	if b.SystemMilliCPU > 0 {
		text += fmt.Sprintf(", processes outside all pods %s", coresOf(b.SystemMilliCPU))
	}
	text += fmt.Sprintf(", and %s were kept in reserve (%s): %s in all",
		coresOf(float64(b.ReserveMilliCPU)), clip.Clean(b.ReserveFrom), coresOf(b.SumMilliCPU))
	if b.Size.IsWhole {
		text += ", in whole cores"
	}
	return "T" + b.services()[1:] + " " + text + "." + b.binding()
}

// binding is why the services have another amount than the sum.
func (b balance) binding() string {
	if b.Bound == "" {
		return ""
	}
	switch x := reason.ParseBound(b.Bound).(type) {
	case reason.HoldDown:
		return fmt.Sprintf(" Less would suffice, but services keep what they got for %s more (hold %s, %s).",
			phrase.Count(int(x.Remaining/time.Second), "second"), x.Hold, clip.Clean(x.HoldFrom))
	case reason.Shrink:
		return fmt.Sprintf(" %d CPUs would suffice; the pool shrinks by %s at a time (shrink-step, %s).",
			x.Need, phrase.Count(x.Step, "CPU"), clip.Clean(x.StepFrom))
	case reason.Floor:
		return fmt.Sprintf(" That is more than there is: only the floor of %s was left to reclaimed pods (%s).",
			coresOf(float64(x.Floor.MilliCPU)), clip.Clean(x.FloorFrom))
	case reason.Off:
		return " Reclaiming was switched off, so that only the floor was left to reclaimed pods."
	}
	return " Advise adds: " + plain(b.Bound) + "."
}

// suppressionOf is the sum from which policy koordinator limited batch pods.
func suppressionOf(reasons []string) (reason.Suppression, bool) {
	for _, r := range reasons {
		if s, ok := reason.ParseSuppression(r); ok {
			return s, true
		}
	}
	return reason.Suppression{}, false
}

func describeSuppression(s reason.Suppression) string {
	result := s.Result
	if s.Minimum != "" {
		result = s.Minimum + ", " + result
	}
	return fmt.Sprintf("Batch pods may have what is left of %d %% of the machine's %s (cpuSuppressThresholdPercent) after the services' %s "+
		"and the system's %s (%s): %s, so %s.", s.Percent, coresOf(float64(s.CapacityMilliCPU)), coresOf(float64(s.ServicesMilliCPU)),
		coresOf(float64(s.SystemMilliCPU)), plain(s.SystemFrom), coresOf(float64(s.RestMilliCPU)), plain(result))
}

// plain is a reason or a message with its figures in cores and GiB, safe for a terminal.
func plain(text string) string { return view.Amounts(short(text)) }

// isDescribed reports whether an answer has sentences of its own for a reason; about is nil for the node.
func isDescribed(r string, about *tick.Pod) bool {
	_, isShare := reason.ParseShare(r)
	_, isSuppression := reason.ParseSuppression(r)
	step, isStep := reason.ParseGuardStep(r)
	return isShare || isSuppression || isStep && step.Kind == tick.GuardStepDisk || reason.IsSystemUse(r) || reason.IsDisk(r) ||
		strings.HasPrefix(r, reason.ColdMemory) || about != nil && strings.HasPrefix(r, reason.BatchClass)
}

// otherReasons are the reasons that have no sentences of their own, those about the pod first, at most so many.
func otherReasons(t *tick.Tick, about *tick.Pod, most int) []string {
	if t.Advice == nil {
		return nil
	}
	var own, rest []string
	for _, r := range t.Advice.Reasons {
		switch {
		case isDescribed(r, about):
		case about != nil && (about.Cgroup != "" && mentions(r, about.Cgroup) || mentions(r, about.Name)):
			own = append(own, plain(r))
		case about == nil || !isOfMemory(r):
			rest = append(rest, plain(r))
		}
	}
	all := slices.Concat(own, rest)
	if over := len(all) - most; over > 0 {
		all = append(all[:most:most], fmt.Sprintf("and %d more", over))
	}
	return all
}

// quoted is external text in a reason, such as a pod's name.
var quoted = regexp.MustCompile(`"[^"]*"`)

// isOfMemory reports whether a reason is about memory, NUMA nodes or the offer to mid pods, which bound no pod's CPU.
func isOfMemory(r string) bool {
	r = quoted.ReplaceAllString(r, "")
	return strings.Contains(r, "memory") || strings.Contains(r, "NUMA") || strings.HasPrefix(r, reason.Mid)
}

// mentions reports whether a text has a name that is not a part of a longer one.
func mentions(text, name string) bool {
	isInName := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_' }
	for end := 0; name != ""; {
		begin := strings.Index(text[end:], name)
		if begin < 0 {
			break
		}
		begin += end
		end = begin + len(name)
		last, _ := utf8.DecodeLastRuneInString(text[:begin])
		next, _ := utf8.DecodeRuneInString(text[end:])
		if !isInName(last) && !isInName(next) {
			return true
		}
	}
	return false
}
