package engine

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"polder/evict/act"
	"polder/lib/tick"
)

func TestFrozenUntilThaw(t *testing.T) {
	h, path := group(t)
	state := filepath.Join(t.TempDir(), "state.json")
	ticks := overcommit(path, "/none")
	p := startEvict(t, "--action", "freeze", "--state", state)
	at := 0
	p.put(ticks(at))
	for range 3 { // reported while it is frozen
		e := p.until(&at, ticks, "large", tick.StateSucceeded)
		if len(e.Evictions) != 1 || !strings.HasSuffix(e.Evictions[0].Message, "(frozen until evict --thaw)") {
			t.Errorf("evictions %+v", e.Evictions)
		}
	}
	if status := p.close(); status != 0 {
		t.Fatalf("exit status %d:\n%s", status, p.log)
	}
	frozen := func() string {
		file := "freezer.state"
		if h.Version("freezer") == 2 {
			file = "cgroup.freeze"
		}
		text, err := h.ReadFile("freezer", path, file)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if got := frozen(); got != "FROZEN" && got != "1" {
		t.Errorf("after evict's end the cgroup is %s", got)
	}
	for _, want := range []string{"thawed " + path + "\n", ""} { // once is enough
		var out bytes.Buffer
		status := command().Execute(t.Context(), stageEnv([]string{"evict", "--thaw", "--state", state}, nil, &out, io.Discard))
		if status != 0 || out.String() != want {
			t.Errorf("evict --thaw = %d, %q; want 0, %q", status, out.String(), want)
		}
	}
	if got := frozen(); got != "THAWED" && got != "0" {
		t.Errorf("after --thaw the cgroup is %s", got)
	}
}

// A run that was killed during a freeze leaves a pod of which it is unknown whether it is frozen. However long ago that is, the
// next run checks it, and so does evict --thaw.
func TestThawFindsTheFreezeOfAKilledRun(t *testing.T) {
	for _, tt := range []struct {
		name   string
		state  string // before
		frozen bool
		runs   bool // before --thaw
		want   string
	}{
		{"frozen", tick.StateRequested, true, true, tick.StateSucceeded},
		{"not started", tick.StateRequested, false, true, tick.StateFailed},
		{"no run before thaw", tick.StateRequested, true, false, ""},
		{"failed", tick.StateFailed, true, false, ""},
		{"a kill that froze it after its signal", tick.StateCreated, true, false, ""},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			h, path := group(t)
			if tt.frozen {
				if err := act.Freeze(t.Context(), h, path); err != nil {
					t.Fatal(err)
				}
			}
			state := filepath.Join(t.TempDir(), "state.json")
			text := fmt.Sprintf(`{"tool":"evict","version":1,"state":{"nodes":{"n":{"going":{"large":{"cgroup":%q,"requested":"2026-11-20T12:00:00Z",`+
				`"eviction":{"uid":"large","namespace":"default","name":"large","rule":"r","scope":"s","state":%q}}}}}}}`, path, tt.state)
			if err := os.WriteFile(state, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			frozen := func() bool {
				file, is := "freezer.state", "FROZEN"
				if h.Version("freezer") == 2 {
					file, is = "cgroup.freeze", "1"
				}
				text, err := h.ReadFile("freezer", path, file)
				if err != nil {
					t.Fatal(err)
				}
				return text == is
			}
			if tt.runs {
				p := startEvict(t, "--action", "freeze", "--state", state)
				ticks := func(at int) *tick.Tick { // no pod must be evicted
					x := overcommit(path, "/none")(at)
					x.Advice.Reclaimed.MilliCPU = new(int64(1e6))
					return x
				}
				at := 0
				p.until(&at, ticks, "large", tt.want)
				if status := p.close(); status != 0 {
					t.Fatalf("exit status %d:\n%s", status, p.log)
				}
			}
			if frozen() != tt.frozen {
				t.Errorf("frozen %t; want %t as before", !tt.frozen, tt.frozen)
			}
			var out bytes.Buffer
			status := command().Execute(t.Context(), stageEnv([]string{"evict", "--thaw", "--state", state}, nil, &out, io.Discard))
			if status != 0 || !strings.Contains(out.String(), "thawed "+path+"\n") && tt.frozen || frozen() {
				t.Errorf("evict --thaw = %d, %q, frozen %t", status, out.String(), frozen())
			}
		})
	}
}

// Without a state file nothing is frozen. What a file lists that cannot be used is unknown, and that is no success.
func TestThawNeedsAUsableState(t *testing.T) {
	for content, want := range map[string]int{
		"":                                      0,
		`{"tool":"evict","version":1,"state":{`: 1,
		`{"tool":"advise","version":1,"state":{}}`:  1,
		`{"tool":"evict","version":999,"state":{}}`: 1,
	} {
		path := filepath.Join(t.TempDir(), "state.json")
		if content != "" {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		status, _, log := runEvict(t, "", "--thaw", "--state", path)
		if status != want || want != 0 && !strings.Contains(log, "unknown which pods are frozen") {
			t.Errorf("state %s: evict --thaw = %d, want %d; log:\n%s", content, status, want, log)
		}
	}
}

// A run that freezes does not replace a state file that it cannot use: the list of the frozen pods would be lost, and they would stay so.
func TestFreezeKeepsAnUnusableState(t *testing.T) {
	const content = `{"tool":"evict","version":999,"state":{}}`
	for action, want := range map[string]int{"freeze": 2, "kill": 0} {
		path := filepath.Join(t.TempDir(), "state.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		status, _, log := runEvict(t, "", "--action", action, "--state", path)
		left, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		isKept, isNamed := string(left) == content, strings.Contains(log, "unknown which pods are frozen")
		if status != want || isKept != (want != 0) || isNamed != isKept {
			t.Errorf("--action %s = %d, the file is kept %t; want %d; log:\n%s", action, status, isKept, want, log)
		}
	}
}
