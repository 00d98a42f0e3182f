package stage

import (
	"io"
	"strings"

	"polder/lib/choice"
)

// id returns the command's name in one word, for files, variables, metrics and the log: "collect-fleet".
func (c Command) id() string { return strings.ReplaceAll(c.Name, " ", "-") }

// word returns a subcommand's name without its tool's.
func (c Command) word() string {
	_, word, _ := strings.Cut(c.Name, " ")
	return word
}

// subcommand returns the subcommand of that word, nil if there is none.
func (c Command) subcommand(word string) *Command {
	for i := range c.Subcommands {
		if c.Subcommands[i].word() == word {
			return &c.Subcommands[i]
		}
	}
	return nil
}

// subcommandWith returns a subcommand that has its own flag of that name, nil if there is none.
func (c Command) subcommandWith(flag string) *Command {
	for i := range c.Subcommands {
		var f Flags
		if c.Subcommands[i].Flags(&f); flagNamed(flag, f.flags) != nil {
			return &c.Subcommands[i]
		}
	}
	return nil
}

// completionFlag is what a shell's completion appends to an unfinished command line.
const completionFlag = "--generate-bash-completion"

// choose returns the command that the arguments name, with its own arguments.
func (c Command) choose(env Env) (Command, Env) {
	if len(env.Args) < 2 || len(env.Args) == 3 && env.Args[2] == completionFlag { // the word itself is being completed
		return c, env
	}
	sub := c.subcommand(env.Args[1])
	if sub == nil {
		return c, env
	}
	env.Args = append([]string{sub.Name}, env.Args[2:]...)
	return *sub, env
}

// completeSubcommand prints the subcommands that complete the only word of a command line.
func (c Command) completeSubcommand(w io.Writer, words []string) {
	if len(words) > 1 {
		return
	}
	begins := ""
	if len(words) == 1 {
		begins = words[0]
	}
	for _, sub := range c.Subcommands {
		suggest(w, "", begins, []string{sub.word()})
	}
}

// unexpected returns the error about an argument that is not an option.
func (c Command) unexpected(argument string) error {
	if sub := c.subcommand(argument); sub != nil {
		return Usagef("unexpected argument %q: the subcommand comes before its options: %s [options]", argument, sub.Name)
	}
	var words []string
	for _, sub := range c.Subcommands {
		words = append(words, sub.word())
	}
	return Usagef("unexpected argument %q: options begin with --%s", argument, choice.Suggestion(argument, words))
}

// checkVariables rejects a variable with a subcommand's name, as 0.1.0 had one: otherwise the tool itself would run, unnoticed.
func (c Command) checkVariables(env Env) error {
	for _, sub := range c.Subcommands {
		if name := variable(c.id(), sub.word()); env.Getenv != nil && env.Getenv(name) != "" {
			return Usagef("%s is not a variable of %s: use `%s`", name, c.Name, sub.Name)
		}
	}
	return nil
}
