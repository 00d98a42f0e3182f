package view

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polder/lib/tick"
	"polder/report/age"
)

var update = flag.Bool("update", false, "write the golden files")

func read(t *testing.T, name string) []*tick.Tick {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := tick.NewReader(f)
	r.Strict = true
	var ticks []*tick.Tick
	for {
		line, err := r.Next()
		if err != nil {
			break
		}
		x, err := line.Decode(tick.SectionSample, tick.SectionAdvice, tick.SectionIsolation, tick.SectionEviction)
		if err != nil {
			t.Fatal(err)
		}
		ticks = append(ticks, x)
	}
	if len(ticks) == 0 {
		t.Fatalf("no ticks in %s", name)
	}
	return ticks
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./report/view -update writes it)", err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

func model(ticks []*tick.Tick, old time.Duration) (*Model, time.Time) {
	m := &Model{Stream: age.New(false, func(interval time.Duration) time.Duration { return max(3*interval, 3*time.Second) })}
	now := time.Time{}
	for _, x := range ticks {
		now = x.Time.Add(old)
		m.Stream.Read(x, now)
		m.Add(x)
	}
	return m, now
}

func TestFrames(t *testing.T) {
	const fresh = 400 * time.Millisecond
	for _, tt := range []struct {
		stream string
		look   Look
		age    time.Duration
		golden string
	}{
		{"node48", Look{Width: 80, Height: 24}, fresh, "node48-80x24.txt"},
		{"node48", Look{Width: 120, Height: 40}, fresh, "node48-120x40.txt"},
		{"node48", Look{Width: 120, Height: 40, Color: true}, fresh, "node48-120x40-color.txt"},
		{"node48", Look{Width: 80, Height: 24, ASCII: true}, time.Hour, "node48-80x24-ascii.txt"},
		{"node48", Look{Width: 40, Height: 12}, fresh, "node48-40x12.txt"},
		{"small", Look{Width: 80, Height: 24}, 8 * time.Second, "small-80x24.txt"},
	} {
		t.Run(tt.golden, func(t *testing.T) {
			m, now := model(read(t, tt.stream+".jsonl"), tt.age)
			golden(t, tt.golden, strings.Join(Frame(m, tt.look, now), "\n")+"\n")
		})
	}
}

