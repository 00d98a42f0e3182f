package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"polder/lib/fields"
	"polder/lib/kube"
	"polder/tests/cluster/controlplane"
)

// The times of an election, which are long compared with a renewal on a busy machine.
const (
	duration = 30 * time.Second
	within   = 25 * time.Second
)

func election(namespace, identity string) kube.Election {
	return kube.Election{
		Namespace: namespace, Name: "centre", Identity: identity,
		Duration: duration, RenewDeadline: within, RetryPeriod: 300 * time.Millisecond,
	}
}

func stand(t *testing.T, c *controlplane.ControlPlane, namespace, identity string) *kube.Lease {
	t.Helper()
	client, err := kube.Open(kube.Options{Kubeconfig: c.Kubeconfig(), UserAgent: "test-" + identity})
	if err != nil {
		t.Fatal(err)
	}
	l, err := client.Compete(t.Context(), election(namespace, identity))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Release(ctx) // the server may be gone
	})
	return l
}

// closed waits until a channel is closed.
func closed(t *testing.T, what string, done <-chan struct{}, within time.Duration) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(within):
		t.Fatalf("%s: not within %s", what, within)
	}
}

func TestLease(t *testing.T) {
	t.Parallel()
	c := controlplane.Start(t, controlplane.Options{}) // a control plane for the test alone, because it is frozen
	const namespace, path = "default", "/apis/coordination.k8s.io/v1/namespaces/default/leases/centre"
	read := func() map[string]any {
		var lease map[string]any
		if status, answer := c.API("GET", path, ""); status == 200 {
			if err := json.Unmarshal(answer, &lease); err != nil {
				t.Fatal(err)
			}
		}
		return fields.Child(lease, "spec")
	}
	one := stand(t, c, namespace, "one")
	closed(t, "one leads", one.Acquired(), controlplane.Soon)
	two := stand(t, c, namespace, "two")
	// one renews the lease for longer than its duration, and two waits.
	began := time.Now()
	c.Eventually(controlplane.Soon, "one renews the lease for longer than its duration", func() string {
		renewed, err := time.Parse("2006-01-02T15:04:05.000000Z", fields.Text(read(), "renewTime"))
		if err != nil || renewed.Sub(began) < duration+time.Second {
			return fmt.Sprint(renewed, err)
		}
		return ""
	})
	if !one.IsHeld() || two.IsHeld() || two.Holder() != "one" || two.LastError() != nil {
		t.Fatalf("after more than the lease's duration one holds: %v, two: %v, which knows of %q, %v; want one alone", one.IsHeld(), two.IsHeld(), two.Holder(), two.LastError())
	}
	// The written object is one that client-go reads.
	spec := read()
	for key, want := range map[string]any{"holderIdentity": "one", "leaseDurationSeconds": duration.Seconds(), "leaseTransitions": 0.0} {
		if spec[key] != want {
			t.Errorf("%s is %v; want %v", key, spec[key], want)
		}
	}
	if _, err := time.Parse("2006-01-02T15:04:05.000000Z", fields.Text(spec, "acquireTime")); err != nil {
		t.Errorf("acquireTime: %v", err)
	}
	// A holder that releases the lease hands it on at once: long before it would expire.
	if err := one.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if one.IsHeld() {
		t.Error("one holds what it has released")
	}
	closed(t, "two leads", two.Acquired(), duration-2*time.Second)
	if spec := read(); spec["holderIdentity"] != "two" || spec["leaseTransitions"] != 1.0 {
		t.Errorf("lease %v; want two's, its first transition", spec)
	}
	// Another program deletes it: the holder creates it again.
	c.Kubectl("delete", "lease", "centre")
	c.Eventually(controlplane.Soon, "two creates it again", func() string {
		if got := read()["holderIdentity"]; got != "two" {
			return fmt.Sprint(got)
		}
		return ""
	})
	if !two.IsHeld() {
		t.Errorf("two has lost a lease that was deleted: %v", two.Err())
	}

	// Another program takes the lease: the holder notices at its next renewal, and does not fight.
	c.Kubectl("patch", "lease", "centre", "--type=merge", "-p", `{"spec":{"holderIdentity":"somebody","leaseDurationSeconds":2}}`)
	closed(t, "two has lost it", two.Lost(), controlplane.Soon)
	if err := two.Err(); two.IsHeld() || err == nil || !strings.Contains(err.Error(), "held by somebody") {
		t.Errorf("two's end: %v", err)
	}
	// A holder that does not renew the lease loses it, by the clock of the waiting process.
	three := stand(t, c, namespace, "three")
	closed(t, "three leads", three.Acquired(), controlplane.Soon)

	// A server that does not answer: the holder stops before another process may start to lead.
	c.FreezeAPIServer()
	frozen := time.Now()
	for asked := frozen; three.IsHeld(); asked = time.Now() {
		if asked.Sub(frozen) > within {
			t.Fatalf("three holds it for %s without a renewal; want %s at most", asked.Sub(frozen), within)
		}
		time.Sleep(5 * time.Millisecond)
	}
	closed(t, "three has lost it", three.Lost(), controlplane.Soon)
	if err := three.Err(); err == nil || !strings.Contains(err.Error(), "not renewed for "+within.String()) {
		t.Errorf("three's end: %v", err)
	}
	c.ThawAPIServer()
}

// Several that start at once: never more than one leads.
func TestLeaseOfMany(t *testing.T) {
	t.Parallel()
	c := controlplane.Shared(t)
	namespace := c.OwnNamespace()
	var all []*kube.Lease
	for _, identity := range []string{"a", "b", "c", "d", "e"} {
		all = append(all, stand(t, c, namespace, identity))
	}
	terms := 0
	c.Eventually(controlplane.Soon, "all have led", func() string {
		var holder *kube.Lease
		for _, l := range all {
			if l.IsHeld() {
				if holder != nil && holder.IsHeld() { // it was read before, and what is lost is not held again
					t.Fatal("two hold the lease")
				}
				holder = l
			}
		}
		if holder != nil {
			terms++
			if err := holder.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if terms < len(all) {
			return fmt.Sprintf("%d of %d", terms, len(all))
		}
		return ""
	})
}

func TestElectionsThatCannotBe(t *testing.T) {
	t.Parallel()
	c := controlplane.Shared(t)
	client, err := kube.Open(kube.Options{Kubeconfig: c.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*kube.Election){
		"no namespace":  func(e *kube.Election) { e.Namespace = "" },
		"no identity":   func(e *kube.Election) { e.Identity = "" },
		"no margin":     func(e *kube.Election) { e.RenewDeadline = e.Duration },
		"rare attempts": func(e *kube.Election) { e.RetryPeriod = e.RenewDeadline },
		"half a second": func(e *kube.Election) { e.Duration += 500 * time.Millisecond },
	} {
		e := election("default", "x")
		change(&e)
		if _, err := client.Compete(t.Context(), e); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
	if l, err := client.Compete(t.Context(), kube.Election{Namespace: "nowhere", Name: "x", Identity: "x"}); err != nil {
		t.Error(err)
	} else {
		c.Eventually(controlplane.Soon, "it has tried to get the lease", func() string {
			if trouble := l.LastError(); trouble == nil || !kube.IsNotFound(trouble) {
				return fmt.Sprintf("so far: %v", trouble)
			}
			return ""
		})
		if l.IsHeld() {
			t.Error("it is held in a missing namespace")
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
