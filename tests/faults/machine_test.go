package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/sys/unix"

	"polder/lib/tick"
	"polder/tests/deep"
	"polder/tests/need"
)

// newMachine makes a copy of the guide's node (48 CPUs, cgroup v2) with pods beside its own, in a directory of the test.
func newMachine(t *testing.T, pods int) string {
	t.Helper()
	root := t.TempDir()
	archive, err := txtar.ParseFile("../script/collect_root.txtar")
	if err != nil {
		t.Fatal(err)
	}
	write := func(path string, data []byte) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, path, string(data))
	}
	const own, scope = "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1111.slice/", "cri-containerd-"
	for _, f := range archive.Files {
		for _, of := range []string{"base/", "v2/"} {
			name, ok := strings.CutPrefix(f.Name, of)
			if !ok {
				continue
			}
			write(name, f.Data)
			file, ok := strings.CutPrefix(name, own+scope)
			_, file, below := strings.Cut(file, "/")
			if !ok || !below || strings.Contains(file, "/") || file == "cgroup.threads" {
				continue
			}
			for i := range pods {
				qos := []string{"burstable", "besteffort"}[i%2]
				write(fmt.Sprintf("sys/fs/cgroup/kubepods.slice/kubepods-%s.slice/kubepods-%s-pod%04d.slice/cri-containerd-%064x.scope/%s", qos, qos, i, i, file), f.Data)
			}
		}
	}
	return root
}

// runClock advances the copy's uptime, so that there are rates, until the test ends.
func runClock(t *testing.T, root string) {
	t.Helper()
	path, start, stop := filepath.Join(root, "proc/uptime"), time.Now(), make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			text := fmt.Sprintf("%.2f 100.00\n", 1000+time.Since(start).Seconds())
			if os.WriteFile(path+".new", []byte(text), 0o644) == nil {
				_ = os.Rename(path+".new", path)
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		close(stop)
		done.Wait()
	})
}

// TestFaultCollectKilled kills collect again and again: advise behind it continues with the next one's ticks.
func TestFaultCollectKilled(t *testing.T) {
	t.Parallel()
	rounds := deep.Or(15, 100)
	for _, size := range []struct {
		name string
		pods int
	}{{"3KB", 1}, {"30KB", 45}, {"200KB", 310}} {
		for _, s := range []syscall.Signal{unix.SIGTERM, unix.SIGKILL} {
			t.Run(size.name+" "+unix.SignalName(s), func(t *testing.T) {
				begin := time.Now()
				root, dir := newMachine(t, size.pods), t.TempDir()
				first, second := newFIFO(t, dir, "1"), newFIFO(t, dir, "2")
				out := openSink(t, second, nil)
				advise := launch(t, "advise", "--input", first, "--output", second)
				pid := advise.cmd.Process.Pid
				started := time.Now()
				collect := launch(t, "collect", "--root", root, "--interval", "10ms", "--output", first)
				// Its own tick shows that it has started: before, a signal would just end it.
				own := func(x seen) bool { return x.Time.After(started) }
				came, late := 0, 0
				for range rounds {
					out.await(came, "a tick of the next collect", own)
					time.Sleep(time.Duration(rand.IntN(12)) * time.Millisecond)
					got, want := collect.stop(s), map[syscall.Signal]int{unix.SIGTERM: 0, unix.SIGKILL: -1}[s]
					if got == 1 && want == 0 && strings.HasSuffix(strings.TrimSpace(collect.log.String()), "i/o timeout") && late < rounds/2 {
						late++ // on a busy machine the next stage may not read the rest of the last line within the two seconds that it has
					} else if got != want {
						t.Fatalf("exit status %d after %s; want %d: %s", got, unix.SignalName(s), want, collect.log)
					}
					came = max(0, len(out.all())-1)
					started = time.Now()
					collect.start()
				}
				out.await(came, "a tick of the last collect", own)
				advise.alive()
				if advise.cmd.Process.Pid != pid {
					t.Error("advise has another PID")
				}
				if status := advise.stop(unix.SIGTERM); status != 0 {
					t.Errorf("advise ended with status %d", status)
				}
				out.whole()
				before := time.Time{}
				for _, x := range out.all() {
					if x.Time.Before(before) {
						t.Errorf("a tick of %s came after one of %s", x.Time, before)
					}
					before = x.Time
				}
				torn := droppedLines(advise.log.String())
				if most := map[syscall.Signal]int{unix.SIGTERM: late, unix.SIGKILL: rounds}[s]; torn > most {
					t.Errorf("advise dropped %d lines; want at most %d: %s", torn, most, advise.log)
				}
				t.Logf("figures | collect | %s | %s | %d kills | %d ticks | %d torn lines, dropped by advise | - | %s", size.name, unix.SignalName(s), rounds, len(out.all()), torn, time.Since(begin).Round(time.Second/10))
			})
		}
	}
}

