package colocation

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/need"
)

// The square wave's levels, in percent of the machine that service and client use alone, and how long each lasts.
var waveLevels = []int{10, 60}

const waveHalfPeriod = time.Minute

// guardLearns is how long the guard observes the service at each level before the batch job starts: it needs 10 ticks for a target.
const guardLearns = 15 * time.Second

// BenchmarkGuardSquareWave counts how often the guard changes batch's limits while the rate of a service's requests alternates: with the
// real pipe, a real nginx and stress-ng. GUARD_SECONDS is how long the wave lasts, 600 by default.
func BenchmarkGuardSquareWave(b *testing.B) {
	need.Root(b)
	need.Program(b, "nginx", "nginx-light")
	need.Program(b, "stress-ng", "stress-ng")
	length := 10 * time.Minute
	if text := os.Getenv("GUARD_SECONDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			b.Fatalf("GUARD_SECONDS is %q: want a number of seconds", text)
		}
		length = time.Duration(n) * time.Second
	}
	// An interrupted run, too, removes its cgroups.
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	m, dir := startService(b, build(b), &services[0]), b.TempDir()
	rateOf := map[int]float64{}
	for _, level := range waveLevels {
		rateOf[level] = m.rate(b, level)
	}

	m.batch.Sleep(b) // the guard learns beside batch that uses nothing
	end := sync.OnceFunc(startPolder(b, m, dir, "harvest --guard on"))
	defer end() // if the client ends the benchmark
	for _, level := range waveLevels {
		m.load(b, rateOf[level], guardLearns, 0)
	}
	m.batch.Run(b, jobs[0].script(2*runtime.NumCPU(), b.TempDir()))
	begun, p99 := time.Now(), map[int][]float64{}
	for i := 0; interrupted.Err() == nil; i++ {
		left := length - time.Since(begun)
		if left < time.Second {
			break
		}
		level := waveLevels[i%len(waveLevels)]
		p99[level] = append(p99[level], m.load(b, rateOf[level], min(left, waveHalfPeriod), 0).P99)
	}
	if interrupted.Err() != nil {
		b.Fatal("interrupted")
	}
	end()
	ticks := readTicks(b, filepath.Join(dir, "ticks"))
	ticks = slices.DeleteFunc(ticks, func(x *tick.Tick) bool { return x.Time.Before(begun) })
	count := countGuard(ticks, m.batch.Name)
	if seconds := int(length.Seconds()); count.ticks < seconds/2 {
		b.Errorf("only %d ticks in %d s have advice:\n%s", count.ticks, seconds, logs(dir))
	}
	low, high := waveLevels[0], waveLevels[1]
	fmt.Printf("\n%s beside %s for %s on %d CPUs, %s: %.0f and %.0f requests a second (%d and %d %% of the machine), %s each\n\n%s",
		services[0].name, jobs[0].name, length, runtime.NumCPU(), kernel(),
		rateOf[low], rateOf[high], low, high, waveHalfPeriod, count.table(p99))
}

// The rows of BenchmarkGuardConstantLoad: how many, and how long each is measured. The guard has taken all its steps, and judged their
// effect, within half a minute.
const (
	constantRows    = 4
	constantRowTime = 20 * time.Second
)

// BenchmarkGuardConstantLoad measures what the guard takes from batch, and what the service has of it, while the load is constant and the
// batch job ran before the tools did, so that the guard never saw the service alone. The measurements of BenchmarkColocation end before
// the guard's first step.
func BenchmarkGuardConstantLoad(b *testing.B) {
	need.Root(b)
	need.Program(b, "nginx", "nginx-light")
	need.Program(b, "stress-ng", "stress-ng")
	m := startService(b, build(b), &services[0])
	for _, percent := range []int{50, 70} {
		rate := m.rate(b, percent)
		fmt.Printf("\n%s, %.0f requests a second (%d %% of the machine), beside %s\n\n", services[0].name, rate, percent, jobs[0].name)
		fmt.Print("| method | seconds | p99 ms | batch CPUs | steps taken | reverted |\n|---|---|---|---|---|---|\n")
		for _, policy := range []string{"", "harvest --guard off", "harvest"} {
			m.constantLoad(b, policy, rate)
		}
	}
}

// constantLoad measures Polder with a policy and its options, or the service beside batch that is made idle by hand if there is none.
func (m *measurement) constantLoad(b *testing.B, policy string, rate float64) {
	b.Helper()
	m.batch.Run(b, jobs[0].script(2*runtime.NumCPU(), b.TempDir()))
	dir, name := b.TempDir(), idleByHand
	stop := func() { m.batch.Write(b, "cpu.idle", "0") }
	if policy == "" {
		m.batch.Write(b, "cpu.idle", "1")
	} else {
		name = "Polder, --policy " + policy
		stop = startPolder(b, m, dir, policy)
	}
	for row := range constantRows {
		begun, used := time.Now(), m.batch.CPUTime(b)
		p99 := m.load(b, rate, constantRowTime, 0).P99
		batch := (m.batch.CPUTime(b) - used).Seconds() / time.Since(begun).Seconds()
		var guard guardCount // since the tools' start
		if policy != "" {
			guard = countGuard(readTicks(b, filepath.Join(dir, "ticks")), m.batch.Name)
		}
		from := time.Duration(row) * constantRowTime
		fmt.Printf("| %s | %.0f-%.0f | %.2f | %.2f | %d | %d |\n",
			name, from.Seconds(), (from + constantRowTime).Seconds(), p99, batch, guard.taken, guard.reverted)
	}
	stop()
	m.batch.Kill(b, m.ownProcesses...)
}

