package stage

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// A subcommand has its own flags, variables, log and state, and the tool none of these.
func TestSubcommand(t *testing.T) {
	var ran string
	var size int
	run := func(_ context.Context, s *Session) error {
		ran = fmt.Sprint(s.Tool, " ", size)
		s.Log.Info("runs")
		return nil
	}
	tool := Command{
		Name: "collect", Synopsis: "sample", Run: run,
		Flags: func(f *Flags) { f.Bool(new(bool), "once", "write one tick") },
		Subcommands: []Command{{
			Name: "collect fleet", Synopsis: "sample all", Run: run,
			Flags: func(f *Flags) { f.Int(&size, "size", 0, "how many") },
			Kind:  Kind{Acts: true, AllNodes: true},
		}},
	}
	for _, c := range []struct {
		args   string
		env    string
		status int
		ran    string
		out    string // in the output or the log
	}{
		{"collect --once", "", 0, "collect 0", "tool=collect\n"},
		{"collect fleet --size 3", "", 0, "collect-fleet 3", "tool=collect-fleet\n"},
		{"collect fleet", "POLDER_COLLECT_FLEET_SIZE=7", 0, "collect-fleet 7", ""},
		{"collect fleet --once", "", 2, "", "collect fleet: unknown flag --once\ncollect fleet: see 'collect fleet --help'\n"},
		{"collect fleet --node n", "", 2, "", "unknown flag --node"},
		{"collect --size 3", "", 2, "", "collect: unknown flag --size: it is one of `collect fleet`\n"},
		{"collect --fleet", "", 2, "", "collect: unknown flag --fleet: use `collect fleet`\n"},
		{"collect --once fleet", "", 2, "", "the subcommand comes before its options: collect fleet [options]\n"},
		{"collect --once", "POLDER_COLLECT_FLEET=true", 2, "", "POLDER_COLLECT_FLEET is not a variable of collect: use `collect fleet`\n"},
		{"collect other", "", 2, "", `unexpected argument "other": options begin with --`},
		{"collect --help", "", 0, "", "Usage: collect [options]\n       collect fleet [options]  sample all\n\n"},
		{"collect fleet --help", "", 0, "", "POLDER_COLLECT_FLEET_LOG_LEVEL is --log-level"},
		{"collect --generate-man", "", 0, "", ".B collect fleet\n[\\fIoptions\\fR], see collect\\-fleet(1)\n"},
		{"collect fleet --generate-man", "", 0, "", ".TH COLLECT-FLEET 1 "},
		{"collect fleet --manual", "", 0, "", "# collect fleet\n"},
		{"collect --manual", "", 0, "", "[`collect fleet`](collect-fleet.md), a subcommand: sample all.\n"},
	} {
		ran, size = "", 0
		name, value, _ := strings.Cut(c.env, "=")
		if name != "" {
			t.Setenv(name, value)
		}
		var out bytes.Buffer
		status := tool.Execute(t.Context(), Env{
			Args: strings.Fields(c.args), In: strings.NewReader(""), Out: &out, Err: &out, Getenv: os.Getenv, Now: time.Now,
		})
		if name != "" {
			os.Unsetenv(name)
		}
		if status != c.status || ran != c.ran || !strings.Contains(out.String(), c.out) {
			t.Errorf("%s %s: status %d, ran %q; want %d, %q, and %q in\n%s", c.env, c.args, status, ran, c.status, c.ran, c.out, &out)
		}
	}
}

// The word of a subcommand is completed as the first one, and after it its flags are.
func TestCompletionOfSubcommands(t *testing.T) {
	tool := Command{
		Name: "collect", Flags: func(f *Flags) { f.Bool(new(bool), "once", "end") },
		Subcommands: []Command{{Name: "collect fleet", Flags: func(f *Flags) { f.Bool(new(bool), "only", "one") }}},
	}
	for _, c := range []struct{ words, want string }{
		{"f", "fleet"}, {"fleet", "fleet"}, {"--on", "--once"}, {"fleet --on", "--only"}, {"--once f", ""},
	} {
		var out bytes.Buffer
		args := append(append([]string{"collect"}, strings.Fields(c.words)...), completionFlag)
		tool.Execute(t.Context(), Env{Args: args, In: strings.NewReader(""), Out: &out, Err: &out, Getenv: func(string) string { return "" }, Now: time.Now})
		if got := strings.TrimSpace(out.String()); got != c.want {
			t.Errorf("completion of %q = %q; want %q", c.words, got, c.want)
		}
	}
}
