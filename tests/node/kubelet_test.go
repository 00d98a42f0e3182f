package node

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
)

// mover is an isolate in the node, with its advice.
type mover struct {
	n     *Node
	cmd   *exec.Cmd
	input io.WriteCloser
	out   *bufio.Scanner
	logs  strings.Builder

	writes atomic.Int64
	rounds atomic.Int64
	errors map[string]int // by text
}

const moverJournal = "/run/isolate.journal"

func newMover(t *testing.T, n *Node) *mover {
	t.Helper()
	m := &mover{n: n, errors: map[string]int{}}
	// Advice may wait long for it on a busy machine.
	m.cmd = n.Command(context.Background(), binaries.Path(t, "isolate"), "--max-age", "10m", "--node", n.Name, "--journal", moverJournal)
	m.cmd.Stderr = &m.logs
	var err error
	if m.input, err = m.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.out = bufio.NewScanner(out)
	m.out.Buffer(nil, 1<<20)
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.input.Close()
		if err := m.cmd.Wait(); err != nil {
			t.Errorf("isolate: %v: %s", err, m.logs.String())
		}
	})
	return m
}

// advise makes isolate act on advice.
func (m *mover) advise(cgroups []tick.Cgroup) (*tick.Isolation, error) {
	line, err := tick.Marshal(&tick.Tick{V: tick.Version, Node: m.n.Name, Time: time.Now().UTC(), Advice: &tick.Advice{Policy: "test", Cgroups: cgroups}})
	if err != nil {
		return nil, err
	}
	if _, err := m.input.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("%w: %s", err, m.logs.String())
	}
	if !m.out.Scan() {
		return nil, fmt.Errorf("isolate ended: %w: %s", m.out.Err(), m.logs.String())
	}
	l, err := tick.ParseLine(m.out.Bytes())
	if err != nil {
		return nil, err
	}
	decoded, err := l.Decode(tick.SectionIsolation)
	if err != nil {
		return nil, err
	}
	m.writes.Add(int64(decoded.Isolation.Applied))
	for _, e := range decoded.Isolation.Errors {
		m.errors[e.Error]++
	}
	return decoded.Isolation, nil
}

// keepMoving sends new advice at every step until the function that it returns is called.
func (m *mover) keepMoving(t *testing.T, step time.Duration, advice func(round int) []tick.Cgroup) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		for round := 0; ; round++ {
			if _, err := m.advise(advice(round)); err != nil {
				done <- err
				return
			}
			m.rounds.Add(1)
			select {
			case <-ctx.Done():
				done <- nil
				return
			case <-time.After(step):
			}
		}
	}()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// containers are the current cgroups of the node's containers, sandboxes included, of the tiers named; "" has the
// guaranteed pods.
func (n *Node) containers(tiers ...string) []string {
	base := n.CgroupPath("cpuset", "")
	var out []string
	for _, tier := range tiers {
		found, _ := filepath.Glob(filepath.Join(base, "kubepods", tier, "pod*", "*")) // the pattern is valid
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				out = append(out, strings.TrimPrefix(path, base))
			}
		}
	}
	return out
}

