package engine

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/evict/act"
	"polder/evict/act/acttest"
	"polder/lib/tick"
)

// podsGone is an API server that accepts all evictions and deletions of pods, which then no longer exist.
func podsGone(t *testing.T) *acttest.Server {
	t.Helper()
	return acttest.Start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			acttest.NotFound(w, r)
		} else {
			acttest.Accept(w)
		}
	})
}

// startAfter starts evict with the state of an earlier run, which was evicting the pod "large" in this way a second before noon.
func startAfter(t *testing.T, ongoing string, args ...string) *pipe {
	t.Helper()
	state := filepath.Join(t.TempDir(), "state.json")
	text := fmt.Sprintf(`{"tool":"evict","version":1,"state":{"nodes":{"n":{"going":{"large":{"requested":"2026-11-21T11:59:59Z",`+
		`"eviction":{"uid":"large","namespace":"default","name":"large","rule":"r","scope":"s","gracePeriodSeconds":60,%s}}}}}}`, ongoing)
	if err := os.WriteFile(state, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return startEvict(t, append([]string{"--rules", reclaimedRule, "--state", state}, args...)...)
}

// A run that ended before the API server's answer leaves an eviction that may have been requested or not. The next run requests it only
// if it decides so itself: the need may be over, and the pod may be protected now.
func TestRestartDecidesAgain(t *testing.T) {
	first := func(change func(*tick.Tick)) func(int) *tick.Tick {
		return func(at int) *tick.Tick {
			x := overcommit("", "")(at)
			x.Sample.Pods = x.Sample.Pods[:1] // only "large": no other pod can be evicted
			x.Advice.Reclaimed.MilliCPU = new(int64(1000))
			change(x)
			return x
		}
	}
	for _, tt := range []struct {
		name   string
		args   []string
		change func(*tick.Tick)
		want   bool   // it is requested again
		states string // those reported at the first tick
	}{
		{"the need lasts", nil, func(*tick.Tick) {}, true, tick.StateFailed + " " + tick.StateRequested},
		{"the need is over", nil, func(x *tick.Tick) { x.Advice.Reclaimed.MilliCPU = new(int64(1e6)) }, false, tick.StateFailed},
		{"the pod is protected", nil, func(x *tick.Tick) {
			x.Sample.Pods[0].Annotations = map[string]string{"polder/evict": "false"}
		}, false, tick.StateFailed},
		{"the rule is in dry run", []string{"--dry-run-rules", "*"}, func(*tick.Tick) {}, false, tick.StateFailed + " " + tick.StateWouldEvict},
		{"the pod terminates", nil, func(x *tick.Tick) { x.Sample.Pods[0].Terminating = true }, false, "created"},
		{"the pod is gone", nil, func(x *tick.Tick) { x.Sample.Pods = nil }, false, "succeeded"},
	} {
		for action, request := range map[string]string{
			"evict":  "POST /api/v1/namespaces/default/pods/large/eviction",
			"delete": "DELETE /api/v1/namespaces/default/pods/large",
		} {
			t.Run(strings.ReplaceAll(tt.name+" "+action, " ", "-"), func(t *testing.T) {
				server := podsGone(t)
				p := startAfter(t, `"state":"requested"}`, append([]string{"--action", action, "--kubeconfig", server.Kubeconfig}, tt.args...)...)
				var reported []string
				for _, x := range p.put(first(tt.change)(0)).Evictions {
					reported = append(reported, x.State)
				}
				if got := strings.Join(reported, " "); got != tt.states {
					t.Errorf("at the first tick it is %s; want %s", got, tt.states)
				}
				if status := p.close(); status != 0 { // waits for the orders
					t.Fatalf("exit status %d:\n%s", status, p.log)
				}
				var want []string
				if tt.want {
					want = []string{request}
				}
				if got := server.Changes(); !slices.Equal(got, want) {
					t.Errorf("requests %q; want %q", got, want)
				}
			})
		}
	}
}

// Until the pod of an earlier run has an answer it is requested before others, so that one need does not evict two pods.
func TestRestartRequestsTheSamePodFirst(t *testing.T) {
	server := podsGone(t)
	p := startAfter(t, `"state":"requested"}`, "--action", "evict", "--kubeconfig", server.Kubeconfig)
	x := overcommit("", "")(0)
	x.Sample.Pods[0].Requests.ReclaimedMilliCPU = new(10000.0)
	x.Sample.Pods[1].Requests.ReclaimedMilliCPU = new(15000.0) // the other one is the better victim
	p.put(x)
	p.close()
	if want, got := []string{"POST /api/v1/namespaces/default/pods/large/eviction"}, server.Changes(); !slices.Equal(got, want) {
		t.Errorf("requests %q; want %q", got, want)
	}
}

// The server accepted an eviction and its answer was lost: that it is done is known when the pod terminates. The server knows
// the pod's grace period, so evict waits for it there.
func TestLostAnswerIsReportedAsDone(t *testing.T) {
	server := podsGone(t)
	p := startAfter(t, `"state":"failed","error":"no answer"},"spared":"2026-11-21T12:00:00Z","unanswered":true`,
		"--action", "evict", "--kubeconfig", server.Kubeconfig)
	terminating := func(at int) *tick.Tick {
		x := overcommit("", "")(at)
		x.Sample.Pods[0].Terminating = true
		return x
	}
	e := p.put(terminating(0))
	i := slices.IndexFunc(e.Evictions, func(x tick.PodEviction) bool { return x.UID == "large" })
	if i < 0 || e.Evictions[i].State != tick.StateCreated || e.Evictions[i].Error != "" {
		t.Fatalf("evictions %+v; want large to be created", e.Evictions)
	}
	at := 0
	p.until(&at, terminating, "large", tick.StateSucceeded)
	p.close()
	if got := server.Changes(); len(got) > 0 {
		t.Errorf("requests %q; want none", got)
	}
}

// SIGTERM is not sent for a decision of an earlier run, of which it is unknown whether that run sent it.
func TestRestartKillsOnlyWithNeed(t *testing.T) {
	h, path := group(t)
	state := filepath.Join(t.TempDir(), "state.json")
	args := []string{"--action", "kill", "--reclaimed-grace-period", "1h", "--state", state}
	p := startEvict(t, args...)
	at := 0
	p.put(overcommit(path, "/none")(at))
	p.until(&at, overcommit(path, "/none"), "large", tick.StateCreated)
	p.stop()
	<-p.end
	replaceInFile(t, state, `"state":"created"`, `"state":"requested"`)
	at += int(time.Hour / tickEvery)
	p = startEvict(t, args...)
	if got := states(p.put(enough(overcommit(path, "/none"))(at)))["large"]; got != tick.StateFailed {
		t.Errorf("without need it is %s; want %s", got, tick.StateFailed)
	}
	p.close()
	if empty(t, h, path) {
		t.Error("it was killed without need")
	}
}

// A freeze that an earlier run only requested a moment ago is not begun without need.
func TestRestartFreezesOnlyWithNeed(t *testing.T) {
	h, path := group(t)
	p := startAfter(t, fmt.Sprintf(`"state":"requested"},"cgroup":%q`, path), "--action", "freeze")
	at := 0
	p.until(&at, enough(overcommit(path, "/none")), "large", tick.StateFailed)
	p.close()
	if frozen, err := act.Frozen(h, path); err != nil || frozen {
		t.Errorf("frozen %t, %v without need", frozen, err)
	}
}

func replaceInFile(t *testing.T, path, from, to string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), from) {
		t.Fatalf("%s has no %s: %s", path, from, data)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(data), from, to)), 0o600); err != nil {
		t.Fatal(err)
	}
}
