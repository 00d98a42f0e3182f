package faults

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

// guideTick is a tick of the guide's node with one shared pod at a load, and one reclaimed pod with a request.
func guideTick(at time.Time, load, reclaimedMilliCPU float64) []byte {
	var cores []string
	for i := range 24 {
		cores = append(cores, fmt.Sprintf(`"%d,%d"`, i, i+24))
	}
	return fmt.Appendf(nil, `{"v":1,"node":"n","time":%q,"sample":{"intervalSeconds":1,"topology":{"cpus":"0-47","cores":[%s]},"memory":{"totalBytes":200626610176},"pods":[`+
		`{"uid":"u1","name":"service","qos":"shared","cgroup":"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1111.slice","containers":[{"name":"c","cgroup":"/batch.slice","usageMilliCPU":%g,"load1":%g,"load5":%g,"memory":{"rssBytes":1048576}}]},`+
		`{"uid":"u2","name":"batch","qos":"reclaimed","requests":{"reclaimedMilliCPU":%g},"cgroup":"/polder-none","containers":[{"name":"c","cgroup":"/polder-none","usageMilliCPU":10,"load1":0,"load5":0}]}]}}`+"\n",
		at.UTC().Format(time.RFC3339Nano), strings.Join(cores, ","), load*1000, load, load, reclaimedMilliCPU)
}

func decodeAll(t *testing.T, out []byte, sections ...string) []*tick.Tick {
	t.Helper()
	var ticks []*tick.Tick
	for line := range bytes.Lines(append(out, '\n')) {
		x, err := tick.ParseLine(bytes.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		d, err := x.Decode(sections...)
		if err != nil {
			t.Fatal(err)
		}
		ticks = append(ticks, d)
	}
	return ticks
}

// The node's clock is set back and forth by an hour between two ticks: no hold-down, taint or cooldown lasts longer for
// it, and no time is counted that did not pass. A test cannot set a tool's own clock; the tool compares it only with the tick's
// time (--max-age), which the test chooses.
func TestFaultClockSteps(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, step := range []time.Duration{-time.Hour, time.Hour, -24 * 365 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			var in bytes.Buffer
			const before, after = 20, 40
			for i := range before + after {
				at, load, batch := start.Add(time.Duration(i)*time.Second), 60.0, 900_000.0
				if i >= before { // idle from here on, on the other clock
					at, load, batch = at.Add(step), 1, 1000
				}
				in.Write(guideTick(at, load, batch))
			}
			out, _ := runTool(t, 0, in.Bytes(), "advise", "--hold", "5s")
			out, _ = runTool(t, 0, append(out, '\n'), "evict", "--node", "n", "--max-age", "0", "--taint-transition-period", "5s", "--load-sync-period", "1s")
			runTool(t, 0, append(out, '\n'), "report", "--dry-run", "--to", "prometheus", "--metrics-file", filepath.Join(t.TempDir(), "x.prom"))
			ticks := decodeAll(t, out, tick.SectionAdvice, tick.SectionEviction)
			if len(ticks) != before+after {
				t.Fatalf("%d ticks; want %d", len(ticks), before+after)
			}
			reclaimed := func(i int) int64 { return *ticks[i].Advice.Reclaimed.MilliCPU }
			if got := reclaimed(before); step < 0 && got != reclaimed(before-1) {
				t.Errorf("at the step back %d are reclaimed; want %d still: no sampled time has passed", got, reclaimed(before-1))
			}
			if got, low := reclaimed(before+8), reclaimed(before-1); got <= low {
				t.Errorf("8 s after the step %d are reclaimed, %d before; want more: the hold-down is 5s", got, low)
			}
			if len(ticks[before-1].Eviction.Taints) == 0 {
				t.Errorf("no taint at the peak: %+v", ticks[before-1].Eviction)
			}
			// The window's share falls below 80% after 3 calm samples, then the taint's 5 s.
			if last := ticks[before+20].Eviction; len(last.Taints) > 0 {
				t.Errorf("20 s after the step the taints are %+v; want none: they are kept for 5s", last.Taints)
			}
			for i := before; i < before+after; i++ {
				for _, p := range ticks[i].Eviction.Pressures {
					if since, err := time.Parse(time.RFC3339Nano, p.Since); err == nil && (since.After(ticks[i].Time) || step > 0 && p.Met && i > before+20) {
						t.Errorf("tick %d of %s: pressure %+v", i, ticks[i].Time, p)
					}
				}
			}
		})
	}
}

// A tick of an hour ago or ahead is forwarded and not acted on, whichever of the two clocks is wrong; with the right time
// it is acted on again.
func TestFaultClockOfAnother(t *testing.T) {
	t.Parallel()
	root, dir := newMachine(t, 0), t.TempDir()
	slice := filepath.Join(root, "sys/fs/cgroup/batch.slice")
	put(t, filepath.Join(slice, "cpu.weight"), "100\n")
	metrics := filepath.Join(dir, "node.prom")
	for _, step := range []time.Duration{-time.Hour, time.Hour, -10_000 * 24 * time.Hour, 200 * 365 * 24 * time.Hour, 0} {
		at := time.Now().Add(step)
		line := bytes.Replace(guideTick(at, 30, 900_000), []byte(`"sample"`), []byte(`"advice":{"policy":"test","cgroups":[{"cgroup":"/batch.slice","cpuWeight":50}],"reclaimed":{"milliCPU":1000},"pools":[{"name":"share","cpus":"0-3"}]},"sample"`), 1)
		limit := []string{"--node", "n"} // and the default one, of seconds
		if step == 0 {                   // a busy machine may take longer for three tools
			limit = append(limit, "--max-age", "10m")
		}
		out, _ := runTool(t, 0, line, append([]string{"isolate", "--root", root, "--journal", filepath.Join(dir, "journal")}, limit...)...)
		out, _ = runTool(t, 0, append(out, '\n'), append([]string{"evict"}, limit...)...)
		out, _ = runTool(t, 0, append(out, '\n'), append([]string{"report", "--to", "prometheus", "--metrics-file", metrics}, limit...)...)
		x := decodeAll(t, out, tick.SectionIsolation, tick.SectionEviction, tick.SectionReport)[0]
		weight, err := os.ReadFile(filepath.Join(slice, "cpu.weight"))
		if err != nil {
			t.Fatal(err)
		}
		acted := strings.TrimSpace(string(weight)) == "50"
		_, err = os.Stat(metrics)
		refused := x.Isolation.Refused != "" && x.Eviction.Refused != "" && x.Report.Refused != ""
		if want := step == 0; acted != want || (err == nil) != want || refused == want {
			t.Errorf("a tick %s off: cpu.weight written %v, metrics %v, refused %q, %q, %q; want acted on: %v", step, acted, err, x.Isolation.Refused, x.Eviction.Refused, x.Report.Refused, want)
		}
	}
}

// tree reads all files below a directory.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, root)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// changed names the files that differ.
func changed(before, after map[string]string) []string {
	var names []string
	for name, text := range after {
		if was, ok := before[name]; !ok || was != text {
			names = append(names, name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
