package stage

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"
)

const (
	// manFlag prints the tool's manual page for man(1), for the installation.
	manFlag = "generate-man"
	// manualFlag prints the same manual as Markdown, which is the tool's page in docs/ and is readable without man(1).
	manualFlag = "manual"
)

// These lines of a manual are not running text.
var (
	manHeading = regexp.MustCompile(`^[A-Z][A-Z0-9 ,.'?/-]*(\(--[a-z-]+\))?$`)
	manBullet  = regexp.MustCompile(`^ *- (.*)$`)
	manItem    = regexp.MustCompile(`^( *)(\S+(?: \S+)*)(  +)(\S+(?: \S+)*)$`)
)

// manual writes everything about the tool: what it does, its tasks and sections, its options with their details. A page in docs/
// begins with the tasks; a manual page has them after the description, where readers of man(1) expect examples.
func (c Command) manual(w io.Writer, flags []cli.Flag, form markup) error {
	var b strings.Builder
	form.title(&b, c)
	text := manText{Builder: &b, form: form}
	text.text(c.Summary)
	if form.tasksFirst() {
		c.tasks(&b, form)
		if c.Manual != "" {
			form.heading(&b, "HOW IT WORKS")
		}
	}
	text.text(c.Manual)
	if !form.tasksFirst() {
		c.tasks(&b, form)
	}
	form.heading(&b, "OPTIONS")
	form.paragraph(&b)
	form.line(&b, c.variables())
	for _, group := range optionGroups(flags) {
		form.subheading(&b, group.name)
		for _, f := range group.flags {
			d := describeFlag(f)
			about := d.brief
			if d.details != "" {
				about += ". " + d.details
			}
			form.item(&b, d.name, about)
		}
	}
	form.heading(&b, "EXIT STATUS")
	form.paragraph(&b)
	form.line(&b, strings.ToUpper(exitStatus[13:14])+exitStatus[14:])
	_, err := io.WriteString(w, b.String())
	return err
}

// tasks writes what a user may want to do, and the commands.
func (c Command) tasks(b *strings.Builder, form markup) {
	if len(c.Tasks) == 0 {
		return
	}
	form.heading(b, form.tasksTitle())
	for _, task := range c.Tasks {
		form.subheading(b, task.Want)
		form.verbatimBegins(b)
		for line := range strings.SplitSeq(task.Command, "\n") {
			form.raw(b, line)
		}
		form.verbatimEnds(b)
	}
}

// markup is the format of a manual.
type markup interface {
	title(*strings.Builder, Command)
	tasksFirst() bool
	tasksTitle() string
	heading(*strings.Builder, string)
	subheading(*strings.Builder, string)
	paragraph(*strings.Builder)
	line(*strings.Builder, string) // of running text
	item(b *strings.Builder, name, text string)
	bullet(*strings.Builder, string)
	more(*strings.Builder, string) // of an item or bullet
	verbatimBegins(*strings.Builder)
	verbatimEnds(*strings.Builder)
	raw(*strings.Builder, string) // a verbatim line
}

// manText turns a manual's lines into paragraphs, lists and examples.
type manText struct {
	*strings.Builder
	form      markup
	base      int  // the indentation of this section's running text
	column    int  // the column of the last list item's text; 0 outside a list
	asWritten bool // lines are written unchanged
	open      bool // the running text's paragraph has begun
}

// text adds a whole text.
func (m *manText) text(text string) {
	m.base, m.column, m.open = 0, 0, false
	if text = strings.TrimSpace(text); text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		m.line(strings.TrimRight(line, " "))
	}
	m.fill()
}

// line adds the next line.
func (m *manText) line(line string) {
	indent := len(line) - len(strings.TrimLeft(line, " "))
	switch {
	case line == "":
		m.fill()
		m.open, m.column = false, 0
		return
	case indent == 0 && manHeading.MatchString(line):
		m.fill()
		m.open, m.column, m.base = false, 0, 3
		m.form.heading(m.Builder, line)
		return
	}
	if indent < m.base { // a section that is not indented
		m.base = 0
	}
	item, bullet := manItem.FindStringSubmatch(line), manBullet.FindStringSubmatch(line)
	switch {
	case item != nil && !m.asWritten:
		m.column, m.open = len(item[1])+len(item[2])+len(item[3]), false
		m.form.item(m.Builder, item[2], item[4])
	case m.column > 0 && indent == m.column:
		m.form.more(m.Builder, line[indent:])
	case indent == m.base:
		m.fill()
		if !m.open || m.column > 0 {
			m.form.paragraph(m.Builder)
		}
		m.open, m.column = true, 0
		m.form.line(m.Builder, line[indent:])
	case bullet != nil && !m.asWritten:
		m.column = indent + 2
		m.form.bullet(m.Builder, bullet[1])
	default:
		if !m.asWritten {
			m.form.verbatimBegins(m.Builder)
			m.asWritten, m.column = true, 0
		}
		m.form.raw(m.Builder, strings.Repeat(" ", indent-m.base)+line[indent:])
	}
}

// fill ends verbatim lines.
func (m *manText) fill() {
	if m.asWritten {
		m.form.verbatimEnds(m.Builder)
		m.asWritten, m.open = false, false
	}
}

