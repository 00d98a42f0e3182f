// Package vmnode is a Kubernetes node in a virtual machine of QEMU: Debian's kernel with cgroup v2, the guide's 48 CPUs,
// containerd, runc and kubelet, joined to a control plane on the host, and the project's tools in /bin.
// scripts/setup-vm and scripts/setup-cluster install the prerequisites.
package vmnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/program"
	"polder/tests/vm/qemu"
	"polder/tests/vmnode/wire"
)

// Options describe a node.
type Options struct {
	// Machine is the hardware.
	Machine qemu.Machine
	// Kubeconfig is the API server's address and credentials for the guest, where [wire.Host] stands for the host's loopback.
	Kubeconfig []byte
	// CA is the certificate of the API server's authority.
	CA []byte
	// Programs is the directory of the node's programs, Tools that of the project's.
	Programs, Tools string
	// Guest is the machine's first process, of package guest.
	Guest string
	// Images are archives of container images, with the sandbox's.
	Images []string
	// Systemd makes a Debian's systemd the first process, which kubelet and runc then use for their cgroups (cgroupDriver: systemd).
	Systemd bool
	// Version1 makes that systemd mount the hierarchies of cgroup v1, and no other.
	Version1 bool
	// Log receives a line for each step.
	Log func(format string, args ...any)
}

// Machine is the guide's node, with its memory, of which the examples' pods request a large part. The host provides
// only pages that are used; the kernel's own record of so much memory, 3 GiB, is.
func Machine() qemu.Machine {
	m := qemu.Guide
	m.MemoryMiB = 191488
	return m
}

// Node is a running machine.
type Node struct {
	// KubeletAddress is kubelet's address for the host.
	KubeletAddress string

	agent   wire.Client
	console string // the file with the kernel's output
	qemu    *program.Program
}

// Start builds the disk, boots the machine, and starts containerd and kubelet. The caller waits for Ready, and ends it by
// Stop. dir is the caller's to remove after that.
func Start(ctx context.Context, dir string, o Options) (*Node, error) {
	if err := qemu.Missing(); err != nil {
		return nil, err
	}
	begin := time.Now()
	disk, err := o.disk(ctx, dir)
	if err != nil {
		return nil, err
	}
	archive, err := initramfs(o.Machine, o.Guest)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "initramfs"), archive, 0o644); err != nil {
		return nil, err
	}
	o.Log("disk made in %.1f s", time.Since(begin).Seconds())
	for attempt := 1; ; attempt++ {
		n, err := o.bootAgain(ctx, dir, disk)
		if err != nil {
			return nil, err
		}
		if err = n.startKubelet(ctx, o); err == nil {
			return n, nil
		}
		n.Stop()
		if !errors.Is(err, qemu.ErrHangs) || attempt == qemu.BootAttempts {
			return nil, err
		}
		o.Log("attempt %d: %v", attempt, err) // the disk is as before, because the machine writes to a snapshot
	}
}

// portTaken is what QEMU prints where another process took one of its ports after it was found free.
const portTaken = "Could not set up host forwarding rule"

// bootAgain boots, and retries if the machine hangs.
func (o *Options) bootAgain(ctx context.Context, dir, disk string) (*Node, error) {
	for attempt := 1; ; attempt++ {
		begin := time.Now()
		n, err := o.boot(ctx, dir, disk)
		switch {
		case err == nil:
			o.Log("booted in %.1f s, %.0f s of CPU time, at attempt %d", time.Since(begin).Seconds(), n.CPUTime().Seconds(), attempt)
			return n, nil
		case !errors.Is(err, qemu.ErrNoBoot) && !strings.Contains(err.Error(), portTaken) || attempt == qemu.BootAttempts:
			return nil, err
		}
		o.Log("attempt %d: %v", attempt, err)
	}
}

