package faults

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/await"
	"polder/tests/deep"
	"polder/tests/group"
	"polder/tests/need"
)

// hostile is one line by an attacker or a broken stage.
type hostile struct {
	name string
	line string
	bad  bool // it is not a tick for any tool: dropped, or the end with --strict
}

// hostileLines are the corpus. HEAD stands for a tick's v, node and current time.
func hostileLines() []hostile {
	deep := func(n int, open, inner, end string) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	pods := func(n int, one string) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(one, i)
		}
		return `{HEAD,"sample":{"intervalSeconds":1,"topology":{"cpus":"0-7"},"memory":{"totalBytes":17179869184},"pods":[` + strings.Join(list, ",") + `]}}`
	}
	list := []hostile{
		{"an array", `[]`, true},
		{"null", `null`, true},
		{"a number", `1`, true},
		{"no quotes", `{v:1,node:n}`, true},
		{"single quotes", `{'v':1}`, true},
		{"a comment", `{HEAD /* x */}`, true},
		{"a comma at the end", `{HEAD,}`, true},
		{"two objects", `{HEAD}{HEAD}`, true},
		{"garbage behind", `{HEAD} x`, true},
		{"a byte order mark", "\ufeff{HEAD}", true},
		{"not UTF-8", "{HEAD,\"x\":\"\xff\xfe\"}", true},
		{"UTF-8 of a surrogate", "{HEAD,\"x\":\"\xed\xa0\x80\"}", true},
		{"a NUL byte", "{HEAD,\"x\":\"\x00\"}", true},
		{"a tab in a string", "{HEAD,\"x\":\"\t\"}", true},
		{"an invalid escape", `{HEAD,"x":"\x41"}`, true},
		{"NaN", `{HEAD,"sample":{"cpu":{"usageMilliCPU":NaN}}}`, true},
		{"Infinity", `{HEAD,"sample":{"cpu":{"usageMilliCPU":Infinity}}}`, true},
		{"-Infinity", `{HEAD,"sample":{"cpu":{"usageMilliCPU":-Infinity}}}`, true},
		{"a leading zero", `{HEAD,"x":01}`, true},
		{"a plus sign", `{HEAD,"x":+1}`, true},
		{"hexadecimal", `{HEAD,"x":0x10}`, true},
		{"half a number", `{HEAD,"x":1e}`, true},
		{"a key twice", `{HEAD,"node":"other"}`, true},
		{"a section twice", `{HEAD,"advice":{"policy":"a"},"advice":{"policy":"b","cgroups":[{"cgroup":"/x","cpuWeight":1}]}}`, true},
		{"a section's key with an escape", `{HEAD,"adv\u0069ce":{"policy":"a"}}`, true},
		{"another version", `{"v":2,"node":"n","time":"NOW"}`, true},
		{"the version as a string", `{"v":"1","node":"n","time":"NOW"}`, true},
		{"a huge version", `{"v":1e308,"node":"n","time":"NOW"}`, true},
		{"no node", `{"v":1,"time":"NOW"}`, true},
		{"an empty node", `{"v":1,"node":"","time":"NOW"}`, true},
		{"a node that is a number", `{"v":1,"node":7,"time":"NOW"}`, true},
		{"a node that clears the screen", `{"v":1,"node":"\u001b[2J","time":"NOW"}`, true},
		{"a node with a C1 control", `{"v":1,"node":"a\u009bm","time":"NOW"}`, true},
		{"a node of 5,000 bytes", `{"v":1,"node":"` + strings.Repeat("n", 5000) + `","time":"NOW"}`, true},
		{"no time", `{"v":1,"node":"n"}`, true},
		{"a time in words", `{"v":1,"node":"n","time":"yesterday"}`, true},
		{"a time that is a number", `{"v":1,"node":"n","time":1767225600}`, true},
		{"an invalid time", `{"v":1,"node":"n","time":"2026-13-45T99:99:99Z"}`, true},
		{"deep objects", `{HEAD,"x":` + deep(300, `{"x":`, `1`, `}`) + `}`, true},
		{"deep arrays", `{HEAD,"x":` + deep(1_000_000, `[`, ``, `]`) + `}`, true},
		{"deep and cut off", `{HEAD,"x":` + strings.Repeat(`[`, 1_000_000), true},
		{"a line over the limit", `{HEAD,"x":"` + strings.Repeat("x", 17<<20) + `"}`, true},

		{"nothing but the head", `{HEAD}`, false},
		{"blanks", ` { HEAD } `, false},
		{"null sections", `{HEAD,"sample":null,"advice":null,"isolation":null,"eviction":null,"report":null}`, false},
		{"empty sections", `{HEAD,"sample":{},"advice":{},"isolation":{},"eviction":{},"report":{}}`, false},
		{"unknown sections", `{HEAD,"x":{"y":[1,2,{"z":null}]},"\u0000":1,"":2}`, true},
		{"an empty key", `{HEAD,"":{"y":1}}`, false},
		{"nested as deep as is allowed", `{HEAD,"x":` + deep(250, `[`, ``, `]`) + `}`, false},
		{"a nested key twice", `{HEAD,"sample":{"topology":{"cpus":"0-3"},"topology":{"cpus":"0-7","cpus":"0-1"},"pods":[],"pods":[{"uid":"u","uid":"v"}]}}`, false},
		{"nested keys with escapes", `{HEAD,"sample":{"topolog\u0079":{"cp\u0075s":"0-7"},"\u0070ods":[{"ui\u0064":"u"}]}}`, false},
		{"numbers out of range", `{HEAD,"sample":{"intervalSeconds":1e308,"topology":{"cpus":"0-7"},"cpu":{"usageMilliCPU":1e308,"load1":-1e308},"memory":{"totalBytes":1e308,"freeBytes":-1},"capacity":{"milliCPU":-5,"memoryBytes":-1e300},"allocatable":{"milliCPU":1e300,"memoryBytes":1e-300},"pods":[{"uid":"u","name":"p","qos":"shared","cgroup":"/x","usageMilliCPU":1e308,"load1":-0.0,"requests":{"milliCPU":-1e308,"memoryBytes":1e308},"containers":[{"cgroup":"/x/c","usageMilliCPU":-1e308,"load1":1e308,"load5":1e308,"memory":{"rssBytes":1e308}}]},{"uid":"r","name":"r","qos":"reclaimed","cgroup":"/y","requests":{"reclaimedMilliCPU":1e308},"limits":{"milliCPU":1e308}}]}}`, false},
		{"too large for a float", `{HEAD,"sample":{"topology":{"cpus":"0-7"},"cpu":{"usageMilliCPU":1e999}}}`, false},
		{"negative everywhere", `{HEAD,"sample":{"intervalSeconds":-1,"droppedTicks":-9,"topology":{"cpus":"0-7","numaNodes":[{"id":-1,"cpus":"0-7","memoryBytes":-1}]},"numaNodes":[{"id":-9223372036854775808}],"pods":[{"uid":"u","qos":"shared","cgroup":"/x","threads":-1,"priority":-9223372036854775808}]},"advice":{"policy":"x","reclaimed":{"milliCPU":-1,"memoryBytes":-1}}}`, false},
		{"CPU lists", `{HEAD,"sample":{"topology":{"cpus":"0-99999999","cores":["-1","9-2","0,,1"],"sockets":[""],"l3":["x"]},"pods":[]}}`, false},
		{"CPU lists that overlap", `{HEAD,"sample":{"topology":{"cpus":"0-7","cores":["0-7","0-7","3-5"],"sockets":["0-7","0"],"numaNodes":[{"id":0,"cpus":"0-7"},{"id":0,"cpus":"0-7"}]},"intervalSeconds":1,"pods":[{"uid":"u","qos":"dedicated","cgroup":"/x","requests":{"milliCPU":1e9}}]}}`, false},
		{"8,192 CPUs", `{HEAD,"sample":{"intervalSeconds":1,"topology":{"cpus":"0-8191"},"pods":[{"uid":"u","qos":"shared","cgroup":"/x","containers":[{"cgroup":"/x/c","usageMilliCPU":1}]}]}}`, false},
		{"empty strings", `{HEAD,"sample":{"intervalSeconds":1,"topology":{"cpus":""},"pods":[{"uid":"","name":"","qos":"","cgroup":"","containers":[{"name":"","cgroup":""}]}]},"advice":{"policy":"","pools":[{"name":"","cpus":""}],"cgroups":[{"cgroup":"","cpusetCPUs":""}]}}`, false},
		{"names that draw on the screen", `{HEAD,"sample":{"intervalSeconds":1,"topology":{"cpus":"0-7"},"pods":[{"uid":"u\u0000","namespace":"\u001b]0;title\u0007","name":"a\nb\u009b2J\u202e","qos":"shared\"} 1\nx","cgroup":"/x\u001b[31m","labels":{"a\nb":"c\"d"},"containers":[{"name":"\u007f\r","cgroup":"/x/\u0085","usageMilliCPU":1}]}],"errors":[{"source":"\u001b[2J","error":"\u0007"}]},"advice":{"policy":"\u001b[2J","reasons":["\u001b[2J\n"],"pools":[{"name":"sh\u001bare\n","cpus":"0"}]},"isolation":{"applied":1,"unchanged":0,"writes":[{"cgroup":"/\u001b[2J","key":"\n","old":"\u0007","new":"\r"}]},"eviction":{"taints":[{"key":"\u001b","effect":"\n"}],"evictions":[{"uid":"u","name":"\u001b[2J","rule":"r\n","scope":"","reason":"","message":"\u0007","state":"requested"}]}}`, false},
		{"times at the ends", `{"v":1,"node":"n","time":"0001-01-01T00:00:01Z","sample":{"topology":{"cpus":"0-7"}}}`, false},
		{"the last year", `{"v":1,"node":"n","time":"9999-12-31T23:59:59.999999999+23:59","sample":{"topology":{"cpus":"0-7"},"pods":[]}}`, false},
		{"10,000 pods", pods(10_000, `{"uid":"u%[1]d","name":"p%[1]d","qos":"reclaimed","cgroup":"/polder-none/p%[1]d","requests":{"reclaimedMilliCPU":1000},"containers":[{"cgroup":"/polder-none/p%[1]d/c","usageMilliCPU":1,"load1":1,"load5":1}]}`), false},
		{"10,000 pods of one name", pods(10_000, `{"uid":"u","name":"p","qos":"shared","cgroup":"/polder-none/%[1]d/../..","containers":[]}`), false},
		{"a pod with 50,000 containers", pods(1, `{"uid":"u%d","qos":"dedicated","cgroup":"/x","containers":[`+strings.TrimSuffix(strings.Repeat(`{},`, 50_000), ",")+`]}`), false},
	}
	for _, path := range []string{"sample", "advice", "isolation", "eviction", "report", "sample.topology", "sample.topology.cpus", "sample.cpu", "sample.memory", "sample.memory.totalBytes", "sample.pods", "sample.labels", "sample.intervalSeconds", "advice.cgroups", "advice.fallback", "advice.pools", "advice.reclaimed", "advice.policy", "isolation.writes", "isolation.applied", "eviction.evictions", "eviction.pressures", "report.targets"} {
		for _, wrong := range []string{`7`, `"text"`, `true`, `[]`, `[[[]]]`, `{"a":{}}`, `[null,{},7]`, `-1.5e-7`} {
			keys := strings.Split(path, ".")
			line := wrong
			for _, key := range slices.Backward(keys) {
				line = fmt.Sprintf(`{%q:%s}`, key, line)
			}
			list = append(list, hostile{path + " is " + wrong, `{HEAD,` + line[1:], false})
		}
	}
	return list
}