// What the line on batch has no room for is in a second line.
func TestFramesOfBatchHeldBack(t *testing.T) {
	for _, tt := range []struct {
		look   Look
		golden string
	}{
		{Look{Width: 80, Height: 24}, "held-80x24.txt"},
		{Look{Width: 120, Height: 40}, "held-120x40.txt"},
	} {
		t.Run(tt.golden, func(t *testing.T) {
			ticks := read(t, "node48.jsonl")
			for _, x := range ticks[len(ticks)-5:] {
				x.Advice.GuardSteps = []string{"CPUs", "quota"}
			}
			m, now := model(ticks, 400*time.Millisecond)
			lines := Frame(m, tt.look, now)
			golden(t, tt.golden, strings.Join(lines[:min(len(lines), 10)], "\n")+"\n")
		})
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	b.WriteString(TableHeader() + "\n")
	for _, name := range []string{"node48.jsonl", "small.jsonl"} {
		for _, x := range read(t, name) {
			b.WriteString(TableLine(x, "") + "\n")
		}
	}
	b.WriteString(TableLine(&tick.Tick{Node: "bare", Time: time.Unix(0, 0)}, "stale") + "\n")
	golden(t, "table.txt", b.String())
}

func TestMetricsPage(t *testing.T) {
	var m Metrics
	for _, x := range read(t, "node48.jsonl") {
		m.Add(x)
	}
	for _, x := range read(t, "small.jsonl") {
		x.Eviction.Taints[0].Key = "quote\" back\\slash\nnewline"
		m.Add(x)
	}
	page, stable := m.Page()
	golden(t, "metrics.prom", page)
	if strings.Contains(stable, "timestamp") || strings.Contains(stable, "polder_ticks_total") {
		t.Error("the stable part holds what changes at every tick")
	}
}

func TestMetricsForgetNodes(t *testing.T) {
	var m Metrics
	at := time.Unix(1e9, 0)
	m.Add(&tick.Tick{Node: "old", Time: at})
	for after := time.Duration(0); after <= forgetAfter; after += time.Minute {
		m.Add(&tick.Tick{Node: "new", Time: at.Add(after)})
	}
	if page, _ := m.Page(); !strings.Contains(page, `node="old"`) {
		t.Error("a node was forgotten before its time")
	}
	m.Add(&tick.Tick{Node: "new", Time: at.Add(forgetAfter + sweepEvery)})
	if page, _ := m.Page(); strings.Contains(page, `node="old"`) {
		t.Error("a node that fell silent is still reported")
	}
}

func TestMetricsCountStatesOnce(t *testing.T) {
	var m Metrics
	add := func(states ...string) {
		e := &tick.Eviction{}
		for _, s := range states {
			e.Evictions = append(e.Evictions, tick.PodEviction{UID: "u", Rule: "r", State: s})
		}
		m.Add(&tick.Tick{Node: "n", Time: time.Unix(1, 0), Eviction: e})
	}
	add()
	add(tick.StateRequested)
	add(tick.StateRequested)
	add(tick.StateCreated)
	add()
	add(tick.StateRequested)
	page, _ := m.Page()
	for _, want := range []string{`state="requested"} 2`, `state="created"} 1`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
}

// The map has one row a hyperthread, splits wide nodes, and names the CPUs that have no room.
func TestCoreMap(t *testing.T) {
	cores := func(n, threads int) (list []string) {
		for i := range n {
			s := fmt.Sprint(i)
			for k := 1; k < threads; k++ {
				s += fmt.Sprintf(",%d", i+k*n)
			}
			list = append(list, s)
		}
		return list
	}
	for _, tt := range []struct {
		name          string
		topology      tick.Topology
		width, height int
		want          string
	}{
		{"no numa, no cores", tick.Topology{CPUs: "0-3"}, 40, 4, "cpus   S S R ·"},
		{"SMT4", tick.Topology{CPUs: "0-7", Cores: cores(2, 4)}, 40, 4, "cpus   S R\n       S ·\n       R R\n       · R"},
		{"narrow cells, then split", tick.Topology{CPUs: "0-9", Cores: cores(10, 1)}, 12, 4, "cpus   SSR·R\n       RRRRR"},
		{"no room", tick.Topology{CPUs: "0-9", Cores: cores(10, 1)}, 12, 1, "cpus   SSR·R  … 5 more CPUs"},
		{"memory node, offline CPUs", tick.Topology{CPUs: "0,2", NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: ""}, {ID: 1, CPUs: "0,2"}}}, 40, 4, "numa1  S R"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			of := map[int]letter{0: letterShare, 1: letterShare, 2: letterReclaim}
			for i := 4; i < 16; i++ {
				of[i] = letterReclaim
			}
			if tt.name == "SMT4" {
				of = map[int]letter{0: letterShare, 1: letterReclaim, 2: letterShare, 4: letterReclaim, 5: letterReclaim, 7: letterReclaim}
			}
			var got []string
			for _, l := range coreMap(&tt.topology, of, tt.width, tt.height) {
				got = append(got, l.render(Look{Width: 80}))
			}
			if d := cmp.Diff(tt.want, strings.Join(got, "\n")); d != "" {
				t.Errorf("map (-want +got):\n%s", d)
			}
		})
	}
}

