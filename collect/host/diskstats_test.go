package host

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseDiskstats(t *testing.T) {
	const text = ` 254       0 vda 209451 20508 7253538 184281 27291 153844 19271936 51759 3 19844 238109 15897 27 6708456 2049 478 18
 254       1 vda1 1 2 3 4 5 6 7 8 9 10 11
`
	got, err := ParseDiskstats([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []DiskCount{
		{
			Name: "vda", Major: 254, Reads: 209451, ReadSectors: 7253538, ReadMilliseconds: 184281, Writes: 27291, WriteSectors: 19271936, WriteMilliseconds: 51759,
			BusyMilliseconds: 19844, QueueMilliseconds: 238109,
		},
		{Name: "vda1", Major: 254, Minor: 1, Reads: 1, ReadSectors: 3, ReadMilliseconds: 4, Writes: 5, WriteSectors: 7, WriteMilliseconds: 8, BusyMilliseconds: 10, QueueMilliseconds: 11},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("ParseDiskstats (-want +got):\n%s", d)
	}
	for _, bad := range []string{"x", " 254 0 vda 1 2 3", " 254 0 vda 1 2 3 4 5 6 7 8 9 10 -11", " a 0 vda 1 2 3 4 5 6 7 8 9 10 11", " 99999999999 0 vda 1 2 3 4 5 6 7 8 9 10 11"} {
		if got, err := ParseDiskstats([]byte(bad), got); err == nil || len(got) > 0 {
			t.Errorf("ParseDiskstats(%q) = %+v; want an error and no disk", bad, got)
		}
	}
	data := []byte(text)
	if n := testing.AllocsPerRun(100, func() { got, _ = ParseDiskstats(data, got) }); n != 0 {
		t.Errorf("%v allocations; want none, for it runs in every round", n)
	}
	if len(got) != 2 {
		t.Errorf("%d disks after a reading that failed; want 2", len(got))
	}
}

func FuzzDiskstats(f *testing.F) {
	f.Add([]byte(" 254 0 vda 209451 20508 7253538 184281 27291 153844 19271936 51759 0 19844 238109\n"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := ParseDiskstats(data, nil)
		for _, d := range list {
			if err != nil || d.Name == "" {
				t.Errorf("ParseDiskstats(%q) = %+v, %v", data, list, err)
			}
		}
	})
}
