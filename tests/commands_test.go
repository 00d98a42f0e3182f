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
	"polder/tests/pages"
	"polder/tests/processgroup"
)

// Every command of README.md and docs/ runs as it is written, succeeds, and prints the output that the page shows. It runs on real cgroups,
// which are the test's own: there the root has batch.slice, shop.slice and system.slice, and /run and /var/lib have only
// a journal of isolate, for the blocks that name it. A block that needs more has a mark of pages.Places, and is counted: no command is
// without a place.
func TestCommands(t *testing.T) {
	t.Parallel()
	for _, program := range [][2]string{{"curl", "curl"}, {"ip", "iproute2"}, {"jq", "jq"}, {"nsenter", "util-linux"}, {"python3", "python3"}} {
		need.Program(t, program[0], program[1])
	}
	need.Mount(t)
	ran, marked := commands(t, machine(t))
	t.Logf("figures: %d commands ran here", ran)
	lookups := 0
	for _, name := range slices.Sorted(maps.Keys(pages.Places)) {
		t.Logf("figures: %d commands are marked %s: %s", marked[name], name, pages.Places[name])
		if marked[name] == 0 {
			t.Errorf("no block has the mark %s", name)
		}
		if slices.Contains(pages.Lookups, name) {
			lookups += marked[name]
		}
	}
	// A new command must run somewhere. One that cannot run is counted here.
	if lookups > 6 {
		t.Errorf("%d commands are only looked up; there were 6: mark the new one with a place that runs it", lookups)
	}
	if ran < 90 {
		t.Errorf("%d commands ran, and 90 at least were expected: are the blocks still found?", ran)
	}
}

// Blocks that work on recordings alone run on any machine, as any user.
func TestRecordingCommands(t *testing.T) {
	t.Parallel()
	need.Program(t, "jq", "jq")
	if ran, _ := commands(t, nil); ran < 40 {
		t.Errorf("%d commands ran, and 40 at least were expected: are the blocks still found?", ran)
	}
}

// ofMachine are blocks that read the machine, or change it.
var ofMachine = regexp.MustCompile(`\b(collect|isolate|colocate|curl) |/(run|sys|proc|var|etc)/|\b(ps|ss|sysctl|findmnt) `)

// commands runs the blocks of all pages, and checks those that are marked. Without namespaces it omits those of the machine.
func commands(t *testing.T, n *namespaces) (ran int, marked map[string]int) {
	t.Helper()
	marked = map[string]int{}
	names, err := pages.Names()
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range names {
		all, text, err := pages.Of(page)
		if err != nil {
			t.Error(err)
		}
		dir := scratch(t, page, text)
		for _, b := range all {
			name, untilFile, ctrlC := strings.Cut(b.Mark, " ")
			switch {
			case pages.Places[b.Mark] != "":
				marked[b.Mark] += len(b.Examples)
				look(t, b)
			case b.Mark != "" && b.Mark != pages.Endless && b.Mark != pages.Terminal && (!ctrlC || name != "ctrl-c"):
				t.Errorf("%s:%d: the mark %q is none of %v, nor endless, terminal or ctrl-c FILE", page, b.Line, b.Mark, slices.Sorted(maps.Keys(pages.Places)))
			case n != nil || !slices.ContainsFunc(b.Examples, func(x pages.Example) bool { return ofMachine.MatchString(x.Command) }):
				ran += len(b.Examples)
				n.run(t, dir, b, untilFile)
			}
		}
	}
	return ran, marked
}

// look checks a block without running it: its syntax, and that targets and packages that it names exist.
func look(t *testing.T, b pages.Block) {
	t.Helper()
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	ci, err := os.ReadFile("../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range b.Examples {
		if target := regexp.MustCompile(`^make test[a-z-]*`).FindString(x.Command); target != "" && !regexp.MustCompile(`(?m)^`+target+`$`).Match(ci) {
			t.Errorf("%s:%d: .ci/run does not run %s", b.Page, x.Line, target)
		}
		if out, err := exec.Command("bash", "-n", "-c", x.Command).CombinedOutput(); err != nil {
			t.Errorf("%s:%d: %s: %v: %s", b.Page, x.Line, x.Command, err, out)
		}
		for _, m := range regexp.MustCompile(`(?:^|&& )make ([a-z-]+)`).FindAllStringSubmatch(x.Command, -1) {
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).Match(makefile) {
				t.Errorf("%s:%d: the Makefile has no target %s", b.Page, x.Line, m[1])
			}
		}
		for _, path := range regexp.MustCompile(`(?:^| )(?:\./)?((?:deploy|scripts|lib|collect|advise|isolate|tests)/[a-zA-Z0-9/._-]+)`).FindAllStringSubmatch(x.Command, -1) {
			if _, err := os.Stat(filepath.Join("..", path[1])); err != nil {
				t.Errorf("%s:%d: %s: %v", b.Page, x.Line, x.Command, err)
			}
		}
	}
}

// noon are the pages whose day is a recording by the reader, of batch/etl at 12:03. The others' day is the project's recording.
var noon = []string{"README.md", "docs/explain.md", "docs/recordings.md"}

// scratch makes a directory with the files that the pages expect: the recordings under the names that they use, and configuration.
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

