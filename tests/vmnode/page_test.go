package vmnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"polder/tests/pages"
	"polder/tests/processgroup"
)

// A page is the commands of docs/guide.md that a test types as they are written.
type page struct {
	mark  string // the mark of their blocks
	left  []pages.Example
	typed int
	// here are words of the page with their values on this machine.
	here map[string]string
	dir  string // has the files that the commands name
}

// reads makes the test type the page's commands with a mark.
func (w *world) reads(mark string) {
	w.Helper()
	blocks, err := pages.Marked(mark)
	if err != nil {
		w.Fatal(err)
	}
	w.page = &page{mark: mark, here: map[string]string{}, dir: w.TempDir()}
	for _, b := range blocks {
		w.page.left = append(w.page.left, b.Examples...)
	}
	if len(w.page.left) == 0 {
		w.Fatalf("no block of the pages has the mark %s", mark)
	}
	for _, name := range []string{sharedLarge, reclaimedLarge} {
		data, err := testdata.ReadFile("testdata/" + name + ".yaml")
		if err == nil {
			err = os.WriteFile(filepath.Join(w.page.dir, name+".yaml"), data, 0o644)
		}
		if err != nil {
			w.Fatal(err)
		}
	}
}

// command is a command line as it is typed on this machine.
func (p *page) command(x pages.Example) string {
	line := x.Command
	for word, here := range p.here {
		line = strings.ReplaceAll(line, word, here)
	}
	return line
}

// has reports whether one of the remaining commands is this one.
func (p *page) has(line string) bool {
	for _, x := range p.left {
		if p.command(x) == line {
			return true
		}
	}
	return false
}

// done removes the first of these commands from the remaining ones: its result was as the page describes.
func (w *world) done(line string) pages.Example {
	w.Helper()
	for i, x := range w.page.left {
		if w.page.command(x) == line {
			w.page.left = append(w.page.left[:i:i], w.page.left[i+1:]...)
			w.page.typed++
			return x
		}
	}
	w.Fatalf("docs/guide.md has no command (any more) that is %q and has the mark %s", line, w.page.mark)
	return pages.Example{}
}

// typing returns a command line for a shell in the reader's environment.
func (w *world) typing(ctx context.Context, line string) *exec.Cmd {
	kubectl := w.KubectlCommand(ctx)
	cmd := processgroup.Command(ctx, "bash", "-o", "pipefail", "-c", line)
	cmd.Dir = w.page.dir
	cmd.Env = append(kubectl.Env, "PATH="+filepath.Dir(kubectl.Path)+":/usr/bin:/bin")
	return cmd
}

// types runs a command line of the page and returns its output.
func (w *world) types(line string) (string, error) {
	w.Helper()
	out, err := w.typing(context.Background(), line).Output()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		err = fmt.Errorf("%s: %w: %s", line, err, failed.Stderr)
	}
	return string(out), err
}

// shows types a command line of the page, which must succeed, and print the columns that the page shows.
func (w *world) shows(line string) {
	w.Helper()
	out, err := w.types(line)
	if err != nil {
		w.Fatal(err)
	}
	w.printed(line, out)
	x := w.done(line)
	want, _, _ := strings.Cut(x.Output, "\n")
	got, _, _ := strings.Cut(out, "\n")
	if want != "" && strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		w.Errorf("docs/guide.md:%d: %s prints\n%s\nand the page has\n%s", x.Line, line, out, x.Output)
	}
}

// allTyped fails the test if a command of the page was not typed.
func (w *world) allTyped() {
	w.Helper()
	for _, x := range w.page.left {
		w.Errorf("docs/guide.md:%d: the test has not typed %s", x.Line, x.Command)
	}
	w.log("figures: %d commands of docs/guide.md were typed as they are written", w.page.typed)
}
