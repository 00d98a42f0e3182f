package machine

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/await"
	"polder/tests/group"
	"polder/tests/need"
)

// lab is a node with an uplink over a wire of 100 Mbit/s to a peer, and a pod on the node, each in its own network namespace. Its addresses
// are not known outside them.
type lab struct {
	t      *testing.T
	wire   string // the program
	prefix string
	// batch is the cgroup of jobs, and unified its directory of version 2.
	batch   *group.Group
	unified string
	dir     string
}

// Addresses of RFC 5737.
const (
	nodeAddress = "192.0.2.1"
	peerAddress = "198.51.100.2"
)

func newLab(t *testing.T) *lab {
	t.Helper()
	need.Root(t)
	need.Program(t, "ip", "iproute2")
	need.Program(t, "nsenter", "util-linux")
	l := &lab{t: t, prefix: fmt.Sprintf("polder-%d-", os.Getpid()), dir: t.TempDir()}
	l.wire = filepath.Join(l.dir, "wire")
	l.must("go", "build", "-o", l.wire, "./wire")
	for _, space := range []string{"node", "wire", "peer", "pod"} {
		l.must("ip", "netns", "add", l.prefix+space)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", l.prefix+space).Run() })
		l.ip(space, "link set lo up")
	}
	l.link("node", "up0", nodeAddress+"/30", "wire", "w0", "192.0.2.2/30")
	l.link("wire", "w1", "198.51.100.1/30", "peer", "p0", peerAddress+"/30")
	l.link("node", "n0", "203.0.113.1/30", "pod", "d0", "203.0.113.2/30")
	l.ip("node", "route add default via 192.0.2.2")
	l.ip("peer", "route add default via 198.51.100.1")
	l.ip("pod", "route add default via 203.0.113.1")
	l.ip("wire", "route add 203.0.113.0/30 via "+nodeAddress)
	for _, router := range []string{"node", "wire"} {
		l.in(router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	}
	// The wire is slow and has a long queue, like a switch or a provider's limit.
	l.in("wire", "tc", "qdisc", "add", "dev", "w1", "root", "tbf", "rate", "100mbit", "burst", "32kb", "limit", "1mb")
	l.batch = group.New(t, nil, "network")
	l.unified = need.Unified(t) + l.batch.Name
	if l.batch.Dirs[0] != l.unified { // version 1, with version 2 beside it
		if err := os.Mkdir(l.unified, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			await.Until(t, time.Minute, "remove "+l.unified, func() string {
				if err := os.Remove(l.unified); err != nil && !os.IsNotExist(err) {
					return err.Error()
				}
				return ""
			})
		})
	}
	return l
}

