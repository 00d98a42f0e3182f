// Package stage contains what all tools share: flags, logs, signals, exit status, FIFOs, state files and the
// loop over the lines. It is the only importer of urfave/cli.
package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"polder/lib/listen"
	"polder/lib/metrics"
	"polder/lib/tick"
)

// Version is set at build time (-ldflags "-X polder/lib/stage.Version=…").
var Version = "dev"

// Env is a tool's environment.
type Env struct {
	Args     []string // with the program's name first
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	Now      func() time.Time
	// Processors sets on how many processors the process runs, and returns the previous number; nil if the tool must not set it.
	Processors func(int) int
}

// osEnv is the process's environment.
func osEnv() Env {
	return Env{Args: os.Args, In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now, Processors: runtime.GOMAXPROCS}
}

// Kind selects the shared flags of a tool.
type Kind struct {
	Reads  bool // --input, --strict, --max-line
	Writes bool // --output
	State  bool // --state
	Acts   bool // --max-age, --node, --dry-run
	// AllNodes is for a tool that acts on the ticks of all nodes: it has no --node.
	AllNodes bool
}

// Command is one tool, or a subcommand of one.
type Command struct {
	// Name is what a user types: "collect", or for a subcommand "collect fleet".
	Name     string
	Synopsis string // one line
	Summary  string // what it does, in ten lines at most: the beginning of --help and of the manual
	Tasks    []Task // --help shows the first ones, the manual all of them
	Manual   string // how it works, what it reads and writes; only in the manual
	// Families are prefixes of option names, such as "load-". --help only names these options, under FamiliesTitle.
	Families      []string
	FamiliesTitle string
	Kind          Kind
	Flags         func(*Flags)
	Run           func(context.Context, *Session) error
	// Subcommands are selected by the first argument. Each has its own flags, variables, help and manual.
	Subcommands []Command
}

// Session is one run of a tool: the outside world and the shared flags.
type Session struct {
	Env
	Log  *slog.Logger
	Tool string // the tool's name; for a subcommand "collect-fleet"

	Input, Output string
	Strict        bool
	MaxLine       int
	State         string
	MaxAge        time.Duration
	Node          string
	DryRun        bool
	HeartbeatFile string
	MetricsAddr   string

	// StateBoot reports whether the loaded state is from this boot.
	StateBoot Boot

	// Metrics is nil without --metrics-addr.
	Metrics *metrics.Set

	isSet  func(string) bool
	notify *notifier
	acts   bool // Kind.Acts

	processors processors
	refusals   refusals
}

// IsSet reports whether a flag was given on the command line or by its environment variable.
func (s *Session) IsSet(flag string) bool { return s.isSet(flag) }

// stopWithin is how long a tool may take to stop after a signal: less than the TimeoutStopSec= of deploy/systemd, and far longer than the
// stream takes, for a busy machine.
const stopWithin = 8 * time.Second

// Main runs the command as the process, which ends with the command's exit status.
func Main(c Command) {
	c, env := c.choose(osEnv())
	// A panic ends with SIGABRT: Go's own status for it is 2, which means that the configuration is invalid, and
	// supervisors do not restart such a tool.
	debug.SetTraceback("crash")
	// SIGPIPE must not kill a tool between two writes to the kernel; the write's EPIPE ends the loop.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it, for a tool that outlives its terminal
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		<-signals
		stop()
		timeout := time.After(stopWithin)
		for {
			select {
			case s := <-signals:
				if s == syscall.SIGINT { // a second Ctrl-C; a supervisor may repeat its SIGTERM
					os.Exit(1)
				}
			case <-timeout:
				fmt.Fprintf(os.Stderr, "%s: not stopped after %s: the next stage does not read the last line, or the disk does not write the state\n", c.Name, stopWithin)
				os.Exit(1)
			}
		}
	}()
	os.Exit(c.Execute(ctx, env))
}

