package tests

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/tests/await"
	"polder/tests/group"
	"polder/tests/need"
)

// elsewhere are the marks of blocks whose commands need more than this machine's kernel, and who runs such commands. A mark is a comment
// in the line above the block, which no reader sees: <!-- run: cluster -->.
var elsewhere = map[string]string{
	"bench":    "go test -bench and make bench-*: scripts/bench and docs/performance.md; here their targets and packages are looked up",
	"cluster":  "kubectl, helm and --kubeconfig: tests/cluster/deploy, tests/node, tests/vmnode",
	"make":     "the Makefile's targets: tests/run; here they are looked up",
	"package":  "a release's tarball, .deb, .rpm or image: make dist-check, tests/vm (TestPackageGuest), tests/supervisor",
	"systemd":  "systemctl and the units: tests/vm, tests/supervisor",
	"terminal": "a screen with keys: report/replay, tests/script/report_views.txtar",
}

// endless marks a block whose collect goes on, for later commands of the block, until the block ends it. A block with the mark
// "ctrl-c FILE" goes on until FILE has something in it. In all others collect ends after two ticks, where a reader would press Ctrl-C.
const endless = "endless"

// A block is the commands of a page that stand together: an indented block, or a fence with the language sh. A fence with the language
// output is what the last command above it prints.
type block struct {
	page     string
	line     int // of its first line
	mark     string
	examples []example
}

// example is a command of a page, and the lines that the page shows as its output.
type example struct {
	line            int
	command, output string
}

// starts is how a command of a page begins, without what it may have before it: variables' values. Any other line of a block is what the
// command above it prints, so that a command that is missing here fails as output that nobody printed.
var starts = regexp.MustCompile(`^(?:[A-Z_]+=\S+ )*(advise|apt|apt-get|cat|collect|colocate|ctr|curl|docker|echo|env|evict|find|findmnt|for|` +
	`git|go|grep|gzip|head|helm|install|isolate|journalctl|jq|kill|kubectl|ls|make|mkdir|printf|ps|report|` +
	`s6-svc|s6-svscanctl|s6-svstat|scripts/\S+|ss|` +
	`systemctl|tail|tar|ulimit|uname|wc|/usr/local/lib/polder/s6/start) `)

var (
	mark  = regexp.MustCompile(`^<!-- run: (.+) -->$`)
	fence = regexp.MustCompile("^ *```(.*)$")
)

// blocks are the blocks of commands of a page, in its order.
func blocks(page, text string) (all []block, err error) {
	lines := strings.Split(text, "\n")
	above := "" // the last line that is not blank
	for i := 0; i < len(lines); i++ {
		first, end := i, i
		language := fence.FindStringSubmatch(lines[i])
		switch {
		case language != nil:
			first++
			for end = first; end < len(lines) && fence.FindStringSubmatch(lines[end]) == nil; end++ {
			}
			if language[1] == "output" && len(all) > 0 && len(all[len(all)-1].examples) > 0 {
				last := &all[len(all)-1]
				last.examples[len(last.examples)-1].output += strings.Join(lines[first:end], "\n") + "\n"
			}
			if language[1] != "sh" {
				above, i = "", end
				continue
			}
		case strings.HasPrefix(lines[i], "    ") && (i == 0 || lines[i-1] == "" || mark.MatchString(lines[i-1])):
			indented := func(i int) bool { return i < len(lines) && strings.HasPrefix(lines[i], "    ") }
			for indented(end) || end < len(lines) && lines[end] == "" && indented(end+1) {
				end++
			}
		default:
			if lines[i] != "" {
				above = lines[i]
			}
			continue
		}
		b := block{page: page, line: first + 1}
		if m := mark.FindStringSubmatch(strings.TrimSpace(above)); m != nil {
			b.mark = m[1]
		}
		if b.examples, err = examples(lines[first:end], first+1); err != nil {
			return nil, fmt.Errorf("%s:%w", page, err)
		}
		all = append(all, b)
		above, i = "", max(end-1, first)
		if language != nil {
			i = end
		}
	}
	return all, nil
}

// examples are the commands of a block's lines, the first of which has a number. A command has more lines where bash says so.
func examples(lines []string, number int) (all []example, err error) {
	prompt := slices.ContainsFunc(lines, func(s string) bool { return strings.HasPrefix(strings.TrimSpace(s), "$ ") })
	indent := ""
	if len(lines) > 0 {
		indent = lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], " "))]
	}
	for i := 0; i < len(lines); i++ {
		text := strings.TrimPrefix(lines[i], indent)
		command, isCommand := strings.CutPrefix(text, "$ ")
		if !prompt {
			isCommand = starts.MatchString(text + " ")
		}
		switch {
		case text == "" || strings.HasPrefix(text, "#") && !prompt:
		case isCommand:
			x := example{line: number + i, command: command}
			for incomplete(x.command) {
				if i++; i == len(lines) {
					return nil, fmt.Errorf("%d: the command does not end: %s", x.line, x.command)
				}
				x.command += "\n" + strings.TrimPrefix(lines[i], indent)
			}
			all = append(all, x)
		case len(all) == 0:
			return nil, fmt.Errorf("%d: %q is no command that this test knows: what is no command is in a fence, ```text", number+i, text)
		default:
			all[len(all)-1].output += text + "\n"
		}
	}
	return all, nil
}