// A frame of any size stays within it, and has no control character of a tick.
func TestFramesFit(t *testing.T) {
	streams := [][]*tick.Tick{read(t, "node48.jsonl"), read(t, "small.jsonl"), {{Node: "bare"}}, {{Node: "x", Sample: &tick.Sample{}, Advice: &tick.Advice{}, Isolation: &tick.Isolation{}, Eviction: &tick.Eviction{Refused: "too\x1bold"}}}}
	rapid.Check(t, func(t *rapid.T) {
		ticks := rapid.SampledFrom(streams).Draw(t, "stream")
		look := Look{Width: rapid.IntRange(1, 200).Draw(t, "width"), Height: rapid.IntRange(1, 70).Draw(t, "height"), ASCII: rapid.Bool().Draw(t, "ascii")}
		m, now := model(ticks, time.Second)
		lines := Frame(m, look, now)
		if len(lines) > look.Height {
			t.Fatalf("%d lines on a screen of %d", len(lines), look.Height)
		}
		for _, l := range lines {
			if n := utf8.RuneCountInString(l); n > look.Width {
				t.Fatalf("%d columns on a screen of %d: %q", n, look.Width, l)
			}
			if strings.ContainsFunc(l, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 || look.ASCII && r >= 0x80 }) {
				t.Fatalf("not to be printed: %q", l)
			}
		}
	})
}

func TestNumbers(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	for got, want := range map[string]string{
		Cores(nil): "-", Cores(f(0)): "0", Cores(f(250)): "0.25", Cores(f(44000)): "44.0", Cores(f(-1500)): "-1.50",
		Bytes(nil): "-", Bytes(f(0)): "0 B", Bytes(f(1536)): "1.50 KiB", Bytes(f(195257901056)): "182 GiB", Bytes(f(20 << 20)): "20.0 MiB",
		percent(f(1), f(0)): "-", percent(f(1), f(4)): "25%",
		Span(-time.Second): "0.0s", Span(75 * time.Second): "75s", Span(150 * time.Second): "2m30s", Span(3 * time.Hour): "3h00m", Span(72 * time.Hour): "3d",
		fit("abcdef", 4): "abc…", fit("ab", 4): "ab  ", fit("x", 0): "", fitPath("/kubepods/pod1234", 10): "/ku…od1234",
		spark([]*float64{f(1), nil, f(3), f(2)}, 10): "▁ █▅", spark([]*float64{f(1), f(5), f(5)}, 2): "▄▄", spark([]*float64{nil}, 2): "",
	} {
		if got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	}
}

// A dry run plans the same writes in every tick: the screen has each once, with its first time, and shows that none is in force.
func TestDryRunIsShownAsOne(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	quota := func(milliCPU string) tick.Write {
		return tick.Write{Cgroup: "/batch", Key: "cpuMaxMilliCPU", Old: "max", New: milliCPU}
	}
	x := func(second int, writes ...tick.Write) *tick.Tick {
		return &tick.Tick{
			Node: "n", Time: at.Add(time.Duration(second) * time.Second),
			Sample:    &tick.Sample{Pods: []tick.Pod{{Name: "batch", Cgroup: "/batch", QoS: tick.QoSReclaimed}}},
			Advice:    &tick.Advice{Cgroups: []tick.Cgroup{{Cgroup: "/batch", CPUMaxMilliCPU: new(int64(620))}}},
			Isolation: &tick.Isolation{DryRun: true, Writes: writes},
		}
	}
	other := tick.Write{Cgroup: "/other", Key: "cpuIdle", Old: "false", New: "true"}
	m, now := model([]*tick.Tick{x(0, quota("620")), x(1, other, quota("620")), x(2, other, quota("620"))}, time.Second)
	screen := strings.Join(Frame(m, Look{Width: 100, Height: 30}, now), "\n")
	for _, want := range []string{"· dry run", "would write 2", "12:00:00 /batch ", "12:00:01 /other ", "advised: quota 0.62"} {
		if strings.Count(screen, want) != 1 {
			t.Errorf("want once %q:\n%s", want, screen)
		}
	}
	m.Add(x(3))
	if screen := strings.Join(Frame(m, Look{Width: 100, Height: 30}, now), "\n"); !strings.Contains(screen, "would write 0") || strings.Contains(screen, "/other") {
		t.Errorf("nothing is planned any more:\n%s", screen)
	}
	if line := TableLine(x(0, quota("620"), other), ""); !strings.Contains(line, " 2 dry ") {
		t.Errorf("the table's line: %s", line)
	}
}

