package supervisor

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"polder/tests/deep"
	"polder/tests/need"
	"polder/tests/processgroup"
)

// The benchmarks of docs run as they are written, in the checkout; with QUICK=1 the long ones are short. They take minutes, so this is
// part of make test-deep. The one that needs a control plane is in tests/cluster/deploy.
func TestBenchmarkPages(t *testing.T) {
	need.Root(t)
	t.Parallel()
	result := regexp.MustCompile(`(?m)^Benchmark\S+\s+\d+\s|: figures`)
	found, ran := 0, 0
	for _, b := range marked(t, "bench") {
		for _, x := range b.Examples {
			found++
			if strings.HasPrefix(x.Command, "make bench-cluster") || !deep.Wanted() {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // stops a benchmark that does not end
			defer cancel()
			cmd := processgroup.Command(ctx, "bash", "-o", "pipefail", "-c", x.Command)
			cmd.Dir = repository(t)
			cmd.Env = append(os.Environ(), "QUICK=1", "ROUNDS=1", deep.Variable+"=")
			begin := time.Now()
			out, err := cmd.CombinedOutput()
			if err != nil || !result.Match(out) {
				t.Errorf("%s:%d: %s: %v: want results of a benchmark:\n%s", b.Page, x.Line, x.Command, err, out)
				continue
			}
			ran++
			t.Logf("%s:%d: %s: %.0f s\n%s", b.Page, x.Line, x.Command, time.Since(begin).Seconds(), out)
		}
	}
	t.Logf("figures: %d of %d benchmarks of the pages ran", ran, found)
	if found < 9 {
		t.Errorf("%d benchmarks; want 9 at least: are they still found?", found)
	}
}
