package host

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

func TestReadPressure(t *testing.T) {
	h := write(t, map[string]string{
		"pressure/cpu":    "some avg10=2.52 avg60=2.03 avg300=0.98 total=13785501\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"pressure/memory": "some avg10=NaN avg60=0.00 avg300=0.00 total=0\n",
		"pressure/io":     "some avg10=1.00 avg60=0.00 avg300=0.00 total=7\n",
	})
	var got Pressure
	want := tick.Pressure{Some: &tick.PressureLine{Avg10: 2.52, Avg60: 2.03, Avg300: 0.98, TotalMicroseconds: 13785501}, Full: &tick.PressureLine{}}
	err := h.ReadPressure("cpu", &got)
	if diff := cmp.Diff(want, got.Pressure); err != nil || diff != "" {
		t.Errorf("pressure of cpu: %v (-want +got):\n%s", err, diff)
	}
	if err := h.ReadPressure("io", &got); err != nil || got.Full != nil || got.Some == nil {
		t.Errorf("pressure of io: %+v, %v; want some alone", got.Pressure, err)
	}
	if err := h.ReadPressure("memory", &got); err == nil || got.IsKnown() {
		t.Errorf("pressure of memory with NaN: %+v, %v; want an error, and none", got.Pressure, err)
	}
	if err := h.ReadPressure("irq", &got); !errors.Is(err, ErrNoPressure) {
		t.Errorf("pressure of irq: %v; want ErrNoPressure", err)
	}
}

func TestPressureParse(t *testing.T) {
	const good = "some avg10=12.34 avg60=0.05 avg300=100.00 total=13785501\nfull avg10=0.00 avg60=0.00 avg300=0.01 total=7\n"
	var p Pressure
	if err := p.Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	want := tick.Pressure{
		Some: &tick.PressureLine{Avg10: 12.34, Avg60: 0.05, Avg300: 100, TotalMicroseconds: 13785501},
		Full: &tick.PressureLine{Avg300: 0.01, TotalMicroseconds: 7},
	}
	if d := cmp.Diff(want, p.Pressure); d != "" {
		t.Errorf("Parse (-want +got):\n%s", d)
	}
	for _, bad := range []string{
		"", "some", "none avg10=0.00 avg60=0.00 avg300=0.00 total=0", "some avg10=0.00 avg60=0.00 avg300=0.00", "some avg60=0.00 avg10=0.00 avg300=0.00 total=0",
		"some avg10=0.0 avg60=0.00 avg300=0.00 total=0", "some avg10=-1.00 avg60=0.00 avg300=0.00 total=0", "some avg10=100.01 avg60=0.00 avg300=0.00 total=0",
		"some avg10=.00 avg60=0.00 avg300=0.00 total=0", "some avg10=0.00 avg60=0.00 avg300=0.00 total=", "some avg10=0.00 avg60=0.00 avg300=0.00 total=99999999999999999999",
	} {
		if err := p.Parse([]byte(bad)); err == nil || p.IsKnown() {
			t.Errorf("Parse(%q) = %+v, %v; want an error and nothing known", bad, p, err)
		}
	}
	data := []byte(good)
	if n := testing.AllocsPerRun(100, func() { _ = p.Parse(data) }); n != 0 {
		t.Errorf("%v allocations; want none, for it runs for every pod and tick", n)
	}
}

func FuzzPressure(f *testing.F) {
	for _, seed := range []string{"", "some avg10=1.00 avg60=0.00 avg300=0.00 total=0\n", "full avg10=1.00", "some avg10=18446744073709551615.99 avg60=0.00 avg300=0.00 total=0"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Pressure
		err := p.Parse(data)
		for _, l := range []*tick.PressureLine{p.Some, p.Full} {
			if l == nil {
				continue
			}
			for _, v := range []float64{l.Avg10, l.Avg60, l.Avg300} {
				if !(v >= 0 && v <= 100) {
					t.Errorf("Parse(%q) = %+v, %v; want percentages", data, p, err)
				}
			}
		}
		if (err == nil) != p.IsKnown() {
			t.Errorf("Parse(%q) = %+v, %v", data, p, err)
		}
	})
}
