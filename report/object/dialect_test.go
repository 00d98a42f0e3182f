package object

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// batch is an offer of Koordinator's policy; negative amounts are unknown.
func batch(milli, bytes, midMilli, midBytes int64) Figures {
	return Figures{Dialect: Koordinator, Reclaimed: of(milli, bytes).Reclaimed, Mid: of(midMilli, midBytes).Reclaimed}
}

func TestResources(t *testing.T) {
	for _, tt := range []struct {
		name, prefix string
		f            Figures
		want         string
	}{
		{
			"the guide's", OldPrefix, batch(4541, 17236565027, -1, -1),
			`{"koordinator.sh/batch-cpu":"4541","koordinator.sh/batch-memory":"17236565027","koordinator.sh/mid-cpu":null,"koordinator.sh/mid-memory":null}`,
		},
		{
			"today's names, with mid", Prefix, batch(4000, 2000000, 500, 1<<30),
			`{"kubernetes.io/batch-cpu":"4k","kubernetes.io/batch-memory":"2000000","kubernetes.io/mid-cpu":"500","kubernetes.io/mid-memory":"1073741824"}`,
		},
		{
			"nothing left to offer is no withdrawal", Prefix, batch(0, 0, -1, -1),
			`{"kubernetes.io/batch-cpu":"0","kubernetes.io/batch-memory":"0","kubernetes.io/mid-cpu":null,"kubernetes.io/mid-memory":null}`,
		},
		{
			"withdrawn", Prefix, batch(-1, -1, -1, -1),
			`{"kubernetes.io/batch-cpu":null,"kubernetes.io/batch-memory":null,"kubernetes.io/mid-cpu":null,"kubernetes.io/mid-memory":null}`,
		},
		{
			"Katalyst's have no mid, and the prefix is not theirs", OldPrefix,
			Figures{Dialect: Katalyst, Reclaimed: of(42500, 1).Reclaimed, Mid: of(1, 1).Reclaimed},
			`{"resource.katalyst.kubewharf.io/reclaimed_memory":"1","resource.katalyst.kubewharf.io/reclaimed_millicpu":"42500"}`,
		},
		{
			"the other policy's go", Prefix, batch(1500, 1, -1, -1).with(func(f *Figures) { f.Left = []Dialect{Katalyst} }),
			`{"kubernetes.io/batch-cpu":"1500","kubernetes.io/batch-memory":"1","kubernetes.io/mid-cpu":null,"kubernetes.io/mid-memory":null,"resource.katalyst.kubewharf.io/reclaimed_memory":null,"resource.katalyst.kubewharf.io/reclaimed_millicpu":null}`,
		},
		{
			"no dialect was ever known: all names", OldPrefix,
			Figures{IsIntended: true},
			`{"koordinator.sh/batch-cpu":null,"koordinator.sh/batch-memory":null,"koordinator.sh/mid-cpu":null,"koordinator.sh/mid-memory":null,"resource.katalyst.kubewharf.io/reclaimed_memory":null,"resource.katalyst.kubewharf.io/reclaimed_millicpu":null}`,
		},
	} {
		r := tt.f.Resources(tt.prefix)
		got, err := json.Marshal(NodePatch(r))
		if want := `{"status":{"allocatable":` + tt.want + `,"capacity":` + tt.want + `}}`; err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", tt.name, got, err, want)
		}
		// A node to which the patch is applied has it, and one that kubelet has set to zero does not.
		var list map[string]any
		if err := json.Unmarshal([]byte(tt.want), &list); err != nil {
			t.Fatal(err)
		}
		zero, moved := map[string]any{}, false
		for k, v := range list {
			if v == nil {
				delete(list, k)
				continue
			}
			zero[k], moved = "0", moved || v != "0"
		}
		node := func(l map[string]any) map[string]any {
			return map[string]any{"status": map[string]any{"capacity": l, "allocatable": l}}
		}
		if !NodeHolds(node(list), r) {
			t.Errorf("%s: the node does not have what was written", tt.name)
		}
		if moved && NodeHolds(node(zero), r) {
			t.Errorf("%s: kubelet's zeros count as it", tt.name)
		}
	}
}

func advised(policy string, a tick.Advice) *tick.Tick {
	a.Policy = policy
	return &tick.Tick{Advice: &a}
}

