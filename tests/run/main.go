// Command run runs tiers of the test suite, and prints what each will do, its progress, and what was skipped.
//
//	go run ./tests/run [-complete] [-again] TIER...
//
// Its exit status is 0 only if no test failed. With -complete, or where CI=true, a skipped test counts as failed: all requirements of the
// tests must be met there. With -again a failed test is run once more alone: if it passes then, it does not fail the
// run, and the last lines name it as one to repair. They also name what fuzzing finds if FUZZ_FINDS=report.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"polder/tests/binaries"
)

func main() {
	complete := flag.Bool("complete", os.Getenv("CI") == "true", "a skipped test is a failure")
	again := flag.Bool("again", false, "run a failed test once more by itself; what passes then is named and does not fail the run")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: go run ./tests/run [-complete] [-again] TIER...")
		flag.PrintDefaults()
		for _, t := range tiers {
			fmt.Fprintf(flag.CommandLine.Output(), "%-8s %s (%s)\n", t.name, t.does, t.takes)
		}
	}
	flag.Parse()
	// Tests run make as a user does, not as a submake of the make that runs them, which would make it print its directory.
	for _, name := range []string{"MAKELEVEL", "MAKEFLAGS", "MFLAGS"} {
		_ = os.Unsetenv(name) // it fails only for an empty name
	}
	chosen, err := choose(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		flag.Usage()
		os.Exit(2)
	}
	if !runAll(os.Stdout, chosen, options{complete: *complete, again: *again}) {
		os.Exit(1)
	}
}

// choose finds the tiers of the given names, which may be names of sets. The tiers of an inner list run in parallel.
func choose(names []string) ([][]tier, error) {
	var stages [][]string
	for _, name := range names {
		if set := sets[name]; set != nil {
			stages = append(stages, set...)
		} else {
			stages = append(stages, []string{name})
		}
	}
	if len(stages) == 0 {
		return nil, errors.New("name a tier")
	}
	var chosen [][]tier
	for _, stage := range stages {
		var beside []tier
		for _, name := range stage {
			i := slices.IndexFunc(tiers, func(t tier) bool { return t.name == name })
			if i < 0 {
				return nil, fmt.Errorf("no tier %q", name)
			}
			beside = append(beside, tiers[i])
		}
		chosen = append(chosen, beside)
	}
	return chosen, nil
}

// options are the flags.
type options struct{ complete, again bool }

// runner runs tiers and prints their output.
type runner struct {
	options
	out   io.Writer
	begun time.Time
	setUp map[string]bool // the scripts that have run
	busy  bool            // other programs use most of the machine's CPU

	mu       sync.Mutex
	lastLine time.Time  // when the last line was written
	env      []string   // for all programs
	results  []*results // of each `go test` so far
	broken   []string   // what failed beside tests
	finds    []string   // lines of programs about their findings, for the verdict
	times    []string   // the duration of each tier
}

// used is the CPU time of a tier's programs.
type used struct{ total time.Duration }

