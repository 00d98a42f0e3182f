package report

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

// The API server is away, or running without an answer: the stream continues, and the newest figures win.
func TestOutage(t *testing.T) {
	t.Parallel()
	plane := controlplane.Start(t, controlplane.Options{})
	define(plane)
	for _, tt := range []struct {
		name       string
		stop, back func(*cluster)
	}{
		{"stopped", func(c *cluster) { c.StopAPIServer() }, func(c *cluster) { c.StartAPIServer() }},
		{"frozen", func(c *cluster) { c.FreezeAPIServer() }, func(c *cluster) { c.ThawAPIServer() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := beginOn(t, plane.Plane.For(t))
			x := c.start()
			c.settle(x, c.same(44000, bytes))
			tt.stop(c)
			milli, slowest, failed := int64(44000), time.Duration(0), regexp.MustCompile("cnr failed changed: .*node failed changed: ")
			next := func() string {
				milli -= 101 // not a round number, which Kubernetes would format in another way
				began := time.Now()
				text := targetStates(x.Put(c.offer(milli, bytes)))
				slowest = max(slowest, time.Since(began))
				return text
			}
			c.Eventually(controlplane.Soon, "the ticks report that writing fails", func() string {
				if text := next(); !failed.MatchString(text) {
					return text
				}
				return ""
			})
			for range 20 {
				next()
			}
			tt.back(c)
			back := time.Now()
			if slowest > 20*time.Second { // shorter than a request's timeout
				t.Errorf("a tick took %s", slowest)
			}
			text := fmt.Sprint(milli)
			c.eventually(controlplane.Soon, text, full(text))
			t.Logf("a tick took %s at most; the newest figures were there %s after the server", slowest, time.Since(back).Round(100*time.Millisecond))
			c.settle(x, c.same(milli, bytes))
		})
	}
}

