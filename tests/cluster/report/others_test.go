package report

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

// report restores what another program removes.
func TestPutBack(t *testing.T) {
	t.Parallel()
	c := begin(t)
	x := c.start()
	next := c.same(44000, bytes)
	c.settle(x, next)
	for _, value := range []string{`null`, `"0"`} { // deleted, and set to zero as kubelet does on a machine that is new to it
		list := fmt.Sprintf(`{%q:%s,%q:%s}`, milliCPU, value, memory, value)
		_, answer := c.API(http.MethodPatch, "/api/v1/nodes/"+c.node+"/status", fmt.Sprintf(`{"status":{"capacity":%s,"allocatable":%s}}`, list, list))
		if strings.Contains(string(answer), `"44k"`) { // by the answer: report may restore it before another request
			t.Fatalf("the test has removed nothing: %s", answer)
		}
		c.eventually(controlplane.Soon, "44k", full("44k")) // without a tick
	}
	c.API(http.MethodDelete, cnrPath+c.node, "")
	c.eventually(controlplane.Soon, "44k", full("44k"))
	c.API(http.MethodPatch, cnrPath+c.node+"/status", `{"status":{"resourceAllocatable":{"katalyst.kubewharf.io/reclaimed_millicpu":"99k"},"topologyZone":null}}`)
	c.eventually(controlplane.Soon, "44k", full("44k"))

	// The node is deleted, and created again with another UID.
	c.API(http.MethodDelete, "/api/v1/nodes/"+c.node, "")
	c.API(http.MethodDelete, cnrPath+c.node, "") // the garbage collector's part
	c.until(x, next, `node failed: the cluster has no node "putback": set its name there with --node`)
	if o := c.cnr(); o != nil {
		t.Errorf("an object without a node: %v", o)
	}
	c.MakeNode(c.node, "48", "195924424Ki")
	c.eventually(controlplane.Soon, "44k", full("44k"))
	owner, _ := at(c.cnr(), "metadata", "ownerReferences").([]any)
	if len(owner) != 1 || at(owner[0], "uid") != c.Kubectl("get", "node", c.node, "-o", "jsonpath={.metadata.uid}") {
		t.Errorf("owned by %v; want the new node", owner)
	}
	c.settle(x, next)
}

// Another manager owns fields of ours: report takes them over and logs it; the manager's other fields stay.
func TestOtherManagers(t *testing.T) {
	t.Parallel()
	c := begin(t)
	other := func(object, subresource string) {
		t.Helper()
		args := []string{"apply", "--server-side", "--field-manager=katalyst-agent", "-f", "-"}
		if subresource != "" {
			args = append(args, "--subresource="+subresource)
		}
		if _, err := c.TryKubectl(`{"apiVersion":"node.katalyst.kubewharf.io/v1alpha1","kind":"CustomNodeResource","metadata":{"name":"`+c.node+`"},`+object+`}`, args...); err != nil {
			t.Fatal(err)
		}
	}
	theirs := `"spec":{"nodeResourceProperties":[{"propertyName":"numa","propertyQuantity":"2"}],"taints":[{"key":"team/a","effect":"NoSchedule","timeAdded":"2026-01-01T00:00:00Z"}]}`
	other(theirs, "")
	other(`"status":{"resourceAllocatable":{"katalyst.kubewharf.io/reclaimed_millicpu":"9k","example.com/theirs":"1"},"conditions":[{"type":"AgentReady","status":"True"}]}`, "status")

	x := c.start()
	tainted := func() *tick.Tick { return taint(c.offer(44000, bytes), "CPUPressure", "MemoryPressure") }
	c.settle(x, tainted)
	c.eventually(0, "44k", full("44k"))
	x.AwaitLog("is there a second agent?", 1)
	x.AwaitLog("katalyst-agent", 1)
	want := []string{"team/a:NoSchedule", "node.katalyst.kubewharf.io/CPUPressure:NoSchedule", "node.katalyst.kubewharf.io/MemoryPressure:NoSchedule"}
	if d := cmp.Diff(want, c.taints()); d != "" {
		t.Errorf("taints (-want +got):\n%s", d)
	}
	other(`"spec":{"taints":[{"key":"team/b","effect":"NoExecute"}]}`, "") // it replaces its own list
	c.settle(x, func() *tick.Tick { return taint(c.offer(44000, bytes), "MemoryPressure") })
	if d := cmp.Diff([]string{"node.katalyst.kubewharf.io/MemoryPressure:NoSchedule", "team/b:NoExecute"}, c.taints()); d != "" {
		t.Errorf("taints after the other manager's change (-want +got):\n%s", d)
	}
	if err := x.End(); err != nil {
		t.Fatal(err)
	}
	// The next process knows which taints are ours.
	x = c.start()
	c.settle(x, func() *tick.Tick { return taint(c.offer(44000, bytes)) })
	if d := cmp.Diff([]string{"team/b:NoExecute"}, c.taints()); d != "" {
		t.Errorf("taints when there are none of ours (-want +got):\n%s", d)
	}
	if got := at(c.cnr(), "status", "resourceAllocatable", "example.com/theirs"); got != "1" {
		t.Errorf("their resource: %v; want 1", got)
	}
	if got, _ := at(c.cnr(), "status", "conditions").([]any); len(got) != 1 {
		t.Errorf("their condition: %v", got)
	}
}

