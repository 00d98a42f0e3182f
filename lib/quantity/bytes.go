package quantity

import "fmt"

// Bytes is an amount of memory in a setting, in bytes or in Kubernetes' format ("2Gi").
type Bytes int64

// Set reads a flag's value.
func (b *Bytes) Set(text string) error {
	v, err := Integer(text)
	if err != nil {
		return fmt.Errorf("%.80q is not an amount of memory: want bytes or a number with Ki, Mi, Gi or Ti, not negative", text)
	}
	*b = Bytes(v)
	return nil
}

// UnmarshalText reads a configuration file's value.
func (b *Bytes) UnmarshalText(text []byte) error { return b.Set(string(text)) }

// String returns the shortest text of the same value.
func (b Bytes) String() string {
	for i, unit := range []string{"Ti", "Gi", "Mi", "Ki"} {
		if factor := Bytes(1) << (40 - 10*i); b > 0 && b%factor == 0 {
			return fmt.Sprintf("%d%s", b/factor, unit)
		}
	}
	return fmt.Sprintf("%d", int64(b))
}