// machine starts that process. Its root cgroup is a cgroup of the test: what a page does to /batch.slice it does to that one's.
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
echo ready >"$1"
exec sleep 100000
`), 0o644); err != nil {
		t.Fatal(err)
	}
	holder := g.Run(t, fmt.Sprintf("PATH=%s:$PATH exec unshare --mount --net --cgroup --propagation private bash %s %s", bin, script, ready))
	await.Until(t, 3*time.Minute, "a machine of the test's own", func() string {
		if _, err := os.Stat(ready); err != nil {
			return err.Error()
		}
		return ""
	})
	return &namespaces{pid: holder.Process.Pid, group: g}
}

// removeBelow ends all processes below a cgroup, and removes the cgroups below it.
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
	await.Until(t, 3*time.Minute, "remove the cgroups below "+g.Name, func() (left string) {
		for _, dir := range below {
			pids, _ := os.ReadFile(dir + "/cgroup.procs") // none if it is gone
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

// restore reverts what the blocks of other pages have set: a value that is already in force is neither written nor journalled.
func (n *namespaces) restore(t *testing.T) {
	t.Helper()
	cmd := exec.Command("nsenter", "--target", fmt.Sprint(n.pid), "--mount", "--net", "--cgroup",
		filepath.Join(bin, "isolate"), "--restore", "--if-exists", "--journal", "/run/polder.journal")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("isolate --restore: %v: %s", err, out)
	}
}

// journalPath is the journal that the pages restore from, and writeJournal writes it, with a value that isolate has changed.
const (
	journalPath  = "/var/lib/polder/isolate.journal"
	writeJournal = `collect --once | jq -c '.advice = {policy: "mine", cgroups: [{cgroup: "/batch.slice", cpuMaxMilliCPU: 500}]}' |
	isolate --max-age 1h --at-end keep --journal ` + journalPath + ` >/dev/null
`
)

// run runs a block in one shell, in the namespaces if there are any. If untilFile names a file, it presses Ctrl-C when that has content.
func (n *namespaces) run(t *testing.T, dir string, b pages.Block, untilFile string) {
	t.Helper()
	scratch := t.TempDir()
	var script strings.Builder
	script.WriteString("set -o pipefail\n")
	if slices.ContainsFunc(b.Examples, func(x pages.Example) bool { return strings.Contains(x.Command, journalPath) }) {
		script.WriteString(writeJournal) // the block of another page may have restored all, and removed the journal
	}
	for i, x := range b.Examples {
		// 141 is a stage that wrote after the next one had ended.
		command := x.Command
		if b.Mark == pages.Terminal {
			command = pages.OnTerminal(command)
		}
		fmt.Fprintf(&script, "exec >%s/%d\n%s\nstatus=$?; [ $status = 0 ] || [ $status = 141 ] || echo '%s:%d: status' $status >>%[1]s/failed\n",
			scratch, i, command, b.Page, x.Line)
	}
	path := filepath.Join(scratch, "block")
	if err := os.WriteFile(path, []byte(script.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if untilFile != "" {
		n.restore(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute) // stops a block that does not end: two of them hold a tick every 10 s
	defer cancel()
	command := []string{"bash", path}
	if n != nil {
		command = append([]string{"nsenter", "--target", fmt.Sprint(n.pid), "--mount", "--net", "--cgroup", "--wdns=" + dir}, command...)
	}
	cmd := processgroup.Command(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+"/bin:"+bin+":"+os.Getenv("PATH"), "HOME="+dir, "TZ=UTC", "KUBECONFIG=", "POLDER_BIN="+bin)
	if b.Mark == "" {
		cmd.Env = append(cmd.Env, "POLDER_COLLECT_COUNT=2")
	}
	stderr, err := os.Create(filepath.Join(scratch, "stderr")) // a file: processes that a block leaves running hold it open
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stderr, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if untilFile != "" {
		await.Until(t, 3*time.Minute, untilFile+" has something in it", func() string {
			if info, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", n.pid, untilFile)); err != nil || info.Size() == 0 {
				return fmt.Sprintf("%v, %v", info, err)
			}
			return ""
		})
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
	}
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // processes that it left running
	log, _ := os.ReadFile(stderr.Name())
	failed, _ := os.ReadFile(filepath.Join(scratch, "failed")) // none if nothing failed
	if untilFile == "" && err != nil || len(failed) > 0 {
		t.Errorf("%s:%d: %v\n%s%s", b.Page, b.Line, err, failed, log)
	}
	for i, x := range b.Examples {
		printed, err := os.ReadFile(fmt.Sprintf("%s/%d", scratch, i))
		if err != nil {
			t.Errorf("%s:%d: %s was not run: %v", b.Page, x.Line, x.Command, err)
		}
		if b.Mark == pages.Terminal && len(printed) == 0 {
			t.Errorf("%s:%d: %s draws nothing", b.Page, x.Line, x.Command)
		}
		if diff := cmp.Diff(x.Output, string(printed)); x.Output != "" && diff != "" {
			t.Errorf("%s:%d: %s prints something else (-page +printed):\n%s", b.Page, x.Line, x.Command, diff)
		}
	}
}