// A list that has one owner as a whole, as in Katalyst's own CRD: report merges it nevertheless.
func TestAtomicTaints(t *testing.T) {
	c := begin(t)
	yaml, err := os.ReadFile(crds)
	if err != nil {
		t.Fatal(err)
	}
	atomic := strings.Replace(string(yaml), "x-kubernetes-list-type: map\n                  x-kubernetes-list-map-keys: [key, effect]", "x-kubernetes-list-type: atomic", 1)
	if atomic == string(yaml) {
		t.Fatal("the CRD's taints are not a map any more")
	}
	c.Apply(atomic)
	const twice = `{"apiVersion":"node.katalyst.kubewharf.io/v1alpha1","kind":"CustomNodeResource","metadata":{"name":"twice"},"spec":{"taints":[{"key":"a","effect":"NoSchedule"},{"key":"a","effect":"NoSchedule"}]}}`
	t.Cleanup(func() {
		c.API(http.MethodDelete, cnrPath+"twice", "")
		c.ApplyFile(crds)
		c.Eventually(controlplane.Soon, "the taints are a map again", func() string { // for the tests that follow
			status, body := c.API(http.MethodPost, strings.TrimSuffix(cnrPath, "/")+"?dryRun=All", twice)
			if status != http.StatusUnprocessableEntity {
				return fmt.Sprintf("status %d: %s", status, body)
			}
			return ""
		})
	})
	c.Eventually(controlplane.Soon, "the API server accepts a list with the same taint twice, as it is no map", func() string {
		if status, body := c.API(http.MethodPost, strings.TrimSuffix(cnrPath, "/"), twice); status != http.StatusCreated {
			return string(body)
		}
		return ""
	})
	x := c.start()
	c.settle(x, func() *tick.Tick { return taint(c.offer(44000, bytes), "CPUPressure") })
	c.API(http.MethodPatch, cnrPath+c.node, `{"spec":{"taints":[{"key":"team/a","effect":"NoSchedule"},{"key":"node.katalyst.kubewharf.io/CPUPressure","effect":"NoSchedule"}]}}`)
	c.settle(x, func() *tick.Tick { return taint(c.offer(44000, bytes), "MemoryPressure") })
	if d := cmp.Diff([]string{"team/a:NoSchedule", "node.katalyst.kubewharf.io/MemoryPressure:NoSchedule"}, c.taints()); d != "" {
		t.Errorf("taints (-want +got):\n%s", d)
	}
}

// Another program writes the object all the time: both programs' values are in the object at the end.
func TestConflicts(t *testing.T) {
	t.Parallel()
	c := begin(t)
	x := c.start()
	c.settle(x, func() *tick.Tick { return taint(c.offer(44000, bytes)) })
	stop := c.patchRepeatedly(cnrPath+c.node, func(i int) string { return fmt.Sprintf(`{"metadata":{"annotations":{"writes":"%d"}}}`, i) })
	for i := range 10 {
		keys := []string{"CPUPressure"}[:i%2]
		c.until(x, func() *tick.Tick { return taint(c.offer(44000, bytes), keys...) }, "cnr (written|unchanged)")
		c.Eventually(controlplane.Soon, "the taint", func() string {
			if out := targetStates(x.Put(taint(c.offer(44000, bytes), keys...))); strings.Contains(out, "modified") || strings.Contains(out, "rejected our request") {
				t.Errorf("it gives up: %s", out)
			}
			if got := c.taints(); len(got) != len(keys) {
				return fmt.Sprint(got)
			}
			return ""
		})
	}
	// A withdrawal under conflicts succeeds likewise.
	x.Kill()
	w := pipe.Start(t, "report", "--withdraw", "--kubeconfig", c.kubeconfig, "--node", c.node)
	if err := w.End(); err != nil {
		t.Errorf("report --withdraw: %v\n%s", err, w.Log())
	}
	writes := stop(20)
	if got := fmt.Sprint(at(c.cnr(), "metadata", "annotations", "writes")); got != fmt.Sprint(writes-1) {
		t.Errorf("their last write of %d is %s", writes, got)
	}
	c.eventually(0, "", none)
}