// droppedLines is the number of dropped lines that a tool logs at its end.
func droppedLines(log string) int {
	dropped := 0
	if _, rest, ok := strings.Cut(log, `msg="end of input"`); ok {
		_, rest, _ = strings.Cut(rest, "dropped=")
		_, _ = fmt.Sscanf(rest, "%d", &dropped)
	}
	return dropped
}

// A CPU that goes offline leaves every pool at the next tick, and isolate no longer writes it; it is back with the tick
// that has it again.
func TestFaultCPUsOffline(t *testing.T) {
	t.Parallel()
	root, dir := newMachine(t, 6), t.TempDir()
	runClock(t, root)
	first, second, third := newFIFO(t, dir, "1"), newFIFO(t, dir, "2"), newFIFO(t, dir, "3")
	out := openSink(t, third, nil)
	online := func(list string) {
		t.Helper()
		put(t, filepath.Join(root, "sys/fs/cgroup/cpuset.cpus.effective"), list+"\n")
		put(t, filepath.Join(root, "sys/devices/system/cpu/online.new"), list+"\n")
		if err := os.Rename(filepath.Join(root, "sys/devices/system/cpu/online.new"), filepath.Join(root, "sys/devices/system/cpu/online")); err != nil {
			t.Fatal(err)
		}
	}
	scopes, err := filepath.Glob(filepath.Join(root, "sys/fs/cgroup/kubepods.slice/*.slice/*.slice/*.scope"))
	if err != nil || len(scopes) != 7 {
		t.Fatalf("containers %v, %v; want 7", scopes, err)
	}
	for _, scope := range scopes {
		put(t, filepath.Join(scope, "cpuset.cpus"), "\n")
		put(t, filepath.Join(scope, "cpuset.cpus.effective"), "0-47\n")
	}
	launch(t, "collect", "--root", root, "--node", "n", "--interval", "50ms", "--output", first)
	launch(t, "advise", "--input", first, "--output", second, "--hold", "0s")
	launch(t, "isolate", "--root", root, "--node", "n", "--max-age", "1h", "--stale-after", "0", "--input", second, "--output", third, "--journal", filepath.Join(dir, "journal"))
	from := 0
	for _, list := range []string{"0-47", "0-39", "0-11", "0-5,7-11", "0", "0-47"} {
		online(list)
		allowed := cpuList(t, list)
		var x seen
		x, from = out.await(from, "advice for CPUs "+list, func(x seen) bool {
			used := map[int]bool{}
			if x.Advice == nil || len(x.Advice.Cgroups) == 0 {
				return false
			}
			for _, p := range x.Advice.Pools {
				for cpu := range cpuList(t, p.CPUs) {
					used[cpu] = true
				}
			}
			return len(used) == len(allowed) || list == "0" && len(x.Advice.Pools) == 0
		})
		for _, p := range x.Advice.Pools {
			for cpu := range cpuList(t, p.CPUs) {
				if !allowed[cpu] {
					t.Errorf("with CPUs %s online, pool %s is %s", list, p.Name, p.CPUs)
				}
			}
		}
		for _, w := range x.Isolation.Writes {
			if w.Key != "cpusetCPUs" {
				continue
			}
			for cpu := range cpuList(t, w.New) {
				if !allowed[cpu] {
					t.Errorf("with CPUs %s online, isolate wrote %q to %s", list, w.New, w.Cgroup)
				}
			}
		}
	}
	out.whole()
}

func cpuList(t *testing.T, text string) map[int]bool {
	t.Helper()
	set := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		var from, to int
		if n, _ := fmt.Sscanf(part, "%d-%d", &from, &to); n == 0 {
			continue
		} else if n == 1 {
			to = from
		}
		for ; from <= to; from++ {
			set[from] = true
		}
	}
	return set
}