// readTicks reads the pipe's output. The last line may have been cut off when the pipe was killed.
func readTicks(b *testing.B, path string) (ticks []*tick.Tick) {
	b.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		x := new(tick.Tick)
		if err := tick.Unmarshal(line, x); err != nil {
			b.Fatalf("%v: %.200q", err, line)
		}
		ticks = append(ticks, x)
	}
	return ticks
}

// guardCount is how often the guard changed something.
type guardCount struct {
	ticks           int // with advice
	taken, reverted int // steps
	mostInMinute    int // steps taken and reverted within any 60 s
	valueChanges    int // ticks that change batch's CPU list, quota or memory.high, by the policy or by the guard
	inForce         int // the most steps at once
}

// countGuard counts the guard's changes from tick to tick: steps are added and removed at the end of the list. A tick without advice says
// nothing.
func countGuard(ticks []*tick.Tick, batch string) (c guardCount) {
	before, valuesBefore := 0, ""
	var changes []time.Time
	for _, x := range ticks {
		if x.Advice == nil {
			continue
		}
		steps, values := len(x.Advice.GuardSteps), ""
		for i := range x.Advice.Cgroups {
			if g := &x.Advice.Cgroups[i]; g.Cgroup == batch {
				values = strings.Join([]string{g.CPUSetCPUs, optional(g.CPUMaxMilliCPU), optional(g.MemoryHighBytes)}, "; ")
			}
		}
		c.taken += max(steps-before, 0)
		c.reverted += max(before-steps, 0)
		for range max(steps-before, before-steps) {
			changes = append(changes, x.Time)
		}
		if c.ticks > 0 && values != valuesBefore {
			c.valueChanges++
		}
		c.ticks++
		c.inForce = max(c.inForce, steps)
		before, valuesBefore = steps, values
	}
	for i, first := range changes {
		n := 0
		for _, at := range changes[i:] {
			if at.Sub(first) < time.Minute {
				n++
			}
		}
		c.mostInMinute = max(c.mostInMinute, n)
	}
	return c
}

// optional is a value that may not be set.
func optional(value *int64) string {
	if value == nil {
		return "none"
	}
	return strconv.FormatInt(*value, 10)
}

// table is the benchmark's output: the guard's changes, and the service's p99 in each half of the wave.
func (c guardCount) table(p99 map[int][]float64) string {
	var b strings.Builder
	b.WriteString("| | |\n|---|---|\n")
	for _, row := range []struct {
		name  string
		count int
	}{
		{"ticks with advice", c.ticks},
		{"steps taken", c.taken},
		{"steps reverted", c.reverted},
		{"most steps taken and reverted within a minute", c.mostInMinute},
		{"most steps in force", c.inForce},
		{"changes of batch's CPU list, quota or memory.high, the policy's included", c.valueChanges},
	} {
		fmt.Fprintf(&b, "| %s | %d |\n", row.name, row.count)
	}
	for _, level := range waveLevels {
		if list := p99[level]; len(list) > 0 {
			median, lowest, highest := spread(list)
			fmt.Fprintf(&b, "| p99 at %d %%, ms | %.2f (%.2f-%.2f) |\n", level, median, lowest, highest)
		}
	}
	return b.String()
}

func TestCountGuard(t *testing.T) {
	begin := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	at := func(second int, list string, steps ...string) *tick.Tick {
		return &tick.Tick{V: 1, Time: begin.Add(time.Duration(second) * time.Second), Advice: &tick.Advice{
			GuardSteps: steps,
			Cgroups:    []tick.Cgroup{{Cgroup: "/web", CPUSetCPUs: strconv.Itoa(second)}, {Cgroup: "/batch", CPUSetCPUs: list}},
		}}
	}
	got := countGuard([]*tick.Tick{
		at(0, "0-7"),
		at(1, "0-5", "CPUs"),
		{V: 1, Time: begin.Add(2 * time.Second)}, // advise did not decide: the step is still in force
		at(6, "0-5", "CPUs", "quota"),
		at(40, "0-5", "CPUs"),
		at(61, "0-7"), // a minute after the first change
		at(62, "0-5", "CPUs"),
	}, "/batch")
	if want := (guardCount{ticks: 6, taken: 3, reverted: 2, mostInMinute: 4, valueChanges: 3, inForce: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	table := got.table(map[int][]float64{60: {3, 1}})
	for _, want := range []string{
		"| steps taken | 3 |\n", "| steps reverted | 2 |\n", "within a minute | 4 |\n", "| p99 at 60 %, ms | 2.00 (1.00-3.00) |\n",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}
