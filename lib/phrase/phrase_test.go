package phrase

import (
	"math"
	"testing"
)

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 pods", 1: "1 pod", 2: "2 pods", -1: "-1 pods"} {
		if got := Count(n, "pod"); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestDecimal(t *testing.T) {
	for want, got := range map[string]string{
		"0.00": Decimal(0, 2), "-1.5": Decimal(-1.5, 1), "2": Decimal(1.6, 0), "999999999999999.0": Decimal(999_999_999_999_999, 1),
		"1e+15": Decimal(1e15, 1), "-1e+308": Decimal(-1e308, 0), "+Inf": Decimal(math.Inf(1), 2), "NaN": Decimal(math.NaN(), 2),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestFirst(t *testing.T) {
	for n, want := range map[int]string{0: "", 1: "a", 2: "a, b", 3: "a, b and 1 more", 5: "a, b and 3 more"} {
		if got := First([]string{"a", "b", "c", "d", "e"}[:n], 2); got != want {
			t.Errorf("First of %d = %q, want %q", n, got, want)
		}
	}
}

func TestNonzero(t *testing.T) {
	const want = "restored 1 value, 2 skipped: changed externally, 1 not restored"
	got := Nonzero("restored 1 value", Number{0, "unchanged"}, Number{2, "skipped: changed externally"}, Number{1, "not restored"})
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Nonzero("restored 0 values"); got != "restored 0 values" {
		t.Errorf("%q", got)
	}
}
