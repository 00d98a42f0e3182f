// Package controlplane runs Kubernetes' own control plane for tests: etcd and kube-apiserver on loopback, and on request
// kube-scheduler and kube-controller-manager. scripts/setup-cluster builds the programs; $POLDER_CLUSTER is their directory.
package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"polder/tests/cluster/program"
	"polder/tests/stale"
)

// Options select what runs beside etcd and kube-apiserver.
type Options struct {
	// Scheduler runs kube-scheduler, with its default configuration if SchedulerConfig names no file.
	Scheduler bool
	// SchedulerConfig is the path of a KubeSchedulerConfiguration; its clientConnection and leaderElection are replaced.
	SchedulerConfig string
	// ControllerManager runs kube-controller-manager: disruption budgets, DaemonSets, service accounts of new namespaces,
	// garbage collection. Nodes without a kubelet stay ready for an hour: that is its grace period.
	ControllerManager bool
	// APIServerFlags are further flags of kube-apiserver.
	APIServerFlags []string
}

// startLimit allows for a loaded machine; a start takes some 3 s.
const startLimit = 10 * time.Minute

// ControlPlane is a running control plane, bound to the test that its helpers fail.
type ControlPlane struct {
	testing.TB
	*Plane
}

// Plane is a control plane without a test: see Main for one that all tests of a package share.
type Plane struct {
	dir      string // certificates, logs, etcd's data: removed by Close
	programs string // the directory of the binaries
	options  Options
	ports    ports
	ca       *authority
	client   *client
	shared   bool // more tests follow the current one
	accounts accounts

	etcd, apiserver, scheduler, manager *program.Program
}

// Start starts a control plane that ends with the test, or skips the test if no cluster was asked for.
func Start(t testing.TB, options Options) *ControlPlane {
	t.Helper()
	Need(t, programs...)
	p, err := Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p.For(t)
}

// Open starts a control plane; Close ends it. Without $POLDER_CLUSTER it is an error: see Need.
func Open(options Options) (*Plane, error) {
	dir, err := Programs(programs...)
	if err != nil {
		return nil, err
	}
	if err := stale.Remove(os.TempDir(), prefix, os.RemoveAll); err != nil { // their programs have ended with them
		return nil, err
	}
	options.Scheduler = options.Scheduler || options.SchedulerConfig != ""
	var p *Plane
	// Another process may take a port between its choice and its use.
	for range 3 {
		p = &Plane{programs: dir, options: options}
		if err = p.start(); err == nil {
			return p, nil
		}
		_ = p.Close() // the start's error is returned
		if !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	return nil, fmt.Errorf("start a control plane: %w", err)
}

// For returns the control plane with helpers that fail t. At the end of t it checks the programs.
func (p *Plane) For(t testing.TB) *ControlPlane {
	t.Helper()
	t.Cleanup(func() { p.check(t) })
	return &ControlPlane{TB: t, Plane: p}
}

// start writes all files and starts all programs.
func (p *Plane) start() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), startLimit, fmt.Errorf("after %s", startLimit))
	defer cancel()
	var err error
	if p.dir, err = os.MkdirTemp("", stale.Name(prefix)); err != nil {
		return err
	}
	if err := p.prepare(); err != nil {
		return err
	}
	if p.etcd, err = p.run("etcd", p.etcdFlags()); err != nil {
		return err
	}
	// kube-apiserver, if started at once, would be refused a connection and wait a second before its next attempt.
	if err := p.etcd.Await(ctx, p.etcdReady); err != nil {
		return err
	}
	// Without etcd kube-apiserver never becomes ready: its start ends when etcd does.
	ctx, hopeless := context.WithCancelCause(ctx)
	defer hopeless(nil)
	go func() {
		select {
		case <-p.etcd.Done():
			hopeless(p.etcd.Died())
		case <-ctx.Done():
		}
	}()
	if err := p.startAPIServer(ctx); err != nil {
		return err
	}
	if err := p.bootstrap(ctx); err != nil {
		return err
	}
	if p.options.Scheduler {
		if p.scheduler, err = p.run("kube-scheduler", p.schedulerFlags()); err != nil {
			return err
		}
	}
	if p.options.ControllerManager {
		if p.manager, err = p.run("kube-controller-manager", p.managerFlags()); err != nil {
			return err
		}
	}
	return nil
}

