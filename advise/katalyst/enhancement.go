package katalyst

import (
	"fmt"
	"regexp"
	"strings"

	"polder/advise/policy"
	"polder/lib/tick"
)

// Katalyst's annotations that ask for more than the class; each is a JSON object in a string.
const (
	cpuEnhancement    = "katalyst.kubewharf.io/cpu_enhancement"
	memoryEnhancement = "katalyst.kubewharf.io/memory_enhancement"
)

// enhancement is what an annotation asks for.
type enhancement struct {
	pool               string // a shared pod's own pool; "" is the common one
	binding, exclusive bool   // CPUs and memory of one NUMA node; of nodes that no other pod uses
	faults             []string
}

// maxEnhancement bounds an annotation, in bytes.
const maxEnhancement = 16 << 10

// enhancementOf returns what a pod's annotation asks for; almost all pods have none.
func (d *Decider) enhancementOf(p *tick.Pod, annotation string) *enhancement {
	text, ok := p.Annotations[annotation]
	if !ok {
		return nil
	}
	return cached(&d.enhancements, text, func() *enhancement { return readEnhancement(text) })
}

func readEnhancement(text string) *enhancement {
	e := &enhancement{}
	fields := map[string]tick.Raw{}
	if len(text) > maxEnhancement || tick.Unmarshal([]byte(text), &fields) != nil {
		e.faults = append(e.faults, "want a JSON object")
		return e
	}
	text, ok := stringField(fields, "cpuset_pool")
	if text != "" && text != tick.PoolShare {
		e.pool = text
	}
	why := poolNameError(e.pool)
	if !ok {
		why = " is not a string"
	}
	if why != "" {
		e.faults = append(e.faults, fmt.Sprintf("cpuset_pool %s%s: the pod stays in pool share", policy.Quote(e.pool), why))
		e.pool = ""
	}
	e.binding = e.boolField(fields, "numa_binding")
	e.exclusive = e.boolField(fields, "numa_exclusive")
	if e.exclusive && !e.binding {
		e.faults = append(e.faults, "numa_exclusive has no effect without numa_binding")
		e.exclusive = false
	}
	return e
}

// stringField returns a field's value; false if it is not a string.
func stringField(fields map[string]tick.Raw, name string) (text string, ok bool) {
	raw := fields[name]
	if isNull(raw) {
		return "", true
	}
	if raw[0] != '"' || tick.Unmarshal(raw, &text) != nil {
		return "", false
	}
	return text, true
}

// boolField returns a field that is "true" or "false".
func (e *enhancement) boolField(fields map[string]tick.Raw, name string) bool {
	text, ok := stringField(fields, name)
	if !ok || text != "" && text != "true" && text != "false" {
		e.faults = append(e.faults, name+` is neither "true" nor "false"`)
	}
	return ok && text == "true"
}

// poolName matches names that are safe in a metric's label, a table and a path.
var poolName = regexp.MustCompile(`^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$`)

// reservedPrefixes are prefixes of the names of Katalyst's own pools, numaPool is a suffix.
var (
	reservedPrefixes = []string{"reclaim", "reserve", "dedicated", "isolation", "system", "interrupt", "fallback"}
	numaPool         = regexp.MustCompile(`-NUMA[0-9]+$`)
)

// poolNameError returns why a pool must not have this name; "" if it may.
func poolNameError(name string) string {
	switch {
	case name == "":
		return ""
	case !poolName.MatchString(name):
		return " is not a word of letters, digits, '-', '_' and '.'"
	case numaPool.MatchString(name):
		return " is a reserved name"
	}
	for _, prefix := range reservedPrefixes {
		if name == prefix || strings.HasPrefix(name, prefix+"-") || (prefix == "isolation" || prefix == "system") && strings.HasPrefix(name, prefix) {
			return " is a reserved name"
		}
	}
	return ""
}
