package stage

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// complete prints the completions of the last word of an unfinished command line, one per line: a flag's name, or one of a
// flag's values. A flag of another type has no candidates, so that the shell offers files.
func (f *Flags) complete(w io.Writer, words []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	before, current := words[:len(words)-1], words[len(words)-1]
	prefix := ""
	name, value, joined := strings.Cut(current, "=")
	switch {
	case joined && name != "": // --flag=value in one word
		prefix = name + "="
	case len(before) > 0 && current == "=": // bash makes the sign a separate word
		name, value, joined = before[len(before)-1], "", true
	case len(before) > 1 && before[len(before)-1] == "=":
		name, value, joined = before[len(before)-2], current, true
	case len(before) > 0:
		name, value = before[len(before)-1], current
	default:
		name = ""
	}
	if flag := flagNamed(strings.TrimLeft(name, "-"), f.flags); flag != nil && strings.HasPrefix(name, "-") {
		_, isSwitch := flag.(*cli.BoolFlag)
		if isSwitch && joined {
			suggest(w, prefix, value, []string{"true", "false"})
		}
		if _, several := flag.(*cli.StringSliceFlag); several { // a,b,c
			at := strings.LastIndex(value, ",") + 1
			prefix, value = prefix+value[:at], value[at:]
		}
		suggest(w, prefix, value, f.words[flag.Names()[0]])
		if !isSwitch || joined {
			return
		}
	}
	var names []string
	for _, flag := range f.flags {
		names = append(names, "--"+flag.Names()[0])
	}
	slices.Sort(names)
	suggest(w, "", current, append(names, "--help", "--manual", "--version"))
}

// suggest prints the words that begin with a text.
func suggest(w io.Writer, prefix, begins string, words []string) {
	for _, word := range words {
		if strings.HasPrefix(word, begins) {
			fmt.Fprintln(w, prefix+word)
		}
	}
}
