package stage

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A manual page contains the manual's paragraphs, lists and examples, and each flag as in --help.
func TestManPage(t *testing.T) {
	h := &harness{in: strings.NewReader("")}
	c := h.echo(filterKind, nil)
	c.Name, c.Synopsis = "advise", "decide what's free"
	c.Manual = `
Running text of
two lines, with a \ and - in it.

.hidden is a file's name. One of:

   one     the first
           goes on here
   two words  the second

   rules:
     - no bullet
  - with
    a bullet

EXAMPLES
   Why?
      advise | jq '.'

   last      item at the margin
`
	c.Flags = func(f *Flags) {
		f.Category("Deciding")
		f.Choice(new(string), "limit", "class", "what holds them\nOf batch pods.", "class", "quota")
	}
	if status := h.run(t, c, "--generate-man"); status != 0 {
		t.Fatalf("status %d: %s", status, &h.err)
	}
	page := h.out.String()
	head, options, _ := strings.Cut(page, ".SH OPTIONS\n")
	const want = `.TH ADVISE 1 "" "Polder dev" Polder
.SH NAME
advise \- decide what\(aqs free
.SH SYNOPSIS
.B advise
[\fIoptions\fR]
.SH DESCRIPTION
.PP
Running text of
two lines, with a \e and \- in it.
.PP
\&.hidden is a file\(aqs name. One of:
.TP
\fBone\fR
the first
goes on here
.TP
\fBtwo words\fR
the second
.PP
.nf
   rules:
     \- no bullet
  \- with
    a bullet
.fi
.SH EXAMPLES
.PP
Why?
.PP
.nf
   advise | jq \(aq.\(aq
.fi
.TP
\fBlast\fR
item at the margin
`
	if diff := cmp.Diff(want, head); diff != "" {
		t.Errorf("the page (-want +got):\n%s", diff)
	}
	const flag = ".SS Deciding\n.TP\n\\fB\\-\\-limit VALUE\\fR\nwhat holds them (class, quota; default class). Of batch pods.\n"
	if !strings.Contains(options, flag) || !strings.Contains(options, ".SS Process\n") || strings.Contains(page, manFlag) {
		t.Errorf("the options are\n%s\nwant among them\n%s", options, flag)
	}
}

// Completion offers flags, and the values of a flag that has a list of them.
func TestCompletion(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"--lim"}, "--limit"},
		{[]string{"--log-"}, "--log-format --log-level"},
		{[]string{"--limit", ""}, "class quota"},
		{[]string{"--limit", "q"}, "quota"},
		{[]string{"--limit", "x"}, ""},
		{[]string{"--limit", "="}, "class quota"},
		{[]string{"--limit", "=", "c"}, "class"},
		{[]string{"--limit=q"}, "--limit=quota"},
		{[]string{"-limit", "q"}, "quota"},
		{[]string{"--to", ""}, "table tty"},
		{[]string{"--to", "table,t"}, "table,table table,tty"},
		{[]string{"--to=table,tt"}, "--to=table,tty"},
		{[]string{"--strict", "--str"}, "--strict"},
		{[]string{"--strict=t"}, "--strict=true"},
		{[]string{"--input", "a"}, ""}, // a file: the shell knows them
		{[]string{"limit", "--log-f"}, "--log-format"},
		{[]string{"--log-level", "debug", "--log-f"}, "--log-format"},
		{[]string{"--limit", "class", "--vers"}, "--version"},
	} {
		h := &harness{in: strings.NewReader("")}
		command := h.echo(filterKind, nil)
		command.Flags = func(f *Flags) {
			f.Choice(new(string), "limit", "class", "", "class", "quota")
			f.Strings(new([]string), "to", "")
			f.Words("table", "tty")
		}
		if status := h.run(t, command, append(c.words, "--generate-bash-completion")...); status != 0 || h.err.Len() > 0 {
			t.Errorf("%q: status %d: %s", c.words, status, &h.err)
		}
		if got := strings.Join(strings.Fields(h.out.String()), " "); got != c.want {
			t.Errorf("%q is completed by %q; want %q", c.words, got, c.want)
		}
	}
}