// A quota is shown in CPUs, as everywhere on the screen; where the stream has only the kernel's text, that is shown with its unit.
func TestWritesAreInTheScreensUnits(t *testing.T) {
	x := &tick.Tick{Node: "n", Time: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), Isolation: &tick.Isolation{Applied: 2, Writes: []tick.Write{
		{Cgroup: "/a", Key: "cpuMaxMilliCPU", Old: "-1", New: "152800", OldMilliCPU: tick.Ptr(int64(tick.Unlimited)), NewMilliCPU: new(int64(1528))},
		{Cgroup: "/b", Key: "cpuMaxMilliCPU", Old: "max 100000", New: "152800 100000"},
		{Cgroup: "/c", Key: "cpuWeight", Old: "100", New: "2"},
	}}}
	m, now := model([]*tick.Tick{x}, time.Second)
	screen := strings.Join(Frame(m, Look{Width: 100, Height: 30}, now), "\n")
	for _, want := range []string{"quota no limit → 1.53", "quota max 100000 → 152800 100000 us", "weight 100 → 2"} {
		if !strings.Contains(screen, want) {
			t.Errorf("want %q:\n%s", want, screen)
		}
	}
}

// The screen shows the values that isolate has just written, not those that collect had read before; where nothing was written it shows the
// latter, with the advised ones after an arrow.
func TestSetsInForce(t *testing.T) {
	x := &tick.Tick{
		Sample: &tick.Sample{Pods: []tick.Pod{{Name: "batch", Cgroup: "/p", Containers: []tick.Container{{Cgroup: "/p/c", CPUSetCPUs: "0-7"}}}}},
		Advice: &tick.Advice{Cgroups: []tick.Cgroup{{Cgroup: "/p", CPUIdle: new(true)}, {Cgroup: "/p/c", CPUSetCPUs: "0-3"}}},
	}
	for _, tt := range []struct {
		name      string
		isolation *tick.Isolation
		want      string
	}{
		{"written", &tick.Isolation{Applied: 1}, "0-3 idle"},
		{"a dry run", &tick.Isolation{DryRun: true}, "0-7 → 0-3 advised: idle"},
		{"failed", &tick.Isolation{Errors: []tick.IsolationError{{Cgroup: "/p/c", Key: "cpusetCPUs"}}}, "0-7 → 0-3 idle"},
		{"refused", &tick.Isolation{Refused: "stale"}, "0-7 → 0-3 advised: idle"},
		{"without isolate", nil, "0-7 → 0-3 advised: idle"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x.Isolation = tt.isolation
			m := &Model{Tick: x}
			if got := confinement(&x.Sample.Pods[0], m.limits(), m.sets(), m.advisedSets()); got != tt.want {
				t.Errorf("the pod runs on %q, want %q", got, tt.want)
			}
		})
	}
}