// add counts a program that has ended, and its children.
func (u *used) add(cmd *exec.Cmd) {
	if u != nil && cmd.ProcessState != nil {
		u.total += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
}

// runAll runs the tiers, those of an inner list in parallel, and prints their outcome at the end.
func runAll(out io.Writer, chosen [][]tier, o options) bool {
	r := &runner{options: o, out: out, begun: time.Now(), lastLine: time.Now(), setUp: map[string]bool{}, env: os.Environ()}
	stop := r.reportProgress(time.Minute)
	if r.busy = hasBusyArgs(chosen) && isBusy(time.Second); r.busy {
		r.printf(">> other programs use most of this machine's CPU: fewer tests run at a time, which takes longer")
	}
	var all sync.WaitGroup
	for _, beside := range chosen {
		var ready []tier
		for _, t := range beside {
			r.printf(">> %s: %s; about %s on two cores", t.name, t.does, t.takes)
			if err := r.prepare(t); err != nil {
				r.fail("%s: %v", t.name, err)
				continue
			}
			ready = append(ready, t)
		}
		var running sync.WaitGroup
		for _, t := range ready {
			if t.after {
				all.Go(func() { r.tier(t) })
			} else {
				running.Go(func() { r.tier(t) })
			}
		}
		running.Wait()
	}
	all.Wait()
	stop()
	return r.verdict()
}

// verdict prints what failed, what was skipped, and how much was run. It returns true if nothing failed.
func (r *runner) verdict() bool {
	all := newResults(r.printf)
	for _, one := range r.results {
		all.passed += one.passed
		all.failed = append(all.failed, one.failed...)
		all.chance = append(all.chance, one.chance...)
		for why, tests := range one.skipped {
			all.skipped[why] = append(all.skipped[why], tests...)
		}
	}
	r.printf(">> times: %s", strings.Join(r.times, ", "))
	for _, what := range r.broken {
		r.printf(">> failed: %s", what)
	}
	for _, f := range all.failed {
		r.printf("%s", strings.Join(append([]string{">> failed: " + f.key}, f.messages...), "\n"))
	}
	for _, f := range all.chance {
		r.printf("%s", strings.Join(append([]string{">> failed once, passed when run again, and is to be repaired: " + f.key}, f.messages...), "\n"))
	}
	for _, line := range r.finds {
		r.printf("%s", line)
	}
	skipped := 0
	for _, tests := range all.skipped {
		skipped += len(tests)
	}
	if left := all.leftOut(); left != "" {
		r.printf(">> left out: %s", left)
		if r.complete {
			for why, tests := range all.skipped {
				r.printf(">> failed: nothing may be left out here (%s): %s", why, strings.Join(tests, ", "))
			}
		}
	}
	failures := len(all.failed) + len(r.broken)
	if r.complete {
		failures, skipped = failures+skipped, 0
	}
	fmt.Fprintf(r.out, "tests: %d passed, %d failed, %d skipped\n", all.passed, failures, skipped)
	return failures == 0
}

// tier runs one tier, which is prepared.
func (r *runner) tier(t tier) {
	begun := time.Now()
	var cpu used
	for _, one := range t.runs {
		var err error
		one.cpu = &cpu
		if len(one.command) > 0 {
			err = r.command(one)
		} else {
			err = r.goTest(one)
		}
		if err != nil {
			r.fail("%s: %v", t.name, err)
		}
	}
	took := fmt.Sprintf("%s %s", t.name, clock(time.Since(begun)))
	r.printf(">> done: %s, with %s of CPU time", took, clock(cpu.total))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times = append(r.times, took)
}

// result returns a new collector for the results of one `go test` or program.
func (r *runner) result() *results {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := newResults(r.printf)
	r.results = append(r.results, one)
	return one
}

// prepare runs the tier's set-up scripts that have not run.
func (r *runner) prepare(t tier) error {
	for _, s := range t.setup {
		if err := r.setupOnce(s); err != nil {
			return err
		}
	}
	return nil
}

// setupOnce runs a set-up script unless it has run.
func (r *runner) setupOnce(s setup) error {
	if r.setUp[s.script] {
		return nil
	}
	cmd := exec.Command(s.script)
	cmd.Stderr = r.lines()
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", s.script, err)
	}
	r.setUp[s.script] = true
	if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); s.variable != "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.env = append(r.env, s.variable+"="+lines[len(lines)-1])
	}
	return nil
}

// environment is the environment of a program, with its own variables.
func (r *runner) environment(own ...string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.env, own)
}

// command runs a program whose exit status is its result.
func (r *runner) command(one run) error {
	args := slices.Clone(one.command)
	for i := range args {
		args[i] = expand(args[i])
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = r.environment(one.env...)
	cmd.Stdout, cmd.Stderr = r.lines(), &lineWriter{printf: r.printFind}
	err := cmd.Run()
	one.cpu.add(cmd)
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	r.result().passed++
	return nil
}

// findPrefix begins the lines in which scripts/fuzz reports its findings if FUZZ_FINDS=report. The verdict repeats them.
const findPrefix = ">> find: "

// printFind prints a program's line, and keeps it for the verdict if it is a finding.
func (r *runner) printFind(format string, args ...any) {
	r.printf(format, args...)
	if line := fmt.Sprintf(format, args...); strings.HasPrefix(line, findPrefix) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.finds = append(r.finds, line)
	}
}

// expand replaces ${NAME:-DEFAULT}.
func expand(arg string) string {
	inner, ok := strings.CutPrefix(arg, "${")
	if !ok {
		return arg
	}
	name, value, _ := strings.Cut(strings.TrimSuffix(inner, "}"), ":-")
	if set := os.Getenv(name); set != "" {
		return set
	}
	return value
}

