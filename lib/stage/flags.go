package stage

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"polder/lib/choice"
)

// Flags collects a tool's flags. The first line of a flag's usage is one clause, which fits beside its name in a line of --help; the
// following lines are whole sentences for the manual only. Every flag can also be set by an environment variable, POLDER_, the tool's
// name and the flag's in capitals (POLDER_ISOLATE_MAX_AGE); the command line takes precedence.
type Flags struct {
	tool     string
	flags    []cli.Flag
	category string
	words    map[string][]string // the values that a flag accepts, for completion, by the flag's name
}

// Words names values of the flag that was added last, for completion in a shell. A repeatable flag accepts a list of them.
func (f *Flags) Words(words ...string) {
	if f.words == nil {
		f.words = map[string][]string{}
	}
	f.words[f.flags[len(f.flags)-1].Names()[0]] = words
}

// add adds the flags of another one.
func (f *Flags) add(other *Flags) {
	f.flags = append(f.flags, other.flags...)
	if f.words == nil {
		f.words = map[string][]string{}
	}
	maps.Copy(f.words, other.words)
}

// Category names the group under which --help lists the flags that follow.
func (f *Flags) Category(name string) { f.category = name }

func (f *Flags) envVars(name string) []string {
	return []string{variable(f.tool, name)}
}

// variable returns the environment variable that sets a tool's flag.
func variable(tool, flag string) string {
	return "POLDER_" + strings.ToUpper(strings.ReplaceAll(tool+"_"+flag, "-", "_"))
}

// String adds a flag with text as its value.
func (f *Flags) String(into *string, name, value, usage string) {
	f.flags = append(f.flags, &cli.StringFlag{
		Name: name, Usage: usage, Value: value, Destination: into, Category: f.category,
		EnvVars: f.envVars(name),
	})
}

// Path adds a flag with a path as its value.
func (f *Flags) Path(into *string, name, value, usage string) {
	f.flags = append(f.flags, &cli.PathFlag{
		Name: name, Usage: usage, Value: value, Destination: into, Category: f.category, EnvVars: f.envVars(name),
		TakesFile: true,
	})
}

// Strings adds a repeatable flag.
func (f *Flags) Strings(into *[]string, name, usage string) {
	f.flags = append(f.flags, &cli.StringSliceFlag{
		Name: name, Usage: usage, Category: f.category, EnvVars: f.envVars(name),
		Action: func(_ *cli.Context, v []string) error {
			*into = v
			return nil
		},
	})
}

// Choices adds a repeatable flag with one of the given words as its value.
func (f *Flags) Choices(into *[]string, name, usage string, words ...string) {
	f.flags = append(f.flags, &cli.StringSliceFlag{
		Name: name, Usage: usage, Category: f.category, EnvVars: f.envVars(name),
		Action: func(_ *cli.Context, v []string) error {
			for _, word := range v {
				if err := choice.Check(word, words); err != nil {
					return Usagef("--%s %w", name, err)
				}
			}
			*into = v
			return nil
		},
	})
	f.Words(words...)
}

// Duration adds a flag with a time span as its value (30s, 5m).
func (f *Flags) Duration(into *time.Duration, name string, value time.Duration, usage string) {
	f.flags = append(f.flags, &cli.DurationFlag{
		Name: name, Usage: usage, Value: value, Destination: into, Category: f.category, EnvVars: f.envVars(name),
		Action: func(_ *cli.Context, v time.Duration) error {
			if v < 0 {
				return Usagef("--%s %s: a time span cannot be negative", name, v)
			}
			return nil
		},
	})
}

// showDefault changes the text of the last time span's default in --help.
func (f *Flags) showDefault(text string) {
	if d, ok := f.flags[len(f.flags)-1].(*cli.DurationFlag); ok {
		d.DefaultText = text
	}
}

// Int adds a flag with a whole number as its value.
func (f *Flags) Int(into *int, name string, value int, usage string) {
	f.flags = append(f.flags, &cli.IntFlag{
		Name: name, Usage: usage, Value: value, Destination: into, Category: f.category,
		EnvVars: f.envVars(name),
	})
}

// Float adds a flag with a number as its value.
func (f *Flags) Float(into *float64, name string, value float64, usage string) {
	f.flags = append(f.flags, &cli.Float64Flag{
		Name: name, Usage: usage, Value: value, Destination: into, Category: f.category,
		EnvVars: f.envVars(name),
	})
}

// Bool adds a switch.
func (f *Flags) Bool(into *bool, name, usage string) {
	f.OnOff(into, name, false, usage)
}

// OnOff adds a switch with a default: --name or --name=false.
func (f *Flags) OnOff(into *bool, name string, value bool, usage string) {
	f.flags = append(f.flags, &cli.BoolFlag{
		Name: name, Usage: usage, Value: value, Destination: into, Category: f.category,
		EnvVars: f.envVars(name),
	})
}

// Choice adds a flag with one of the given words as its value, or its default, which may be another word.
func (f *Flags) Choice(into *string, name, value, usage string, words ...string) {
	brief, details, more := strings.Cut(usage, "\n")
	usage = brief + " (" + strings.Join(words, ", ") + ")"
	if more {
		usage += "\n" + details
	}
	f.flags = append(f.flags, &cli.StringFlag{
		Name: name, Usage: usage, Value: value, Destination: into, Category: f.category, EnvVars: f.envVars(name),
		Action: func(_ *cli.Context, v string) error {
			if err := choice.Check(v, words); err != nil && v != value {
				return Usagef("--%s %w", name, err)
			}
			return nil
		},
	})
	f.Words(words...)
}

// UsageError is an error that the user can correct on the command line or in the configuration: exit status 2.
type UsageError struct{ err error }

func (e *UsageError) Error() string { return e.err.Error() }
func (e *UsageError) Unwrap() error { return e.err }

// recoverable are errors of opening a file that may be gone at the next start, although nobody changed the command line.
var recoverable = []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO, unix.ESTALE, unix.EMFILE, unix.ENFILE, unix.ENOMEM}

// OpenError returns the error of opening a file that the command line names: a [UsageError], unless the disk or the machine is the cause,
// for example a full disk: a supervisor starts a tool again that ends with exit status 1, but not after 2.
func OpenError(err error) error {
	for _, r := range recoverable {
		if errors.Is(err, r) {
			return err
		}
	}
	return &UsageError{err}
}

// Usagef returns a [UsageError].
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// Value is a flag with its own type.
type Value interface {
	Set(string) error
	String() string
}

// Value adds a flag that its type sets; shown is the default that --help prints.
func (f *Flags) Value(into Value, name, shown, usage string) {
	f.flags = append(f.flags, &cli.GenericFlag{
		Name: name, Usage: usage, Value: into, DefaultText: shown, Category: f.category,
		EnvVars: f.envVars(name),
	})
}
