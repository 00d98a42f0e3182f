// Command soak runs the pipe for a given time over cgroups that come and go, and draws what each tool used: resident
// memory, descriptors and CPU time, on one page of HTML. Lines that are not flat are a failure.
//
//	go run ./tests/soak --for 30m --out docs/soak.html
//
// As root, on a machine with cgroups of version 1 or 2. scripts/soak builds its prerequisites and runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// workVariable is set in the environment of the processes that the soak starts from its own program, as load.
const workVariable = "POLDER_SOAK_WORK"

type options struct {
	length   time.Duration
	interval time.Duration // between two ticks
	every    time.Duration // between two samples of the tools
	bin      string
	out      string
	samples  string
	from     string
	load     loadPlan
}

func main() {
	if work := os.Getenv(workVariable); work != "" {
		os.Exit(doWork(work))
	}
	var o options
	flag.DurationVar(&o.length, "for", 30*time.Minute, "how long the pipe runs")
	flag.DurationVar(&o.interval, "interval", time.Second, "time between two ticks")
	flag.DurationVar(&o.every, "every", 5*time.Second, "time between two samples of the tools")
	flag.StringVar(&o.bin, "bin", "bin", "where the five tools are")
	flag.StringVar(&o.out, "out", "soak.html", "the page that is written")
	flag.StringVar(&o.samples, "samples", "", "write the figures to this file, too")
	flag.StringVar(&o.from, "from", "", "run nothing: draw the page of the figures in this file")
	flag.IntVar(&o.load.standing, "standing", 60, "cgroups that stay")
	flag.IntVar(&o.load.churning, "churning", 40, "cgroups at a time that come and go")
	flag.DurationVar(&o.load.life, "life", 8*time.Second, "how long a cgroup that comes and goes lives, on average")
	flag.Parse()
	if flag.NArg() > 0 || o.length < 8*o.every || o.load.life <= 0 {
		fmt.Fprintln(os.Stderr, "soak: no arguments, a life, and at least eight samples; see --help")
		os.Exit(2)
	}
	os.Exit(soak(o))
}

// soak runs or reads a record, judges it and draws it; the result is the exit status.
func soak(o options) int {
	var r record
	var err error
	if o.from != "" {
		r, err = readRecord(o.from)
	} else {
		r, err = run(o)
	}
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "soak: interrupted; all is stopped and put back, no page is written")
		return 130
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 1
	}
	v := judge(r)
	if err := os.WriteFile(o.out, page(r, v), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 1
	}
	if o.samples != "" {
		if err := writeRecord(o.samples, r); err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
			return 1
		}
	}
	fmt.Print(summary(r, v))
	if len(v.failures) > 0 {
		return 1
	}
	return 0
}

// run runs the soak. Whatever ends it, tools, load and cgroups are gone when it returns.
func run(o options) (r record, err error) {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // under nohup the end of the terminal does not end the run
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()

	dir, err := os.MkdirTemp("", "polder-soak.")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	root, err := newRootGroup(fmt.Sprintf("polder-soak-%d", os.Getpid()))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, root.remove()) }()
	load, err := startLoad(ctx, root, o.load, o.length)
	defer load.stop()
	if err != nil {
		return r, err
	}
	p, err := newPipe(o, dir, root.name)
	if err != nil {
		return r, err
	}
	if err := p.start(); err != nil {
		return r, errors.Join(err, p.stop())
	}
	r = newRecord(o, root, p)
	err = watch(ctx, o, &r, p, load)
	r.Failures = append(r.Failures, texts(p.stop())...)
	load.stop() // before the restore: as on a node, most cgroups are gone by then
	if restoreErr := p.restore(); restoreErr != nil {
		r.Failures = append(r.Failures, restoreErr.Error())
	}
	r.Failures = append(r.Failures, load.failures()...)
	r.Log = p.logged()
	return r, err
}

// watch samples the tools until the time is over or one of them ends.
func watch(ctx context.Context, o options, r *record, p *pipe, load *load) error {
	ticker := time.NewTicker(o.every)
	defer ticker.Stop()
	end := time.After(o.length + o.every/2) // the last sample is due with the end
	meter := newMeter(p)
	for {
		select {
		case <-ctx.Done():
			return context.Canceled
		case tool := <-p.ended:
			r.Failures = append(r.Failures, fmt.Sprintf("%s ended during the run, after %s", tool, meter.elapsed().Round(time.Second)))
			if len(r.Samples) == 0 {
				return errors.New(strings.Join(r.Failures, "; ") + "\n" + strings.Join(p.logged(), "\n"))
			}
			return nil
		case <-end:
			return nil
		case <-ticker.C:
			s, err := meter.sample(load)
			if err != nil {
				// A tool that has just ended cannot be read; its own exit explains more than this error does.
				continue
			}
			r.Samples = append(r.Samples, s)
		}
	}
}

func texts(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

// record is a run's figures, as --samples keeps them.
type record struct {
	Begun        time.Time
	Version      string // of the tools
	Kernel       string
	CPUs         int
	CgroupV2     bool
	IntervalSecs float64 // between ticks
	EverySecs    float64 // between samples
	LifeSecs     float64
	Samples      []sample
	Failures     []string
	Log          []string // what the tools logged above INFO, each message once with its count
}

func newRecord(o options, root *group, p *pipe) record {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	release, _, _ := strings.Cut(strings.TrimSpace(string(kernel)), "-") // what follows is the vendor's
	return record{
		Begun: time.Now().UTC().Truncate(time.Second), Version: p.version(), Kernel: release,
		CPUs: runtime.NumCPU(), CgroupV2: root.v2,
		IntervalSecs: o.interval.Seconds(), EverySecs: o.every.Seconds(), LifeSecs: o.load.life.Seconds(),
	}
}

func writeRecord(path string, r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Clean(path), data, 0o644)
}

func readRecord(path string) (r record, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(data, &r)
}
