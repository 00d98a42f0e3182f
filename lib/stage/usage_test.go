package stage

import (
	"strings"
	"testing"
	"time"

	"polder/lib/choice"
)

// onOrOff is a value that checks itself, like a setting of a configuration file.
type onOrOff struct{}

func (onOrOff) Set(text string) error { return choice.Check(text, []string{"on", "off"}) }
func (onOrOff) String() string        { return "" }

// An error names the flag as it is typed, the expected values, and a similar flag.
func TestUsageErrors(t *testing.T) {
	var interval time.Duration
	var number int
	var part float64
	var word string
	var choices []string
	for _, c := range []struct {
		args []string
		env  string
		want string
	}{
		{[]string{"--interval", "5"}, "", `--interval "5": a time span has a unit: write 5s for seconds`},
		{[]string{"--interval=1.5"}, "", `--interval "1.5": a time span has a unit: write 1.5s for seconds`},
		{[]string{"--interval", "soon"}, "", `--interval "soon": want a time span, as 500ms, 30s or 5m`},
		{[]string{"--interval", "-1s"}, "", `--interval -1s: a time span cannot be negative`},
		{[]string{"--number", "1.5"}, "", `--number "1.5": want a whole number`},
		{[]string{"--part", "half"}, "", `--part "half": want a number`},
		{[]string{"--strict=maybe"}, "", `--strict "maybe": want true or false`},
		{[]string{"--choice", "no"}, "", "--choice \"no\": want one of alpha, beta, gamma\n"},
		{[]string{"--choice", "gamm"}, "", "--choice \"gamm\": want one of alpha, beta, gamma; did you mean gamma?\n"},
		{[]string{"--choices", "first,secnod"}, "", "--choices \"secnod\": want first or second; did you mean second?\n"},
		{[]string{"--own", "x"}, "", "--own \"x\": want on or off\n"},
		{[]string{"--interval"}, "", `--interval needs a value`},
		{[]string{"--intervall", "5s"}, "", `unknown flag --intervall: did you mean --interval?`},
		{[]string{"-inputt=x"}, "", `unknown flag --inputt: did you mean --input?`},
		{[]string{"--inter"}, "", `unknown flag --inter: did you mean --interval?`},
		{[]string{"--nonsense"}, "", "unknown flag --nonsense\n"},
		{[]string{"--x"}, "", "unknown flag --x\n"},
		{[]string{"--interval", "1s", "of"}, "", "unexpected argument \"of\": options begin with --\n"},
		{nil, "5", `POLDER_ADVISE_INTERVAL "5" (--interval): a time span has a unit: write 5s for seconds`},
	} {
		h := &harness{in: strings.NewReader("")}
		if c.env != "" {
			t.Setenv("POLDER_ADVISE_INTERVAL", c.env)
		}
		command := h.echo(filterKind, nil)
		command.Name = "advise"
		command.Flags = func(f *Flags) {
			f.Duration(&interval, "interval", time.Second, "")
			f.Int(&number, "number", 0, "")
			f.Float(&part, "part", 0, "")
			f.Choice(&word, "choice", "", "", "alpha", "beta", "gamma")
			f.Choices(&choices, "choices", "", "first", "second")
			f.Value(onOrOff{}, "own", "", "")
		}
		if status := h.run(t, command, c.args...); status != 2 || !strings.HasPrefix(h.err.String(), "advise: "+c.want) {
			t.Errorf("%q %s: status %d, %s; want %s", c.args, c.env, status, &h.err, c.want)
		}
	}
}
