package fleet

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"polder/evict/act/acttest"
	"polder/lib/tick"
)

// The next leader requests an eviction of an earlier run again only if it decides so itself: the agent may be back, and the pod may be
// protected now.
func TestRestartDecidesAgain(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*tick.Sample)
		want   []string
		state  string
	}{
		{"the agent is still away", func(*tick.Sample) {}, []string{"POST /api/v1/namespaces/d/pods/p/eviction"}, tick.StateRequested},
		{"the agent is back", func(s *tick.Sample) { s.Agent.State = tick.AgentReady }, nil, tick.StateFailed},
		{"the pod is protected", func(s *tick.Sample) {
			s.Pods[0].Annotations = map[string]string{"polder/evict": "false"}
		}, nil, tick.StateFailed},
		{"the pod terminates", func(s *tick.Sample) { s.Pods[0].Terminating = true }, nil, tick.StateCreated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := acttest.Start(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					acttest.NotFound(w, r)
				} else {
					acttest.Accept(w)
				}
			})
			state := filepath.Join(t.TempDir(), "state.json")
			text := `{"tool":"evict-fleet","version":1,"state":{"nodes":{"n":{"going":{"u":{"requested":"2026-11-21T11:59:59Z",` +
				`"eviction":{"uid":"u","namespace":"d","name":"p","rule":"agent-health","scope":"AgentReady","state":"requested"}}}}}}}`
			if err := os.WriteFile(state, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			x := &tick.Tick{V: 1, Node: "n", Time: noon, Sample: &tick.Sample{
				Agent: &tick.Agent{State: tick.AgentNotReady, Since: noon.Add(-time.Hour).Format(time.RFC3339)},
				Fleet: &tick.Fleet{Nodes: 9, Ready: 8, NotReady: 1},
				Pods:  []tick.Pod{{UID: "u", Namespace: "d", Name: "p", QoS: tick.QoSReclaimed}},
			}}
			tt.change(x.Sample)
			line, err := tick.Marshal(x)
			if err != nil {
				t.Fatal(err)
			}
			status, out, log := run(t, string(line)+"\n", "--action", "evict", "--kubeconfig", server.Kubeconfig, "--state", state, "--max-age", "0")
			if status != 0 {
				t.Fatalf("status %d:\n%s", status, log)
			}
			evictions := section(t, out).eviction.Evictions
			if len(evictions) == 0 || evictions[len(evictions)-1].State != tt.state {
				t.Errorf("evictions %+v; want the last one %s", evictions, tt.state)
			}
			if got := server.Changes(); !slices.Equal(got, tt.want) {
				t.Errorf("requests %q; want %q", got, tt.want)
			}
		})
	}
}