// spoilt are ways in which a file of the machine may be unreadable or invalid.
var spoilt = []struct {
	name string
	make func(path string) error
}{
	{"gone", os.Remove},
	{"empty", func(path string) error { return os.WriteFile(path, nil, 0o644) }},
	{"a directory", func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o755)) }},
	{"bytes", func(path string) error {
		return os.WriteFile(path, []byte("\x00\xff\xfe%n%s\x1b[2J 99999999999999999999 -1 1e308 NaN\r\n\n\n=:,-\x00"), 0o644)
	}},
	{"cut off", func(path string) error {
		data, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(path, data[:len(data)/2], 0o644))
	}},
	{"large numbers", func(path string) error {
		return replaceDigits(path, "18446744073709551615")
	}},
	{"negative numbers", func(path string) error { return replaceDigits(path, "-7") }},
	{"a megabyte", func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("9", 1<<20)), 0o644) }},
	{"a loop of links", func(path string) error { return errors.Join(os.Remove(path), os.Symlink(path, path)) }},
	{"EIO", func(path string) error { // reading an address that is not mapped
		return unix.Mount(fmt.Sprintf("/proc/%d/mem", os.Getpid()), path, "", unix.MS_BIND, "")
	}},
}

func replaceDigits(path, by string) error {
	data, err := os.ReadFile(path)
	var b strings.Builder
	digit := false
	for _, c := range string(data) {
		is := c >= '0' && c <= '9'
		if is && !digit {
			b.WriteString(by)
		}
		if !is {
			b.WriteRune(c)
		}
		digit = is
	}
	return errors.Join(err, os.WriteFile(path, []byte(b.String()), 0o644))
}

// Every file of the machine in bad states, one at a time (in the long form in all of them): a tick comes out whose errors name it, and
// the output of advise, evict and report for it is a valid tick, too.
func TestFaultSpoiltFiles(t *testing.T) {
	need.Root(t) // for the mount
	t.Parallel()
	root := newMachine(t, 0)
	var files []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		seenCPU := strings.Contains(path, "/cpu/cpu") && !strings.Contains(path, "/cpu12/") // they are all alike
		if err == nil && d.Type().IsRegular() && !seenCPU {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 30 {
		t.Fatalf("files of the machine: %v, %v", files, err)
	}
	state := filepath.Join(t.TempDir(), "state.json")
	runTool(t, 0, nil, "collect", "--root", root, "--node", "n", "--once", "--once-over", "10ms", "--state", state)
	kept, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	runs, reported := 0, 0
	for i, path := range files {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for j := range deep.Or(3, len(spoilt)) {
			how := spoilt[(3*i+j)%len(spoilt)]
			name := strings.TrimPrefix(path, root) + " " + how.name
			if err := how.make(path); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			put(t, state, string(kept))
			lines, log := runTool(t, 0, nil, "collect", "--root", root, "--node", "n", "--once", "--once-over", "10ms", "--state", state)
			_ = unix.Unmount(path, unix.MNT_DETACH)
			if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, whole, 0o644)); err != nil {
				t.Fatal(err)
			}
			out, err := tick.ParseLine(lines)
			if err != nil {
				t.Errorf("%s: %v; output %q, log %s", name, err, clip(string(lines), 500), log)
				continue
			}
			runs++
			sample := string(out.Section(tick.SectionSample))
			if strings.Contains(sample, `"errors"`) || log != "" {
				reported++
			}
			if strings.Contains(path, "/cpu12/topology/") && !(strings.Contains(sample, `"source":"topology"`) && strings.Contains(sample, " of CPU 12")) {
				t.Errorf("%s: sample.errors does not report that CPU 12's file cannot be read: %s", name, clip(sample[max(0, len(sample)-1000):], 1000))
			}
			if runs%7 != 0 { // the tools behind collect read some of them
				continue
			}
			for _, tool := range [][]string{{"advise"}, {"isolate", "--dry-run", "--root", root}, {"evict", "--dry-run"}, {"report", "--to", "table", "--dry-run"}} {
				next, _ := runTool(t, 0, append(lines, '\n'), tool...)
				if tool[0] != "report" {
					lines = next
				}
			}
		}
	}
	t.Logf("figures | %d files in %d bad states: %d ticks, %d of them report it", len(files), len(spoilt), runs, reported)
}
