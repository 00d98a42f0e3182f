package stage

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// What the flag package and urfave/cli report of a command line that they do not take, with one dash before every name.
var (
	unknownFlag = regexp.MustCompile(`^flag provided but not defined: -+(.*)$`)
	noValue     = regexp.MustCompile(`^flag needs an argument: -+(.*)$`)
	wrongValue  = regexp.MustCompile(`(?s)^invalid (?:boolean )?value (".*") for (?:flag )?-+([a-z0-9-]+): (.*)$`)
	wrongEnv    = regexp.MustCompile(`(?s)^could not parse (".*") as .* value from environment variable "([A-Z0-9_]+)" for flag ([a-z0-9-]+): .*$`)
)

// usage is such an error in the words of this house: flags as they are typed, what is wanted, and the flag that was perhaps meant.
func (c Command) usage(err error, flags []cli.Flag) error {
	text := err.Error()
	if m := unknownFlag.FindStringSubmatch(text); m != nil {
		if sub := c.subcommand(m[1]); sub != nil {
			return Usagef("unknown flag --%s: use `%s`", m[1], sub.Name)
		}
		if sub := c.subcommandWith(m[1]); sub != nil {
			return Usagef("unknown flag --%s: it is one of `%s`", m[1], sub.Name)
		}
		if near := nearestFlag(m[1], flags); near != "" {
			return Usagef("unknown flag --%s: did you mean --%s?", m[1], near)
		}
		return Usagef("unknown flag --%s", m[1])
	}
	if m := noValue.FindStringSubmatch(text); m != nil {
		return Usagef("--%s needs a value", m[1])
	}
	if m := wrongValue.FindStringSubmatch(text); m != nil {
		return Usagef("--%s %s: %s", m[2], m[1], wanted(flagNamed(m[2], flags), m[1], m[3]))
	}
	if m := wrongEnv.FindStringSubmatch(text); m != nil {
		return Usagef("%s %s (--%s): %s", m[2], m[1], m[3], wanted(flagNamed(m[3], flags), m[1], "want another value"))
	}
	return &UsageError{err}
}

// wanted returns what a flag takes, or else what its type reported.
func wanted(f cli.Flag, quoted, reported string) string {
	switch f.(type) {
	case *cli.DurationFlag:
		if value, err := strconv.Unquote(quoted); err == nil {
			if _, err := strconv.ParseFloat(value, 64); err == nil {
				return fmt.Sprintf("a time span has a unit: write %ss for seconds", value)
			}
		}
		return "want a time span, as 500ms, 30s or 5m"
	case *cli.IntFlag:
		return "want a whole number"
	case *cli.Float64Flag:
		return "want a number"
	case *cli.BoolFlag:
		return "want true or false"
	}
	return reported
}

func flagNamed(name string, flags []cli.Flag) cli.Flag {
	for _, f := range flags {
		if f.Names()[0] == name {
			return f
		}
	}
	return nil
}

// nearestFlag is the flag that is most like a name: that begins with it, or has it with a third of its letters, at most three,
// written otherwise. Empty where none is.
func nearestFlag(name string, flags []cli.Flag) string {
	if len(name) < 2 || len(name) > 40 {
		return ""
	}
	near, least := "", min(3, len(name)/3)+1
	for _, f := range flags {
		candidate := f.Names()[0]
		d := distance(name, candidate)
		if strings.HasPrefix(candidate, name) {
			d = 1
		}
		if d < least {
			near, least = candidate, d
		}
	}
	return near
}

// distance is the number of letters to put in, take out or change that make a into b (Levenshtein's).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