// incomplete reports whether bash would ask for another line.
func incomplete(command string) bool {
	if strings.HasSuffix(command, "\\") {
		return true
	}
	out, _ := exec.Command("bash", "-n", "-c", command).CombinedOutput() // what it says is what counts
	return regexp.MustCompile(`unexpected end of file|unexpected EOF|here-document`).Match(out)
}

// pages are README.md and those in docs/ that people write: a tool's page is its --help.
func pages(t *testing.T) (all []string) {
	t.Helper()
	found, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append([]string{"../CONTRIBUTING.md", "../README.md", "../SECURITY.md"}, found...) {
		if !slices.ContainsFunc(allCommands, func(c string) bool { return id(c)+".md" == filepath.Base(path) }) {
			all = append(all, strings.TrimPrefix(path, "../"))
		}
	}
	return all
}

// Every command of README.md and docs/ runs as it is written, ends well, and prints what the page shows below it. It runs on real cgroups,
// which are the test's own: there the root has batch.slice, shop.slice and system.slice, and /run and /var/lib have nothing but
// a journal of isolate. What needs more than that is marked (elsewhere), and counted.
func TestCommands(t *testing.T) {
	t.Parallel()
	for _, program := range [][2]string{{"curl", "curl"}, {"ip", "iproute2"}, {"jq", "jq"}, {"nsenter", "util-linux"}, {"python3", "python3"}} {
		need.Program(t, program[0], program[1])
	}
	need.Mount(t)
	ran, marked := commands(t, machine(t))
	t.Logf("figures: %d commands ran here", ran)
	for _, name := range slices.Sorted(maps.Keys(elsewhere)) {
		t.Logf("figures: %d commands are marked %s: %s", marked[name], name, elsewhere[name])
		if marked[name] == 0 {
			t.Errorf("no block has the mark %s", name)
		}
	}
	if ran < 90 {
		t.Errorf("%d commands ran, and 90 at least were expected: are the blocks still found?", ran)
	}
}

// Blocks that work on recordings alone run on any machine, by any user.
func TestRecordingCommands(t *testing.T) {
	t.Parallel()
	need.Program(t, "jq", "jq")
	if ran, _ := commands(t, nil); ran < 40 {
		t.Errorf("%d commands ran, and 40 at least were expected: are the blocks still found?", ran)
	}
}

// ofMachine are blocks that look at the machine, or change it.
var ofMachine = regexp.MustCompile(`\b(collect|isolate|colocate|curl) |/(run|sys|proc|var|etc)/|\b(ps|ss|sysctl|findmnt) `)

// commands runs the blocks of all pages, and looks at those that are marked. Without namespaces it leaves out those of the machine.
func commands(t *testing.T, n *namespaces) (ran int, marked map[string]int) {
	t.Helper()
	marked = map[string]int{}
	for _, page := range pages(t) {
		text, err := os.ReadFile(filepath.Join("..", page))
		if err != nil {
			t.Fatal(err)
		}
		all, err := blocks(page, string(text))
		if err != nil {
			t.Error(err)
		}
		dir := scratch(t, page, string(text))
		for _, b := range all {
			name, untilFile, ctrlC := strings.Cut(b.mark, " ")
			switch {
			case elsewhere[b.mark] != "":
				marked[b.mark] += len(b.examples)
				look(t, b)
			case b.mark != "" && b.mark != endless && (!ctrlC || name != "ctrl-c"):
				t.Errorf("%s:%d: the mark %q is none of %v, nor endless, nor ctrl-c FILE", page, b.line, b.mark, slices.Sorted(maps.Keys(elsewhere)))
			case n != nil || !slices.ContainsFunc(b.examples, func(x example) bool { return ofMachine.MatchString(x.command) }):
				ran += len(b.examples)
				n.run(t, dir, b, untilFile)
			}
		}
	}
	return ran, marked
}