// hostilePaths are cgroups that lead out of the hierarchy, or nowhere.
var hostilePaths = []string{
	"/../../../../outside", "../outside", "/batch.slice/../../../../../outside", "/link", "/link/inner", "/batch.slice/link", "//batch.slice", "/./batch.slice", "/batch.slice/", "/batch.slice/.", "", "/", ".", "..", "/..",
	"batch.slice", "/batch.slice\\u0000", "/batch.slice\\n", "/batch.slice\\u0000/../x", "/\\u001b[2J", "/proc/self", "/" + strings.Repeat("x", 300), strings.Repeat("/x", 5000), "/batch.slice/cpu.weight", "\\ud800",
}

func fillIn(line, node string) []byte {
	now := time.Now().UTC().Format(time.RFC3339Nano)
	line = strings.ReplaceAll(line, "HEAD", fmt.Sprintf(`"v":1,"node":%q,"time":"NOW"`, node))
	return []byte(strings.ReplaceAll(line, "NOW", now) + "\n")
}

// hostileTools is every tool that reads ticks, as it acts and in its dry run. DIR is a directory of the
// test.
func hostileTools(dir string) [][]string {
	root := filepath.Join(dir, "machine")
	return [][]string{
		{"advise"},
		{"isolate", "--dry-run", "--root", root},
		{"isolate", "--node", "n", "--max-age", "0", "--root", root, "--journal", filepath.Join(dir, "journal")},
		{"evict", "--dry-run"},
		{"evict", "--node", "n", "--max-age", "0", "--reclaimed-tolerance", "0s", "--action", "kill", "--state", filepath.Join(dir, "evict.json")},
		{"report", "--to", "table", "--to", "prometheus", "--node", "n", "--max-age", "0", "--metrics-file", filepath.Join(dir, "x.prom")},
		{"report", "--to", "tty", "--dry-run"},
	}
}

