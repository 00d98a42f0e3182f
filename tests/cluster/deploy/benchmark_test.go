package deploy

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"polder/tests/cluster/controlplane"
	"polder/tests/pages"
	"polder/tests/processgroup"
)

// The benchmark of docs that needs a control plane runs as it is written there, with QUICK=1 for 20 nodes.
func TestBenchmarkPage(t *testing.T) {
	t.Parallel()
	controlplane.Need(t, "kwok")
	blocks, err := pages.Marked("bench")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, b := range blocks {
		for _, x := range b.Examples {
			if !strings.HasPrefix(x.Command, "make bench-cluster") {
				continue // tests/supervisor
			}
			ran++
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute) // stops a benchmark that does not end
			defer cancel()
			cmd := processgroup.Command(ctx, "bash", "-c", x.Command)
			cmd.Dir = top
			cmd.Env = append(os.Environ(), "QUICK=1")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "BenchmarkThousandNodes") {
				t.Errorf("%s:%d: %s: %v: want the results of a benchmark:\n%s", b.Page, x.Line, x.Command, err, out)
			}
			t.Logf("%s", out)
		}
	}
	if ran != 1 {
		t.Errorf("%d commands ran; want one: is it still found?", ran)
	}
}
