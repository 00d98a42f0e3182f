package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Variable names the directory of the programs, which scripts/setup-cluster prints.
const Variable = "POLDER_CLUSTER"

// errNotAsked is the reason if no cluster was asked for.
var errNotAsked = errors.New("no cluster: run `make test-cluster` or `make test-node`, or set " + Variable + " to the directory that scripts/setup-cluster prints")

// programs are what this package runs.
var programs = []string{"etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl", "helm"}

// Programs returns the directory that contains the named programs, or the reason why they are missing.
func Programs(names ...string) (string, error) {
	dir := os.Getenv(Variable)
	if dir == "" {
		return "", errNotAsked
	}
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode()&0o111 == 0 {
			return "", fmt.Errorf("%s=%s has no program %s: run scripts/setup-cluster", Variable, dir, name)
		}
	}
	return filepath.Abs(dir)
}

// Need skips a test if no cluster was asked for. In CI, and if one was asked for, a missing program is a failure.
func Need(t testing.TB, names ...string) string {
	t.Helper()
	dir, err := Programs(names...)
	switch {
	case err == nil:
	case errors.Is(err, errNotAsked) && os.Getenv("CI") != "true":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
	return dir
}