// What a policy advises, and when another one does, or the policy advises that there is nothing any more.
func TestTurns(t *testing.T) {
	p := tick.Ptr[int64]
	offer := tick.Advice{Reclaimed: &tick.Reclaimed{MilliCPU: p(4541), MemoryBytes: p(100)}, Mid: &tick.Reclaimed{MilliCPU: p(7)}}
	var m Memory
	now := noon
	for _, step := range []struct {
		name    string
		tick    *tick.Tick
		after   time.Duration
		dialect Dialect
		amounts string // batch, mid
		stated  bool
	}{
		{"nothing yet", &tick.Tick{}, 0, "", "- - - -", false},
		{"an advice that has nothing about it", advised("koordinator", tick.Advice{}), 0, "", "- - - -", false},
		{"an offer", advised("koordinator", offer), 0, Koordinator, "4541 100 7 -", false},
		{"a tick without an advice", &tick.Tick{}, time.Second, Koordinator, "4541 100 7 -", false},
		{"less than nothing", advised("koordinator", tick.Advice{Reclaimed: &tick.Reclaimed{MilliCPU: p(-5)}}), 0, Koordinator, "0 100 7 -", false},
		{"withdrawn", advised("koordinator", tick.Advice{Withdrawn: "colocation is disabled"}), 0, Koordinator, "- - - -", true},
		{"withdrawn, whatever else it has", advised("koordinator", tick.Advice{Withdrawn: "x", Reclaimed: offer.Reclaimed, Mid: offer.Mid}), 0, Koordinator, "- - - -", true},
		{"and silent", &tick.Tick{}, time.Second, Koordinator, "- - - -", true},
		{"back", advised("koordinator", offer), 0, Koordinator, "4541 100 7 -", false},
		{"another policy that has nothing about it", advised("katalyst", tick.Advice{}), 0, Koordinator, "4541 100 7 -", false},
		{"another policy", advised("katalyst", tick.Advice{Reclaimed: &tick.Reclaimed{MilliCPU: p(44000)}}), 0, Katalyst, "44000 - - -", false},
		{"another policy", advised("mine", tick.Advice{Reclaimed: &tick.Reclaimed{MilliCPU: p(1)}}), 0, Katalyst, "1 - - -", false},
		{"and the first one again", advised("koordinator", offer), 0, Koordinator, "4541 100 7 -", false},
		{"no tick confirms it", &tick.Tick{}, 3 * time.Minute, Koordinator, "- - - -", false},
		{"withdrawn", advised("koordinator", tick.Advice{Withdrawn: "degraded"}), 0, Koordinator, "- - - -", true},
		{"which no tick confirms either", &tick.Tick{}, 3 * time.Minute, Koordinator, "- - - -", false},
	} {
		m.Take(Read(step.tick), now)
		now = now.Add(step.after)
		f := m.Now(now, 3*time.Minute)
		if got := f.Reclaimed.String() + " " + f.Mid.String(); got != step.amounts || f.Dialect != step.dialect || f.IsIntended != step.stated || (f.Note != "") != step.stated {
			t.Errorf("%s: %s %q, stated %v, %q; want %s %q, stated %v", step.name, got, f.Dialect, f.IsIntended, f.Note, step.amounts, step.dialect, step.stated)
		}
	}
}

