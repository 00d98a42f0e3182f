package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"polder/tests/node/image"
)

// scratch is their directory, which Main removes.
var scratch = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", fmt.Sprintf("%s%d-bin-", prefix, os.Getpid())) })

// Images builds the containers' images, once for all nodes of a test process.
var Images = sync.OnceValues(func() ([]string, error) {
	dir, err := scratch()
	if err != nil {
		return nil, err
	}
	return image.Build(context.Background(), dir)
})

// Guest builds a node's first process, once: the package polder/tests/node/guest or polder/tests/vmnode/guest.
func Guest(of string) (string, error) {
	dir, err := scratch()
	if err != nil {
		return "", err
	}
	building.Lock()
	defer building.Unlock()
	path := filepath.Join(dir, filepath.Base(filepath.Dir(of)), "guest")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, goBuild(path, of)
}

var building sync.Mutex

func goBuild(path, of string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, of)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // images and guests have no C library
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", of, err, out)
	}
	return nil
}

// Main runs a package's tests, ends what they shared, and removes what was built for them: for TestMain.
func Main(m *testing.M, ends ...func() error) int {
	code := m.Run()
	for _, end := range ends {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, "after the tests:", err)
			code = max(code, 1)
		}
	}
	if dir, err := scratch(); err == nil {
		_ = os.RemoveAll(dir) // it disturbs nothing
	}
	return code
}
