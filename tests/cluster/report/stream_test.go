package report

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

// The API server is away, or there and silent: the stream goes on, and the newest figures win.
func TestOutage(t *testing.T) {
	for _, tt := range []struct {
		name       string
		stop, back func(*cluster)
		down       time.Duration
	}{
		{"stopped", func(c *cluster) { c.StopAPIServer() }, func(c *cluster) { c.StartAPIServer() }, 30 * time.Second},
		{"frozen", func(c *cluster) { c.FreezeAPIServer() }, func(c *cluster) { c.ThawAPIServer() }, 15 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := begin(t)
			x := c.start()
			c.settle(x, c.same(44000, bytes))
			tt.stop(c)
			milli, slowest, failed := int64(44000), time.Duration(0), ""
			for end := time.Now().Add(tt.down); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				milli -= 101 // which makes no round number, that would be written another way
				began := time.Now()
				if text := said(x.Put(c.offer(milli, bytes))); strings.Contains(text, "failed") {
					failed = text
				}
				slowest = max(slowest, time.Since(began))
			}
			tt.back(c)
			back := time.Now()
			if slowest > time.Second {
				t.Errorf("a tick took %s", slowest)
			}
			if !strings.Contains(failed, "cnr failed changed: ") || !strings.Contains(failed, "node failed changed: ") {
				t.Errorf("while the server was away, the ticks said %q", failed)
			}
			text := fmt.Sprint(milli)
			c.eventually(30*time.Second, text, full(text))
			t.Logf("a tick took %s at most; the newest figures were there %s after the server", slowest, time.Since(back).Round(100*time.Millisecond))
			c.settle(x, c.same(milli, bytes))
		})
	}
}