// TestHostileTicks sends every tool every line of the corpus in one stream, and alone each invalid line (in the long form each
// line): a clear error or a normal tick, no crash, no write.
func TestHostileTicks(t *testing.T) {
	lines := hostileLines()
	for i := range hostileTools("") {
		name := strings.Join(hostileTools("DIR")[i], " ")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, before := hostileDir(t)
			args := hostileTools(dir)[i]
			good := fillIn(`{HEAD,"sample":{"topology":{"cpus":"0-7"},"pods":[]},"mark":"good"}`, "n")
			var stream []byte
			for _, h := range lines {
				line := fillIn(h.line, "n")
				stream = append(append(stream, line...), good...)
				if len(line) > 1<<20 && i%2 == 0 || !deep.Wanted() && (!h.bad || i%2 == 0 && i > 0) {
					continue // the large ones alone with half of the tools; in the stream with all
				}
				alone := anyStatus
				if h.bad {
					alone = 1 // the input has no tick at all
				}
				out, log := runTool(t, alone, line, args...)
				if h.bad && (args[0] != "report" && len(out) > 0 || !strings.Contains(log, "dropped a line")) {
					t.Errorf("%s: output %q, log %q; want it dropped, and the reason", h.name, clip(string(out), 300), clip(log, 300))
				}
				if !h.bad && args[0] != "report" && len(out) == 0 && !strings.Contains(log, "dropped a line") {
					t.Errorf("%s: no output and no reason: %s", h.name, log)
				}
				if args[0] == "report" {
					checkScreen(t, h.name, out)
					checkMetrics(t, h.name, filepath.Join(dir, "x.prom"))
				}
				status := anyStatus
				if h.bad {
					status = 1
				}
				if len(line) < 1<<20 {
					if _, log = runTool(t, status, line, append(args, "--strict")...); h.bad && !strings.Contains(log, "line 1: ") {
						t.Errorf("%s: --strict logs %q; want the line", h.name, clip(log, 300))
					}
				}
			}
			out, _ := runTool(t, 0, stream, args...)
			got, want := bytes.Count(out, []byte(`"mark":"good"`)), len(lines)
			if slices.Contains(args, "--journal") || slices.Contains(args, "--action") {
				want = 1 // one that acts drops a tick for a newer one
			}
			if args[0] != "report" && got < want {
				t.Errorf("%d good ticks came through between the others; want %d", got, want)
			}
			for _, name := range changed(before, tree(t, dir)) {
				if !slices.Contains(ownFiles, name) {
					t.Errorf("changed: %s", name)
				}
			}
		})
	}
}