// plain is the YAML of a pod that sleeps, bound to the node; resources is a YAML mapping in one line. A pod that may not be
// restarted shows a container that did not start.
func (n *Node) plain(name, resources string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: %s
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: registry.local/stress:1, command: [sh, -c, "exec sleep 600"], resources: %s}
`, name, n.Name, resources)
}

// awaitWave waits until all pods of a wave run, without a restart.
func (n *Node) awaitWave(wave string, count int) {
	n.Helper()
	n.Eventually(controlplane.Soon, "the pods of "+wave+" run", func() string {
		var lack []string
		for i := range count {
			var s status
			n.Get(fmt.Sprintf("/api/v1/namespaces/default/pods/%s-%d", wave, i), &s)
			if s.Status.Phase == "Failed" {
				text, _ := json.Marshal(s.Status)
				n.Fatalf("a container did not start: %s", text)
			}
			if s.Status.Phase != "Running" {
				lack = append(lack, fmt.Sprint(i, " ", s.Status.Phase))
			}
		}
		return strings.Join(lack, ", ")
	})
}

// alone waits until the containers' cgroups are those of a wave of pods, which run: those of earlier ones have been removed.
func (n *Node) alone(wave string, count int) {
	n.Helper()
	var pods []string
	for i := range count {
		pods = append(pods, n.PodCgroup(fmt.Sprintf("%s-%d", wave, i)))
	}
	n.Eventually(controlplane.Soon, "the earlier pods' cgroups are removed", func() string {
		var left []string
		for _, c := range n.containers("", "burstable", "besteffort") {
			if !slices.Contains(pods, filepath.Dir(c)) {
				left = append(left, c)
			}
		}
		return strings.Join(left, " ")
	})
}

var moves = []string{"0", "0-1", "1"}

// Under the policy "none" the BE tier moves, and so do the other pods' containers: all start, no kubelet resets it, and a
// restarted kubelet leaves it too.
func TestPoolsMoveUnderKubelet(t *testing.T) {
	n := sharedNode(t)
	m := newMover(t, n)
	stop := m.keepMoving(t, 50*time.Millisecond, func(round int) []tick.Cgroup {
		out := []tick.Cgroup{{Cgroup: "/kubepods/besteffort", CPUSetCPUs: moves[round%3]}}
		for i, c := range n.containers("", "burstable") {
			out = append(out, tick.Cgroup{Cgroup: c, CPUSetCPUs: moves[(round+i)%3]})
		}
		return out
	})
	const waves, each = 5, 10
	started := time.Now()
	for w := range waves {
		wave := fmt.Sprint("wave-", w)
		var yaml strings.Builder
		for i := range each {
			yaml.WriteString(n.plain(fmt.Sprintf("%s-%d", wave, i), []string{"{}", "{requests: {cpu: 10m}}", "{}", "{limits: {cpu: 50m, memory: 32Mi}}", "{}"}[i%5]))
		}
		n.Apply(yaml.String())
		n.awaitWave(wave, each)
		if w == waves-2 {
			n.RestartKubelet()
		}
		if w < waves-1 {
			n.Kubectl("delete", "pod", "--all", "--wait=false")
		}
	}
	n.Eventually(controlplane.Soon, "500 writes", func() string { // by which the pools have moved often
		if writes := m.writes.Load(); writes < 500 {
			return fmt.Sprint(writes)
		}
		return ""
	})
	stop()
	t.Logf("%d pods started in %.0f s during %d writes; errors: %v", waves*each, time.Since(started).Seconds(), m.writes.Load(), m.errors)
	n.checkStarts(t)
	for text := range m.errors {
		if strings.Contains(text, "changed externally") {
			t.Errorf("another program contests the lists: %s", text)
		}
	}

	// The current values stay after kubelet has reconciled and restarted.
	n.alone(fmt.Sprint("wave-", waves-1), each)
	all := append(n.containers("", "burstable"), "/kubepods/besteffort")
	var last []tick.Cgroup
	for _, c := range all {
		last = append(last, tick.Cgroup{Cgroup: c, CPUSetCPUs: "1"})
	}
	if out, err := m.advise(last); err != nil || len(out.Errors) > 0 {
		t.Fatalf("%+v, %v", out, err)
	}
	n.RestartKubelet()
	n.AwaitHeartbeat()
	n.AwaitHeartbeat()
	n.Apply(n.plain("later-0", "{}"))
	n.awaitWave("later", 1)
	for _, c := range append(n.containers("", "burstable", "besteffort"), "/kubepods/besteffort") {
		if got := n.ReadCgroup("cpuset", c, "cpuset.cpus"); got != "1" && slices.Contains(append(all, n.containers("besteffort")...), c) {
			t.Errorf("%s is on %s; want 1 as it was written", c, got)
		}
	}
	if got := n.ReadCgroup("cpuset", n.ContainerCgroup("later-0", "main"), "cpuset.cpus"); got != "1" {
		t.Errorf("a container that started later is on %s, want its tier's 1", got)
	}
}

// Under the policy "static" a container's own CPU stays its own whatever is advised, the tiers stay unchanged so that every
// container starts, and isolate follows kubelet's assignments of exclusive CPUs while others start and move.
func exclusiveCPUs(t *testing.T, n *Node) {
	m := newMover(t, n)
	n.Apply(n.plain("shared-0", "{requests: {memory: 8Mi}}"))
	n.awaitWave("shared", 1)
	shared := n.ContainerCgroup("shared-0", "main")
	stop := m.keepMoving(t, 50*time.Millisecond, func(round int) []tick.Cgroup {
		out := []tick.Cgroup{
			{Cgroup: "/kubepods", CPUSetCPUs: "0"}, {Cgroup: "/kubepods/besteffort", CPUSetCPUs: "0"}, {Cgroup: "/kubepods/burstable", CPUSetCPUs: moves[round%3]},
		}
		pods := map[string]bool{}
		for _, c := range n.containers("", "burstable", "besteffort") {
			out = append(out, tick.Cgroup{Cgroup: c, CPUSetCPUs: moves[round%3]})
			if pod := filepath.Dir(c); !pods[pod] {
				pods[pod] = true
				out = append(out, tick.Cgroup{Cgroup: pod, CPUSetCPUs: "0"})
			}
		}
		return out
	})
	for round := range 2 {
		name := fmt.Sprint("own-", round)
		n.Apply(n.plain(name+"-0", "{limits: {cpu: 1, memory: 32Mi}}"))
		n.awaitWave(name, 1)
		own := n.ContainerCgroup(name+"-0", "main")
		if round == 1 { // which makes it write all lists again
			n.RestartKubelet()
		}
		var yaml strings.Builder
		for i := range 4 {
			yaml.WriteString(n.plain(fmt.Sprintf("beside-%d-%d", round, i), []string{"{}", "{requests: {memory: 8Mi}}"}[i%2]))
		}
		n.Apply(yaml.String())
		n.awaitWave(fmt.Sprint("beside-", round), 4)
		for begin := m.rounds.Load(); m.rounds.Load() < begin+20; time.Sleep(50 * time.Millisecond) { // all other containers move meanwhile
			if got := n.ReadCgroup("cpuset", own, "cpuset.cpus"); got != "1" {
				t.Fatalf("the container with a CPU of its own is on %s, want 1", got)
			}
			for _, c := range []string{"/kubepods", "/kubepods/besteffort", "/kubepods/burstable", filepath.Dir(own)} {
				if got := n.ReadCgroup("cpuset", c, "cpuset.cpus"); got != "0-1" {
					t.Fatalf("%s is on %s, want 0-1", c, got)
				}
			}
		}
		n.Eventually(controlplane.Soon, "the others leave the CPU", func() string {
			if got := n.ReadCgroup("cpuset", shared, "cpuset.cpus"); got != "0" {
				return "shared-0 is on " + got
			}
			return ""
		})
		n.Kubectl("delete", "pod", name+"-0")
		n.Eventually(controlplane.Soon, "kubelet releases the CPU and the others have it", func() string {
			if got := n.ReadCgroup("cpuset", shared, "cpuset.cpus"); got == "0" {
				return "shared-0 is on " + got
			}
			return ""
		})
	}
	stop()
	t.Logf("%d writes; errors: %v", m.writes.Load(), m.errors)
	n.checkStarts(t)
	var all string
	for text := range m.errors {
		all += text + "\n"
		if strings.Contains(text, "changed externally") {
			t.Errorf("another program contests the lists: %s", text)
		}
	}
	for _, want := range []string{
		"not written: kubelet assigned CPUs 1 exclusively to this container", "CPUs 1 left out: kubelet assigned them exclusively to containers",
		`not written: kubelet's CPU manager policy is "static"`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("isolate did not report %q", want)
		}
	}
}