// Nobody confirms the figures: they are withdrawn, and come back with the next tick.
func TestStale(t *testing.T) {
	c := begin(t)
	x := c.start("--stale-after", "3s", "--resync", "1s")
	next := func() *tick.Tick { return taint(c.offer(44000, bytes), "CPUPressure") }
	c.settle(x, next)
	c.eventually(0, "44k", full("44k"))
	began := time.Now()
	c.eventually(20*time.Second, "", none)
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("withdrawn after %s; want 3 s", took)
	}
	c.Eventually(5*time.Second, "no taints", func() string { return strings.Join(c.taints(), " ") })
	if zone := at(c.cnr(), "status", "topologyZone"); zone != nil {
		t.Errorf("topologyZone is left: %v", zone)
	}
	c.settle(x, next)
	c.eventually(0, "44k", full("44k"))

	// A part that nobody confirms goes, the rest stays.
	zoned := func() *tick.Tick {
		in := c.offer(44000, bytes)
		in.Sample = &tick.Sample{Topology: &tick.Topology{CPUs: "0-1", NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-1"}}}}
		return in
	}
	c.until(x, 5*time.Second, zoned, "cnr written changed")
	c.settle(x, zoned)
	if zone, _ := at(c.cnr(), "status", "topologyZone").([]any); len(zone) != 1 {
		t.Errorf("topologyZone: %v", zone)
	}
	halved := func() *tick.Tick {
		in := c.offer(44000, 0)
		in.Advice.Reclaimed.MemoryBytes = nil
		return in
	}
	c.until(x, 20*time.Second, halved, "cnr written changed")
	c.Eventually(10*time.Second, "CPU alone", func() string {
		x.Put(halved())
		status := c.Kubectl("get", "kcnr", c.node, "-o", "jsonpath={.status}")
		if strings.Contains(status, "topologyZone") || strings.Contains(status, "memory") || c.inCNR() != "44k" || c.onNode() != "44k  48" {
			return status + c.onNode()
		}
		return ""
	})
	c.settle(x, next)

	// Ticks without an advice, old ones and those of other nodes confirm nothing.
	c.until(x, 20*time.Second, func() *tick.Tick {
		old, other := c.offer(46000, bytes), c.offer(48000, bytes)
		old.Time = old.Time.Add(-time.Hour)
		other.Node = "other"
		for _, in := range []*tick.Tick{old, other} {
			if out := x.Put(in); out.Report.Refused == "" {
				t.Errorf("not refused: %+v", out.Report)
			}
		}
		in := c.offer(0, 0)
		in.Advice.Reclaimed = nil
		return in
	}, "^cnr written changed")
	c.eventually(5*time.Second, "", none)

	// A process that has never had a tick withdraws what the one before it has left.
	c.settle(x, next)
	x.Kill()
	c.eventually(0, "44k", full("44k"))
	c.start("--stale-after", "3s")
	time.Sleep(time.Second)
	c.eventually(0, "44k", full("44k"))
	c.eventually(20*time.Second, "", none)
}

func TestWithdraw(t *testing.T) {
	c := begin(t)
	x := c.start()
	c.settle(x, func() *tick.Tick { return taint(c.offer(44000, bytes), "CPUPressure") })
	// As a preStop hook does it: the tool is told to stop right after.
	withdraw := func(args ...string) string {
		t.Helper()
		w := pipe.Start(t, "report", append([]string{"--withdraw", "--kubeconfig", c.kubeconfig}, args...)...)
		if err := w.End(); err != nil {
			t.Fatalf("report --withdraw %v: %v\n%s", args, err, w.Log())
		}
		return w.Log()
	}
	if log := withdraw("--node", c.node); !strings.Contains(log, "msg=withdrawn tool=report target=cnr") || !strings.Contains(log, "msg=withdrawn tool=report target=node") {
		t.Errorf("log: %s", log)
	}
	if err := x.End(syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	time.Sleep(time.Second)
	c.eventually(0, "", none)
	if got := c.taints(); len(got) > 0 {
		t.Errorf("taints: %v", got)
	}
	if log := withdraw("--node", c.node); strings.Contains(log, "msg=withdrawn") {
		t.Errorf("withdrawn twice: %s", log)
	}
	withdraw("--node", "nobody")

	// One target alone, and all nodes.
	x = c.start()
	c.settle(x, c.same(44000, bytes))
	x.Kill()
	withdraw("--node", c.node, "--to", "node")
	c.eventually(0, "44k", none)
	withdraw("--all-nodes")
	c.eventually(0, "", none)
}

// Errors say what to do, and go away when that is done.
func TestHints(t *testing.T) {
	c := &cluster{controlplane.Start(t, controlplane.Options{}), t, "hints", ""}
	c.MakeNode(c.node, "48", "195924424Ki")
	c.Apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: report, namespace: kube-system}}")
	c.kubeconfig = c.KubeconfigFor("kube-system", "report")
	x := c.start()
	next := c.same(44000, bytes)
	c.until(x, 20*time.Second, next, "cnr failed changed: .*forbidden.*report's role needs nodes: get, list, watch; .*, node failed changed: .*forbidden.*report's role needs")
	c.Apply(account)
	c.until(x, 40*time.Second, next, "cnr failed changed: .*Install the CRDs: kubectl apply --server-side -f deploy/kubernetes/crds.*, node unchanged")
	c.ApplyFile(crds)
	c.until(x, 40*time.Second, next, "cnr unchanged, node unchanged")
	c.eventually(0, "44k", full("44k"))

	// A taint that the server will not have does not hold up the figures.
	bad := func() *tick.Tick {
		in := taint(c.offer(42000, bytes), "CPUPressure")
		in.Eviction.Taints[0].Effect = "NoSuchEffect"
		return in
	}
	c.until(x, 20*time.Second, bad, `cnr failed.*: .*Unsupported value: "NoSuchEffect".*Install this one's`)
	c.eventually(5*time.Second, "42k", full("42k"))

	// A CRD that lacks fields is named as such.
	yaml, err := os.ReadFile(crds)
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(strings.Replace(string(yaml), "resourceCapacity:", "resourceSomething:", 1))
	c.until(x, 60*time.Second, c.same(40000, bytes), "cnr failed changed: .*Install this one's")
}
