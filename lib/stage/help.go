package stage

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Task is something that a user wants to do, and the command that does it.
type Task struct {
	Want    string // one sentence or question
	Command string // may have several lines
}

const (
	helpWidth    = 100 // maximum columns of --help
	helpExamples = 5   // tasks that --help shows; the manual has all of them
)

// optionGroup is a heading of --help and of the manual, with its options in the order in which they were added.
type optionGroup struct {
	name  string
	flags []cli.DocGenerationFlag
}

// optionGroups sorts the visible flags by category; those without a category come first.
func optionGroups(flags []cli.Flag) []optionGroup {
	groups := []optionGroup{{name: "Options"}}
	for _, f := range flags {
		if visible, ok := f.(cli.VisibleFlag); ok && !visible.IsVisible() {
			continue
		}
		described, ok := f.(cli.DocGenerationFlag)
		if !ok {
			continue
		}
		name := "Options"
		if c, ok := f.(cli.CategorizableFlag); ok && c.GetCategory() != "" {
			name = c.GetCategory()
		}
		at := slices.IndexFunc(groups, func(g optionGroup) bool { return g.name == name })
		if at < 0 {
			at = len(groups)
			groups = append(groups, optionGroup{name: name})
		}
		groups[at].flags = append(groups[at].flags, described)
	}
	return slices.DeleteFunc(groups, func(g optionGroup) bool { return len(g.flags) == 0 })
}

// described is the text of an option in --help and the manual.
type described struct {
	name    string // with its value: "--journal FILE"
	brief   string // one clause, with values and default
	details string // whole sentences, only for the manual
}

var placeholder = regexp.MustCompile("`([^`]*)`")

// describeFlag reads an option's usage: its first line is for --help, the others are details. A word in backquotes names the
// value. The default is added unless the first line contains it, in a shorter form than that of --check-config.
func describeFlag(f cli.DocGenerationFlag) described {
	usage, details, _ := strings.Cut(f.GetUsage(), "\n")
	d := described{name: "--" + f.(cli.Flag).Names()[0], details: strings.ReplaceAll(details, "\n", " ")}
	if f.TakesValue() {
		value := "VALUE"
		switch f.(type) {
		case *cli.DurationFlag:
			value = "DURATION"
		case *cli.IntFlag, *cli.Float64Flag:
			value = "N"
		}
		if m := placeholder.FindStringSubmatch(usage); m != nil {
			value = m[1]
		}
		d.name += " " + value
		if _, several := f.(*cli.StringSliceFlag); several {
			d.name += "..."
		}
	}
	d.brief = placeholder.ReplaceAllString(usage, "$1")
	if value := defaultOf(f); value != "" && !strings.Contains(d.brief, "default ") {
		if before, ok := strings.CutSuffix(d.brief, ")"); ok {
			d.brief = before + "; default " + value + ")"
		} else {
			d.brief += " (default " + value + ")"
		}
	}
	return d
}

// defaultOf returns an option's default in short form; empty for a switch that is off and for an empty text.
func defaultOf(f cli.DocGenerationFlag) string {
	value := strings.Trim(f.GetDefaultText(), `"`)
	switch f := f.(type) {
	case *cli.BoolFlag:
		if value == "false" {
			return ""
		}
	case *cli.StringSliceFlag:
		return ""
	case *cli.DurationFlag:
		if f.DefaultText == "" {
			return shortSpan(value)
		}
	}
	return value
}

// shortSpan removes the zeros from a time span's text: 7m for 7m0s.
func shortSpan(text string) string {
	if text == "0s" {
		return "0"
	}
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// helpText is what --help prints: two screens at most.
func (c Command) helpText(flags []cli.Flag) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s - %s\n\nUsage: %s [options]\n", c.Name, c.Synopsis, c.Name)
	for _, sub := range c.Subcommands {
		writeIndented(&b, fmt.Sprintf("       %s [options]  ", sub.Name), sub.Synopsis)
	}
	b.WriteString("\n")
	if summary := strings.TrimSpace(c.Summary); summary != "" {
		fmt.Fprintf(&b, "%s\n\n", summary)
	}
	if len(c.Tasks) > 0 {
		b.WriteString("Examples:\n")
	}
	for _, task := range c.Tasks[:min(len(c.Tasks), helpExamples)] {
		fmt.Fprintf(&b, "  %s\n", task.Want)
		for line := range strings.SplitSeq(task.Command, "\n") {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	if len(c.Tasks) > 0 {
		b.WriteString("\n")
	}
	for _, group := range optionGroups(flags) {
		c.helpGroup(&b, group)
	}
	fmt.Fprintf(&b, "%s\n%s\n", c.variables(), exitStatus)
	fmt.Fprintf(&b, "The manual, with more examples: %s --manual, man %s, docs/%s.md\n", c.Name, c.id(), c.id())
	return b.String()
}

const exitStatus = "Exit status: 0 end of input or a clean stop, 1 failure, 2 bad arguments or configuration."

// variables returns how options are set by the environment.
func (c Command) variables() string {
	return fmt.Sprintf("Variables set options, too: %s is --log-level. The command line wins.", variable(c.id(), "log-level"))
}

// helpGroup prints a group's options, one per line, but only the names of those that belong to a family.
func (c Command) helpGroup(w io.Writer, group optionGroup) {
	families := map[string][]string{}
	var lines []described
	for _, f := range group.flags {
		name := f.(cli.Flag).Names()[0]
		if family := c.family(name); family != "" && group.name != processFlags { // --memory-limit is not of a family memory-
			families[family] = append(families[family], strings.TrimPrefix(name, family))
			continue
		}
		lines = append(lines, describeFlag(f))
	}
	fmt.Fprintf(w, "%s:\n", group.name)
	width := 0
	for _, d := range lines {
		width = max(width, len(d.name))
	}
	for _, d := range lines {
		writeIndented(w, fmt.Sprintf("  %-*s  ", width, d.name), d.brief)
	}
	fmt.Fprintln(w)
	if len(families) == 0 {
		return
	}
	fmt.Fprintf(w, "%s:\n", cmp.Or(c.FamiliesTitle, "Settings of the rest"))
	width = 0
	for _, family := range c.Families {
		width = max(width, len(family))
	}
	for _, family := range c.Families {
		if names := families[family]; len(names) > 0 {
			writeIndented(w, fmt.Sprintf("  --%-*s  ", width, family), strings.Join(names, ", "))
		}
	}
	fmt.Fprintln(w)
}

// family returns the longest family prefix of an option's name.
func (c Command) family(name string) string {
	longest := ""
	for _, family := range c.Families {
		if strings.HasPrefix(name, family) && len(family) > len(longest) {
			longest = family
		}
	}
	return longest
}

// writeIndented prints text beside a first column, and continues it in the same column if it is too long for the line.
func writeIndented(w io.Writer, column, text string) {
	line := column
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
			line += word
		case len(line)+1+len(word) > helpWidth:
			fmt.Fprintln(w, line)
			line = strings.Repeat(" ", len(column)) + word
		default:
			line += " " + word
		}
	}
	fmt.Fprintln(w, line)
}
