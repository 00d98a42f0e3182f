package fleet

import (
	"context"
	"strings"
	"testing"
	"time"

	"polder/lib/fields"
	"polder/lib/kube"
	"polder/tests/cluster/controlplane"
)

const leasePath = "/apis/coordination.k8s.io/v1/namespaces/default/leases/centre"

// election is one of short times.
func election(who string) kube.Election {
	return kube.Election{Namespace: "default", Name: "centre", Identity: who, Duration: 3 * time.Second, Within: 2 * time.Second, Retry: 300 * time.Millisecond}
}

func stand(t *testing.T, c *controlplane.ControlPlane, who string) *kube.Lease {
	t.Helper()
	client, err := kube.Open(kube.Options{Kubeconfig: c.Kubeconfig(), UserAgent: "test-" + who})
	if err != nil {
		t.Fatal(err)
	}
	l, err := client.Stand(t.Context(), election(who))
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

// closed waits for a channel's end.
func closed(t *testing.T, what string, done <-chan struct{}, within time.Duration) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(within):
		t.Fatalf("%s: not within %s", what, within)
	}
}

func TestLease(t *testing.T) {
	c := controlplane.Start(t, controlplane.Options{})
	one := stand(t, c, "one")
	closed(t, "one leads", one.Led(), 10*time.Second)
	two := stand(t, c, "two")
	time.Sleep(5 * time.Second)
	if !one.Held() || two.Held() || two.Holder() != "one" || two.Trouble() != nil {
		t.Fatalf("after more than the lease's duration one holds: %v, two: %v, which knows of %q, %v; want one alone", one.Held(), two.Held(), two.Holder(), two.Trouble())
	}
	// What is written is what the client library of others reads.
	var lease map[string]any
	c.Get(leasePath, &lease)
	spec := fields.Child(lease, "spec")
	for key, want := range map[string]any{"holderIdentity": "one", "leaseDurationSeconds": 3.0, "leaseTransitions": 0.0} {
		if spec[key] != want {
			t.Errorf("%s is %v; want %v", key, spec[key], want)
		}
	}
	for _, key := range []string{"renewTime", "acquireTime"} {
		if _, err := time.Parse("2006-01-02T15:04:05.000000Z", fields.Text(spec, key)); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	// Who gives it up hands it on at once.
	if err := one.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if one.Held() {
		t.Error("one holds what it has released")
	}
	closed(t, "two leads", two.Led(), 1500*time.Millisecond)
	c.Get(leasePath, &lease)
	if spec := fields.Child(lease, "spec"); spec["holderIdentity"] != "two" || spec["leaseTransitions"] != 1.0 {
		t.Errorf("lease %v; want two's, its first transition", spec)
	}
	// Somebody deletes it: the holder makes it anew.
	c.Kubectl("delete", "lease", "centre")
	time.Sleep(time.Second)
	if !two.Held() {
		t.Errorf("two has lost a lease that was deleted: %v", two.Err())
	}

	// Somebody takes it away: the holder notices with its next renewal, and does not fight.
	c.Kubectl("patch", "lease", "centre", "--type=merge", "-p", `{"spec":{"holderIdentity":"somebody","leaseDurationSeconds":2}}`)
	closed(t, "two has lost it", two.Lost(), 2*time.Second)
	if err := two.Err(); two.Held() || err == nil || !strings.Contains(err.Error(), "held by somebody") {
		t.Errorf("two's end: %v", err)
	}
	// Who does not renew it loses it, by the clock of who waits.
	three := stand(t, c, "three")
	closed(t, "three leads", three.Led(), 5*time.Second)

	// A server that does not answer: the holder is out before another one may be in.
	c.FreezeAPIServer()
	frozen := time.Now()
	for three.Held() && time.Since(frozen) < 10*time.Second {
		time.Sleep(10 * time.Millisecond)
	}
	if out := time.Since(frozen); out > 2100*time.Millisecond {
		t.Errorf("three holds it for %s without a renewal; want 2s at most", out)
	}
	closed(t, "three has lost it", three.Lost(), 2*time.Second)
	if err := three.Err(); err == nil || !strings.Contains(err.Error(), "not renewed for 2s") {
		t.Errorf("three's end: %v", err)
	}
	c.ThawAPIServer()
}

// Several that begin at once: never more than one leads.
func TestLeaseOfMany(t *testing.T) {
	c := controlplane.Start(t, controlplane.Options{})
	var all []*kube.Lease
	for _, who := range []string{"a", "b", "c", "d", "e"} {
		all = append(all, stand(t, c, who))
	}
	deadline := time.Now().Add(20 * time.Second)
	for terms := 0; terms < len(all); {
		var holder *kube.Lease
		for _, l := range all {
			if l.Held() {
				if holder != nil {
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
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d have led", terms, len(all))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestElectionsThatCannotBe(t *testing.T) {
	c := controlplane.Start(t, controlplane.Options{})
	client, err := kube.Open(kube.Options{Kubeconfig: c.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*kube.Election){
		"no namespace":  func(e *kube.Election) { e.Namespace = "" },
		"no identity":   func(e *kube.Election) { e.Identity = "" },
		"no margin":     func(e *kube.Election) { e.Within = e.Duration },
		"rare attempts": func(e *kube.Election) { e.Retry = e.Within },
		"half a second": func(e *kube.Election) { e.Duration = 3500 * time.Millisecond },
	} {
		e := election("x")
		change(&e)
		if _, err := client.Stand(t.Context(), e); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
	if l, err := client.Stand(t.Context(), kube.Election{Namespace: "nowhere", Name: "x", Identity: "x"}); err != nil {
		t.Error(err)
	} else {
		deadline := time.Now().Add(5 * time.Second)
		for l.Trouble() == nil && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
		if l.Held() || !kube.IsNotFound(l.Trouble()) {
			t.Errorf("in a namespace that is not there: held %v, %v", l.Held(), l.Trouble())
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