// hostileDir is a machine with links that lead out of it, and their targets. It also returns all of its files.
func hostileDir(t *testing.T) (dir string, before map[string]string) {
	t.Helper()
	dir = t.TempDir()
	root := newMachine(t, 0)
	if err := os.Rename(root, filepath.Join(dir, "machine")); err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(dir, "machine/sys/fs/cgroup")
	outside := filepath.Join(dir, "outside")
	if err := os.MkdirAll(filepath.Join(outside, "inner"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, where := range []string{outside, filepath.Join(outside, "inner"), base, filepath.Join(base, "batch.slice")} {
		for file, text := range map[string]string{"cpu.weight": "100", "cpu.max": "max 100000", "cpu.idle": "0", "cpuset.cpus": "", "cpuset.mems": "", "memory.max": "max", "memory.high": "max", "memory.low": "0", "memory.min": "0", "io.weight": "default 100"} {
			put(t, filepath.Join(where, file), text+"\n")
		}
	}
	for _, link := range []string{filepath.Join(base, "link"), filepath.Join(base, "batch.slice/link")} {
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
	}
	return dir, tree(t, dir)
}

// ownFiles are the files that the tools' flags name.
var ownFiles = []string{"/journal", "/evict.json", "/x.prom"}

// checkScreen fails the test if a name sent control characters to the terminal.
func checkScreen(t *testing.T, name string, out []byte) {
	t.Helper()
	for _, r := range string(out) {
		if r < 0x20 && r != '\n' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x202e {
			t.Errorf("%s: the screen gets %U: %q", name, r, clip(string(out), 500))
			return
		}
	}
}

var metricLine = regexp.MustCompile(`^(# (HELP|TYPE) [a-z0-9_]+ .*|[a-z0-9_]+(\{[a-z_]+="([^"\\]|\\.)*"(,[a-z_]+="([^"\\]|\\.)*")*\})? (-?[0-9.]+(e[-+][0-9]+)?|[+-]Inf|NaN))$`)

// checkMetrics fails the test if a name added a line of its own to the metrics.
func checkMetrics(t *testing.T, name, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		return // nothing was written
	}
	for line := range strings.Lines(string(data)) {
		if !metricLine.MatchString(strings.TrimSuffix(line, "\n")) {
			t.Errorf("%s: the metrics have %q", name, line)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Error(err)
	}
}

// TestHostileAdvice runs isolate on advice for cgroups outside the hierarchy, and on invalid values: nothing outside
// the hierarchy changes, and isolate writes only values that a kernel accepts.
func TestHostileAdvice(t *testing.T) {
	t.Parallel()
	dir, before := hostileDir(t)
	args := hostileTools(dir)[2]
	var in bytes.Buffer
	for _, path := range hostilePaths {
		in.Write(fillIn(`{HEAD,"advice":{"policy":"x","cgroups":[{"cgroup":"`+path+`","cpusetCPUs":"0","cpusetMems":"0","cpuMaxMilliCPU":77,"cpuWeight":7,"cpuIdle":true,"memoryMinBytes":4096,"memoryLowBytes":4096,"memoryHighBytes":4096,"memoryMaxBytes":4096,"ioWeight":7}],"fallback":[{"cgroup":"`+path+`","cpuWeight":3}]}}`, "n"))
	}
	out, _ := runTool(t, 0, in.Bytes(), args...)
	for _, x := range decodeAll(t, out, tick.SectionIsolation) {
		if x.Isolation.Applied > 0 || len(x.Isolation.Writes) > 0 {
			t.Errorf("isolation = %+v; want nothing written", x.Isolation)
		}
	}
	for _, name := range changed(before, tree(t, dir)) {
		if !slices.Contains(ownFiles, name) {
			t.Errorf("changed: %s", name)
		}
	}

	in.Reset()
	for _, value := range []string{
		`"cpusetCPUs":"0-99999999"`, `"cpusetCPUs":"0;reboot"`, `"cpusetCPUs":"-1"`, `"cpusetCPUs":"9000"`, `"cpusetCPUs":"0\n1"`, `"cpusetCPUs":" 0 "`, `"cpusetMems":"0-1023"`, `"cpusetMems":"x"`,
		`"cpuMaxMilliCPU":0`, `"cpuMaxMilliCPU":-2`, `"cpuMaxMilliCPU":9223372036854775807`, `"cpuMaxMilliCPU":-9223372036854775808`, `"cpuMaxMilliCPU":1`,
		`"cpuWeight":0`, `"cpuWeight":-1`, `"cpuWeight":10001`, `"cpuWeight":9223372036854775807`, `"ioWeight":0`, `"ioWeight":100000`,
		`"memoryMaxBytes":-2`, `"memoryMaxBytes":0`, `"memoryMaxBytes":1`, `"memoryMaxBytes":9223372036854775807`, `"memoryHighBytes":-9223372036854775808`, `"memoryMinBytes":-1`, `"memoryLowBytes":9223372036854775807`,
	} {
		in.Write(fillIn(`{HEAD,"advice":{"policy":"x","cgroups":[{"cgroup":"/batch.slice",`+value+`}]}}`, "n"))
	}
	out, _ = runTool(t, 0, in.Bytes(), args...)
	taken := regexp.MustCompile(`^(max|[0-9]+|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*|(max|[0-9]+) [0-9]+|default [0-9]+)$`)
	for _, x := range decodeAll(t, out, tick.SectionIsolation) {
		for _, w := range x.Isolation.Writes {
			if w.Cgroup != "/batch.slice" || !taken.MatchString(w.New) || len(w.New) > 40 {
				t.Errorf("wrote %+v; want only values that a kernel accepts", w)
			}
		}
	}
	for _, name := range changed(before, tree(t, dir)) {
		if !strings.HasPrefix(name, "/machine/sys/fs/cgroup/batch.slice/") && !slices.Contains(ownFiles, name) {
			t.Errorf("changed: %s", name)
		}
	}
}

// TestHostileVictims runs evict --action kill on pods whose cgroup leads elsewhere: it ends only the processes of the
// cgroup that is named properly.
func TestHostileVictims(t *testing.T) {
	need.Root(t)
	t.Parallel()
	top := group.New(t, nil, "hostile")
	keep, victim := group.New(t, top, "keep"), group.New(t, top, "victim")
	keep.Sleep(t)
	victim.Sleep(t)
	over := func(cgroup string) []byte {
		return fillIn(`{HEAD,"sample":{"intervalSeconds":1,"topology":{"cpus":"0-7"},"pods":[{"uid":"u","name":"p","qos":"reclaimed","cgroup":"`+cgroup+`","requests":{"reclaimedMilliCPU":1e9}}]},"advice":{"policy":"x","reclaimed":{"milliCPU":1000}}}`, "n")
	}
	kill := []string{"evict", "--node", "n", "--max-age", "1h", "--reclaimed-tolerance", "0s", "--action", "kill", "--reclaimed-grace-period", "1s"}
	paths := append([]string{victim.Name + "/../keep", keep.Name + "/", keep.Name + "/.", "/" + keep.Name, strings.TrimPrefix(keep.Name, "/"), keep.Name + `\n`, keep.Name + `\u0000`, keep.Name + "/none", top.Name + "x"}, hostilePaths...)
	for _, path := range paths {
		_, log := runTool(t, 0, over(path), kill...)
		if len(keep.PIDs(t)) != 1 || len(victim.PIDs(t)) != 1 {
			t.Fatalf("cgroup %q: a process was ended: %s", path, log)
		}
	}
	_, log := runTool(t, 0, over(victim.Name), kill...)
	await.Until(t, patient, "the victim has ended", func() string { // a process that was killed takes a while to
		if left := victim.PIDs(t); len(left) != 0 {
			return fmt.Sprintf("processes left: %v: %s", left, log)
		}
		return ""
	})
	if len(keep.PIDs(t)) != 1 {
		t.Errorf("processes left: %v in keep; want only the victim's ended: %s", keep.PIDs(t), log)
	}
}