// boot starts the machine and waits for its agent.
func (o *Options) boot(ctx context.Context, dir, disk string) (*Node, error) {
	kernel, err := qemu.Kernel()
	if err != nil {
		return nil, err
	}
	ports, err := controlplane.FreePorts(2)
	if err != nil {
		return nil, err
	}
	n := &Node{
		KubeletAddress: fmt.Sprintf("127.0.0.1:%d", ports[1]),
		console:        filepath.Join(dir, "console"),
	}
	args := append(o.Machine.Arguments(),
		"-kernel", kernel, "-initrd", filepath.Join(dir, "initramfs"),
		"-append", o.Machine.KernelParameters()+" net.ifnames=0 "+o.cgroupParameters(),
		"-serial", "file:"+n.console,
		"-drive", "file="+disk+",format=raw,if=none,id=disk,cache=unsafe,snapshot=on", "-device", "virtio-blk-pci,drive=disk",
		"-netdev", fmt.Sprintf("user,id=net,ipv6=off,hostfwd=tcp:127.0.0.1:%d-:%d,hostfwd=tcp:127.0.0.1:%d-:%d", ports[0], wire.AgentPort, ports[1], wire.KubeletPort),
		"-device", "virtio-net-pci,netdev=net,romfile=")
	if n.qemu, err = program.Start(filepath.Join(dir, "qemu.log"), exec.Command(qemu.Program, args...)); err != nil {
		return nil, err
	}
	n.agent.URL, n.agent.Alive = fmt.Sprintf("http://127.0.0.1:%d%s", ports[0], wire.RunPath), n.qemu.Running
	go n.bound(o.Log)
	progress := qemu.Watch(n.qemu.PID, n.console)
	// QEMU accepts connections before the agent listens. Each later attempt may take longer, because the host may be busy.
	for answer := 5 * time.Second; ; answer = min(answer*3/2, time.Minute) {
		try, done := context.WithTimeout(ctx, answer)
		_, err := n.Run(try, "true")
		done()
		stalled := progress.Stalled()
		switch {
		case err == nil:
			return n, nil
		case !n.qemu.Running():
			return nil, fmt.Errorf("the machine went down while it booted: %w; the end of its console:\n%s", n.qemu.Died(), n.Console())
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case stalled != nil:
			err = fmt.Errorf("%w: %w; the end of its console:\n%s", qemu.ErrNoBoot, stalled, n.Console())
		default:
			time.Sleep(200 * time.Millisecond)
			continue
		}
		n.Stop()
		return nil, err
	}
}

// mostResident is far more than a guest should use of the host's memory. Its memory may exceed the host's, so that a guest that
// uses all of it, such as by writing zeros to what it allocates, would exhaust the host.
const mostResident = 12 << 30

// bound ends a machine that uses more than that.
func (n *Node) bound(log func(string, ...any)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-n.qemu.Done():
			return
		case <-tick.C:
			if got := n.qemu.ResidentBytes(); got > mostResident {
				log("the machine uses %d bytes of the host's memory: it is ended", got)
				n.Stop()
				return
			}
		}
	}
}

// CPUTime is the host's CPU time that the machine has used.
func (n *Node) CPUTime() time.Duration { return qemu.CPUTime(n.qemu.PID) }

// Died is the error of a machine that ended by itself.
func (n *Node) Died() error { return n.qemu.Died() }

// Stop ends the machine. It may be called twice.
func (n *Node) Stop() { n.qemu.Kill() }

// Run runs a script in the guest's shell and returns its output; an error if its status is not 0.
func (n *Node) Run(ctx context.Context, script string) (string, error) {
	return n.RunInput(ctx, script, nil)
}

// RunInput is Run with standard input.
func (n *Node) RunInput(ctx context.Context, script string, input []byte) (string, error) {
	r, err := n.agent.Run(ctx, script, input)
	if err != nil {
		return "", err
	}
	if r.Status != 0 {
		return string(r.Output), fmt.Errorf("on the node, status %d of %s: %s%s", r.Status, script, r.Output, r.Stderr)
	}
	return string(r.Output), nil
}

