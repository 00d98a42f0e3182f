package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestPressureParse(t *testing.T) {
	const good = "some avg10=12.34 avg60=0.05 avg300=100.00 total=13785501\nfull avg10=0.00 avg60=0.00 avg300=0.01 total=7\n"
	var p Pressure
	if err := p.Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	want := Pressure{Some: PressureLine{12.34, 0.05, 100, 13785501}, Full: PressureLine{Avg300: 0.01, TotalMicroseconds: 7}, HasSome: true, HasFull: true}
	if d := cmp.Diff(want, p); d != "" {
		t.Errorf("Parse (-want +got):\n%s", d)
	}
	for _, bad := range []string{
		"", "some", "none avg10=0.00 avg60=0.00 avg300=0.00 total=0", "some avg10=0.00 avg60=0.00 avg300=0.00", "some avg60=0.00 avg10=0.00 avg300=0.00 total=0",
		"some avg10=0.0 avg60=0.00 avg300=0.00 total=0", "some avg10=-1.00 avg60=0.00 avg300=0.00 total=0", "some avg10=100.01 avg60=0.00 avg300=0.00 total=0",
		"some avg10=.00 avg60=0.00 avg300=0.00 total=0", "some avg10=0.00 avg60=0.00 avg300=0.00 total=", "some avg10=0.00 avg60=0.00 avg300=0.00 total=99999999999999999999",
	} {
		if err := p.Parse([]byte(bad)); err == nil || p.HasSome || p.HasFull {
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
		for _, l := range []PressureLine{p.Some, p.Full} {
			for _, v := range []float64{l.Avg10, l.Avg60, l.Avg300} {
				if !(v >= 0 && v <= 100) {
					t.Errorf("Parse(%q) = %+v, %v; want percentages", data, p, err)
				}
			}
		}
		if (err == nil) != (p.HasSome || p.HasFull) {
			t.Errorf("Parse(%q) = %+v, %v", data, p, err)
		}
	})
}

func TestOpenPressure(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"cgroup.controllers": "cpu memory", "a/memory.pressure": "some avg10=1.50 avg60=0.00 avg300=0.00 total=3\n", "b/memory.current": "1",
	} {
		path = filepath.Join(root, "sys/fs/cgroup", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	f, err := h.OpenPressure("memory", "/a")
	if err != nil || f == nil {
		t.Fatalf("OpenPressure(memory, /a) = %v, %v", f, err)
	}
	defer f.Close()
	data, err := f.Read(make([]byte, 256))
	var p Pressure
	if err != nil || p.Parse(data) != nil || p.Some.Avg10 != 1.5 || p.HasFull {
		t.Errorf("read %q, %v: %+v", data, err, p)
	}
	for _, none := range []string{"/b", "/gone"} {
		if f, err := h.OpenPressure("memory", none); f != nil || err != nil {
			t.Errorf("OpenPressure(memory, %s) = %v, %v; want nothing", none, f, err)
		}
	}
	if !NoPressure(unix.ENODEV) || !NoPressure(unix.EOPNOTSUPP) || NoPressure(errors.New("x")) {
		t.Error("NoPressure tells the wrong errors")
	}
}