// Section 3.4 of Koordinator's way: each line, up and down.
func TestKoordinatorNext(t *testing.T) {
	rules := Rules{MinChange: 0.05, MinInterval: 30 * time.Second, Resync: time.Hour}.Koordinator(sloconfig.Defaults().Colocation, Given{})
	base := batch(10000, 1000, -1, -1)
	for _, tt := range []struct {
		name     string
		from, to Figures
		intact   bool
		after    time.Duration
		want     Due
	}{
		{"nothing new", base, base, true, time.Second, NotDue},
		{"10 % more is not over it", base, batch(11000, 1000, -1, -1), true, time.Second, NotDue},
		{"more than 10 % more", base, batch(11001, 1000, -1, -1), true, time.Second, FiguresChanged},
		{"10 % less is not over it", base, batch(9000, 1000, -1, -1), true, time.Minute, NotDue},
		{"more than 10 % less", base, batch(8999, 1000, -1, -1), true, time.Second, FiguresChanged},
		{"memory alone, more than 10 %", base, batch(10000, 1101, -1, -1), true, time.Second, FiguresChanged},
		{"memory alone, 10 %", base, batch(10000, 1100, -1, -1), true, time.Second, NotDue},
		{"from nothing to something", batch(0, 1000, -1, -1), batch(1, 1000, -1, -1), true, time.Second, FiguresChanged},
		{"to nothing", base, batch(0, 1000, -1, -1), true, time.Second, FiguresChanged},
		{"both nothing", batch(0, 0, -1, -1), batch(0, 0, -1, -1), true, time.Second, NotDue},
		{"mid appears", base, batch(10000, 1000, 0, -1), true, time.Second, FiguresChanged},
		{"mid is removed", batch(10000, 1000, 5, 5), base, true, time.Second, FiguresChanged},
		{"mid moves by more", batch(10000, 1000, 100, 5), batch(10000, 1000, 111, 5), true, time.Second, FiguresChanged},
		{"mid moves by 10 %", batch(10000, 1000, 100, 5), batch(10000, 1000, 110, 5), true, time.Second, NotDue},
		{"memory is no longer there", base, batch(10000, -1, -1, -1), true, time.Second, FiguresChanged},
		{"just the time", base, base, true, 300 * time.Second, NotDue},
		{"later than the time", base, base, true, 300*time.Second + 1, ResyncDue},
		{"a little less, and later than the time", base, batch(9999, 1000, -1, -1), true, 301 * time.Second, ResyncDue},
		{"withdrawn stays so", batch(-1, -1, -1, -1), batch(-1, -1, -1, -1), true, time.Hour, NotDue},
		{"removed externally", base, base, false, time.Second, ChangedExternally},
		{"withdrawn, at once", base, batch(-1, -1, -1, -1).with(func(f *Figures) { f.IsIntended = true }), true, 0, FiguresChanged},
		{"under a taint, less by a trifle", base.with(func(f *Figures) { f.ReducedByTaint = true }), batch(9999, 1000, -1, -1).with(func(f *Figures) { f.ReducedByTaint = true }), true, 0, FiguresChanged},
		{"the taint is removed, and a trifle is offered again", batch(9999, 1000, -1, -1).with(func(f *Figures) { f.ReducedByTaint = true }), base, true, 0, FiguresChanged},
		{"another policy with the same amounts", base.with(func(f *Figures) { f.Dialect = Katalyst }), base.with(func(f *Figures) { f.Left = []Dialect{Katalyst} }), true, 0, FiguresChanged},
		{"the other policy's are still there", base, base.with(func(f *Figures) { f.Left = []Dialect{Katalyst} }), true, 0, FiguresChanged},
	} {
		if got := rules.Next(Written{&tt.from, noon}, tt.to, tt.intact, noon.Add(tt.after)); got != tt.want {
			t.Errorf("%s: %d; want %d", tt.name, got, tt.want)
		}
	}
	if got := rules.Next(Written{}, base, true, noon); got != FiguresChanged {
		t.Errorf("never published by this process: %d", got)
	}
}

// Strategies take precedence over the flags' defaults, but not over flags that are given; invalid ones over neither.
func TestKoordinatorRules(t *testing.T) {
	flags := Rules{MinChange: 0.05, MinInterval: 30 * time.Second, Resync: 5 * time.Minute}
	colocation := func(diff float64, update int64) sloconfig.Colocation {
		return sloconfig.Colocation{ResourceDiffThreshold: &diff, UpdateTimeThresholdSeconds: &update}
	}
	for _, tt := range []struct {
		name  string
		c     sloconfig.Colocation
		given Given
		want  Rules
	}{
		{"defaults", sloconfig.Defaults().Colocation, Given{}, Rules{0.1, true, math.MaxInt64, 300 * time.Second}},
		{"nothing set", sloconfig.Colocation{}, Given{}, Rules{0.1, true, math.MaxInt64, 300 * time.Second}},
		{"set", colocation(0.2, 60), Given{}, Rules{0.2, true, math.MaxInt64, time.Minute}},
		{"zero, which Koordinator refuses", colocation(0, 0), Given{}, Rules{0.1, true, math.MaxInt64, 300 * time.Second}},
		{"less than nothing", colocation(-1, -1), Given{}, Rules{0.1, true, math.MaxInt64, 300 * time.Second}},
		{"huge", colocation(math.Inf(1), math.MaxInt64), Given{}, Rules{0.1, true, math.MaxInt64, 24 * time.Hour}},
		{"no number", colocation(math.NaN(), 1), Given{}, Rules{0.1, true, math.MaxInt64, time.Second}},
		{"flags", colocation(0.2, 60), Given{true, true, true}, Rules{0.05, true, 30 * time.Second, 5 * time.Minute}},
		{"one flag", colocation(0.2, 60), Given{Resync: true}, Rules{0.2, true, math.MaxInt64, 5 * time.Minute}},
	} {
		if d := cmp.Diff(tt.want, flags.Koordinator(tt.c, tt.given)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

// The fleet controller withdraws the policy's offer; the other dialect's may be another program's.
func TestMarkKeepsTheDialect(t *testing.T) {
	for _, f := range []Figures{batch(1, 1, 1, 1), of(1, 1).with(func(f *Figures) { f.Dialect = Katalyst })} {
		got := f.Withdrawn("agent-health: gone").Resources(Prefix)
		if d := cmp.Diff(Figures{Dialect: f.Dialect}.Resources(Prefix), got); d != "" {
			t.Errorf("%s (-want +got):\n%s", f.Dialect, d)
		}
	}
}