// Console is the end of the kernel's console.
func (n *Node) Console() string {
	data, err := os.ReadFile(n.console)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(data), "\r\n", "\n")), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// startLimit is for containerd and kubelet on a busy host. They need half a minute.
const startLimit = 15 * time.Minute

// goSettings are for Go's programs in the guest. Emulated CPUs are slow, and few real ones run the 48: they use four at once. Where
// there is memory, they collect garbage seldom, which saves much of their CPU time.
func (o *Options) goSettings() string {
	if o.Machine.MemoryMiB < ample {
		return "export GOMAXPROCS=4\n"
	}
	return "export GOMAXPROCS=4 GOGC=400\n"
}

// ample is the memory, in MiB, of a guest whose tests are not about memory.
const ample = 4096

// startKubelet starts containerd, and then in parallel kubelet and the import of the images; all logs are in /var/log.
func (n *Node) startKubelet(ctx context.Context, o Options) error {
	begin := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not in %s", startLimit))
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go n.endIfSilent(ctx, end, silentLimit)
	for _, step := range []struct{ what, script string }{
		{"containerd's socket", `
			setsid containerd >/var/log/containerd.log 2>&1 </dev/null &
			while kill -0 $!; do [ -S /run/containerd/containerd.sock ] && exit; sleep 0.2; done
			tail -n 20 /var/log/containerd.log >&2; exit 1`},
		{"images and kubelet", `
			# As its supervisor would: a kubelet whose start takes too long ends, and the next one finds all in the page cache.
			setsid sh -c 'while :; do kubelet --config=/etc/kubernetes/kubelet.yaml --kubeconfig=/etc/kubernetes/kubeconfig \
				--node-ip=` + wire.Address + ` --hostname-override=` + wire.Node + ` --v=2; sleep 1; done' >/var/log/kubelet.log 2>&1 </dev/null &
			for image in /images/*; do ctr -n k8s.io images import --local "$image" || exit 1; done
			while kill -0 $!; do wget -q -O /dev/null http://127.0.0.1:10248/healthz 2>/dev/null && exit; sleep 0.2; done
			tail -n 20 /var/log/kubelet.log >&2; exit 1`},
	} {
		if _, err := n.Run(ctx, o.goSettings()+step.script); err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, qemu.ErrHangs) {
				err = fmt.Errorf("%w; the end of its console:\n%s", cause, n.Console())
			}
			return fmt.Errorf("start %s: %w", step.what, err)
		}
		o.Log("%s: %.1f s after the boot", step.what, time.Since(begin).Seconds())
	}
	return nil
}

// silentLimit is for the agent's response to the shortest command: it takes seconds where the guest makes any progress.
const silentLimit = 4 * time.Minute

// endIfSilent ends the context by [qemu.ErrHangs] once the agent has not responded for the limit, although the machine runs.
func (n *Node) endIfSilent(ctx context.Context, end context.CancelCauseFunc, limit time.Duration) {
	for ctx.Err() == nil {
		try, done := context.WithTimeout(ctx, limit)
		_, err := n.Run(try, "true")
		isSilent := err != nil && errors.Is(try.Err(), context.DeadlineExceeded) && ctx.Err() == nil
		done()
		if isSilent {
			end(fmt.Errorf("%w: its agent did not respond for %s", qemu.ErrHangs, limit))
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(limit / 10):
		}
	}
}

// Spent lists the guest's programs that have used CPU time, by the guest's own clock, which also runs while its CPUs get no
// time of the host: only the proportions matter.
func (n *Node) Spent(ctx context.Context) (string, error) {
	return n.Run(ctx, `cat /proc/[0-9]*/stat 2>/dev/null |
		awk '{ t[$2] += $14 + $15 + $16 + $17 } END { for (n in t) if (t[n] >= 500) printf "%d s %s\n", t[n] / 100, n }' | sort -rn | head -n 12 | tr '\n' ','`)
}
