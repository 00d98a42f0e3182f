package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// MilliCPU is an amount of CPU, written in cores ("4", "0.5") or in thousandths ("500m"), as in Kubernetes.
type MilliCPU int64

// Set implements flag.Value.
func (m *MilliCPU) Set(text string) error {
	number, factor := text, 1000.0
	if n, ok := strings.CutSuffix(text, "m"); ok {
		number, factor = n, 1
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || !(f >= 0 && f*factor <= 1e9) || f*factor != math.Trunc(f*factor) {
		return fmt.Errorf("%q is no amount of CPU: want cores (4, 0.5) or milli-CPU (500m), not negative", text)
	}
	*m = MilliCPU(f * factor)
	return nil
}

func (m MilliCPU) String() string {
	if m%1000 == 0 {
		return strconv.FormatInt(int64(m)/1000, 10)
	}
	return strconv.FormatInt(int64(m), 10) + "m"
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (m *MilliCPU) UnmarshalYAML(n *Node) error { return SetScalar(n, m.Set) }

// Bytes is an amount of memory, written in bytes or with Ki, Mi, Gi, Ti, k, M, G, T, as in Kubernetes.
type Bytes int64

var byteUnits = []struct {
	suffix string
	factor float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40},
	{"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12},
}

// Set implements flag.Value.
func (b *Bytes) Set(text string) error {
	number, factor := text, 1.0
	for _, u := range byteUnits {
		if n, ok := strings.CutSuffix(text, u.suffix); ok {
			number, factor = n, u.factor
			break
		}
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || !(f >= 0 && f*factor <= 1<<53) {
		return fmt.Errorf("%q is no amount of memory: want bytes or a number with Ki, Mi, Gi or Ti, not negative", text)
	}
	*b = Bytes(f * factor)
	return nil
}

func (b Bytes) String() string {
	for i := 3; i >= 0; i-- {
		if factor := Bytes(byteUnits[i].factor); b > 0 && b%factor == 0 {
			return strconv.FormatInt(int64(b/factor), 10) + byteUnits[i].suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (b *Bytes) UnmarshalYAML(n *Node) error { return SetScalar(n, b.Set) }

// Duration is a time span ("30s", "5m"), not negative.
type Duration time.Duration

// Set implements flag.Value.
func (d *Duration) Set(text string) error {
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is no time span: want one such as 30s or 5m, not negative", text)
	}
	*d = Duration(v)
	return nil
}

func (d Duration) String() string { return time.Duration(d).String() }

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *Duration) UnmarshalYAML(n *Node) error { return SetScalar(n, d.Set) }