// A row is as full as its value is near the threshold, over or under it; of a scope's parts it shows the nearest one and all that are met.
func TestPressureRows(t *testing.T) {
	memory := func(part string, value, threshold float64, met bool) tick.PressureFinding {
		return tick.PressureFinding{Rule: "m", Scope: "memory", Part: part, Value: value, Threshold: threshold, Below: part != "kswapd" && part != "psi", Hard: true, Met: met}
	}
	const gib = 1 << 30
	rows := func(findings ...tick.PressureFinding) []string {
		m := &Model{Tick: &tick.Tick{Eviction: &tick.Eviction{Pressures: findings}}}
		var out []string
		for _, row := range m.pressureSection(Look{Width: 83}).rows {
			out = append(out, strings.Join(strings.Fields(row.render(Look{Width: 100})), " "))
		}
		return out
	}
	tests := []struct {
		name     string
		findings []tick.PressureFinding
		want     []string
	}{
		{"much is free", []tick.PressureFinding{memory("free", 22*gib, gib/32, false)}, []string{"memory free hard █········· 22.0 GiB min 32.0 MiB"}},
		{"half of the way", []tick.PressureFinding{memory("free", 2*gib, gib, false)}, []string{"memory free hard █████····· 2.00 GiB min 1.00 GiB"}},
		{
			"the nearest part",
			[]tick.PressureFinding{memory("free", 22*gib, gib, false), memory("numa1", 2*gib, gib, false), memory("kswapd", 0, 2000, false)},
			[]string{"memory numa1 hard █████····· 2.00 GiB min 1.00 GiB +2 farther off"},
		},
		{
			"all that are met",
			[]tick.PressureFinding{memory("free", 22*gib, gib, false), memory("kswapd", 3000, 2000, true), memory("psi", 40, 20, true)},
			[]string{"memory kswapd hard ██████████ 3000 pages/s max 2000 pages/s met", "memory psi hard ██████████ 40.0 % max 20.0 % met", "memory free hard █········· 22.0 GiB min 1.00 GiB"},
		},
		{"nothing is left", []tick.PressureFinding{memory("free", 0, gib, false)}, []string{"memory free hard ██████████ 0 B min 1.00 GiB"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, rows(tt.findings...)); d != "" {
				t.Errorf("rows (-want +got):\n%s", d)
			}
		})
	}
}

// The first reading has no rates, which is no fault; other errors are shown.
func TestFirstReading(t *testing.T) {
	m := &Model{Tick: &tick.Tick{Sample: &tick.Sample{}, Eviction: &tick.Eviction{Errors: []string{"cpu: no rate: not measured", "broken"}}}}
	text := func() (out string) {
		for _, row := range m.errorSection().rows {
			out += row.render(Look{Width: 100}) + "\n"
		}
		return out
	}
	if got := text(); strings.Contains(got, "not measured") || !strings.Contains(got, "broken") || !strings.Contains(got, "the first reading has no rates") {
		t.Errorf("at first: %s", got)
	}
	m.Tick.Sample.IntervalSeconds = new(1.0)
	if got := text(); !strings.Contains(got, "not measured") || strings.Contains(got, "first reading") {
		t.Errorf("later: %s", got)
	}
}

// Figures become cores and GiB where they are whole words, and never inside a name.
func TestAmountsLeaveNames(t *testing.T) {
	for text, want := range map[string]string{
		"offered 20m":                        "offered 0.02 cores",
		"20m, 1000m; (250m) -500m":           "0.02 cores, 1.00 core; (0.25 cores) -0.50 cores",
		"10000m - 2000m = 8000m":             "10.0 cores - 2.00 cores = 8.00 cores",
		"20m.":                               "0.02 cores.",
		"request=20m":                        "request=0.02 cores",
		"pod batch/job-20m waits":            "pod batch/job-20m waits",
		"job-20m":                            "job-20m",
		"20m-job and a.20m.b, a_20m":         "20m-job and a.20m.b, a_20m",
		"/kubepods/20m/c, 20m/c and ns/20m":  "/kubepods/20m/c, 20m/c and ns/20m",
		"job-1073741824B":                    "job-1073741824B",
		"1073741824 bytes":                   "1.00 GiB",
		"1073741824B free":                   "1.00 GiB free",
		"memory of job-1073741824":           "memory of job-1073741824",
		"memory: 1073741824.5 of 2147483648": "memory: 1.00 GiB of 2.00 GiB",
		"20ms and 20m":                       "20ms and 0.02 cores",
	} {
		if got := Amounts(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
