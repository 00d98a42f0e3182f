package stage

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"polder/lib/choice"
)

// These are errors of the flag package and of urfave/cli about an invalid command line, with one dash before every name.
var (
	unknownFlag = regexp.MustCompile(`^flag provided but not defined: -+(.*)$`)
	noValue     = regexp.MustCompile(`^flag needs an argument: -+(.*)$`)
	wrongValue  = regexp.MustCompile(`(?s)^invalid (?:boolean )?value (".*") for (?:flag )?-+([a-z0-9-]+): (.*)$`)
	wrongEnv    = regexp.MustCompile(`(?s)^could not parse (".*") (?:as .* value )?from environment variable "([A-Z0-9_]+)" (?:as value )?for flag ([a-z0-9-]+): (.*)$`)
)

// usage rewords such an error: flags as they are typed, the expected values, and a similar flag that may be meant.
func (c Command) usage(err error, flags []cli.Flag) error {
	text := err.Error()
	if m := unknownFlag.FindStringSubmatch(text); m != nil {
		if sub := c.subcommand(m[1]); sub != nil {
			return Usagef("unknown flag --%s: use `%s`", m[1], sub.Name)
		}
		if sub := c.subcommandWith(m[1]); sub != nil {
			return Usagef("unknown flag --%s: it is one of `%s`", m[1], sub.Name)
		}
		if near := choice.Nearest(m[1], flagNames(flags)); near != "" {
			return Usagef("unknown flag --%s: did you mean --%s?", m[1], near)
		}
		return Usagef("unknown flag --%s", m[1])
	}
	if m := noValue.FindStringSubmatch(text); m != nil {
		return Usagef("--%s needs a value", m[1])
	}
	if m := wrongValue.FindStringSubmatch(text); m != nil {
		return Usagef("--%s %s: %s", m[2], m[1], expectedValue(flagNamed(m[2], flags), m[1], m[3]))
	}
	if m := wrongEnv.FindStringSubmatch(text); m != nil {
		return Usagef("%s %s (--%s): %s", m[2], m[1], m[3], expectedValue(flagNamed(m[3], flags), m[1], m[4]))
	}
	return &UsageError{err}
}

// expectedValue returns the values that a flag accepts, or else the error of its type.
func expectedValue(f cli.Flag, quoted, reported string) string {
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
	return strings.TrimPrefix(reported, quoted+": ") // a type that names the value itself, because a configuration file may contain it, too
}

func flagNames(flags []cli.Flag) (names []string) {
	for _, f := range flags {
		names = append(names, f.Names()[0])
	}
	return names
}

func flagNamed(name string, flags []cli.Flag) cli.Flag {
	for _, f := range flags {
		if f.Names()[0] == name {
			return f
		}
	}
	return nil
}
