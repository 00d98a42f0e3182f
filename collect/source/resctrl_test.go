package source

import (
	"os"
	"testing"

	"polder/lib/resctrl"
	"polder/lib/tick"
)

// It is read when the mount appears and at a rescan, not with each tick, and absent when the mount is.
func TestResctrl(t *testing.T) {
	m := newMachine(t)
	r := Resctrl.New(&Env{Host: m.host()})
	read := func(rescan bool) (*tick.Resctrl, error) {
		round := Round{Sample: &tick.Sample{}, Rescan: rescan}
		err := r.Read(&round)
		return round.Sample.Resctrl, err
	}
	if got, err := read(true); got != nil || err != nil {
		t.Fatalf("not mounted: %+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"schemata": "L3:0=fff\n", "info/L3/min_cbm_bits": "1\n", "info/L3/num_closids": "4\n", "info/L3/cbm_mask": "fff\n",
	} {
		m.write(resctrl.Dir+"/"+name, text)
	}
	m.write("proc/cpuinfo", "vendor_id\t: GenuineIntel\n")
	first, err := read(false)
	if err != nil || first == nil || first.CBMMask != "fff" || first.CLOSIDs != 4 {
		t.Fatalf("mounted: %+v, %v", first, err)
	}
	m.write(resctrl.Dir+"/schemata", "L3:0=fff;1=fff\n") // a socket's CPUs came online
	if got, err := read(false); got != first || err != nil {
		t.Errorf("the next tick: %+v, %v; want what is known", got, err)
	}
	if got, err := read(true); err != nil || len(got.L3) != 2 {
		t.Errorf("a rescan: %+v, %v", got, err)
	}
	m.write(resctrl.Dir+"/info/L3/cbm_mask", "")
	if got, err := read(true); err == nil || got == nil || got.L3 != nil {
		t.Errorf("torn: %+v, %v; want no cache and an error", got, err)
	}
	m.write(resctrl.Dir+"/info/L3/cbm_mask", "fff\n")
	if got, err := read(false); err != nil || len(got.L3) != 2 {
		t.Errorf("whole again: %+v, %v", got, err)
	}
	if err := os.Rename(m.root+"/"+resctrl.Dir, m.root+"/away"); err != nil {
		t.Fatal(err)
	}
	if got, err := read(false); got != nil || err != nil {
		t.Errorf("unmounted: %+v, %v", got, err)
	}
}
