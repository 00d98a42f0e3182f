package sloconfig

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"polder/lib/fields"
)

// These are a node's annotations with its own settings: a part of its colocation strategy, as JSON, and the rate of its uplink, which
// replaces totalNetworkBandwidth of system-config.
const (
	AnnotationColocation = "node.koordinator.sh/colocation-strategy"
	AnnotationBandwidth  = "node.koordinator.sh/network-bandwidth"
)

// ratios are a node's labels with a part of it, as fractions of one.
var ratios = []struct {
	label string
	of    func(*Colocation) **int64
}{
	{"node.koordinator.sh/cpu-reclaim-ratio", func(c *Colocation) **int64 { return &c.CPUReclaimThresholdPercent }},
	{"node.koordinator.sh/memory-reclaim-ratio", func(c *Colocation) **int64 { return &c.MemoryReclaimThresholdPercent }},
	{"node.koordinator.sh/mid-static-cpu-reserved-ratio", func(c *Colocation) **int64 { return &c.MidStaticCPUReservedPercent }},
	{"node.koordinator.sh/mid-static-memory-reserved-ratio", func(c *Colocation) **int64 { return &c.MidStaticMemoryReservedPercent }},
}

// ofNode overrides the strategies with the node's own settings, without invalid ones.
func (s *Strategies) ofNode(labels, annotations map[string]string) (errs []error) {
	if text, ok := annotations[AnnotationColocation]; ok {
		strategy, faults, warnings := s.Colocation.annotated(text)
		for _, f := range faults {
			errs = append(errs, fmt.Errorf("annotation %s: %w: it is left out", AnnotationColocation, f))
		}
		for _, f := range warnings {
			errs = append(errs, fmt.Errorf("annotation %s: %w", AnnotationColocation, f))
		}
		s.Colocation = *strategy
	}
	for _, r := range ratios {
		text, ok := labels[r.label]
		if !ok {
			continue
		}
		percent, err := percentOf(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("label %s: %w: it is left out", r.label, err))
			continue
		}
		*r.of(&s.Colocation) = &percent
	}
	if text, ok := annotations[AnnotationBandwidth]; ok {
		rate := BitRate(text)
		if _, err := rate.BitsPerSecond(); err != nil {
			return append(errs, fmt.Errorf("annotation %s: %w: it is left out", AnnotationBandwidth, err))
		}
		s.System.TotalNetworkBandwidth = &rate
	}
	return errs
}

// annotated returns the strategy with an annotation over it, or only the strategy if the annotation is invalid.
func (c *Colocation) annotated(text string) (_ *Colocation, faults, warnings []*fault) {
	own := new(Colocation)
	if err := decodeStrategy([]byte(text), own); err != nil {
		return c, []*fault{asFault(err, "")}, nil
	}
	if l, err := scanKeys([]byte(text), shapeOf[Colocation]()); err == nil {
		for _, path := range l.unknown[:min(len(l.unknown), maxFaults)] {
			warnings = append(warnings, &fault{field: path, err: errors.New("unknown key")})
		}
	}
	over := merged(c, own)
	if faults = over.check(); len(faults) > 0 {
		return c, faults[:min(len(faults), maxFaults)], nil
	}
	return over, nil, append(warnings, over.warnings()...)
}

// percentOf returns a ratio in whole percent, truncated. A decimal ratio has no exact binary form, so 0.29 must
// become 29 percent, not 28.
func percentOf(text string) (int64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || f < 0 || f*100 > maxPercent {
		return 0, fmt.Errorf("%q: want a ratio that is not negative, such as 0.65", fields.Clip(text))
	}
	return int64(f*100 + 1e-6), nil
}