// look compares what can be said of a block without running it: its syntax, and that targets and packages that it names are there.
func look(t *testing.T, b block) {
	t.Helper()
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range b.examples {
		if out, err := exec.Command("bash", "-n", "-c", x.command).CombinedOutput(); err != nil {
			t.Errorf("%s:%d: %s: %v: %s", b.page, x.line, x.command, err, out)
		}
		for _, m := range regexp.MustCompile(`(?:^|&& )make ([a-z-]+)`).FindAllStringSubmatch(x.command, -1) {
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).Match(makefile) {
				t.Errorf("%s:%d: the Makefile has no target %s", b.page, x.line, m[1])
			}
		}
		for _, path := range regexp.MustCompile(`(?:^| )(?:\./)?((?:deploy|scripts|lib|collect|advise|isolate|tests)/[a-zA-Z0-9/._-]+)`).FindAllStringSubmatch(x.command, -1) {
			if _, err := os.Stat(filepath.Join("..", path[1])); err != nil {
				t.Errorf("%s:%d: %s: %v", b.page, x.line, x.command, err)
			}
		}
	}
}

// noon are the pages whose day is a reader's own, of batch/etl at 12:03. The others' day is the recording that the project has.
var noon = []string{"README.md", "docs/explain.md", "docs/recordings.md"}

// scratch makes a directory with what the pages expect to be there: the recordings by the names that they use, and configuration.
func scratch(t *testing.T, page, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"scripts": "scripts", "deploy": "deploy", "scripts/colocate": "bin/colocate"} {
		path, err := filepath.Abs("../" + from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	prepare := `gzip -dc scripts/demo-48cpu.jsonl.gz | advise | evict --dry-run > day.jsonl`
	if slices.Contains(noon, page) {
		pod := "batch/etl"
		if strings.Contains(text, "spark/etl") {
			pod = "spark/etl"
		}
		prepare = `gzip -dc scripts/demo-48cpu.jsonl.gz | sed 's/"time":"2026-11-21T08:46/"time":"2026-11-21T12:03/' |
			sed 's|"namespace":"batch","name":"spark-1"|"namespace":"` + filepath.Dir(pod) + `","name":"` + filepath.Base(pod) + `"|g' |
			advise | evict --dry-run > day.jsonl`
	}
	prepare += `
		cp day.jsonl yesterday.jsonl
		gzip -k day.jsonl
		printf '%s\n' '{"colocation-config": "{\"enable\":true}", "resource-threshold-config": "{\"clusterStrategy\":{\"enable\":true}}"}' |
			jq '{apiVersion: "v1", kind: "ConfigMap", metadata: {name: "slo-controller-config"}, data: .}' > slo-controller-config.yaml
		cp slo-controller-config.yaml node.yaml`
	cmd := exec.Command("bash", "-e", "-o", "pipefail", "-c", prepare)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("prepare the files of %s: %v: %s", page, err, out)
	}
	return dir
}

// A namespaces is a process whose mounts, network and cgroups are the test's own.
type namespaces struct {
	pid   int
	group *group.Group
}

// machine starts that process. Its root cgroup is a cgroup of the test's: what a page does to /batch.slice it does to that one's.
func machine(t *testing.T) *namespaces {
	t.Helper()
	g := group.New(t, nil, "docs")
	ready := filepath.Join(t.TempDir(), "ready")
	t.Cleanup(func() { removeBelow(t, g) })
	// A container runtime's limits stay: the new mounts are of the same hierarchies, from the cgroup that the process is in.
	script := filepath.Join(t.TempDir(), "machine")
	if err := os.WriteFile(script, []byte(`set -eu
awk '$3 ~ /^cgroup2?$/ {print $2, $3, $4}' /proc/mounts | while read -r dir kind options; do
	case $kind in
	cgroup2) umount "$dir"; mount -t cgroup2 none "$dir" ;;
	cgroup)
		own=$(tr , '\n' <<<"$options" | grep -vxE 'ro|rw|relatime|nosuid|nodev|noexec|clone_children|seclabel' | paste -sd,)
		umount "$dir"
		mount -t cgroup -o "$own" none "$dir" ;;
	esac
done
mount -t tmpfs none /run
mount -t tmpfs none /var/lib
ip link set lo up
tops=(/sys/fs/cgroup)
[ -e /sys/fs/cgroup/cgroup.controllers ] || tops=(/sys/fs/cgroup/{cpu,cpuacct,cpuset,memory,pids,freezer})
for top in "${tops[@]}"; do
	for name in system shop batch; do
		mkdir "$top/$name.slice"
		for file in cpuset.cpus cpuset.mems; do
			[ "${#tops[@]}" = 1 ] || [ ! -e "$top/$file" ] || cat "$top/$file" >"$top/$name.slice/$file"
		done
		sleep 100000 & echo $! >"$top/$name.slice/cgroup.procs"
	done
	echo $$ >"$top/system.slice/cgroup.procs"
done
[ "${#tops[@]}" -gt 1 ] || echo '+cpu +cpuset +memory +pids' >/sys/fs/cgroup/cgroup.subtree_control
mkdir -m 0700 /var/lib/polder
collect --once | jq -c '.advice = {policy: "mine", cgroups: [{cgroup: "/batch.slice", cpuMaxMilliCPU: 500}]}' |
	isolate --at-end keep --journal /var/lib/polder/isolate.journal >/dev/null
echo ready >"$1"
exec sleep 100000
`), 0o644); err != nil {
		t.Fatal(err)
	}
	holder := g.Run(t, fmt.Sprintf("PATH=%s:$PATH exec unshare --mount --net --cgroup --propagation private bash %s %s", bin, script, ready))
	await.Until(t, time.Minute, "a machine of the test's own", func() string {
		if _, err := os.Stat(ready); err != nil {
			return err.Error()
		}
		return ""
	})
	return &namespaces{pid: holder.Process.Pid, group: g}
}

