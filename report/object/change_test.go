package object

import (
	"math"
	"testing"
	"time"

	"polder/lib/tick"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// of is an offer; amounts under -1 are unknown.
func of(milli, bytes int64) Figures {
	known := func(v int64) *int64 {
		if v < 0 {
			return nil
		}
		return &v
	}
	return Figures{Reclaimed: Amounts{known(milli), known(bytes)}}
}

func (f Figures) with(change func(*Figures)) Figures {
	change(&f)
	return f
}

func TestStep(t *testing.T) {
	pod := Consumer{Name: "default/a/1", Requests: of(2000, 1<<30).Reclaimed, Zones: []int{0}}
	zoned := func(milli int64) func(*Figures) {
		return func(f *Figures) { f.Zones = []Zone{{ID: 0, CPUs: 4, Reclaimed: of(milli, 1).Reclaimed}} }
	}
	tainted := func(keys ...string) func(*Figures) {
		return func(f *Figures) {
			f.Taints = []tick.Taint{}
			for _, k := range keys {
				f.Taints = append(f.Taints, tick.Taint{Key: k, Effect: "NoSchedule"})
			}
		}
	}
	base := of(40000, 100)
	for _, tt := range []struct {
		name     string
		from, to Figures
		want     step
	}{
		{"the same", base, base, unchanged},
		{"less by one", base, of(39999, 100), slightlyLess},
		{"less, just under 1 %", base, of(39601, 100), slightlyLess},
		{"less by 1 %", base, of(39600, 100), urgent},
		{"a trifle less and much more", base, of(39999, 200), urgent},
		{"more, not enough", base, of(41999, 100), slightlyMore},
		{"more, just enough", base, of(42000, 100), urgent},
		{"the guide's 42k to 44k are 4.8 %", of(42000, 100), of(44000, 100), slightlyMore},
		{"memory alone shrinks", base, of(41999, 99), urgent},
		{"memory alone grows", base, of(40000, 105), urgent},
		{"from nothing to something", of(0, 100), of(1, 100), urgent},
		{"from nothing to nothing", of(0, 100), of(0, 100), unchanged},
		{"to nothing", base, of(0, 100), urgent},
		{"no longer known", base, of(40000, -1), urgent},
		{"known at last", of(40000, -1), base, urgent},
		{"the largest number", of(40000, 100), of(1<<53, 100), urgent},
		{"a NUMA node shrinks", base.with(zoned(1000)), base.with(zoned(999)), slightlyLess},
		{"a NUMA node grows a little", base.with(zoned(100)), base.with(zoned(104)), slightlyMore},
		{"a NUMA node grows: the sum is what is urgent", base.with(zoned(100)), base.with(zoned(105)), slightlyLess},
		{"a NUMA node halves under the same sum", base.with(zoned(1000)), base.with(zoned(500)), slightlyLess},
		{"NUMA nodes appear", base, base.with(zoned(100)), urgent},
		{"a pod comes", base, base.with(func(f *Figures) { f.Consumers = []Consumer{pod} }), urgent},
		{"a pod ends", base.with(func(f *Figures) { f.Consumers = []Consumer{pod} }), base, urgent},
		{"a taint comes", base.with(tainted()), base.with(tainted("a")), urgent},
		{"a taint is removed", base.with(tainted("a", "b")), base.with(tainted("b")), urgent},
		{"taints in another order", base.with(tainted("a", "b")), base.with(tainted("b", "a")), unchanged},
		{"taints become unknown", base.with(tainted("a")), base, unchanged},
		{"taints become known", base, base.with(tainted()), urgent},
	} {
		if got := tt.from.step(tt.to, Rules{MinChange: 0.05}); got != tt.want {
			t.Errorf("%s: %d; want %d", tt.name, got, tt.want)
		}
		if same := tt.from.Equal(tt.to); same != (tt.want == unchanged) {
			t.Errorf("%s: equal = %v", tt.name, same)
		}
	}
}

func TestNext(t *testing.T) {
	rules := Rules{MinChange: 0.05, MinInterval: 30 * time.Second, Resync: 5 * time.Minute}
	wrote := func(f Figures) Written { return Written{&f, noon} }
	for _, tt := range []struct {
		name   string
		rules  Rules
		w      Written
		want   Figures
		intact bool
		after  time.Duration
		due    Due
	}{
		{"never written", rules, Written{}, of(1, 1), true, 0, FiguresChanged},
		{"nothing new", rules, wrote(of(44000, 1)), of(44000, 1), true, time.Minute, NotDue},
		{"a little more", rules, wrote(of(44000, 1)), of(45000, 1), true, time.Minute, NotDue},
		{"a little more, and it is time", rules, wrote(of(44000, 1)), of(45000, 1), true, 5 * time.Minute, ResyncDue},
		{"nothing new, and it is time", rules, wrote(of(44000, 1)), of(44000, 1), true, 5 * time.Minute, ResyncDue},
		{"never again", Rules{MinChange: 0.05}, wrote(of(44000, 1)), of(44000, 1), true, 500 * time.Hour, NotDue},
		{"any growth", Rules{}, wrote(of(44000, 1)), of(44001, 1), true, 0, FiguresChanged},
		{"less", rules, wrote(of(44000, 1)), of(42000, 1), true, 0, FiguresChanged},
		{"a trifle less just after a write", rules, wrote(of(44000, 1)), of(43999, 1), true, 30*time.Second - 1, NotDue},
		{"a trifle less a moment later", rules, wrote(of(44000, 1)), of(43999, 1), true, 30 * time.Second, FiguresChanged},
		{"a trifle less, and any change is written", Rules{}, wrote(of(44000, 1)), of(43999, 1), true, 0, FiguresChanged},
		{"removed externally", rules, wrote(of(44000, 1)), of(44000, 1), false, 0, ChangedExternally},
		{"removed externally while it shrank", rules, wrote(of(44000, 1)), of(1, 1), false, 0, ChangedExternally},
		{"stale", rules, wrote(of(44000, 1)), of(-1, -1), true, 0, FiguresChanged},
		{"stale and withdrawn", rules, wrote(of(-1, -1)), of(-1, -1), true, time.Hour, NotDue},
		{"withdrawn, and another program offers", rules, wrote(of(-1, -1)), of(-1, -1), false, time.Hour, NotDue},
		{"back", rules, wrote(of(-1, -1)), of(44000, 1), true, 0, FiguresChanged},
	} {
		if got := tt.rules.Next(tt.w, tt.want, tt.intact, noon.Add(tt.after)); got != tt.due {
			t.Errorf("%s: %d; want %d", tt.name, got, tt.due)
		}
	}
}

// A load that varies by less than the share, and memory that changes all the time, are written when they fall to a new low, and not
// at each change.
func TestSwings(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bytes func(second int) int64
		want  int // writes in ten minutes
		last  int64
	}{
		{"CPU alone", func(int) int64 { return 1 << 30 }, 2, 1 << 30},
		{"memory swings", func(s int) int64 { return 1<<30 + int64(s*7919%1000) }, 10, 1<<30 + 11},
		{"memory goes down slowly", func(s int) int64 { return 1<<30 - int64(s)*4096 }, 21, 1<<30 - 571*4096},
		{"memory goes down by 1 % in each second", func(s int) int64 { return int64(1e12 * math.Pow(0.989, float64(s))) }, 600, int64(1e12 * math.Pow(0.989, 599))},
	} {
		rules, w, writes := Rules{MinChange: 0.05, MinInterval: 30 * time.Second, Resync: time.Hour}, Written{}, 0
		for i := range 600 {
			f := of(44000-int64(i%2)*1000, tt.bytes(i))
			if now := noon.Add(time.Duration(i) * time.Second); rules.Next(w, f, true, now) != NotDue {
				w = Written{&f, now}
				writes++
			}
		}
		if last := *w.Figures.Reclaimed.MemoryBytes; writes != tt.want || last != tt.last {
			t.Errorf("%s: %d writes, the last of %d; want %d, %d", tt.name, writes, last, tt.want, tt.last)
		}
	}
}

