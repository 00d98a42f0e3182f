// Package annotation reads Koordinator's annotations of nodes and pods. Tenants can write them too: a value that is too long or invalid is
// ignored and reported. The package is pure.
package annotation

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/quantity"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Annotations of the node. All but the ratio are JSON objects.
const (
	Reservation  = "node.koordinator.sh/reservation"
	System       = "node.koordinator.sh/system-qos-resource"
	Ratio        = "node.koordinator.sh/cpu-normalization-ratio"
	ThirdParties = "node.koordinator.sh/thirdPartyAllocations"
)

// Annotations of pods. All are JSON objects.
const (
	Status    = "scheduling.koordinator.sh/resource-status" // what the scheduler assigned to the pod
	Extended  = "node.koordinator.sh/extended-resource-spec"
	CPUBurst  = "koordinator.sh/cpuBurst"
	MemoryQOS = "koordinator.sh/memoryQOS"
	Resctrl   = "node.koordinator.sh/resctrl" // a control group of its own
)

// MaxBytes is the size limit of an annotation.
const MaxBytes = 64 << 10

// Read reads an annotation that is a JSON object: nil if there is none, or an empty text.
func Read[T any](annotations map[string]string, name string) (*T, error) {
	v, err := read[T](annotations[name])
	if err != nil {
		err = fmt.Errorf("annotation %s is invalid: %s", name, policy.OneLine(err))
	}
	return v, err
}

func read[T any](text string) (*T, error) {
	switch {
	case text == "":
		return nil, nil
	case len(text) > MaxBytes:
		return nil, fmt.Errorf("it has %d bytes, the maximum is %d", len(text), MaxBytes)
	}
	v := new(T)
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return nil, fmt.Errorf("it is not a JSON object: %w", err)
	}
	return v, nil
}

// Settings reads a pod's own settings. check removes the invalid ones; the error names them, while the others apply.
func Settings[T any](p *tick.Pod, name string, check func(*T) error) (*T, error) {
	effect := "it is ignored"
	v, err := read[T](p.Annotations[name])
	if v != nil {
		effect, err = "a part of it is ignored", check(v)
	}
	if err != nil {
		err = fmt.Errorf("annotation %s of pod %s: %s: %s", name, policy.Quote(policy.Key(p)), effect, policy.OneLine(err))
	}
	return v, err
}

// DropInvalid removes the numbers that are out of bounds, and names them in the error.
func DropInvalid(numbers []sloconfig.Number) error {
	var errs []error
	for _, n := range numbers {
		if v := *n.Value; v != nil && (*v < n.Minimum || *v > n.Maximum) {
			errs = append(errs, fmt.Errorf("%s %d is not between %d and %d", n.Name, *v, n.Minimum, n.Maximum))
			*n.Value = nil
		}
	}
	return errors.Join(errs...)
}

// Reserved is what the node reserves for processes outside of pods.
type Reserved struct {
	CPUs                  cpus.Set // CPUs that are named
	MilliCPU, MemoryBytes float64
}

// ReservedOf reads the node's reservation: if CPUs are named, their number replaces the amount. An invalid part reserves nothing and is
// named in the errors; the other parts apply.
func ReservedOf(annotations map[string]string) (r Reserved, errs []error) {
	type reservation struct {
		Resources    map[string]any `json:"resources"`
		ReservedCPUs string         `json:"reservedCPUs"`
	}
	reserved, err := Read[reservation](annotations, Reservation)
	if reserved == nil {
		if err != nil {
			errs = []error{err}
		}
		return r, errs
	}
	addError := func(field string, err error) {
		errs = append(errs, fmt.Errorf("annotation %s: %s: %s", Reservation, field, policy.OneLine(err)))
	}
	amount := func(name string, read func(any) (float64, error)) float64 {
		v, isSet := reserved.Resources[name]
		if !isSet {
			return 0
		}
		n, err := read(v)
		if err != nil {
			addError("resources."+name, err)
		}
		return n
	}
	isNamed := reserved.ReservedCPUs != ""
	if isNamed {
		if r.CPUs, err = cpus.Parse(reserved.ReservedCPUs); err != nil {
			addError("reservedCPUs", err)
			isNamed = false
		}
	}
	if r.MilliCPU = float64(r.CPUs.Size()) * 1000; !isNamed {
		r.MilliCPU = amount("cpu", quantity.Milli)
	}
	r.MemoryBytes = amount("memory", quantity.Integer)
	return r, errs
}

// maxRatio is the largest valid ratio.
const maxRatio = 5

// RatioOf returns how many of the cluster's standard CPUs one of the node's is worth; 1 if the annotation is missing or invalid.
func RatioOf(annotations map[string]string) (float64, error) {
	text := annotations[Ratio]
	if text == "" {
		return 1, nil
	}
	ratio, err := strconv.ParseFloat(text, 64)
	if err != nil || !(ratio >= 1 && ratio <= maxRatio) {
		return 1, fmt.Errorf("annotation %s is %s: want a number from 1 to %d", Ratio, policy.Quote(text), maxRatio)
	}
	return ratio, nil
}