// removeBelow ends all that runs below a cgroup, and removes the cgroups below it.
func removeBelow(t *testing.T, g *group.Group) {
	var below []string
	for _, top := range g.Dirs {
		found, err := filepath.Glob(top + "/*/cgroup.procs")
		if err != nil {
			t.Error(err)
		}
		for _, procs := range found {
			below = append(below, filepath.Dir(procs))
		}
	}
	await.Until(t, time.Minute, "remove the cgroups below "+g.Name, func() (left string) {
		for _, dir := range below {
			pids, _ := os.ReadFile(dir + "/cgroup.procs") // none where it is gone
			for pid := range strings.FieldsSeq(string(pids)) {
				_ = exec.Command("kill", "-KILL", pid).Run() // it may have ended
			}
			if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
				left = err.Error()
			}
		}
		return left
	})
}

// restore puts back what the blocks of other pages have set: a value that is in force already is neither written nor journalled.
func (n *namespaces) restore(t *testing.T) {
	t.Helper()
	cmd := exec.Command("nsenter", "--target", fmt.Sprint(n.pid), "--mount", "--net", "--cgroup",
		filepath.Join(bin, "isolate"), "--restore", "--if-exists", "--journal", "/run/polder.journal")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("isolate --restore: %v: %s", err, out)
	}
}

// run runs a block in one shell, in the namespaces where there are some, until its end or, where untilFile names a file, until that has something in it, when it presses Ctrl-C.
func (n *namespaces) run(t *testing.T, dir string, b block, untilFile string) {
	t.Helper()
	scratch := t.TempDir()
	var script strings.Builder
	script.WriteString("set -o pipefail\n")
	for i, x := range b.examples {
		// 141 is a stage that wrote when the next one had enough.
		fmt.Fprintf(&script, "exec >%s/%d\n%s\nstatus=$?; [ $status = 0 ] || [ $status = 141 ] || echo '%s:%d: status' $status >>%[1]s/failed\n",
			scratch, i, x.command, b.page, x.line)
	}
	path := filepath.Join(scratch, "block")
	if err := os.WriteFile(path, []byte(script.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if untilFile != "" {
		n.restore(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // for a block that does not end: two of them hold a tick every 10 s
	defer cancel()
	command := []string{"bash", path}
	if n != nil {
		command = append([]string{"nsenter", "--target", fmt.Sprint(n.pid), "--mount", "--net", "--cgroup", "--wdns=" + dir}, command...)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Env = append(os.Environ(), "PATH="+dir+"/bin:"+bin+":"+os.Getenv("PATH"), "HOME="+dir, "TZ=UTC", "KUBECONFIG=", "POLDER_BIN="+bin)
	if b.mark == "" {
		cmd.Env = append(cmd.Env, "POLDER_COLLECT_COUNT=2")
	}
	stderr, err := os.Create(filepath.Join(scratch, "stderr")) // a file: what a block leaves running holds it open
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stderr, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if untilFile != "" {
		await.Until(t, time.Minute, untilFile+" has something in it", func() string {
			if info, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", n.pid, untilFile)); err != nil || info.Size() == 0 {
				return fmt.Sprintf("%v, %v", info, err)
			}
			return ""
		})
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
	}
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left running
	said, _ := os.ReadFile(stderr.Name())
	failed, _ := os.ReadFile(filepath.Join(scratch, "failed")) // none where nothing failed
	if untilFile == "" && err != nil || len(failed) > 0 {
		t.Errorf("%s:%d: %v\n%s%s", b.page, b.line, err, failed, said)
	}
	for i, x := range b.examples {
		printed, err := os.ReadFile(fmt.Sprintf("%s/%d", scratch, i))
		if err != nil {
			t.Errorf("%s:%d: %s was not run: %v", b.page, x.line, x.command, err)
		}
		if diff := cmp.Diff(x.output, string(printed)); x.output != "" && diff != "" {
			t.Errorf("%s:%d: %s prints something else (-page +printed):\n%s", b.page, x.line, x.command, diff)
		}
	}
}
