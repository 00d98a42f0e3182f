package quantity

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestQuantities(t *testing.T) {
	for in, want := range map[any]float64{
		"0": 0, "1": 1000, "500m": 500, "0.0001": 1, "1.5": 1500, "44k": 44e6, "2e3": 2e6, "+2": 2000,
		int64(4): 4000, 2: 2000, 0.5: 500, json.Number("3"): 3000,
	} {
		if got, err := Milli(in); err != nil || got != want {
			t.Errorf("Milli(%v) = %v, %v; want %v", in, got, err, want)
		}
	}
	for in, want := range map[any]float64{
		"0": 0, "1": 1, "500m": 1, "1.5": 2, "44k": 44000, "2e3": 2000, "1Gi": 1 << 30, "512Mi": 1 << 29,
		"195257901056": 195257901056, int64(4): 4, 2: 2, 0.5: 1, float64(1 << 30): 1 << 30, json.Number("3"): 3,
	} {
		if got, err := Integer(in); err != nil || got != want {
			t.Errorf("Whole(%v) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, bad := range []any{
		"", "m", "1x", " 1", "-1", "-1m", "NaN", "1e400", "1e1000000000", "1e-2000000000", "1E99999999999999999999", "9E", "1 Gi", strings.Repeat("1", 65), nil, true,
		map[string]any{},
		[]any{1},
		math.NaN(), math.Inf(1), -1.0, int64(-3), int64(math.MaxInt64), "１",
	} {
		if got, err := Milli(bad); err == nil {
			t.Errorf("Milli(%v) = %v; want an error", bad, got)
		}
		if got, err := Integer(bad); err == nil {
			t.Errorf("Whole(%v) = %v; want an error", bad, got)
		}
	}
	for n, want := range map[int64]string{0: "0", 44000: "44k", 1500: "1500", 195257901056: "195257901056"} {
		if got := Format(n); got != want {
			t.Errorf("Format(%d) = %s; want %s", n, got, want)
		}
	}
	for n, want := range map[int64]string{44000: "44", 1500: "1500m"} {
		if got := FormatMilli(n); got != want {
			t.Errorf("FormatMilli(%d) = %s; want %s", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 18255872: "17828Ki", 1815637738: "1815637738", 1 << 30: "1Gi"} {
		if got := FormatBytes(n); got != want {
			t.Errorf("FormatBytes(%d) = %s; want %s", n, got, want)
		}
	}
}

func FuzzQuantity(f *testing.F) {
	for _, seed := range []string{"1", "500m", "44k", "1Gi", "1e3", "0.1", "-1", "1e400", "9E", "", "12Ei"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, parse := range map[string]func(any) (float64, error){"Milli": Milli, "Whole": Integer} {
			n, err := parse(text)
			if err == nil && (math.IsNaN(n) || n < 0 || n > maxWhole || n != math.Trunc(n)) {
				t.Fatalf("%s(%q) = %v", name, text, n)
			}
			if err != nil && len(err.Error()) > 300 {
				t.Fatalf("%s(%.20q): an error of %d bytes", name, text, len(err.Error()))
			}
		}
	})
}
