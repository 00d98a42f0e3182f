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

	"polder/lib/stage"
	"polder/lib/tick"
)

// most bytes that are read ahead to see which sections a recording has.
const lookAhead = tick.DefaultMaxLine + 1<<20

// insertion is the advise and the evict through which a recording without decisions is read.
type insertion struct {
	sections []string // that are inserted
	tools    []*exec.Cmd
	failures []*bytes.Buffer
	opened   []io.Closer
	stopped  context.CancelFunc
}

// insertDecisions makes the session read a recording of samples alone through the advise and the evict --dry-run that are
// beside this program. Their arguments are fixed, and their environment has nothing of this one's settings: a state file or an
// action that is set there for the node's own tools must not be touched by a question.
func insertDecisions(ctx context.Context, s *stage.Session) (*insertion, error) {
	x := &insertion{stopped: func() {}}
	in, err := x.input(s)
	if err != nil || in == nil {
		return x, err
	}
	first, read := firstTick(in, s.MaxLine)
	if file, ok := in.(*os.File); ok && isSeekable(file) {
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

// input is what the recording is read from; nil for a FIFO, which is a live stream's.
func (x *insertion) input(s *stage.Session) (io.Reader, error) {
	if s.Input == "-" || s.Input == "" {
		return s.In, nil
	}
	if info, err := os.Stat(s.Input); err != nil || !info.Mode().IsRegular() {
		return nil, nil // the stream opens it, or says why that cannot be
	}
	f, err := os.Open(s.Input)
	if err != nil {
		return nil, stage.Usagef("open --input: %w", err)
	}
	x.opened = append(x.opened, f)
	return f, nil
}

func isSeekable(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// firstTick is the first line that is a tick, nil where none is within what may be read ahead, and all that was read.
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
		args = append(args, "--log-level", "error", "--max-line", strconv.Itoa(s.MaxLine))
		cmd := exec.CommandContext(ctx, path, args[1:]...)
		cmd.Env = plainEnvironment(os.Environ())
		cmd.Stdin = in
		failure := &bytes.Buffer{}
		cmd.Stderr = &capped{failure}
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
		x.tools, x.failures = append(x.tools, cmd), append(x.failures, failure)
		in = out
	}
	s.In = in
	return nil
}

// plainEnvironment is what a program needs to run, and none of a tool's settings.
func plainEnvironment(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return !slices.Contains([]string{"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ", "GOMEMLIMIT", "GOCOVERDIR"}, name)
	})
}

// capped keeps the beginning of what a tool logs.
type capped struct{ b *bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	const most = 4 << 10
	c.b.Write(p[:min(len(p), max(most-c.b.Len(), 0))])
	return len(p), nil
}

// end waits for the tools, whose output was read to its end.
func (x *insertion) end() error {
	var all error
	for i, cmd := range x.tools {
		if err := cmd.Wait(); err != nil {
			all = errors.Join(all, fmt.Errorf("%s, by which the recording was decided: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(x.failures[i].String())))
		}
	}
	x.tools = nil
	return all
}

// stop ends the tools where the answer failed before they did.
func (x *insertion) stop() {
	x.stopped()
	_ = x.end()
	for _, c := range x.opened {
		_ = c.Close()
	}
}