// Execute runs the command and returns its exit status: 0 end of input or a clean stop, 1 a failure while running, 2
// unusable arguments or configuration.
func (c Command) Execute(ctx context.Context, env Env) int {
	c, env = c.choose(env)
	err := c.checkVariables(env)
	if err == nil {
		err = c.app(env).RunContext(ctx, env.Args)
	}
	err = withoutBrokenPipe(err)
	var usage *UsageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(env.Err, "%s: %v\n", c.Name, err)
		fmt.Fprintf(env.Err, "%s: see '%s --help'\n", c.Name, c.Name)
		return 2
	}
	fmt.Fprintf(env.Err, "%s: %v\n", c.Name, err)
	return 1
}

// withoutBrokenPipe removes the error of an output that nobody reads any more, which ends a tool quietly. What failed beside it, such as
// saving the state or applying the fallback, remains.
func withoutBrokenPipe(err error) error {
	if !errors.Is(err, syscall.EPIPE) {
		return err
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var rest []error
	for _, part := range joined.Unwrap() {
		rest = append(rest, withoutBrokenPipe(part))
	}
	return errors.Join(rest...)
}

func (c Command) app(env Env) *cli.App {
	s := &Session{Env: env, Tool: c.id()}
	var with process

	own := Flags{tool: c.id()}
	if c.Flags != nil {
		c.Flags(&own)
	}
	shared := c.sharedFlags(s, &with)

	own.add(shared)
	flags := append(slices.Clip(own.flags),
		&cli.BoolFlag{Name: manualFlag, Usage: "print the whole manual", Category: processFlags},
		&cli.BoolFlag{Name: manFlag, Hidden: true})
	with.flags = flags
	return &cli.App{
		Name:                 c.Name,
		Usage:                c.Synopsis,
		Version:              Version,
		Flags:                flags,
		Reader:               env.In,
		Writer:               env.Out,
		ErrWriter:            env.Err,
		EnableBashCompletion: true,
		BashComplete: func(*cli.Context) {
			words := env.Args[1 : len(env.Args)-1] // the last one is completionFlag
			c.completeSubcommand(env.Out, words)
			own.complete(env.Out, words)
		},
		HideHelpCommand:       true,
		CustomAppHelpTemplate: "{{ExtraInfo.help}}",
		ExtraInfo:             func() map[string]string { return map[string]string{"help": c.helpText(flags)} },
		ExitErrHandler:        func(*cli.Context, error) {}, // Execute decides
		OnUsageError: func(_ *cli.Context, err error, _ bool) error {
			return c.usage(err, flags)
		},
		Action: func(cc *cli.Context) error { return c.act(cc, s, with) },
	}
}

// processFlags is the group of the options for the process itself.
const processFlags = "Process"

// process are the shared flags that concern only the process.
type process struct {
	logLevel, logFormat, memoryLimit string

	flags []cli.Flag // all flags of the tool, for its manual
}

// act runs the command whose flags have been read.
func (c Command) act(cc *cli.Context, s *Session, with process) error {
	switch {
	case cc.Bool(manFlag):
		return c.manual(s.Out, with.flags, manPage{})
	case cc.Bool(manualFlag):
		return c.manual(s.Out, with.flags, markdown{})
	}
	if cc.NArg() > 0 {
		return c.unexpected(cc.Args().First())
	}
	log, err := newLogger(s.Err, with.logFormat, with.logLevel, s.Tool)
	if err != nil {
		return err
	}
	if err := limitMemory(with.memoryLimit); err != nil {
		return err
	}
	s.Log = log
	if s.notify, err = newNotifier(s.Getenv); err != nil {
		log.Warn("the service manager is not notified", "error", err)
	}
	s.isSet, s.acts = cc.IsSet, c.Kind.Acts
	if s.MetricsAddr != "" {
		if err := listen.CheckAddr(s.MetricsAddr); err != nil {
			return Usagef("--metrics-addr %q: %w", s.MetricsAddr, err)
		}
		s.Metrics = metrics.New(s.Tool, Version)
		defer s.Metrics.Close()
	}
	if c.Kind.Acts && !c.Kind.AllNodes && s.Node == "" {
		if s.Node, err = os.Hostname(); err != nil {
			return fmt.Errorf("find this node's name: %w (give it with --node)", err)
		}
	}
	if s.MaxLine <= 0 && c.Kind.Reads {
		return Usagef("--max-line %d: want a positive number of bytes", s.MaxLine)
	}
	err = c.Run(cc.Context, s)
	if cc.Context.Err() != nil {
		s.notify.stopping()
	}
	return err
}

func (c Command) sharedFlags(s *Session, with *process) *Flags {
	f := Flags{tool: c.id()}
	f.Category("Stream")
	if c.Kind.Reads {
		f.Path(&s.Input, "input", "-", "read ticks from `FILE` or FIFO\n- is standard input. A FIFO that is named fifo:PATH or ends in .fifo is created if it is absent.")
		f.Bool(&s.Strict, "strict", "stop with status 1 at the first invalid line\nWithout it such a line is dropped, logged and counted.")
		f.Int(&s.MaxLine, "max-line", tick.DefaultMaxLine, "maximum length of a line, in bytes")
	}
	if c.Kind.Writes {
		f.Path(&s.Output, "output", "-", "write to `FILE` or FIFO\n- is standard output.")
	}
	if c.Kind.Acts {
		f.Category("Acting")
		f.Duration(&s.MaxAge, "max-age", 0, "do not act on older ticks\n0, if given, is any age.")
		f.showDefault("three intervals")
		if !c.Kind.AllNodes {
			f.flags = append(f.flags, &cli.StringFlag{Name: "node", Usage: "act on ticks of this `NODE` alone\nThe variable NODE_NAME sets it, too.", DefaultText: "the host's name", Destination: &s.Node, Category: "Acting", EnvVars: append(f.envVars("node"), "NODE_NAME")})
		}
		f.Bool(&s.DryRun, "dry-run", "change nothing, and decide on ticks of any age and node")
	}
	if c.Kind.State {
		f.Category("State")
		f.Path(&s.State, "state", "", "keep the state between runs in `FILE`")
	}
	f.Category(processFlags)
	f.Path(&s.HeartbeatFile, "heartbeat", "", "touch `FILE` after every tick, for a liveness check\n"+
		"Also while a tick waits in a FIFO for the next tool, because then that one is to be checked.")
	f.String(&s.MetricsAddr, "metrics-addr", "", "serve metrics for Prometheus at `HOST:PORT` (default off)\nThe path is /metrics. There is neither encryption nor a password.")
	f.Choice(&with.logLevel, "log-level", "info", "minimum level to log", "debug", "info", "warn", "error")
	f.Choice(&with.logFormat, "log-format", "text", "form of the log", "text", "json")
	f.String(&with.memoryLimit, "memory-limit", "", "soft limit of the Go heap, as 32MiB\nGo's own variable for it is GOMEMLIMIT.")
	return &f
}

func newLogger(w io.Writer, format, level, tool string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, Usagef("--log-level: %w", err)
	}
	o := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o)).With("tool", tool), nil
	}
	return slog.New(slog.NewTextHandler(w, o)).With("tool", tool), nil
}

// SourceGCPercent is the garbage collector's target for tools that create ticks. They allocate little between two ticks, so that
// early collections cost next to nothing, and save 2 MiB on a node of 250 containers.
const SourceGCPercent = 50

// SetGCPercent sets the garbage collector's target, unless GOGC is set.
func (s *Session) SetGCPercent(percent int) {
	if s.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// limitMemory sets the Go runtime's soft memory limit.
func limitMemory(text string) error {
	if text == "" {
		return nil
	}
	n, err := parseBytes(text)
	if err != nil {
		return Usagef("--memory-limit %q: %w", text, err)
	}
	debug.SetMemoryLimit(n)
	return nil
}

func parseBytes(text string) (int64, error) {
	units := []struct {
		suffix string
		factor int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}, {"", 1}}
	for _, u := range units {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		var n int64
		if _, err := fmt.Sscanf(number+"\n", "%d\n", &n); err != nil || n <= 0 || n > (1<<62)/u.factor {
			return 0, errors.New("want a number with KiB, MiB or GiB")
		}
		return n * u.factor, nil
	}
	return 0, errors.New("want a number with KiB, MiB or GiB")
}
