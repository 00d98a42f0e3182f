package supervisor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"polder/tests/deep"
	"polder/tests/need"
	"polder/tests/pages"
	"polder/tests/processgroup"
)

// bootPages is process 1 of a machine without Polder: systemd's own targets, no unit of the host's, and in
// /root/polder the reader's working directory.
const bootPages = ownRoot + `
mount -t tmpfs none "$root/usr/local"
mount -t tmpfs none "$root/usr/lib/systemd/system"
mount -t tmpfs none "$root/etc/systemd/system"
mkdir -p "$root/usr/local/bin" "$root/old" "$root/root/polder"
cp -RL "$READER"/. "$root/root/polder/"
for unit in basic sysinit shutdown slices sockets timers paths local-fs multi-user; do
	cp "/lib/systemd/system/$unit.target" "$root/usr/lib/systemd/system/"
done
mkdir "$root/usr/lib/systemd/system/sockets.target.wants"
for unit in service socket; do
	cp "/lib/systemd/system/systemd-journald.$unit" "$root/usr/lib/systemd/system/"
done
ln -s ../systemd-journald.socket "$root/usr/lib/systemd/system/sockets.target.wants/"
cd "$root"
pivot_root . old
umount -l /old
export container=polder
exec /lib/systemd/systemd --system --log-target=null --unit=basic.target
`

// reader is a machine on which a reader types the pages' commands.
type reader struct {
	*machine
	t *testing.T
}

// newReader boots the machine; dir is the content of the working directory.
func newReader(t *testing.T, name, dir string) *reader {
	t.Helper()
	need.Root(t)
	need.Mount(t)
	for _, program := range [][2]string{{"systemd", "systemd"}, {"s6-svscan", "s6"}, {"make", "make"}, {"script", "bsdutils"}, {"apt-get", "apt"}} {
		need.Program(t, program[0], program[1])
	}
	c := newColocated(t, name)
	for _, dir := range hierarchies(t) {
		own := filepath.Join(dir, c.top.Name)
		if err := os.MkdirAll(own, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeTree(t, own) })
	}
	r := &reader{machine: bootWith(t, strings.TrimPrefix(c.top.Name, "/"), bootPages, []string{"READER=" + dir}), t: t}
	eventually(t, "systemd is up", func() bool {
		out, _ := r.run("systemctl", "is-active", "basic.target")
		return out == "active"
	}, func() string { return "" })
	return r
}

// bash runs a script in the working directory, for eight minutes at most.
func (r *reader) bash(script string) (string, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 8*time.Minute)
	defer cancel()
	words := append(r.enter(), "env", "-i", "HOME=/root", "LANG=C.UTF-8", "TERM=xterm", "APT_CONFIG=/root/polder/apt.conf",
		"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "bash", "-c", "cd /root/polder\n"+script)
	out, err := processgroup.Command(ctx, "nsenter", words...).CombinedOutput()
	return string(out), err
}

// must is bash for the test's own scripts.
func (r *reader) must(script string) string {
	r.t.Helper()
	out, err := r.bash("set -e\n" + script)
	if err != nil {
		r.t.Fatalf("%s: %v: %s\n%s", script, err, out, r.logs())
	}
	return out
}

// block runs a block as it is written. No unit may have failed afterwards.
func (r *reader) block(b pages.Block) int {
	r.t.Helper()
	outputs := fmt.Sprintf("/state/%s-%d", strings.ReplaceAll(b.Page, "/", "-"), b.Line)
	out, err := r.bash("mkdir " + outputs + "\n" + b.Script(outputs, nil))
	if err != nil {
		r.t.Fatalf("%s:%d: %v\n%s\n%s", b.Page, b.Line, err, out, r.logs())
	}
	r.t.Logf("%s", out)
	if failed := r.must("systemctl list-units --failed --plain --no-legend --no-pager"); failed != "" {
		r.t.Errorf("after %s:%d these have failed: %s\n%s", b.Page, b.Line, failed, r.logs())
	}
	for _, wrong := range b.Printed(filepath.Join(r.dir, filepath.Base(outputs))) {
		r.t.Error(wrong)
	}
	return len(b.Examples)
}

func hasCommand(b pages.Block, part string) bool {
	for _, x := range b.Examples {
		if strings.Contains(x.Command, part) {
			return true
		}
	}
	return false
}

func marked(t *testing.T, mark string) []pages.Block {
	t.Helper()
	blocks, err := pages.Marked(mark)
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

// yes is a reader's answer to apt.
const yes = "APT::Get::Assume-Yes \"true\";\n"

// The commands of docs that need systemd run as they are written, from `make install` on.
func TestSystemdPages(t *testing.T) {
	t.Parallel()
	top := release(t)
	put(t, filepath.Join(top, "apt.conf"), yes)
	// The tools and their manual pages are built already.
	makefile, err := os.ReadFile(filepath.Join(repository(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(top, "Makefile"), string(makefile))
	put(t, filepath.Join(top, "GNUmakefile"), "include Makefile\nbuild man:\n\t@:\n")
	r := newReader(t, "pages", top)
	ran := 0
	for _, b := range marked(t, "systemd") {
		r.must(`if [ -e /usr/local/bin/isolate ]; then make uninstall; fi
rm -rf /etc/systemd/system/polder-*.service.d/{metrics,network}.conf
systemctl daemon-reload
systemctl reset-failed`)
		if !hasCommand(b, "make install") {
			r.must("make install")
			if hasCommand(b, "polder-report") || hasCommand(b, "restart") {
				r.must("systemctl start polder.target")
				r.flows(t, "before the block")
			}
		}
		ran += r.block(b)
	}
	t.Logf("figures: %d commands of the pages ran under systemd", ran)
	if ran < 30 {
		t.Errorf("%d commands ran; want 30 at least: are the blocks still found?", ran)
	}
}

// The commands of docs that need a release's files run as they are written, with the .deb and the tarball that scripts/dist builds. It
// takes minutes, so it is part of make test-deep.
func TestPackagePages(t *testing.T) {
	blocks := marked(t, "package")
	if len(blocks) < 4 {
		t.Errorf("%d blocks; want 4 at least: are they still found?", len(blocks))
	}
	if !deep.Wanted() {
		return
	}
	dir := t.TempDir()
	dist := exec.Command(filepath.Join(repository(t), "scripts/dist"), "-o", dir, "tarballs", "packages")
	dist.Env = append(os.Environ(), "ARCHES="+runtime.GOARCH, "VERSION=0.1.0", "SOURCE_DATE_EPOCH=1700000000", "FORMATS=deb")
	if out, err := dist.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", dist, err, out)
	}
	put(t, filepath.Join(dir, "apt.conf"), yes)
	r := newReader(t, "package", dir)
	for _, b := range blocks {
		r.block(b)
		if hasCommand(b, "systemctl start polder.target") {
			eventually(t, "ticks come through after "+b.Page, func() bool {
				_, err := r.run("/usr/lib/polder/s6/alive", "5")
				return err == nil
			}, r.logs)
		}
	}
	if left := r.must("ls -d /usr/bin/collect /usr/local/bin/collect /etc/polder /var/lib/polder* /run/polder 2>/dev/null || true"); left != "" {
		t.Errorf("after the removal %s is left", left)
	}
}
