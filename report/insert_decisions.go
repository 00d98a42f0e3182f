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

// lookAhead bounds the bytes that are read ahead to find which sections a recording has.
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
	first, read := firstTick(in, s.MaxLine)
	if file, ok := in.(*os.File); ok && spool.IsSeekable(file) {
		if _, err := file.Seek(-int64(len(read)), io.SeekCurrent); err != nil {
			return x, fmt.Errorf("read the recording from its beginning: %w", err)
		}
	} else {
		in = io.MultiReader(bytes.NewReader(read), in)
	}
	s.In, s.Input = in, "-"
	if first == nil || first.Section(tick.SectionSample) == nil {
		return x, nil
	}
	var tools [][]string
	if first.Section(tick.SectionAdvice) == nil {
		x.sections = append(x.sections, tick.SectionAdvice)
		tools = append(tools, []string{"advise"})
	}
	if first.Section(tick.SectionEviction) == nil {
		x.sections = append(x.sections, tick.SectionEviction)
		tools = append(tools, []string{"evict", "--dry-run"})
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

// firstTick is the first line that is a tick, nil where there is none within lookAhead, and everything that was read.
func firstTick(in io.Reader, maxLine int) (*tick.Line, []byte) {
	var read bytes.Buffer
	r := tick.NewReader(io.TeeReader(io.LimitReader(in, lookAhead), &read))
	r.MaxLine = maxLine
	line, err := r.Next()
	if err != nil {
		return nil, read.Bytes()
	}
	return line, read.Bytes()
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
