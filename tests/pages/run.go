package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// onTerminal runs a command like a user at a terminal: Ctrl-C is pressed when it has drawn something. The function prints what it
// drew. The command's status does not matter: Ctrl-C ends what stays.
const onTerminal = `on_terminal() {
	local drawn
	drawn=$(mktemp)
	{ until [ -s "$drawn" ]; do sleep 0.1; done; printf '\003'; until [ -e "$drawn.end" ]; do sleep 0.1; done; } |
		{ script --quiet --flush --command "stty rows 40 cols 120; $1" /dev/null >"$drawn" || true; touch "$drawn.end"; }
	cat "$drawn"
	[ -s "$drawn" ]
}
`

// OnTerminal is a command as bash runs it on a terminal until it has drawn something.
func OnTerminal(command string) string {
	return onTerminal + "on_terminal " + quote(withoutComment(command))
}

// stays are commands that end when a user presses Ctrl-C.
var stays = regexp.MustCompile(`^(report --to tty|tail -F|colocate|scripts/colocate|kubectl .*logs .* -f)\b`)

// logs are commands that print what a pod has logged so far.
var logs = regexp.MustCompile(`^kubectl .*logs\b`)

// placeholder is a word that a reader replaces.
var placeholder = regexp.MustCompile(`\b(REGISTRY|NODE|UID)\b`)

// Script returns the block for one bash. Each command must succeed, and those that stay end by Ctrl-C; each one's output is in a file in
// outputs, which Printed reads. Words in capitals that a reader replaces are replaced by values. Standard error has the running command.
func (b Block) Script(outputs string, values map[string]string) string {
	var s strings.Builder
	s.WriteString("set -eo pipefail\n" + onTerminal)
	for i, x := range b.Examples {
		command := placeholder.ReplaceAllStringFunc(x.Command, func(word string) string {
			if v, known := values[word]; known {
				return v
			}
			return word
		})
		fmt.Fprintf(&s, "echo %s >&2\nexec >%s/%d\n", quote(fmt.Sprintf("page: %s:%d: %s", b.Page, x.Line, command)), outputs, i)
		switch {
		case stays.MatchString(command):
			command = "on_terminal " + quote(withoutComment(command))
		case strings.HasPrefix(command, "s6-svscanctl -t"): // and this one when the tools have run for a while
			command = b.journalExists(i) + command
		case strings.HasPrefix(command, "s6-sv"): // a reader types it when the service directory exists
			command = "until " + withoutComment(command) + "; do sleep 0.1; done"
		// A reader who sees nothing yet repeats it.
		case strings.HasPrefix(command, "kubectl get ") && x.Output != "" || logs.MatchString(command):
			command = fmt.Sprintf("until %s >%[2]s/%[3]d; [ -s %[2]s/%[3]d ]; do sleep 0.5; done", withoutComment(command), outputs, i)
		case strings.HasPrefix(command, "systemctl status "): // status 3 means that one of the units is not active
			command = withoutComment(command) + " || [ $? = 3 ]"
		}
		s.WriteString(command + "\n")
	}
	return s.String()
}

// journal is the file from which a command restores the cgroups.
var journal = regexp.MustCompile(`^isolate --restore (?:.* )?--journal (\S+)`)

// journalExists waits for the journal that a command of the block after example i wants: isolate creates it when it has started.
func (b Block) journalExists(i int) string {
	for _, x := range b.Examples[i+1:] {
		if m := journal.FindStringSubmatch(withoutComment(x.Command)); m != nil {
			return "until [ -e " + quote(m[1]) + " ]; do sleep 0.1; done\n"
		}
	}
	return ""
}

// Printed returns the difference from a block's expected output: the columns of a table of kubectl's must be those of the page. Figures,
// names and ages may differ.
func (b Block) Printed(outputs string) (wrong []string) {
	for i, x := range b.Examples {
		printed, err := os.ReadFile(filepath.Join(outputs, fmt.Sprint(i)))
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s:%d: was not run: %s", b.Page, x.Line, x.Command))
			continue
		}
		want, _, _ := strings.Cut(x.Output, "\n")
		got, _, _ := strings.Cut(string(printed), "\n")
		if strings.HasPrefix(x.Command, "kubectl get ") && want != "" && strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
			wrong = append(wrong, fmt.Sprintf("%s:%d: %s prints\n%s\nand the page has\n%s", b.Page, x.Line, x.Command, printed, x.Output))
		}
	}
	return wrong
}

func withoutComment(command string) string {
	return strings.TrimSpace(regexp.MustCompile(`\s+# .*$`).ReplaceAllString(command, ""))
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