func TestMemory(t *testing.T) {
	const limit = 3 * time.Minute
	var m Memory
	if f := m.Now(noon, limit); !f.Empty() || f.Taints != nil {
		t.Errorf("before the first tick: %+v", f)
	}
	taints := func(f *Figures) { f.Taints = []tick.Taint{{Key: "k", Effect: "NoSchedule"}} }
	zoned := func(f *Figures) { f.Zones = []Zone{{ID: 0}} }
	m.Take(of(44000, 100).with(taints).with(zoned), noon)
	m.Take(Figures{Zones: []Zone{{ID: 0}, {ID: 1}}}, noon.Add(time.Minute)) // an advice without amounts
	m.Take(of(42000, -1), noon.Add(2*time.Minute))                          // an advice without memory
	for _, tt := range []struct {
		after         time.Duration
		milli, bytes  int64
		zones, taints int
	}{
		{limit - 1, 42000, 100, 1, 1},
		{limit, 42000, -1, 0, 0},
		{5*time.Minute - 1, 42000, -1, 0, 0},
		{5 * time.Minute, -1, -1, 0, 0},
	} {
		f := m.Now(noon.Add(tt.after), limit)
		if !f.Reclaimed.Equal(of(tt.milli, tt.bytes).Reclaimed) || len(f.Zones) != tt.zones || len(f.Taints) != tt.taints || f.Taints == nil {
			t.Errorf("after %s: %+v", tt.after, f)
		}
	}
	m.Take(of(0, 0), noon.Add(time.Hour))
	if f := m.Now(noon.Add(time.Hour), limit); f.Empty() || *f.Reclaimed.MilliCPU != 0 {
		t.Errorf("an offer of nothing is no missing offer: %+v", f)
	}
}

func TestHolds(t *testing.T) {
	have := map[string]any{
		"a": "44k", "b": int64(3), "c": "text", "d": []any{map[string]any{"n": "1", "v": "2k", "x": "y"}, map[string]any{"n": "2"}},
	}
	for _, tt := range []struct {
		name string
		want any
		ok   bool
	}{
		{"nothing", map[string]any{}, true},
		{"another form of a quantity", map[string]any{"a": "44000", "b": "3"}, true},
		{"another quantity", map[string]any{"a": "44001"}, false},
		{"another text", map[string]any{"c": "Text"}, false},
		{"a key that is not there", map[string]any{"e": "1"}, false},
		{"an element beside others", map[string]any{"d": []any{map[string]any{"n": "1", "v": "2000"}}}, true},
		{"an element that is not there", map[string]any{"d": []any{map[string]any{"n": "3"}}}, false},
		{"more elements", map[string]any{"d": []any{1, 2, 3}}, false},
		{"a list for a text", map[string]any{"c": []any{}}, false},
		{"a map for a text", map[string]any{"c": map[string]any{}}, false},
		{"a text for a map", "a", false},
	} {
		if got := Holds(have, tt.want); got != tt.ok {
			t.Errorf("%s: %v; want %v", tt.name, got, tt.ok)
		}
	}
	if Holds(nil, map[string]any{}) {
		t.Error("no object holds something")
	}
}