// manPage is a manual in the macros of man(7). A manual is plain text, in which _ and * are literal: urfave/cli's own page would
// parse it as Markdown.
type manPage struct{}

func (manPage) title(b *strings.Builder, c Command) {
	fmt.Fprintf(b, ".TH %s 1 \"\" \"Polder %s\" Polder\n", strings.ToUpper(c.id()), roff(Version))
	fmt.Fprintf(b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n[\\fIoptions\\fR]\n", roff(c.id()), roff(c.Synopsis), c.Name)
	for _, sub := range c.Subcommands {
		fmt.Fprintf(b, ".br\n.B %s\n[\\fIoptions\\fR], see %s(1)\n", sub.Name, roff(sub.id()))
	}
	b.WriteString(".SH DESCRIPTION\n")
}

func (manPage) tasksFirst() bool                        { return false }
func (manPage) tasksTitle() string                      { return "EXAMPLES" }
func (manPage) heading(b *strings.Builder, s string)    { fmt.Fprintf(b, ".SH %s\n", roff(s)) }
func (manPage) subheading(b *strings.Builder, s string) { fmt.Fprintf(b, ".SS %s\n", roff(s)) }
func (manPage) paragraph(b *strings.Builder)            { b.WriteString(".PP\n") }
func (manPage) line(b *strings.Builder, s string)       { fmt.Fprintln(b, roff(s)) }
func (manPage) more(b *strings.Builder, s string)       { fmt.Fprintln(b, roff(s)) }
func (manPage) raw(b *strings.Builder, s string)        { fmt.Fprintln(b, roff(s)) }
func (manPage) bullet(b *strings.Builder, s string)     { fmt.Fprintf(b, ".IP \\(bu 2\n%s\n", roff(s)) }

func (manPage) item(b *strings.Builder, name, s string) {
	fmt.Fprintf(b, ".TP\n\\fB%s\\fR\n%s\n", roff(name), roff(s))
}

func (manPage) verbatimBegins(b *strings.Builder) { b.WriteString(".PP\n.nf\n") }
func (manPage) verbatimEnds(b *strings.Builder)   { b.WriteString(".fi\n") }

var roffEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`)

// roff returns text that troff prints unchanged.
func roff(text string) string {
	text = roffEscapes.Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

// markdown is a manual as a page of docs/.
type markdown struct{}

func (markdown) title(b *strings.Builder, c Command) {
	fmt.Fprintf(b, "# %s\n\n`%s`: %s.\n", c.Name, c.Name, c.Synopsis)
	for _, sub := range c.Subcommands {
		fmt.Fprintf(b, "\n[`%s`](%s.md), a subcommand: %s.\n", sub.Name, sub.id(), sub.Synopsis)
	}
}

func (markdown) tasksFirst() bool   { return true }
func (markdown) tasksTitle() string { return "TASKS" }

func (markdown) heading(b *strings.Builder, s string) {
	if name, option, ok := strings.Cut(s, " ("); ok {
		s = sentenceCase(name) + " (`" + strings.TrimSuffix(option, ")") + "`)"
	} else {
		s = sentenceCase(s)
	}
	fmt.Fprintf(b, "\n## %s\n", s)
}

func sentenceCase(s string) string { return s[:1] + strings.ToLower(s[1:]) }

func (markdown) subheading(b *strings.Builder, s string) { fmt.Fprintf(b, "\n### %s\n", s) }
func (markdown) paragraph(b *strings.Builder)            { b.WriteString("\n") }
func (markdown) line(b *strings.Builder, s string)       { fmt.Fprintln(b, marked(s)) }
func (markdown) more(b *strings.Builder, s string)       { fmt.Fprintln(b, "  "+marked(s)) }
func (markdown) raw(b *strings.Builder, s string)        { fmt.Fprintln(b, s) }

func (markdown) bullet(b *strings.Builder, s string) {
	listBegins(b)
	fmt.Fprintf(b, "- %s\n", marked(s))
}

func (markdown) item(b *strings.Builder, name, s string) {
	listBegins(b)
	fmt.Fprintf(b, "- `%s`: %s\n", name, marked(s))
}

// listBegins writes an empty line between a paragraph and the list after it.
func listBegins(b *strings.Builder) {
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if last := lines[len(lines)-1]; last != "" && !strings.HasPrefix(last, "- ") && !strings.HasPrefix(last, "  ") {
		b.WriteString("\n")
	}
}

func (markdown) verbatimBegins(b *strings.Builder) { b.WriteString("\n```\n") }
func (markdown) verbatimEnds(b *strings.Builder)   { b.WriteString("```\n") }

// code matches options, and parts of a manual's running text that would be parsed as Markdown: they are set as code.
var code = regexp.MustCompile("(^|[ (\"'])(--[a-z][a-z-]*[a-z]|[^ `\"'(),;:]*[_*<>\\[\\]|][^ `\"'(),;]*[^ `\"'(),;:.])")

// docsPage matches the name of a page of docs/.
var docsPage = regexp.MustCompile(`docs/([a-z-]+\.md)`)

// marked returns a line of running text in Markdown.
func marked(text string) string {
	text = code.ReplaceAllString(text, "$1`$2`")
	return docsPage.ReplaceAllString(text, "[$1]($1)")
}
