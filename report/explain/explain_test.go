package explain

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"polder/lib/tick"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// made is a tick of a machine with 10 CPUs, one batch pod, one service and an offer.
func made(at time.Time, offer int64, service float64) *tick.Tick {
	return &tick.Tick{
		V: 1, Node: "n", Time: at,
		Sample: &tick.Sample{Topology: &tick.Topology{CPUs: "0-9"}, Pods: []tick.Pod{
			{UID: "b", Namespace: "batch", Name: "job", QoS: tick.QoSReclaimed, Cgroup: "/batch/job", UsageMilliCPU: new(500.0)},
			{UID: "s", Namespace: "shop", Name: "web", QoS: tick.QoSShared, UsageMilliCPU: new(service)},
		}},
		Advice: &tick.Advice{Policy: "katalyst", Reclaimed: &tick.Reclaimed{MilliCPU: &offer}},
	}
}

func ask(t *testing.T, q Question, ticks ...*tick.Tick) string {
	t.Helper()
	r := New(q)
	for _, x := range ticks {
		r.Add(x)
	}
	text, err := r.Answer()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func moment(t *testing.T, text string) *Moment {
	t.Helper()
	m, err := ParseMoment(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A time of day is of the recording's day, or of the next one where it is past midnight, in the time zone of its ticks.
func TestMomentsAreOfTheRecordingsDay(t *testing.T) {
	east := time.FixedZone("", 2*60*60)
	for _, c := range []struct {
		text  string
		start time.Time
		want  string
	}{
		{"12:03", noon, "2026-11-21T12:03:00Z"},
		{"12:03:30", noon, "2026-11-21T12:03:30Z"},
		{"03:00", noon, "2026-11-22T03:00:00Z"},
		{"12:00", noon.Add(20 * time.Second), "2026-11-21T12:00:00Z"}, // it begins within that minute
		{"12:00", noon.Add(time.Minute), "2026-11-22T12:00:00Z"},
		{"14:03", noon.In(east), "2026-11-21T14:03:00+02:00"},
		{"2026-11-20T01:02:03+01:00", noon, "2026-11-20T01:02:03+01:00"},
	} {
		if got := moment(t, c.text).after(c.start).Format(time.RFC3339); got != c.want {
			t.Errorf("%s in a recording from %s is %s, want %s", c.text, c.start.Format(time.RFC3339), got, c.want)
		}
	}
	for _, c := range []struct{ from, until, wantFrom, wantUntil string }{
		{"11:30", "12:30", "2026-11-21T11:30:00Z", "2026-11-21T12:30:00Z"}, // it begins within the period
		{"23:00", "01:00", "2026-11-21T23:00:00Z", "2026-11-22T01:00:00Z"},
		{"03:00", "04:00", "2026-11-22T03:00:00Z", "2026-11-22T04:00:00Z"},
		{"2026-11-23T12:00:00Z", "13:00", "2026-11-23T12:00:00Z", "2026-11-23T13:00:00Z"},
	} {
		from, until := period(moment(t, c.from), moment(t, c.until), noon)
		if got := from.Format(time.RFC3339) + " " + until.Format(time.RFC3339); got != c.wantFrom+" "+c.wantUntil {
			t.Errorf("from %s until %s is %s, want %s %s", c.from, c.until, got, c.wantFrom, c.wantUntil)
		}
	}
	for text, want := range map[string]string{"11:30": "2026-11-21T11:30:00Z", "10:30": "2026-11-22T10:30:00Z", "12:03": "2026-11-21T12:03:00Z"} {
		if got := moment(t, text).From(noon).Format(time.RFC3339); got != want {
			t.Errorf("from %s is %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "noon", "24:00", "1:02", "12:3", "12:03:61", "12", "2026-11-20", "12:03Z"} {
		if _, err := ParseMoment(text); err == nil {
			t.Errorf("%q is taken for a time", text)
		}
	}
}

// The tick of a time is the last one before it; ticks have fractions that are not printed.
func TestAtTakesTheTickBefore(t *testing.T) {
	ticks := []*tick.Tick{made(noon.Add(800*time.Millisecond), 1000, 1), made(noon.Add(1800*time.Millisecond), 2000, 1), made(noon.Add(10*time.Minute), 3000, 1)}
	for at, want := range map[string]string{"12:00": "1.00 core", "12:00:01": "2.00 cores", "12:05": "2.00 cores", "12:10": "3.00 cores", "2026-11-21T12:00:01.5Z": "1.00 core"} {
		if text := ask(t, Question{At: moment(t, at)}, ticks...); !strings.Contains(text, "Offered: "+want) {
			t.Errorf("at %s: want an offer of %s:\n%s", at, want, text)
		}
	}
	r := New(Question{At: moment(t, "13:00")})
	for _, x := range ticks {
		r.Add(x)
	}
	if text, err := r.Answer(); err == nil {
		t.Errorf("an hour after the recording's end there is an answer:\n%s", text)
	}
}

// A squeeze is a fall by a part of the machine in a short time; its cause is the service that grew most meanwhile.
func TestSqueezes(t *testing.T) {
	var ticks []*tick.Tick
	at := noon
	add := func(offer int64, service float64) {
		ticks = append(ticks, made(at, offer, service))
		at = at.Add(time.Second)
	}
	for i := range 100 {
		add(8000+int64(i%2)*300, 1000) // the usual fluctuation
	}
	for _, offer := range []int64{7000, 6000, 4000} {
		add(offer, 9000-float64(offer))
	}
	for range 400 {
		add(4000, 5000)
	}
	for i := range 2000 {
		add(8000-int64(i), 1000) // too slow to be one: 300 milli-CPU in 5 minutes
		at = at.Add(time.Second)
	}
	text := ask(t, Question{}, ticks...)
	if want := "Squeezed: From 12:01:39 to 12:01:42 the offer fell from 8.30 to 4.00 cores:"; !strings.Contains(text, want) {
		t.Errorf("want %q:\n%s", want, text)
	}
	if want := "shop/web needed 5.00 cores instead of 1.00 core"; !strings.Contains(strings.ReplaceAll(text, "\n", " "), want) {
		t.Errorf("want %q:\n%s", want, text)
	}
}

// What is kept does not grow with the recording, whatever pods come and go in it and however long their names are.
func TestMemoryIsBounded(t *testing.T) {
	r := New(Question{Pod: "nobody"})
	all := New(Question{})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	add := func(from, to int) {
		for i := from; i < to; i++ {
			x := made(noon.Add(time.Duration(i)*time.Second), int64(i%7)*1000, 1)
			if i == 0 {
				r.Add(x)
				all.Add(x)
				continue
			}
			x.Eviction = &tick.Eviction{Taints: []tick.Taint{{Key: fmt.Sprint(i), Effect: "NoSchedule"}}}
			for j := range 20 {
				name := fmt.Sprintf("%d-%d-%s", i, j, strings.Repeat("x", 1000))
				x.Sample.Pods = append(x.Sample.Pods, tick.Pod{
					UID: name, Name: name, QoS: tick.QoSShared, UsageMilliCPU: new(float64(i + j)),
					Containers: []tick.Container{{UsageMilliCPU: new(float64(i)), ThrottledPercent: new(50.0)}},
				})
				x.Eviction.Evictions = append(x.Eviction.Evictions, tick.PodEviction{UID: name, Name: name, Message: name})
			}
			r.Add(x)
			all.Add(x)
		}
	}
	add(0, 450)
	before := heap()
	add(450, 750)
	if after := heap(); after > before+4<<20 {
		t.Errorf("300 ticks more took %d KiB", (after-before)>>10)
	}
	if text, err := all.Answer(); err != nil || len(text) > 64<<10 {
		t.Errorf("the answer has %d bytes, %v", len(text), err)
	}
	runtime.KeepAlive(r)
}

// FuzzAnswer asks about arbitrary ticks: the answer is text for a terminal, without NaN or infinite numbers.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`"sample":{"topology":{"cpus":"0-3"},"pods":[{"uid":"u","name":"a\n\u001b[2J\u009b","qos":"reclaimed","cgroup":"/x","usageMilliCPU":1e308,"containers":[{"cgroup":"/x/\u0007","throttledPercent":1e9}]}]},"advice":{"policy":"\u001b","cgroups":[{"cgroup":"/x","cpuMaxMilliCPU":5,"cpusetCPUs":"0-9999"}],"reasons":["share: reserve 4000m (\u202e) + need 99999999999999999999m of 2 containers = 1m -> 3 CPUs in whole cores; held at 3 CPUs for 5s more (hold 1s: x)"]}`,
		`"sample":{"cpu":{"usageMilliCPU":-1},"pods":[{"uid":"","name":"a","qos":"shared","load1":-1e308},{"uid":"","name":"a","qos":"reclaimed","limits":{"milliCPU":0}}]},"advice":{"reclaimed":{"milliCPU":-9223372036854775808}},"report":{"targets":[{"target":"\t","error":"\r"}]}`,
		`"advice":{"policy":"koordinator","reasons":["suppression: capacity 48000m * 65 % (x) - services 1m (1 pod) - system 0m (nothing reserved) = -5m, at least 3m (y 1) -> 27 CPUs"]},"eviction":{"evictions":[{"name":"a","state":"\u001b","rule":"r","scope":"zone|memory"}],"pressures":[{"rule":"r","scope":"zone|memory","value":0,"threshold":0,"hard":true,"since":"x","met":true}],"taints":[{"key":"\u0000"}]}`,
		`"x":1`,
	} {
		f.Add(seed, "a")
		f.Add(seed, "")
	}
	f.Fuzz(func(t *testing.T, sections, pod string) {
		line, err := tick.ParseLine([]byte(`{"v":1,"node":"n","time":"2026-01-01T00:00:00Z",` + sections + `}`))
		if err != nil {
			return
		}
		x, err := line.Decode(tick.SectionSample, tick.SectionAdvice, tick.SectionIsolation, tick.SectionEviction, tick.SectionReport)
		if err != nil {
			return
		}
		later := *x
		later.Time = x.Time.Add(time.Second)
		for _, q := range []Question{{Pod: pod}, {Pod: pod, At: &Moment{at: later.Time, precision: time.Second}}} {
			r := New(q)
			r.Add(x)
			r.Add(&later)
			text, err := r.Answer()
			if err != nil {
				text = err.Error()
			}
			for _, c := range text {
				if c == utf8.RuneError || c < 0x20 && c != '\n' || c >= 0x7f && c < 0xa0 || c >= 0x202a && c <= 0x202e {
					t.Fatalf("%q of %s is in the answer", c, sections)
				}
			}
		}
	})
}

// Where the use of another pod on its CPUs is unknown, so is whether a pod had room.
func TestHeldByUnknownUse(t *testing.T) {
	x := made(noon, 4000, 1000)
	other := tick.Pod{
		UID: "o", Namespace: "batch", Name: "other", QoS: tick.QoSReclaimed, Cgroup: "/batch/other", UsageMilliCPU: new(100.0),
		Containers: []tick.Container{{Cgroup: "/batch/other/c"}},
	}
	x.Sample.Pods = append(x.Sample.Pods, other)
	for _, cgroup := range []string{"/batch/job", "/batch/other"} {
		x.Advice.Cgroups = append(x.Advice.Cgroups, tick.Cgroup{Cgroup: cgroup, CPUSetCPUs: "0-3"})
	}
	q := Question{Pod: "batch/job", At: moment(t, "12:00")}
	if text := ask(t, q, x); !strings.Contains(text, "What held it back: Nothing: the pods on its CPUs used 0.60 of 4.00 cores.") {
		t.Error(text)
	}
	x.Sample.Pods[2].UsageMilliCPU = nil
	if text := ask(t, q, x); !strings.Contains(text, "What held it back: Unknown: what another pod on its CPUs used is unknown.") {
		t.Error(text)
	}
}

// What reclaimed pods request and use is that of the pods that have not ended. A pod that has no cgroup yet uses nothing.
func TestReclaimedPods(t *testing.T) {
	pod := func(use *float64, phase string) tick.Pod {
		return tick.Pod{
			Namespace: "batch", QoS: tick.QoSReclaimed, Cgroup: "/b", Phase: phase, UsageMilliCPU: use,
			Containers: []tick.Container{{Cgroup: "/b/c"}}, Requests: &tick.Resources{ReclaimedMilliCPU: new(4000.0)},
		}
	}
	begun := pod(nil, "Pending")
	begun.Cgroup, begun.Containers, begun.Missing = "", nil, tick.MissingCgroup
	for _, tt := range []struct {
		want string
		pods []tick.Pod
	}{
		{"No reclaimed pod ran.", []tick.Pod{pod(nil, "Succeeded")}},
		{"2 reclaimed pods requested 8.00 and used 1.00 core.", []tick.Pod{pod(new(1000.0), "Running"), pod(nil, "Failed"), begun}},
		{"2 reclaimed pods requested 8.00 cores; what 1 of them used is unknown.", []tick.Pod{pod(new(1000.0), ""), pod(nil, "Running")}},
	} {
		if got := reclaimedPods(&tick.Sample{Pods: tt.pods}); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// A tick that another tool refused is not reported as acted upon.
func TestRefusedTicksAreNamed(t *testing.T) {
	x := made(noon, 1000, 1)
	x.Isolation = &tick.Isolation{Refused: "tick is 1h old"}
	x.Eviction = &tick.Eviction{Refused: "tick is 1h old"}
	text := strings.ReplaceAll(ask(t, Question{At: moment(t, "12:00")}, x), "\n", " ")
	for _, want := range []string{"Isolate refused this tick (tick is 1h old)", "Evict refused this tick (tick is 1h old)", "Evicted: Unknown: evict refused the tick."} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q:\n%s", want, text)
		}
	}
}

// A figure is in the unit of its scope.
func TestMeasures(t *testing.T) {
	for _, c := range []struct {
		scope, part string
		value       float64
		want        string
	}{
		{"katalyst.kubewharf.io/reclaimed_millicpu", "", 6400, "6.40 cores"},
		{"zone1|katalyst.kubewharf.io/reclaimed_memory", "", 1 << 30, "1.00 GiB"},
		{"memory", "kswapd", 2000, "2000 pages a second"},
		{"memory", "psi", 12.5, "12.5 %"},
		{"memory", "numa0", 1 << 20, "1.00 MiB"},
		{"cpu.used.percent", "", 80, "80.0 %"},
		{"cpu.load.1min.container", "share", 7.45, "7.5 threads ready to run"},
		{"cpu.suppression", "reclaim", 6, "6.00"},
		{"katalyst.kubewharf.io/reclaimed_millicpu", "", 1e308, "1e+305 cores"}, // not 300 digits
		{"memory", "numa0", -1e308, "-8.88e+292 PiB"},
		{"memory", "psi", 1e308, "1e+308 %"},
		{"cpu.load.1min.container", "share", 1e308, "1e+308 threads ready to run"},
	} {
		if got := measure(c.scope, c.part, c.value); got != c.want {
			t.Errorf("%s %s %v: %q, want %q", c.scope, c.part, c.value, got, c.want)
		}
	}
}
