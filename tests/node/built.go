package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"polder/tests/node/image"
)

// binaries are what all nodes of a test process share.
type binaries struct {
	guest  string
	images []string
}

// scratch is their directory, which Main removes.
var scratch = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", fmt.Sprintf("%s%d-bin-", prefix, os.Getpid())) })

// built builds them, once.
var built = sync.OnceValues(func() (*binaries, error) {
	dir, err := scratch()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	b := &binaries{guest: filepath.Join(dir, "guest")}
	if err := goBuild(ctx, dir, "polder/tests/node/guest"); err != nil {
		return nil, err
	}
	b.images, err = image.Build(ctx, dir)
	return b, err
})

// tools builds the project's own binaries, once.
var tools = sync.OnceValues(func() (string, error) {
	dir, err := scratch()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return dir, goBuild(ctx, dir, "polder/collect", "polder/advise", "polder/isolate", "polder/evict", "polder/report")
})

// Tools is a directory with the five tools, which a node sees at the same path.
func Tools(t testing.TB) string {
	t.Helper()
	dir, err := tools()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func goBuild(ctx context.Context, dir string, packages ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", dir + "/"}, packages...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // images have no C library
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %v: %w\n%s", packages, err, out)
	}
	return nil
}

// Main runs a package's tests and removes what was built for them: for TestMain.
func Main(m *testing.M) int {
	code := m.Run()
	if dir, err := scratch(); err == nil {
		_ = os.RemoveAll(dir) // in the way of nothing
	}
	return code
}
