package fleet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/lib/stage"
	"polder/lib/tick"
	"polder/lib/tick/ticktest"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// run runs the subcommand once.
func run(t *testing.T, in string, args ...string) (status int, out, log string) {
	t.Helper()
	var stdout, stderr strings.Builder
	status = Command().Execute(t.Context(), stage.Env{
		Args: append([]string{"evict fleet"}, args...), In: strings.NewReader(in), Out: &stdout, Err: &stderr,
		Getenv: func(string) string { return "" }, Now: func() time.Time { return noon },
	})
	return status, stdout.String(), stderr.String()
}

// FuzzFleet gives the fleet controller arbitrary samples, with an arbitrary earlier state: the output follows the contract, and no pod is
// evicted that is not a reclaimed pod of the sample, or whose node's agent is not known to be away for long enough.
func FuzzFleet(f *testing.F) {
	const agent = `"agent":{"state":"notReady","since":"2026-11-21T11:00:00Z"},"fleet":{"nodes":9,"ready":8,"notReady":1}`
	const pod = `{"uid":"u","namespace":"n","name":"p","qos":"reclaimed"}`
	for _, before := range []string{
		`{}`, `{"nodes":{"n":null},"fleet":{"nodes":{"n":null},"next":"9999-01-01T00:00:00Z"}}`,
		`{"nodes":{"n":{"going":{"u":{"eviction":{"uid":"u","state":"requested"},"requested":"2026-11-21T11:59:59Z"}}}},"fleet":{"next":"0000-01-01T00:00:00Z","nodes":{"n":{"tainted":true,"waits":true,"until":"9999-12-31T23:59:59Z"},"m":{"waits":true,"until":"2030-01-01T00:00:00Z"}}}}`,
	} {
		for _, seed := range []string{
			`{` + agent + `,"pods":[` + pod + `,` + pod + `]}`, `{"intervalSeconds":1e300,` + agent + `,"pods":[` + pod + `]}`, `{"intervalSeconds":-1,` + agent + `}`,
			`{"agent":{"state":"notFound","since":"0000-01-01T00:00:00+23:59"},"fleet":{"nodes":9223372036854775807,"ready":9223372036854775806,"notReady":1},"pods":[` + pod + `]}`,
			`{"agent":{"state":"ready","since":"9999-12-31T23:59:59-23:59"},"fleet":{"nodes":-9223372036854775808,"ready":1,"notReady":-1}}`,
			`{"agent":{"state":""},"pods":[` + pod + `]}`, `{"agent":{"state":"notReady"},"fleet":{"nodes":1,"ready":0,"notReady":1}}`, `{}`, `null`,
		} {
			f.Add(seed, before)
		}
	}
	state := filepath.Join(f.TempDir(), "state.json")
	f.Fuzz(func(t *testing.T, sample, before string) {
		if err := os.WriteFile(state, []byte(`{"tool":"evict-fleet","version":1,"state":`+before+`}`), 0o600); err != nil {
			t.Fatal(err)
		}
		line := `{"v":1,"node":"n","time":"2026-11-21T12:00:00Z","sample":` + sample + `}`
		parsed, err := tick.ParseLine([]byte(line))
		if err != nil || strings.ContainsAny(line, "\n\r") {
			return
		}
		in, err := parsed.Decode(tick.SectionSample)
		if err != nil {
			return
		}
		status, out, log := run(t, line+"\n"+line+"\n", "--state", state)
		if status != 0 {
			t.Fatalf("status %d: %s", status, log)
		}
		var text string
		for one := range strings.Lines(out) {
			x := section(t, one)
			text, err = string(x.raw), nil
			if ticktest.Validate([]byte(line)) == nil { // other programs' output may violate it
				err = ticktest.Validate([]byte(one))
			}
			if err != nil {
				t.Errorf("the contract: %v: %s", err, text)
			}
			for _, e := range x.eviction.Evictions {
				if e.State == tick.StateWouldEvict {
					mayEvict(t, in.Sample, e)
				}
			}
		}
	})
}

type evicted struct {
	raw      []byte
	eviction *tick.Eviction
}

func section(t *testing.T, line string) evicted {
	t.Helper()
	parsed, err := tick.ParseLine([]byte(strings.TrimSpace(line)))
	if err != nil {
		t.Fatalf("output: %v: %s", err, line)
	}
	x, err := parsed.Decode(tick.SectionEviction)
	if err != nil {
		t.Fatalf("eviction of %q: %v", line, err)
	}
	return evicted{parsed.Section(tick.SectionEviction), x.Eviction}
}

// mayEvict fails if a pod is named that may not be evicted according to the sample.
func mayEvict(t *testing.T, s *tick.Sample, e tick.PodEviction) {
	t.Helper()
	since, err := time.Parse(time.RFC3339, s.Agent.Since)
	if err != nil || noon.Sub(since) < 20*time.Minute || s.Agent.State != tick.AgentNotReady && s.Agent.State != tick.AgentNotFound {
		t.Errorf("%+v would be evicted although the agent is %+v", e, s.Agent)
	}
	for i := range s.Pods {
		if p := &s.Pods[i]; p.UID == e.UID && p.QoS == tick.QoSReclaimed && !p.Terminating && !p.Static {
			return
		}
	}
	t.Errorf("%+v would be evicted, and is no reclaimed pod of the sample", e)
}

// The turns survive a restart: a second process does not start over.
func TestFleetKeepsTurnsAfterARestart(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state.json")
	line := func(node string, second int) string {
		x := &tick.Tick{V: 1, Node: node, Time: noon.Add(time.Duration(second) * time.Second), Sample: &tick.Sample{
			Agent: &tick.Agent{State: tick.AgentNotReady, Since: noon.Add(-time.Hour).Format(time.RFC3339)},
			Fleet: &tick.Fleet{Nodes: 9, Ready: 7, NotReady: 2},
			Pods:  []tick.Pod{{UID: "u-" + node, Namespace: "n", Name: "pod", QoS: tick.QoSReclaimed}},
		}}
		b, err := tick.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		return string(b) + "\n"
	}
	for _, tt := range []struct {
		node   string
		second int
		want   bool
	}{{"a", 0, true}, {"b", 5, false}, {"b", 9, false}, {"b", 10, true}} {
		status, out, log := run(t, line(tt.node, tt.second), "--state", state, "--max-age", "0")
		if got := strings.Contains(out, tick.StateWouldEvict); status != 0 || got != tt.want {
			t.Errorf("node %s after %d s: status %d, a pod is evicted: %v; want %v\n%s", tt.node, tt.second, status, got, tt.want, log)
		}
	}
}

// The state does not grow as nodes come and go.
func TestFleetDropsOldNodes(t *testing.T) {
	var in strings.Builder
	for i := range 30 {
		x := &tick.Tick{V: 1, Node: string(rune('a' + i)), Time: noon.Add(time.Duration(i) * 20 * time.Minute), Sample: &tick.Sample{
			Agent: &tick.Agent{State: tick.AgentReady, Since: noon.Format(time.RFC3339)}, Fleet: &tick.Fleet{Nodes: 1, Ready: 1},
		}}
		b, err := tick.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		in.WriteString(string(b) + "\n")
	}
	state := filepath.Join(t.TempDir(), "state.json")
	if status, _, log := run(t, in.String(), "--state", state, "--max-age", "0"); status != 0 {
		t.Fatal(log)
	}
	data, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), `":{`); n > 12 {
		t.Errorf("%d entries of removed nodes are left: %s", n, data)
	}
}
