package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"polder/tests/vm/qemu"
	"polder/tests/vm/wire"
)

// Report is a guest's output.
type Report struct {
	Lines []wire.Line
	// Console is the kernel's, and the program's standard error.
	Console string
	// Seconds is how long the guest ran by the host's clock, UptimeSeconds by its own, CPUSeconds its CPU time on the host.
	Seconds, UptimeSeconds, CPUSeconds float64
	// Attempts is how many times it was booted, and Hung why the attempts before the last one ended.
	Attempts int
	Hung     []error
	// Ended is true if the guest ran all its tests and reported it.
	Ended bool
}

// Run boots a machine, runs suites with the same mounts in it, and returns its report once it has powered itself off. If the context
// ends before that, the machine is killed; the error reports it, and the report has what there was until then. If the machine hangs it is
// killed and booted again: what makes it hang each time fails.
func (l *Lab) Run(ctx context.Context, m Machine, suites ...string) (*Report, error) {
	dir, err := os.MkdirTemp(l.dir, suites[0]+"-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	done, err := m.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var hung []error
	for attempt := 1; ; attempt++ {
		r, err := l.runOnce(ctx, m, dir, suites)
		if r != nil {
			r.Attempts, r.Hung = attempt, hung
		}
		if !errors.Is(err, qemu.ErrNoBoot) && !errors.Is(err, qemu.ErrHangs) || attempt == qemu.BootAttempts {
			return r, err
		}
		hung = append(hung, err)
	}
}

func (l *Lab) runOnce(ctx context.Context, m Machine, dir string, suites []string) (report *Report, err error) {
	console, results, initramfs := filepath.Join(dir, "console"), filepath.Join(dir, "results"), filepath.Join(dir, "initramfs")
	var data []byte
	if suites[0] == SystemdSuite || suites[0] == PackageSuite {
		data, err = l.systemd(m, suites[0])
	} else {
		data, err = l.initramfs(m)
	}
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(initramfs, data, 0o644); err != nil {
		return nil, err
	}
	names := strings.Join(suites, ",")
	args := append(m.Arguments(),
		"-kernel", l.kernel, "-initrd", initramfs,
		"-append", fmt.Sprintf("%s %s=%s %s=node-%d", m.KernelParameters(), wire.SuiteParameter, names, wire.HostParameter, m.CPUs()),
		"-serial", "file:"+console, "-serial", "file:"+results)
	start := time.Now()
	cpu, err := m.Run(ctx, args, console, results)
	r := &Report{Seconds: time.Since(start).Seconds(), CPUSeconds: cpu.Seconds()}
	r.read(console, results)
	switch {
	case r.Ended && err == nil:
		return r, nil
	case ctx.Err() != nil: // the caller has ended the run
	case len(r.Lines) == 0 && r.UptimeSeconds == 0: // it hung or ended before it ran anything
		err = errors.Join(qemu.ErrNoBoot, err)
	case err == nil:
		err = errors.New("the guest went down before its tests were done")
	}
	return r, fmt.Errorf("suites %s, after %.0f s: %w", names, r.Seconds, err)
}

// read reads the guest's output, except for a last line that was cut off.
func (r *Report) read(console, results string) {
	if data, err := os.ReadFile(console); err == nil {
		r.Console = strings.ReplaceAll(string(data), "\r\n", "\n")
	}
	data, err := os.ReadFile(results)
	if err != nil {
		return
	}
	for text := range bytes.Lines(data) {
		var line wire.Line
		if json.Unmarshal(text, &line) != nil {
			continue
		}
		r.UptimeSeconds = line.UptimeSeconds
		if line.State == wire.Alive {
			continue
		}
		r.Lines = append(r.Lines, line)
		r.Ended = r.Ended || line.State == wire.End
	}
}

// String is the report in readable form: each test's log, in order, by the guest's clock.
func (r *Report) String() string {
	var b strings.Builder
	for _, line := range r.Lines {
		if line.State == wire.File {
			line.Text = fmt.Sprintf("%s, %d bytes", line.Text, len(line.Data))
		}
		fmt.Fprintf(&b, "%7.2f %-4s %-12s %s\n", line.UptimeSeconds, line.State, line.Test, strings.ReplaceAll(line.Text, "\n", "\n"+strings.Repeat(" ", 26)))
	}
	return b.String()
}

// Tail is the end of the console.
func (r *Report) Tail() string {
	lines := strings.Split(strings.TrimSpace(r.Console), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// File returns a file that the guest sent.
func (r *Report) File(name string) ([]byte, error) {
	for _, line := range r.Lines {
		if line.State == wire.File && line.Text == name {
			return line.Data, nil
		}
	}
	return nil, errors.New("the guest sent no file " + name)
}
