package vmnode

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"polder/tests/vm/qemu"
)

// rootFiles are the node's configuration: containerd's, kubelet's, a CNI plugin.
//
//go:embed root
var rootFiles embed.FS

// diskMiB is the disk's size. The file is sparse: unwritten parts cost nothing.
const diskMiB = 4096

// programs of the node are those that scripts/setup-cluster builds, tools the project's.
var (
	programs = []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "kubelet"}
	tools    = []string{"collect", "advise", "isolate", "evict", "report"}
)

// disk makes the node's root file system: without Systemd, only busybox, which is enough for kubelet, containerd and runc; with Systemd a
// Debian, where busybox has the commands that it lacks.
func (o *Options) disk(ctx context.Context, dir string) (string, error) {
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return "", err
	}
	if o.Systemd {
		if err := debian(ctx, root); err != nil {
			return "", err
		}
	}
	for _, sub := range []string{"bin", "dev", "proc", "sys", "run", "tmp", "root", "var/log", "var/lib/kubelet", "etc/kubernetes", "images"} {
		if err := os.MkdirAll(filepath.Join(root, sub), 0o755); err != nil {
			return "", err
		}
	}
	bin := filepath.Join(root, "bin")
	sources := map[string]string{qemu.Busybox: "bin/busybox", o.Guest: "bin/guest"}
	for _, program := range programs {
		sources[filepath.Join(o.Programs, program)] = "bin/" + program
	}
	for _, tool := range tools {
		sources[filepath.Join(o.Tools, tool)] = "bin/" + tool
	}
	for _, image := range o.Images {
		sources[image] = "images/" + filepath.Base(image)
	}
	for from, to := range sources {
		if err := link(from, filepath.Join(root, to)); err != nil {
			return "", err
		}
	}
	if err := applets(ctx, bin); err != nil {
		return "", err
	}
	if err := configure(root); err != nil {
		return "", err
	}
	if o.Systemd {
		if err := systemdDriver(root, o.Version1); err != nil {
			return "", err
		}
	}
	for name, data := range map[string][]byte{"kubeconfig": o.Kubeconfig, "ca.crt": o.CA} {
		if err := os.WriteFile(filepath.Join(root, "etc/kubernetes", name), data, 0o600); err != nil {
			return "", err
		}
	}
	image := filepath.Join(dir, "disk")
	// The disk does not outlive the guest: no journal.
	out, err := exec.CommandContext(ctx, "/usr/sbin/mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-E", "root_owner=0:0", "-d", root, image, fmt.Sprintf("%dM", diskMiB)).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("make the node's disk: mke2fs: %w: %s", err, out)
	}
	return image, nil
}

// link makes a hard link, or a copy on another file system.
func link(from, to string) error {
	err := os.Link(from, to)
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// applets links the names of busybox's commands to it, except those that exist.
func applets(ctx context.Context, bin string) error {
	names, err := exec.CommandContext(ctx, qemu.Busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("list busybox's commands: %w", err)
	}
	for name := range strings.FieldsSeq(string(names)) {
		if err := os.Symlink("busybox", filepath.Join(bin, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// configure writes the embedded files, except those that a distribution has itself. Files in a directory bin are executable.
func configure(root string) error {
	return fs.WalkDir(rootFiles, "root", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel("root", path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(root, rel), 0o755)
		}
		if _, err := os.Lstat(filepath.Join(root, rel)); err == nil {
			return nil
		}
		data, err := rootFiles.ReadFile(path)
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if filepath.Base(filepath.Dir(rel)) == "bin" {
			mode = 0o755
		}
		return os.WriteFile(filepath.Join(root, rel), data, mode)
	})
}

// initramfs has the files that mount the disk.
func initramfs(m qemu.Machine, guest string) ([]byte, error) {
	a := qemu.NewArchive()
	m.Override(a)
	for _, dir := range []string{"dev", "disk"} {
		a.Directories(dir)
	}
	program, err := os.ReadFile(guest)
	if err != nil {
		return nil, err
	}
	a.File("init", 0o755, program)
	a.File("modules/order", 0o644, []byte(strings.Join(qemu.Modules, ".ko\n")+".ko\n"))
	for _, name := range qemu.Modules {
		file, err := qemu.ModuleFile(name)
		if err != nil {
			return nil, err
		}
		module, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		a.File("modules/"+name+".ko", 0o644, module)
	}
	return a.End(), nil
}