// goTest runs the tests of packages. Failed tests are in the results; the error is about anything else.
func (r *runner) goTest(one run) error {
	dir, err := binaries.Build()
	if err != nil {
		return err
	}
	packages, err := list(one.packages, one.except)
	if err != nil || len(packages) == 0 {
		return err
	}
	// The tier `lint` runs `go vet` over everything.
	args := append([]string{"nice", "-n", strconv.Itoa(one.niceness), "go", "test", "-json", "-vet=off"}, one.args...)
	if r.busy {
		args = append(args, one.busyArgs...)
	}
	env := r.environment(append(slices.Clone(one.env), binaries.Variable+"="+dir)...)
	found := r.result()
	found.cpu = one.cpu
	if one.race && hasCompiler(found) {
		args, env = append(args, "-race"), append(env, "CGO_ENABLED=1")
	} else {
		env = append(env, "CGO_ENABLED=0")
	}
	if err := r.goCommand(found, env, append(slices.Clone(args), packages...)); err != nil || !r.again {
		return err
	}
	return r.runAgain(found, env, args)
}

// goCommand runs `go test -json` and reads its events. Failed tests are no error.
func (r *runner) goCommand(found *results, env, args []string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stderr = env, r.lines()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := found.read(out)
	err = cmd.Wait()
	found.cpu.add(cmd)
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(found.failed) > 0 {
		err = nil // the failed tests report it
	}
	return errors.Join(readErr, err)
}

// mostAgain is how many tests are run again. If more have failed, it is not by chance.
const mostAgain = 3

// runAgain runs what has failed once more, each top-level test alone, or all of a package that was cut short. What passes then moves
// to found.chance.
func (r *runner) runAgain(found *results, env, args []string) error {
	again := found.again()
	if len(again) > mostAgain {
		return nil
	}
	for _, one := range again {
		r.printf(">> once more, by itself: %s %s", one.pkg, one.test)
		args := slices.Clone(args)
		if one.test != "" {
			args = append(args, "-run=^"+regexp.QuoteMeta(one.test)+"$")
		}
		second := newResults(r.printf)
		second.cpu = found.cpu
		if err := r.goCommand(second, env, append(args, "polder/"+one.pkg)); err != nil {
			return err
		}
		if len(second.failed) == 0 && second.passed > 0 && len(second.skipped) == 0 {
			found.forgive(one, second.passed)
		}
	}
	return nil
}

// hasCompiler reports whether there is the C compiler that the race detector needs.
func hasCompiler(found *results) bool {
	if _, err := exec.LookPath("gcc"); err == nil {
		return true
	}
	found.skipped["needs gcc (Debian package gcc)"] = []string{"the race detector"}
	return false
}

// list names the packages that have tests.
func list(patterns, except []string) ([]string, error) {
	names := func(patterns []string) ([]string, error) {
		if len(patterns) == 0 {
			return nil, nil
		}
		args := append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}, patterns...)
		cmd := exec.Command("go", args...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list %s: %w\n%s", strings.Join(patterns, " "), err, errs.String())
		}
		return strings.Fields(string(out)), nil
	}
	all, err := names(patterns)
	if err != nil {
		return nil, err
	}
	without, err := names(except)
	return slices.DeleteFunc(all, func(name string) bool { return slices.Contains(without, name) }), err
}

func (r *runner) fail(format string, args ...any) {
	r.printf("FAIL  "+format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = append(r.broken, fmt.Sprintf(format, args...))
}

// printf prints a line with the time since the start.
func (r *runner) printf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastLine = time.Now()
	fmt.Fprintf(r.out, "%6s  %s\n", clock(time.Since(r.begun)), strings.TrimRight(fmt.Sprintf(format, args...), "\n"))
}

// reportProgress prints the running tests whenever nothing has been printed for a while. The function that it returns ends that.
func (r *runner) reportProgress(every time.Duration) func() {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(every / 4):
			}
			r.mu.Lock()
			quiet, all := time.Since(r.lastLine) >= every, slices.Clone(r.results)
			r.mu.Unlock()
			for _, one := range all {
				if tests := one.running(); quiet && tests != "" {
					r.printf("...   %s", tests)
				}
			}
		}
	}()
	return func() { close(done) }
}

// lines returns a writer whose lines are printed. exec copies to it from one goroutine.
func (r *runner) lines() io.Writer { return &lineWriter{printf: r.printf} }

type lineWriter struct {
	printf  func(string, ...any)
	pending []byte
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.pending = append(w.pending, b...)
	for {
		i := slices.Index(w.pending, '\n')
		if i < 0 {
			return len(b), nil
		}
		w.printf("%s", w.pending[:i])
		w.pending = w.pending[i+1:]
	}
}

// clock formats a time as minutes and seconds.
func clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
