package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/tests/binaries"
	"polder/tests/need"
)

// release is a directory like an unpacked tarball, with the tests' tools in it.
func release(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	for _, name := range []string{"scripts", "deploy", "collect", "LICENSE", "README.md", "CHANGELOG.md"} {
		if err := os.Symlink(filepath.Join(repository(t), name), filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(top, "bin/man"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools {
		if err := os.Symlink(filepath.Join(bin, tool), filepath.Join(top, "bin", tool)); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range slices.Concat(tools, binaries.Subcommands) {
		words := strings.Fields(command)
		page, err := exec.Command(filepath.Join(bin, words[0]), append(words[1:], "--generate-man")...).Output()
		if err != nil {
			t.Fatalf("%s --generate-man: %v", command, err)
		}
		put(t, filepath.Join(top, "bin/man", strings.Join(words, "-")+".1"), string(page))
	}
	return top
}

func script(t *testing.T, path string, args ...string) string {
	t.Helper()
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", path, args, err, out)
	}
	return string(out)
}

// tree lists the files below a directory with their modes, and links with their targets.
func tree(t *testing.T, top string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := fmt.Sprintf("%04o", info.Mode().Perm())
		if d.Type() == fs.ModeSymlink {
			what, _ = os.Readlink(path) // the link exists
		}
		all = append(all, strings.TrimPrefix(path, top)+" "+what)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The installation is complete, for both prefixes, and removed to the last directory; other programs' files stay, and so does a changed
// configuration, until then.
func TestInstallAndUninstall(t *testing.T) {
	t.Parallel()
	top := release(t)
	for prefix, settings := range map[string]string{"/usr/local": "/etc", "/usr": "/usr/lib", "/opt/polder": "/etc"} {
		dest := t.TempDir()
		units := prefix + "/lib/systemd/system"
		if prefix == "/opt/polder" { // systemd searches for units only below /usr, /usr/local and /etc
			units = "/etc/systemd/system"
		}
		install := []string{"-p", prefix, "-d", dest}
		script(t, top+"/scripts/install", install...)
		got := tree(t, dest)
		for _, want := range []string{
			prefix + "/bin/collect 0755", prefix + "/bin/colocate 0755", prefix + "/share/man/man1/evict.1 0644", prefix + "/share/man/man1/evict-fleet.1 0644",
			prefix + "/share/bash-completion/completions/collect 0644", prefix + "/share/bash-completion/completions/colocate collect",
			prefix + "/lib/polder/s6/end 0755", prefix + "/lib/polder/systemd/polder-restore 0755",
			prefix + "/lib/polder/s6/start 0755", prefix + "/lib/polder/s6/service/isolate/run 0755", prefix + "/lib/polder/systemd/polder-heartbeat 0755",
			units + "/polder.target 0644", units + "/polder-.service.d/confine.conf 0644",
			units + "/polder.service.d/confine.conf ../polder-.service.d/confine.conf",
			settings + "/sysusers.d/polder.conf 0644", settings + "/tmpfiles.d/polder.conf 0644",
			"/etc/polder/polder.env 0644", "/etc/polder/classify.yaml 0644",
		} {
			if !slices.Contains(got, want) {
				t.Errorf("%s: %s is missing from\n%s", prefix, want, strings.Join(got, "\n"))
			}
		}
		unit, err := os.ReadFile(filepath.Join(dest, units, "polder-isolate.service"))
		if want := "ExecStart=" + prefix + "/bin/isolate --input"; err != nil || !bytes.Contains(unit, []byte(want)) {
			t.Errorf("%s: the unit has no %s (%v):\n%s", prefix, want, err, unit)
		}
		if prefix != "/usr/local" {
			out, err := exec.Command("grep", "-rl", "/usr/local/", filepath.Join(dest, prefix, "lib"), filepath.Join(dest, units)).Output()
			if err == nil {
				t.Errorf("%s: these name another prefix: %s", prefix, out)
			}
		}

		put(t, dest+"/etc/polder/polder.env", "POLDER_ISOLATE_DRY_RUN=true\n")
		put(t, filepath.Join(dest, prefix, "bin/other"), "not ours\n")
		put(t, filepath.Join(dest, units, "other.service"), "not ours\n")
		script(t, top+"/scripts/install", install...)
		if env, err := os.ReadFile(dest + "/etc/polder/polder.env"); err != nil || string(env) != "POLDER_ISOLATE_DRY_RUN=true\n" {
			t.Errorf("%s: a second installation has changed the settings to %q (%v)", prefix, env, err)
		}
		script(t, top+"/scripts/uninstall", install...)
		want := []string{prefix + "/bin/other 0644", units + "/other.service 0644"}
		slices.Sort(want)
		if diff := cmp.Diff(want, tree(t, dest)); diff != "" {
			t.Errorf("%s: what is left (-want +got):\n%s", prefix, diff)
		}
		if err := os.RemoveAll(filepath.Join(dest, prefix, "bin/other")); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(top+"/scripts/uninstall", install...).CombinedOutput(); err == nil || !strings.Contains(string(out), "is it installed below another PREFIX or DESTDIR?") {
			t.Errorf("%s: a second removal: %v: %s", prefix, err, out)
		}
	}
	// Without other programs' files nothing is left.
	dest := t.TempDir()
	script(t, top+"/scripts/install", "-d", dest)
	script(t, top+"/scripts/uninstall", "-d", dest)
	if left, err := os.ReadDir(dest); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// refused runs a script that must fail, and returns its status and output.
func refused(t *testing.T, path string, args ...string) (int, string) {
	t.Helper()
	out, err := exec.Command(path, args...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("%s %q: %v\n%s\nwant it to fail", path, args, err, out)
	}
	return exit.ExitCode(), string(out)
}

// An installation over that of another version removes what only that one had, except the configuration; and the removal knows all of it.
func TestInstallOverAnotherVersion(t *testing.T) {
	t.Parallel()
	top, dest := release(t), t.TempDir()
	// The list as a version wrote it that did not strip the prefix's last slash.
	script(t, top+"/scripts/install", "-p", "/opt/polder", "-d", dest)
	want := tree(t, dest)
	list := dest + "/opt/polder/lib/polder/installed"
	good, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(good), "/opt/polder/", "/opt/polder//")
	for _, file := range []string{
		"/opt/polder/lib/systemd/system/polder-old.service", "/opt/polder/lib/systemd/system/polder-old.service.d/old.conf",
		"/etc/systemd/system/polder-old.service", "/etc/systemd/system/other.service",
		"/etc/polder/old.yaml", "/etc/passwd", "/opt/polder/../passwd", "/opt/polder/bin/other",
	} {
		if err := os.MkdirAll(filepath.Dir(dest+file), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, dest+file, "old\n")
		if filepath.Base(file) != "other" {
			text += file + "\n"
		}
	}
	put(t, list, text+"/opt/polder/lib/systemd/system/polder-old.service.d/\n")

	script(t, top+"/scripts/install", "-p", "/opt/polder/", "-d", dest)
	want = append(want, "/etc/passwd 0644", "/etc/systemd/system/other.service 0644", "/etc/polder/old.yaml 0644",
		"/opt/passwd 0644", "/opt/polder/bin/other 0644")
	slices.Sort(want)
	got := tree(t, dest)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after the second installation (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(dest + "/opt/polder/lib/systemd/system/polder-old.service.d"); err == nil {
		t.Error("the directory of the old unit's drop-ins is left")
	}
	script(t, top+"/scripts/uninstall", "-p", "/opt/polder/", "-d", dest)
	foreign := []string{"/etc/passwd 0644", "/etc/systemd/system/other.service 0644", "/opt/passwd 0644", "/opt/polder/bin/other 0644"}
	if diff := cmp.Diff(foreign, tree(t, dest)); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}

// An installation that was cut short can be removed, and a removal that was cut short can be repeated.
func TestInstallCutShort(t *testing.T) {
	t.Parallel()
	top, dest := release(t), t.TempDir()
	// In the place of a directory there is a file.
	if err := os.MkdirAll(dest+"/usr/local", 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, dest+"/usr/local/share", "")
	refused(t, top+"/scripts/install", "-d", dest)
	if got := tree(t, dest); !slices.Contains(got, "/usr/local/bin/collect 0755") {
		t.Errorf("the installation has copied only %q", got)
	}
	if err := os.Remove(dest + "/usr/local/share"); err != nil {
		t.Fatal(err)
	}
	script(t, top+"/scripts/uninstall", "-d", dest)
	if got := tree(t, dest); len(got) > 0 {
		t.Errorf("after an installation that was cut short the removal leaves %q", got)
	}

	script(t, top+"/scripts/install", "-d", dest)
	// A program that cannot be removed, because a directory is in its place.
	program := dest + "/usr/local/bin/collect"
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(program, 0o755); err != nil {
		t.Fatal(err)
	}
	refused(t, top+"/scripts/uninstall", "-d", dest)
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	script(t, top+"/scripts/uninstall", "-d", dest)
	if got := tree(t, dest); len(got) > 0 {
		t.Errorf("after a removal that was cut short the next one leaves %q", got)
	}
}

// A prefix that units and scripts cannot contain is refused before anything is copied.
func TestInstallPrefix(t *testing.T) {
	t.Parallel()
	top := release(t)
	for _, prefix := range []string{
		"/opt/my polder", "/opt/a&b", "/opt/a,b", "/opt/100%", "opt/polder", "/", "//", "",
		"/opt//polder", "/opt/../polder", "/opt/./polder", "/opt/a\nb",
	} {
		dest := t.TempDir()
		status, out := refused(t, top+"/scripts/install", "-p", prefix, "-d", dest)
		if status != 2 || !strings.Contains(out, ": want an absolute path") {
			t.Errorf("-p %q: status %d: %s", prefix, status, out)
		}
		if got := tree(t, dest); len(got) > 0 {
			t.Errorf("-p %q installs %q", prefix, got)
		}
	}
	dest := t.TempDir()
	script(t, top+"/scripts/install", "-p", "/opt/polder-1.0_a+b//", "-d", dest)
	out, err := exec.Command("grep", "-rl", "//bin", filepath.Join(dest, "etc/systemd/system")).CombinedOutput()
	if err == nil || len(out) > 0 {
		t.Errorf("these have the prefix's last slashes: %s", out)
	}
	script(t, top+"/scripts/uninstall", "-p", "/opt/polder-1.0_a+b/", "-d", dest)
	if got := tree(t, dest); len(got) > 0 {
		t.Errorf("the removal leaves %q", got)
	}
}

// A list that names files that were never installed removes nothing.
func TestUninstallBelievesNoForeignList(t *testing.T) {
	t.Parallel()
	top, dest := release(t), t.TempDir()
	script(t, top+"/scripts/install", "-d", dest)
	list := dest + "/usr/local/lib/polder/installed"
	good, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	before := tree(t, dest)
	for _, line := range []string{"/etc/passwd", "/usr/local/../../etc/passwd", "etc/passwd", "/etc/polder/../passwd"} {
		put(t, list, string(good)+line+"\n")
		if out, err := exec.Command(top+"/scripts/uninstall", "-d", dest).CombinedOutput(); err == nil || !strings.Contains(string(out), "nothing is removed") {
			t.Errorf("%s: %v: %s", line, err, out)
		}
		if diff := cmp.Diff(before, tree(t, dest)); diff != "" {
			t.Errorf("%s: (-before +after):\n%s", line, diff)
		}
	}
}

// ownMachine has its own copies of the places that an installation without DESTDIR changes: no file of the host is changed.
const ownMachine = `
for place in /usr/local /var/lib /run; do mount -t tmpfs none $place; done
mkdir "$WORK/upper" "$WORK/work"
mount -t overlay -o "lowerdir=/etc,upperdir=$WORK/upper,workdir=$WORK/work" none /etc
"$TOP/scripts/install"
test -p /run/polder/1.fifo -a "$(getent group polder)"
mkdir -m 0700 /var/lib/polder-isolate
printf '%s\n' "$TICK" | isolate --max-age 0 --at-end keep --journal /var/lib/polder-isolate/isolate.journal >/dev/null
eval "$MEANWHILE"
status=0
"$TOP/scripts/uninstall" || status=$?
find /usr/local /var/lib /run /etc/polder /etc/sysusers.d /etc/tmpfiles.d -name '*polder*' -o -path '*polder*' -o -type f -path '/usr/local/*' | sort
getent group polder || true
exit $status
`

// The removal restores the cgroups before it removes the programs. Only what cannot be restored stays in the journal.
func TestUninstallPutsBack(t *testing.T) {
	need.Root(t)
	need.Mount(t)
	need.Program(t, "systemd-sysusers", "systemd")
	t.Parallel()
	top := release(t)
	for name, one := range map[string]struct {
		meanwhile string // between the change and the removal
		left      string
		restored  bool
	}{
		"all": {":", "", true},
		"changed externally": {
			`for file in $(find /sys/fs/cgroup -path "*$BATCH/cpu.cfs_quota_us" -o -path "*$BATCH/cpu.max"); do echo 70000 >$file; done`,
			"/var/lib/polder-isolate\n/var/lib/polder-isolate/isolate.journal\n", false,
		},
		"a state besides": {"mkdir -p /var/lib/private/polder-collect /var/lib/polder; touch /var/lib/polder/collect.json", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newColocated(t, "uninstall-"+strings.ReplaceAll(name, " ", "-"))
			before := c.limits()
			run := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-ec", ownMachine)
			work := t.TempDir()
			tick := fmt.Sprintf(`{"v":1,"node":"n","time":%q,"advice":{"policy":"test","cgroups":[{"cgroup":%q,"cpuMaxMilliCPU":500}]}}`,
				time.Now().UTC().Format(time.RFC3339), c.batch.Name)
			host, err := os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
			run.Env = append(os.Environ(), "TOP="+top, "WORK="+work, "TICK="+tick, "BATCH="+c.batch.Name, "MEANWHILE="+one.meanwhile, "POLDER_ISOLATE_NODE=n", "HOSTNAME="+host,
				"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
			var stderr bytes.Buffer
			run.Stderr = &stderr
			out, err := run.Output()
			if (err == nil) != one.restored || string(out) != one.left {
				t.Errorf("the removal ends with %v, leaves %q and prints\n%s\nwant left %q", err, out, &stderr, one.left)
			}
			if now := c.limits(); (now == before) != one.restored {
				t.Errorf("the cgroups have\n%s\nand had\n%s", now, before)
			}
		})
	}
}