// Another program changes the very list that is ours, too.
func TestConflictingTaints(t *testing.T) {
	t.Parallel()
	c := begin(t)
	x := c.start()
	c.settle(x, func() *tick.Tick { return taint(c.offer(44000, bytes)) })
	var theirs atomic.Int64
	stop := c.patchRepeatedly(cnrPath+c.node, func(i int) string {
		theirs.Store(int64(i))
		// As a careful writer does: with the resourceVersion that it has read.
		status, body, err := c.TryAPI(t.Context(), http.MethodGet, cnrPath+c.node, "")
		var o map[string]any
		if err != nil || status != http.StatusOK || json.Unmarshal(body, &o) != nil {
			return ""
		}
		list, _ := at(o, "spec", "taints").([]any)
		list = slices.DeleteFunc(list, func(v any) bool { return at(v, "key") == "team/a" })
		list = append(list, map[string]any{"key": "team/a", "effect": "NoSchedule", "value": fmt.Sprint(i)})
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": at(o, "metadata", "resourceVersion")}, "spec": map[string]any{"taints": list}})
		if err != nil {
			return ""
		}
		time.Sleep(20 * time.Millisecond) // leaves time for other writes in between
		return string(text)
	})
	c.Eventually(controlplane.Soon, "theirs", func() string {
		if theirs.Load() == 0 {
			return "nothing written"
		}
		return ""
	})
	for i := range 15 {
		keys := []string{"CPUPressure", "MemoryPressure"}[:i%3]
		c.Eventually(controlplane.Soon, "the taints", func() string {
			targetStates(x.Put(taint(c.offer(44000, bytes), keys...)))
			if got := c.taints(); len(got) != len(keys)+1 || !slices.Contains(got, "team/a:NoSchedule") {
				return fmt.Sprint(got)
			}
			return ""
		})
	}
	t.Logf("they have written %d times", stop(1))
}

// patchRepeatedly patches an object again and again until the test calls the returned function, which waits for the least number of patches
// and returns their number, or until the test ends. It skips an empty patch.
func (c *cluster) patchRepeatedly(path string, patch func(i int) string) (stop func(least int) (writes int)) {
	ctx, cancel := context.WithCancel(context.Background())
	var writes atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			body := patch(int(writes.Load()))
			if body == "" {
				continue
			}
			// The patch in flight may complete: the test must know the number of patches.
			if status, _, err := c.TryAPI(context.WithoutCancel(ctx), http.MethodPatch, path, body); err == nil && status == http.StatusOK {
				writes.Add(1)
			}
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-done
	})
	return func(least int) int {
		c.t.Helper()
		c.Eventually(controlplane.Soon, fmt.Sprintf("%d patches", least), func() string {
			if n := writes.Load(); n < int64(least) {
				return fmt.Sprint(n)
			}
			return ""
		})
		cancel()
		<-done
		return int(writes.Load())
	}
}

// A cluster without the kind CustomNodeResource: what is offered on Nodes is withdrawn at once, of one node and of all.
func TestWithdrawWithoutKind(t *testing.T) {
	t.Parallel()
	c := bare(t, "withdraw-bare")
	for _, which := range []string{"--node=" + c.node, "--all-nodes"} {
		c.API(http.MethodPatch, "/api/v1/nodes/"+c.node+"/status",
			`{"status":{"capacity":{"kubernetes.io/batch-cpu":"7"},"allocatable":{"kubernetes.io/batch-cpu":"7"}}}`)
		w := pipe.Start(t, "report", "--withdraw", which, "--kubeconfig", c.Kubeconfig())
		if err := w.End(); err != nil {
			t.Errorf("report --withdraw %s: %v\n%s", which, err, w.Log())
		}
		c.offers(0, "- - - -", batchNames...)
	}
}