// seldomGarbage makes Go programs that live for minutes collect garbage seldom, neverGarbage those that live for a moment not at all
// (unless one grows): this saves much of the CPU time of either.
const (
	seldomGarbage = "GOGC=400"
	neverGarbage  = "GOGC=off GOMEMLIMIT=500MiB"
)

func (p *Plane) run(name string, flags []string) (*program.Program, error) {
	cmd := exec.Command(filepath.Join(p.programs, name), flags...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + p.dir, "TMPDIR=" + p.dir, seldomGarbage}
	return program.Start(filepath.Join(p.dir, name+".log"), cmd)
}

func (p *Plane) startAPIServer(ctx context.Context) error {
	var err error
	if p.apiserver, err = p.run("kube-apiserver", p.apiserverFlags()); err != nil {
		return err
	}
	return p.apiserver.Await(ctx, p.client.ready)
}

// all are the programs that were started.
func (p *Plane) all() []*program.Program {
	return slices.DeleteFunc([]*program.Program{p.manager, p.scheduler, p.apiserver, p.etcd}, func(p *program.Program) bool { return p == nil })
}

// prefix begins the names of all directories of this package; the test's PID follows.
const prefix = "polder-cluster-"

// Close ends all programs and removes their files.
func (p *Plane) Close() error {
	if p.client != nil {
		p.client.http.CloseIdleConnections()
	}
	for _, one := range p.all() {
		one.Kill()
	}
	return os.RemoveAll(p.dir)
}

// check fails the test if a program ended by itself, and prints the ends of all logs if the test failed.
func (p *Plane) check(t testing.TB) {
	t.Helper()
	for _, one := range p.all() {
		if err := one.Died(); err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.Log(p.Logs(20))
	}
}

// Logs are the last lines of each program's log.
func (p *Plane) Logs(lines int) string {
	var b strings.Builder
	for _, one := range p.all() {
		fmt.Fprintf(&b, "--- %s\n%s\n", one.Name, one.Tail(lines))
	}
	return b.String()
}

// ResidentBytes is the memory of each program.
func (p *Plane) ResidentBytes() map[string]int64 {
	bytes := map[string]int64{}
	for _, one := range p.all() {
		bytes[one.Name] = one.ResidentBytes()
	}
	return bytes
}

// Dir is a directory for files that end with the control plane.
func (p *Plane) Dir() string { return p.dir }

// Server is the API server's address.
func (p *Plane) Server() string { return fmt.Sprintf("https://127.0.0.1:%d", p.ports.api) }

// StopAPIServer kills the API server: connections break, and new ones are refused.
func (c *ControlPlane) StopAPIServer() {
	c.Helper()
	if !c.apiserver.Running() {
		c.Fatal("the API server is not running")
	}
	c.apiserver.Kill()
	c.atEndOfShared(func() {
		if !c.apiserver.Running() { // the test failed before it started the server again
			c.StartAPIServer()
		}
	})
}

// StartAPIServer starts it again: the same address, the same data.
func (c *ControlPlane) StartAPIServer() {
	c.Helper()
	if c.apiserver.Running() {
		c.Fatal("the API server is running")
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), startLimit, fmt.Errorf("after %s", startLimit))
	defer cancel()
	err := c.startAPIServer(ctx)
	for ; err != nil && strings.Contains(err.Error(), "address already in use") && ctx.Err() == nil; err = c.startAPIServer(ctx) {
		// Another process tries whether the port is free.
	}
	if err != nil {
		c.Fatal(err)
	}
}

// FreezeAPIServer suspends the API server: connections stay open, and requests get no answer. It returns when no thread of it runs.
func (c *ControlPlane) FreezeAPIServer() {
	c.Helper()
	c.signal(syscall.SIGSTOP)
	c.atEndOfShared(c.ThawAPIServer)
	c.Eventually(Soon, "the API server is suspended", func() string {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/stat", c.apiserver.PID))
		if err != nil || len(threads) == 0 {
			return fmt.Sprintf("it has %d threads (%v)", len(threads), err)
		}
		for _, path := range threads {
			stat, _ := os.ReadFile(path) // the thread may have ended
			if _, state, ok := strings.Cut(string(stat), ") "); ok && state[0] != 'T' {
				return "a thread is not: " + string(stat)
			}
		}
		return ""
	})
}

// ThawAPIServer resumes it.
func (c *ControlPlane) ThawAPIServer() { c.signal(syscall.SIGCONT) }

func (c *ControlPlane) signal(signal syscall.Signal) {
	c.Helper()
	if err := c.apiserver.Signal(signal); err != nil {
		c.Fatal(err)
	}
}
