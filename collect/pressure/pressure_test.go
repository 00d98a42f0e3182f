package pressure

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

func TestParse(t *testing.T) {
	const good = "some avg10=12.34 avg60=0.05 avg300=100.00 total=13785501\nfull avg10=0.00 avg60=0.00 avg300=0.01 total=7\n"
	var p File
	if p.Value() != nil {
		t.Error("the zero value says something")
	}
	if err := p.Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	want := &tick.Pressure{
		Some: &tick.PressureLine{Avg10: 12.34, Avg60: 0.05, Avg300: 100, TotalMicroseconds: 13785501},
		Full: &tick.PressureLine{Avg300: 0.01, TotalMicroseconds: 7},
	}
	if d := cmp.Diff(want, p.Value()); d != "" {
		t.Errorf("Parse (-want +got):\n%s", d)
	}
	for _, bad := range []string{
		"", "some", "none avg10=0.00 avg60=0.00 avg300=0.00 total=0", "some avg10=0.00 avg60=0.00 avg300=0.00", "some avg60=0.00 avg10=0.00 avg300=0.00 total=0",
		"some avg10=0.0 avg60=0.00 avg300=0.00 total=0", "some avg10=-1.00 avg60=0.00 avg300=0.00 total=0", "some avg10=100.01 avg60=0.00 avg300=0.00 total=0",
		"some avg10=.00 avg60=0.00 avg300=0.00 total=0", "some avg10=0.00 avg60=0.00 avg300=0.00 total=", "some avg10=0.00 avg60=0.00 avg300=0.00 total=99999999999999999999",
	} {
		if err := p.Parse([]byte(bad)); err == nil || p.Value() != nil {
			t.Errorf("Parse(%q) = %+v, %v; want an error and nothing known", bad, p.Value(), err)
		}
	}
	if err := p.Parse([]byte("full avg10=1.00 avg60=0.00 avg300=0.00 total=3\n")); err != nil || p.Value().Some != nil || p.Value().Full.TotalMicroseconds != 3 {
		t.Errorf("full alone: %+v, %v", p.Value(), err)
	}
	if p.Forget(); p.Value() != nil {
		t.Errorf("forgotten, and says %+v", p.Value())
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
		var p File
		err := p.Parse(data)
		if (err == nil) != (p.Value() != nil) {
			t.Errorf("Parse(%q) = %+v, %v", data, p.Value(), err)
		}
		if err != nil {
			return
		}
		for _, l := range []*tick.PressureLine{p.Value().Some, p.Value().Full} {
			if l == nil {
				continue
			}
			for _, v := range []float64{l.Avg10, l.Avg60, l.Avg300} {
				if !(v >= 0 && v <= 100) {
					t.Errorf("Parse(%q) = %+v, %v; want percentages", data, l, err)
				}
			}
		}
	})
}