func (l *lab) must(command ...string) string {
	l.t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

func (l *lab) ip(space, arguments string) {
	l.t.Helper()
	l.must(append([]string{"ip", "-n", l.prefix + space}, strings.Fields(arguments)...)...)
}

func (l *lab) link(a, name, address, b, other, otherAddress string) {
	l.t.Helper()
	l.must("ip", "link", "add", name, "netns", l.prefix+a, "type", "veth", "peer", "name", other, "netns", l.prefix+b)
	l.ip(a, "addr add "+address+" dev "+name)
	l.ip(b, "addr add "+otherAddress+" dev "+other)
	l.ip(a, "link set "+name+" up")
	l.ip(b, "link set "+other+" up")
}

// inside returns a command in a namespace. Only the network differs: /sys and the cgroups are the machine's.
func (l *lab) inside(space string, command ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=/run/netns/" + l.prefix + space}, command...)...)
}

func (l *lab) in(space string, command ...string) string {
	l.t.Helper()
	out, err := l.inside(space, command...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// start runs a part of the wire program until the test ends or stop is called. It returns when the part has started.
func (l *lab) start(space string, job bool, arguments ...string) (stop func()) {
	l.t.Helper()
	cmd := l.inside(space, append([]string{l.wire}, arguments...)...)
	cmd.Stderr = os.Stderr
	if job {
		cmd.Env = append(os.Environ(), "WIRE_CGROUP="+l.unified)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		l.t.Fatal(err)
	}
	if job && l.batch.Dirs[0] != l.unified {
		l.batch.Enter(l.t, cmd.Process.Pid)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	l.t.Cleanup(stop)
	if !bufio.NewScanner(out).Scan() {
		l.t.Fatalf("%v ended before it had begun", arguments)
	}
	return stop
}

// latencies is what the service's client measured, and what the jobs sent meanwhile.
type latencies struct {
	P50, P99, Seconds, Bytes float64
	batchBits                float64
}

// requests is the number of requests of a measurement.
const requests = 200

func (l *lab) ask() (f latencies) {
	l.t.Helper()
	before := l.sent()
	if err := json.Unmarshal([]byte(l.in("peer", l.wire, "ask", nodeAddress+":7001", fmt.Sprint(requests))), &f); err != nil {
		l.t.Fatal(err)
	}
	f.batchBits = max(0, l.sent()-before-f.Bytes) * 8 / f.Seconds
	return f
}

// sent is the number of bytes that the wire has forwarded to the peer.
func (l *lab) sent() float64 {
	l.t.Helper()
	var links []struct {
		Stats struct{ TX struct{ Bytes float64 } } `json:"stats64"`
	}
	if err := json.Unmarshal([]byte(l.must("ip", "-n", l.prefix+"wire", "-j", "-s", "link", "show", "w1")), &links); err != nil || len(links) != 1 {
		l.t.Fatalf("%v: %+v", err, links)
	}
	return links[0].Stats.TX.Bytes
}

// backlog is the number of bytes that wait for the slow wire.
func (l *lab) backlog() float64 {
	l.t.Helper()
	var qdiscs []struct{ Backlog float64 }
	if err := json.Unmarshal([]byte(l.in("wire", "tc", "-j", "-s", "qdisc", "show", "dev", "w1")), &qdiscs); err != nil || len(qdiscs) != 1 {
		l.t.Fatalf("%v: %+v", err, qdiscs)
	}
	return qdiscs[0].Backlog
}

// awaitBacklog waits until the jobs have filled the wire's queue, or until the queue is on the node, where it can be ordered.
func (l *lab) awaitBacklog(full bool) {
	l.t.Helper()
	await.Until(l.t, 5*time.Minute, fmt.Sprintf("the wire's queue is full: %v", full), func() string {
		if now := l.backlog(); full && now < 200e3 || !full && now > 50e3 {
			return fmt.Sprintf("%.0f bytes wait there", now)
		}
		return ""
	})
}

func (f latencies) String() string {
	return fmt.Sprintf("p50 %6.1f ms, p99 %6.1f ms, service %5.1f Mbit/s, batch %5.1f Mbit/s", 1e3*f.P50, 1e3*f.P99, f.Bytes*8/f.Seconds/1e6, f.batchBits/1e6)
}

// pipe runs collect and advise on the node, and isolate with the one capability that it needs; it returns isolate's section.
func (l *lab) pipe(more ...string) *tick.NetworkIsolation {
	l.t.Helper()
	rules := filepath.Join(l.dir, "rules.yaml")
	text := "rules:\n- {cgroup: " + l.batch.Name + ", class: reclaimed}\n"
	if err := os.WriteFile(rules, []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
	// collect reads the links of the machine's first process: that is itself, in its own pid namespace.
	sampled := l.in("node", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", bin+"/collect", "--once", "--classify", rules, "--node", "n1")
	advise := exec.Command(bin+"/advise", "--batch-network-rate", "10%", "--network-rate", "95Mbit")
	advise.Stdin = strings.NewReader(sampled)
	advised, err := advise.Output()
	if err != nil {
		l.t.Fatalf("advise: %v\n%s", err, sampled)
	}
	// The tick is some seconds old on a busy machine, which is more than the default age.
	isolate := l.inside("node", append([]string{
		"setpriv", "--bounding-set=-all,+net_admin", bin + "/isolate", "--only", "network", "--node", "n1",
		"--max-age", "1h", "--journal", filepath.Join(l.dir, "journal"),
	}, more...)...)
	isolate.Stdin = bytes.NewReader(advised)
	var log bytes.Buffer
	isolate.Stderr = &log
	out, err := isolate.Output()
	if err != nil {
		l.t.Fatalf("isolate: %v\n%s\n%s", err, &log, advised)
	}
	line, err := tick.ParseLine(bytes.TrimSpace(out))
	if err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
	decoded, err := line.Decode(tick.SectionAdvice, tick.SectionNetwork)
	if err != nil || decoded.Network == nil {
		l.t.Fatalf("%v: %s", err, out)
	}
	if decoded.Advice.Network == nil {
		l.t.Fatalf("nothing is advised: %s", advised)
	}
	return decoded.Network
}

// TestNetwork runs a service beside jobs that send as much as they can over the node's uplink: one on the host, classified by its
// socket's cgroup, and one in a pod's network namespace, whose packets are classified by their link. Alone, unmanaged, shaped.
func TestNetwork(t *testing.T) {
	l := newLab(t)
	l.start("node", false, "serve", nodeAddress+":7001")
	l.start("peer", false, "sink", peerAddress+":7002")
	alone := l.ask()
	t.Logf("alone:                   %s", alone)
	for _, from := range []string{"node", "pod"} {
		stop := l.start(from, true, "flood", peerAddress+":7002", "4")
		l.awaitBacklog(true)
		unmanaged := l.ask()
		t.Logf("beside a job of the %-4s  %s", from, unmanaged)
		did := l.pipe()
		if len(did.Errors) > len(did.Unavailable) || did.Applied == 0 {
			t.Fatalf("reported errors %+v, writes %+v", did.Errors, did.Writes)
		}
		l.awaitBacklog(false)
		// Other work on the machine's CPUs makes requests slow and jobs slower, for a while: it is measured until none of it shows.
		await.Until(t, 5*time.Minute, "the service of a "+from+" is fast beside the shaped job", func() string {
			shaped := l.ask()
			t.Logf("shaped:                  %s", shaped)
			switch {
			case shaped.P50 > unmanaged.P50/2 || shaped.P99 > unmanaged.P99:
				return fmt.Sprintf("%s, unmanaged %s; want less than half the p50, and a smaller p99", shaped, unmanaged)
			case shaped.batchBits < 9.5e6*0.8:
				return fmt.Sprintf("batch has %.1f Mbit/s; want what it is guaranteed, 9.5", shaped.batchBits/1e6)
			case shaped.Bytes/shaped.Seconds < 2*unmanaged.Bytes/unmanaged.Seconds:
				return "the service has no more than twice what it had unmanaged"
			}
			return ""
		})
		if again := l.pipe(); again.Applied != 0 || len(again.Writes) > 0 {
			t.Errorf("the next tick writes %+v", again.Writes)
		} else if !counted(again.Classes, "batch") || !counted(again.Classes, "services") {
			t.Errorf("classes %+v; want packets of both", again.Classes)
		}
		stop()
		l.restore()
	}
}

func counted(classes []tick.NetworkCount, name string) bool {
	for _, c := range classes {
		if c.Class == name && c.SentBytes > 1e5 {
			return true
		}
	}
	return false
}

// restore reverts everything, and checks that the kernel's own qdisc is back and no table is left.
func (l *lab) restore() {
	l.t.Helper()
	out := l.in("node", bin+"/isolate", "--only", "network", "--restore", "--journal", filepath.Join(l.dir, "journal"))
	if !strings.Contains(out, "restored 1 link") {
		l.t.Errorf("restore prints %q", out)
	}
	if q := l.in("node", "tc", "qdisc", "show", "dev", "up0"); strings.Contains(q, "htb") {
		l.t.Errorf("after the restore: %s", q)
	}
}
