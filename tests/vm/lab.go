// Package vm runs suites of tests in virtual machines of QEMU (see qemu), on Debian's kernel with cgroup v2: the project's binaries
// and a test program (guest/) in an initramfs. scripts/setup-vm installs the prerequisites.
package vm

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"

	"polder/tests/binaries"
	"polder/tests/vm/qemu"
)

// Machine is a guest's hardware.
type Machine = qemu.Machine

// The machines that the suites run on.
var (
	Small = qemu.Small
	Guide = qemu.Guide
)

// Lab is a directory with the parts of all guests.
type Lab struct {
	kernel string
	dir    string // the lab's own files: binaries, initramfs, logs
	files  map[string][]byte
}

// Open builds the guest's program into dir, which is the caller's to remove. Every guest has it and the tools in /bin.
func Open(ctx context.Context, dir string) (*Lab, error) {
	if err := qemu.Missing(); err != nil {
		return nil, err
	}
	l := &Lab{dir: dir, files: map[string][]byte{}}
	var err error
	if l.kernel, err = qemu.Kernel(); err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", dir+"/", "polder/tests/vm/guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // the guest has no C library
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the guest's program: %w\n%s", err, out)
	}
	tools, err := binaries.Find()
	if err != nil {
		return nil, err
	}
	paths := []string{filepath.Join(dir, "guest")}
	for _, tool := range binaries.Tools {
		paths = append(paths, filepath.Join(tools, tool))
	}
	for _, path := range paths {
		if l.files["bin/"+filepath.Base(path)], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	for _, name := range qemu.TestModules {
		path, err := qemu.ModuleFile(name)
		if err != nil {
			return nil, err
		}
		if l.files["modules/"+name+".ko"], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	if l.files["bin/busybox"], err = os.ReadFile(qemu.Busybox); err != nil {
		return nil, err
	}
	return l, nil
}

// AddPrograms adds programs of the host, with their libraries, to all further guests.
func (l *Lab) AddPrograms(ctx context.Context, programs ...string) error {
	for _, program := range programs {
		files, err := qemu.WithLibraries(ctx, program)
		if err != nil {
			return err
		}
		maps.Copy(l.files, files)
	}
	return nil
}

// AddFile adds a program that needs no libraries to all further guests.
func (l *Lab) AddFile(name, from string) (err error) {
	l.files[name], err = os.ReadFile(from)
	return err
}

// initramfs is all of a guest's files.
func (l *Lab) initramfs(m Machine) ([]byte, error) {
	a := qemu.NewArchive()
	m.Override(a)
	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp"} {
		a.Directories(dir)
	}
	for name, data := range l.files {
		a.File(name, 0o755, data)
	}
	a.Link("init", "/bin/guest")
	a.Link("bin/sh", "busybox")
	return a.End(), nil
}
