package controlplane

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// If no cluster was asked for, the test is skipped with how to ask, but not in CI. If it was asked for and is missing, it fails.
func TestNeed(t *testing.T) {
	if os.Getenv("POLDER_NEED") == "1" {
		Need(t, programs...)
		return
	}
	empty := t.TempDir()
	for _, test := range []struct {
		name, cluster, ci string
		want              []string
		fails             bool
	}{
		{"not asked", "", "", []string{"--- SKIP", "make test-cluster"}, false},
		{"not asked in CI", "", "true", []string{"--- FAIL", "make test-cluster"}, true},
		{"missing", empty, "", []string{"--- FAIL", empty + " has no program etcd: run scripts/setup-cluster"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNeed$", "-test.v")
			cmd.Env = append(os.Environ(), "POLDER_NEED=1", Variable+"="+test.cluster, "CI="+test.ci)
			out, err := cmd.CombinedOutput()
			if (err != nil) != test.fails {
				t.Errorf("it ended with %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("the output lacks %q:\n%s", want, out)
				}
			}
		})
	}
}
