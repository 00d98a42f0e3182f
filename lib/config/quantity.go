package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"polder/lib/quantity"
)

// MilliCPU is an amount of CPU, written in cores ("4", "0.5") or in thousandths ("500m"), as in Kubernetes.
type MilliCPU int64

// Set reads an amount of CPU.
func (m *MilliCPU) Set(text string) error {
	number, factor := text, 1000.0
	if n, ok := strings.CutSuffix(text, "m"); ok {
		number, factor = n, 1
	}
	f, err := strconv.ParseFloat(number, 64)
	milli := math.Round(f * factor)
	const rounding = 1e-6 // 2.01 times 1000 is a little less than 2010
	if err != nil || !(f >= 0 && f*factor <= 1e9) || math.Abs(f*factor-milli) > rounding {
		return fmt.Errorf("%q is not an amount of CPU: want cores (4, 0.5) or milli-CPU (500m), not negative", text)
	}
	*m = MilliCPU(milli)
	return nil
}

func (m MilliCPU) String() string {
	if m%1000 == 0 {
		return strconv.FormatInt(int64(m)/1000, 10)
	}
	return strconv.FormatInt(int64(m), 10) + "m"
}

// Bytes is an amount of memory; see [quantity.Bytes].
type Bytes quantity.Bytes

// UnmarshalYAML implements yaml.Unmarshaler.
func (b *Bytes) UnmarshalYAML(n *Node) error { return SetScalar(n, (*quantity.Bytes)(b).Set) }

// Duration is a time span ("30s", "5m"), not negative.
type Duration time.Duration

// Set reads a time span.
func (d *Duration) Set(text string) error {
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a time span: want one such as 30s or 5m, not negative", text)
	}
	*d = Duration(v)
	return nil
}
