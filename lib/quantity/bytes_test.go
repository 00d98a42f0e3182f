package quantity

import (
	"strings"
	"testing"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{
		"0": 0, "1": 1, "5Gi": 5 << 30, "1.5Gi": 3 << 29, "100M": 100_000_000, "1e3": 1000, "9007199254740992": 1 << 53, "0.5": 1,
	} {
		var b Bytes
		if err := b.Set(text); err != nil || b != want {
			t.Errorf("Set(%q) = %d, %v; want %d", text, b, err, want)
		}
		if again := Bytes(0); again.UnmarshalText([]byte(b.String())) != nil || again != b {
			t.Errorf("%q is shown as %q, which is %d", text, b, again)
		}
	}
	for _, text := range []string{"", "-1", "1GiB", "much", "NaN", "1e300", "9007199254740993", "0x10", strings.Repeat("1", 1000)} {
		b := Bytes(7)
		if err := b.Set(text); err == nil || b != 7 || !strings.Contains(err.Error(), "is not an amount of memory") {
			t.Errorf("Set(%q) = %d, %v; want an error, and the value as it was", text, b, err)
		}
	}
	for b, want := range map[Bytes]string{0: "0", 1 << 40: "1Ti", 3 << 29: "1536Mi", 1025: "1025"} {
		if got := b.String(); got != want {
			t.Errorf("%d is shown as %q; want %q", int64(b), got, want)
		}
	}
}