// The figures are not confirmed any more: report withdraws them, and publishes them again with the next tick.
func TestStale(t *testing.T) {
	t.Parallel()
	c := begin(t)
	x := c.start("--stale-after", "5s", "--resync", "1s")
	var began time.Time // of the newest tick
	next := func() *tick.Tick {
		began = time.Now()
		return taint(c.offer(44000, bytes), "CPUPressure")
	}
	c.settle(x, next)
	c.holds(x, next, "44k", full("44k"))
	c.eventually(controlplane.Soon, "", none)
	if took := time.Since(began); took < 5*time.Second {
		t.Errorf("withdrawn after %s; want 5 s", took)
	}
	c.Eventually(controlplane.Soon, "no taints", func() string { return strings.Join(c.taints(), " ") })
	if zone := at(c.cnr(), "status", "topologyZone"); zone != nil {
		t.Errorf("topologyZone is left: %v", zone)
	}
	c.settle(x, next)
	c.holds(x, next, "44k", full("44k"))

	// A part that is not confirmed is withdrawn, the rest stays.
	zoned := func() *tick.Tick {
		in := c.offer(44000, bytes)
		in.Sample = &tick.Sample{Topology: &tick.Topology{CPUs: "0-1", NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-1"}}}}
		return in
	}
	c.until(x, zoned, "cnr written changed")
	c.Eventually(controlplane.Soon, "one zone", func() string {
		x.Put(zoned())
		if zone, _ := at(c.cnr(), "status", "topologyZone").([]any); len(zone) != 1 {
			return fmt.Sprintf("topologyZone: %v", zone)
		}
		return ""
	})
	halved := func() *tick.Tick {
		in := c.offer(44000, 0)
		in.Advice.Reclaimed.MemoryBytes = nil
		return in
	}
	c.until(x, halved, "cnr written changed")
	c.Eventually(controlplane.Soon, "CPU alone", func() string {
		x.Put(halved())
		status := c.Kubectl("get", "kcnr", c.node, "-o", "jsonpath={.status}")
		if strings.Contains(status, "topologyZone") || strings.Contains(status, "memory") || c.inCNR() != "44k" || c.onNode() != "44k  48" {
			return status + c.onNode()
		}
		return ""
	})
	c.settle(x, next)

	// Ticks without advice, old ones and those of other nodes confirm nothing.
	c.until(x, func() *tick.Tick {
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
	c.eventually(controlplane.Soon, "", none)

	// A process that has never read a tick withdraws its predecessor's offer. The predecessor has time until it is killed.
	x.Kill()
	x = c.start("--stale-after", "1h")
	c.settle(x, next)
	x.Kill()
	c.eventually(0, "44k", full("44k"))
	started := time.Now()
	c.start("--stale-after", "5s")
	c.eventually(controlplane.Soon, "", none)
	if took := time.Since(started); took < 5*time.Second {
		t.Errorf("withdrawn %s after the start; want 5 s", took)
	}
}

func TestWithdraw(t *testing.T) {
	c := begin(t)
	withdraw := func(args ...string) string {
		t.Helper()
		w := pipe.Start(t, "report", append([]string{"--withdraw", "--kubeconfig", c.kubeconfig}, args...)...)
		if err := w.End(); err != nil {
			t.Fatalf("report --withdraw %v: %v\n%s", args, err, w.Log())
		}
		return w.Log()
	}
	next := func() *tick.Tick { return taint(c.offer(44000, bytes), "CPUPressure") }
	// As in a preStop hook: the tool gets SIGTERM right after. It would restore its offer some seconds later: two at first, and twice as many
	// after each further change. If that was before the signal, the next process has more time.
	for changes := 1; ; changes++ {
		x := c.start()
		c.settle(x, next)
		for range changes - 1 {
			c.API(http.MethodDelete, cnrPath+c.node, "")
			list := fmt.Sprintf(`{%q:null}`, milliCPU)
			c.API(http.MethodPatch, "/api/v1/nodes/"+c.node+"/status", fmt.Sprintf(`{"status":{"capacity":%s,"allocatable":%s}}`, list, list))
			c.eventually(controlplane.Soon, "44k", full("44k"))
		}
		if log := withdraw("--node", c.node); !strings.Contains(log, "msg=withdrawn tool=report target=cnr") || !strings.Contains(log, "msg=withdrawn tool=report target=node") {
			t.Errorf("log: %s", log)
		}
		if err := x.End(syscall.SIGTERM); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}
		if strings.Count(x.Log(), "restoring the object after an external change") == 2*(changes-1) || changes == 5 {
			break
		}
	}
	c.eventually(0, "", none) // the exit has not restored it
	if got := c.taints(); len(got) > 0 {
		t.Errorf("taints: %v", got)
	}
	if log := withdraw("--node", c.node); strings.Contains(log, "msg=withdrawn") {
		t.Errorf("withdrawn twice: %s", log)
	}
	withdraw("--node", "nobody")

	// One target alone, and all nodes.
	x := c.start()
	c.settle(x, c.same(44000, bytes))
	x.Kill()
	withdraw("--node", c.node, "--to", "node")
	c.eventually(0, "44k", none)
	withdraw("--all-nodes")
	c.eventually(0, "", none)
}

// Errors name the remedy, and disappear after it.
func TestHints(t *testing.T) {
	t.Parallel()
	c := bare(t, "hints")
	x := c.start()
	next := c.same(44000, bytes)
	c.until(x, next, "cnr failed changed: .*forbidden.*report's role needs nodes: get, list, watch; .*, node failed changed: .*forbidden.*report's role needs")
	c.Grant("default", "default", "report")
	c.until(x, next, "cnr failed changed: .*Install the CRDs: kubectl apply --server-side -f deploy/kubernetes/crds.*, node unchanged")
	c.ApplyFile(crds)
	c.until(x, next, "cnr unchanged, node unchanged")
	c.eventually(0, "44k", full("44k"))

	// A taint that the server refuses does not delay the figures.
	bad := func() *tick.Tick {
		in := taint(c.offer(42000, bytes), "CPUPressure")
		in.Eviction.Taints[0].Effect = "NoSuchEffect"
		return in
	}
	c.until(x, bad, `cnr failed.*: .*Unsupported value: "NoSuchEffect".*Install this one's`)
	c.eventually(controlplane.Soon, "42k", full("42k"))

	// The error names a CRD that lacks fields.
	yaml, err := os.ReadFile(crds)
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(strings.Replace(string(yaml), "resourceCapacity:", "resourceSomething:", 1))
	c.until(x, c.same(40000, bytes), "cnr failed changed: .*Install this one's")
}
