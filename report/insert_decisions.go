package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/term"

	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/spool"
)

// lookAhead bounds the bytes of a recording from a pipe that are read ahead to find which sections it has.
const lookAhead = tick.DefaultMaxLine + 1<<20

// insertion is the advise and the evict through which a recording without decisions is read.
type insertion struct {
	sections []string // that are inserted
	tools    []*exec.Cmd
	opened   []io.Closer
	copied   chan error // how the copying of the input into the first tool ended, where it is copied
	stopped  context.CancelFunc
}

// insertDecisions makes the session read a recording that has only samples through the advise and the evict --dry-run in this
// program's directory. Their arguments are fixed, and their environment has none of this program's settings: a question must not
// touch a state file or carry out an action that is set there for the node's own tools.
func insertDecisions(ctx context.Context, s *stage.Session) (*insertion, error) {
	x := &insertion{stopped: func() {}, copied: make(chan error, 1)}
	in, err := x.input(s)
	if err != nil || in == nil {
		return x, err
	}
	has, in, err := x.look(ctx, in, s.MaxLine)
	if err != nil {
		return x, err
	}
	s.In, s.Input = in, "-"
	if !has[tick.SectionSample] {
		return x, nil
	}
	var tools [][]string
	for _, inserted := range []struct {
		section string
		tool    []string
	}{{tick.SectionAdvice, []string{"advise"}}, {tick.SectionEviction, []string{"evict", "--dry-run"}}} {
		if !has[inserted.section] {
			x.sections = append(x.sections, inserted.section)
			tools = append(tools, inserted.tool)
		}
	}
	return x, x.start(ctx, s, tools)
}

// input is the recording's reader. It is nil for a FIFO, which is a live stream's, and for a terminal, about which the stream warns.
func (x *insertion) input(s *stage.Session) (io.Reader, error) {
	if s.Input == "-" || s.Input == "" {
		if f, ok := s.In.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			return nil, nil
		}
		return s.In, nil
	}
	if info, err := os.Stat(s.Input); err != nil || !info.Mode().IsRegular() {
		return nil, nil // the stream opens it, or reports why it cannot
	}
	f, err := os.Open(s.Input)
	if err != nil {
		return nil, stage.Usagef("open --input: %w", err)
	}
	x.opened = append(x.opened, f)
	return f, nil
}

// look finds which sections the recording has, and returns a reader of the whole recording. What any tick has was recorded: a pipe's first
// ticks may lack it. A file is searched to its end, and of another input at most lookAhead bytes, which stay in memory.
func (x *insertion) look(ctx context.Context, in io.Reader, maxLine int) (has map[string]bool, again io.Reader, err error) {
	if file, ok := in.(*os.File); ok && spool.IsSeekable(file) {
		begin, err := file.Seek(0, io.SeekCurrent)
		if err == nil {
			has = sectionsOf(ctx, file, maxLine)
			_, err = file.Seek(begin, io.SeekStart)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read the recording from its beginning: %w", err)
		}
		return has, file, ctx.Err()
	}
	var read bytes.Buffer
	found := make(chan map[string]bool, 1)
	go func() { found <- sectionsOf(ctx, io.TeeReader(io.LimitReader(in, lookAhead), &read), maxLine) }()
	select {
	case has = <-found:
		return has, io.MultiReader(&read, in), ctx.Err()
	case <-ctx.Done(): // nothing can end the read of an input that sends nothing
		return nil, nil, ctx.Err()
	}
}

// sectionsOf are the sections that any tick has. It stops where nothing is left to insert.
func sectionsOf(ctx context.Context, in io.Reader, maxLine int) map[string]bool {
	has := map[string]bool{}
	r := tick.NewReader(in)
	r.MaxLine = maxLine
	for ctx.Err() == nil && !(has[tick.SectionAdvice] && has[tick.SectionEviction]) {
		line, err := r.Next()
		if err != nil { // the end; another error is the stream's to report
			break
		}
		for _, section := range []string{tick.SectionSample, tick.SectionAdvice, tick.SectionEviction} {
			has[section] = has[section] || line.Section(section) != nil
		}
	}
	return has
}

// start runs the tools in a row, from the session's input to a new one.
func (x *insertion) start(ctx context.Context, s *stage.Session, tools [][]string) error {
	if len(tools) == 0 {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find advise and evict beside report: %w", err)
	}
	ctx, x.stopped = context.WithCancel(ctx)
	in := s.In
	for _, args := range tools {
		path := filepath.Join(filepath.Dir(self), args[0])
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("the recording has no %s, and %s is not beside report to decide it (%w): give it a recording that has, as in: advise < day.jsonl | evict --dry-run | report --to explain",
				strings.Join(x.sections, " and no "), args[0], err)
		}
		args = append(args, "--log-level", "warn", "--max-line", strconv.Itoa(s.MaxLine), "--strict="+strconv.FormatBool(s.Strict))
		cmd := exec.CommandContext(ctx, path, args[1:]...)
		cmd.Env = plainEnvironment(os.Environ())
		file, ok := in.(*os.File)
		if !ok {
			if file, err = x.pipeOf(in); err != nil {
				return err
			}
		}
		cmd.Stdin = file
		cmd.Stderr = s.Err
		out, into, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("make a pipe: %w", err)
		}
		cmd.Stdout = into
		err = cmd.Start()
		into.Close()
		x.opened = append(x.opened, out)
		if err != nil {
			return fmt.Errorf("start %s: %w", path, err)
		}
		x.tools = append(x.tools, cmd)
		in = out
	}
	s.In = in
	return nil
}

// pipeOf is a pipe into which a reader is copied. (os/exec would do that, too, but wait until the reader ends.)
func (x *insertion) pipeOf(in io.Reader) (*os.File, error) {
	from, into, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	x.opened = append(x.opened, from)
	go func() {
		_, err := io.Copy(into, in)
		x.copied <- errors.Join(err, into.Close())
	}()
	return from, nil
}

// plainEnvironment is the environment that a program needs, without a tool's settings.
func plainEnvironment(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return !slices.Contains([]string{"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ", "GOMEMLIMIT", "GOCOVERDIR"}, name)
	})
}

// end waits for the tools, whose output was read to its end.
func (x *insertion) end() error {
	var all error
	for _, cmd := range x.tools {
		if err := cmd.Wait(); err != nil {
			all = errors.Join(all, fmt.Errorf("%s, by which the recording was to be decided, failed: %w", filepath.Base(cmd.Path), err))
		}
	}
	x.tools = nil
	select {
	case err := <-x.copied:
		if err != nil && all == nil {
			all = fmt.Errorf("read the recording: %w", err)
		}
	default: // it is not copied, or the tools ended before the copying
	}
	return all
}

// stop ends the tools after the answer failed.
func (x *insertion) stop() {
	x.stopped()
	_ = x.end()
	for _, c := range x.opened {
		_ = c.Close()
	}
}
