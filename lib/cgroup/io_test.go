package cgroup

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseIO(t *testing.T) {
	loop := func(device []byte) bool { return string(device[:2]) == "7:" }
	for _, tt := range []struct {
		name, text string
		parse      func(*IO, []byte, Skip) error
		want       IO
	}{
		{
			"v2", "254:0 rbytes=10 wbytes=20 rios=3 wios=4 dbytes=5 dios=6 cost.usage=1\n8:0 rbytes=1 wbytes=2 rios=3 wios=4\n7:0 rbytes=99 wbytes=99 rios=99 wios=99\n", (*IO).ParseStat,
			IO{ReadBytes: 11, WriteBytes: 22, Reads: 6, Writes: 8, HasBytes: true, HasOperations: true},
		},
		{
			"v2, devices in one line", "7:0 254:0 rbytes=10 wbytes=20 rios=3 wios=4\n254:0 7:1 rbytes=99\n", (*IO).ParseStat,
			IO{ReadBytes: 10, WriteBytes: 20, Reads: 3, Writes: 4, HasBytes: true, HasOperations: true},
		},
		{"v2, nothing yet", "", (*IO).ParseStat, IO{HasBytes: true, HasOperations: true}},
		{
			"v2, more than there can be", fmt.Sprintf("8:0 rbytes=%d\n8:16 rbytes=%d\n", uint64(math.MaxUint64), 7), (*IO).ParseStat,
			IO{ReadBytes: math.MaxUint64, HasBytes: true, HasOperations: true},
		},
		{
			"v1, bytes", "254:0 Read 10\n254:0 Write 20\n254:0 Sync 25\n254:0 Async 5\n254:0 Discard 0\n254:0 Total 30\n7:0 Read 9\nTotal 30\n", (*IO).ParseServiceBytes,
			IO{ReadBytes: 10, WriteBytes: 20, HasBytes: true},
		},
		{"v1, operations", "8:0 Read 1\n8:0 Write 2\n8:16 Read 4\nTotal 7\n", (*IO).ParseServiced, IO{Reads: 5, Writes: 2, HasOperations: true}},
		{"v1, nothing yet", "Total 0\n", (*IO).ParseServiced, IO{HasOperations: true}},
	} {
		var got IO
		if err := tt.parse(&got, []byte(tt.text), loop); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
		if n := testing.AllocsPerRun(100, func() { got = IO{}; _ = tt.parse(&got, []byte(tt.text), loop) }); n > 1 { // the bytes of the text
			t.Errorf("%s: %v allocations; want none, for it runs for every pod", tt.name, n)
		}
	}
	for _, bad := range []string{"8:0 rbytes=x", "8:0 wios=-1", "8:0 rbytes=99999999999999999999"} {
		if err := new(IO).ParseStat([]byte(bad), nil); err == nil {
			t.Errorf("ParseStat(%q): want an error", bad)
		}
	}
	for _, bad := range []string{"8:0 Read x", "8:0 Write", "8:0 Read 1 2"} {
		if err := new(IO).ParseServiced([]byte(bad), nil); err == nil {
			t.Errorf("ParseServiced(%q): want an error", bad)
		}
	}
}

func FuzzIO(f *testing.F) {
	f.Add([]byte("254:0 rbytes=10 wbytes=20 rios=3 wios=4 dbytes=5 dios=6\n"))
	f.Add([]byte("254:0 Read 10\n254:0 Write 20\nTotal 30\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		everything := func([]byte) bool { return true }
		for _, file := range ioFiles {
			_ = file.parse(new(IO), data, nil)
			var none IO
			_ = file.parse(&none, data, everything)
			if none.HasBytes, none.HasOperations = false, false; none != (IO{}) && file.version == 1 {
				t.Errorf("%s of %q counts %+v of devices that do not count", file.name, data, none)
			}
		}
	})
}
