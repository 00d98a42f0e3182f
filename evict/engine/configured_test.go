package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"polder/lib/tick"
	"polder/tests/await"
)

func configTick(second int, config, rest string) string {
	if config != "" {
		config = `,"config":` + strings.NewReplacer("\n", "", "\t", "").Replace(config)
	}
	return fmt.Sprintf(`{"v":1,"node":"n","time":"2026-01-01T12:00:%02dZ","sample":{"intervalSeconds":1,"topology":{"cpus":"0-3"}%s%s,"pods":[`+
		`{"uid":"u","namespace":"default","name":"big","qos":"reclaimed","phase":"Running","requests":{"reclaimedMilliCPU":12000}}]},`+
		`"advice":{"policy":"katalyst","reclaimed":{"milliCPU":2000,"memoryBytes":1000000}}}`+"\n", second, config, rest)
}

// threshold is that of the reclaimed CPU in the section of each tick.
func thresholds(t *testing.T, out string) (list []string) {
	t.Helper()
	for line := range strings.Lines(out) {
		l, err := tick.ParseLine([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := l.Decode(tick.SectionEviction)
		if err != nil {
			t.Fatal(err)
		}
		text := "none"
		for _, p := range decoded.Eviction.Pressures {
			if p.Rule == "reclaimed-resource-pressure-eviction-plugin" && strings.HasSuffix(p.Scope, "reclaimed_millicpu") {
				text = fmt.Sprint(p.Threshold/2000, " ", p.Met)
			}
		}
		for _, e := range decoded.Eviction.Errors {
			if strings.Contains(e, "refused") || strings.Contains(e, "ignored") {
				text += " !"
			}
		}
		list = append(list, text)
	}
	return list
}

func ec(threshold string) string {
	return `{"katalyst":{"evictionConfiguration":{"namespace":"default","name":"default","config":{"evictionPluginsConfig":{"reclaimedResourcesEvictionPluginConfig":{"evictionThreshold":{"katalyst.kubewharf.io/reclaimed_millicpu":` + threshold + `}}}}}}}`
}

// A change applies from the tick that contains it; an invalid one leaves the last valid one in force; while collect does
// not know the configuration in force, the earlier one stays.
func TestConfigOfTheTick(t *testing.T) {
	const away = `,"errors":[{"source":"config","error":"the list of KatalystCustomConfigs is being read for the first time"}]`
	in := configTick(0, "", "") + configTick(1, ec("10"), "") + configTick(2, ec("0"), "") + configTick(3, ec("8"), "") + configTick(4, "", away) + configTick(5, "", "") +
		configTick(6, `{"katalyst":[]}`, "") + configTick(7, ec("9"), "") + configTick(8, `{"katalyst":[]}`, "") + configTick(9, "", away)
	status, out, log := runEvict(t, in, "--dry-run", "--state", filepath.Join(t.TempDir(), "state"))
	want := []string{"5 true", "10 false", "10 false !", "8 false", "8 false", "5 true", "5 true !", "9 false", "9 false !", "9 false !"}
	if got := thresholds(t, out); status != 0 || !slices.Equal(got, want) {
		t.Errorf("status %d: %q; want %q\n%s", status, got, want, log)
	}
	for text, times := range map[string]int{"settings changed": 4, "configuration refused": 3} {
		if got := strings.Count(log, text); got != times {
			t.Errorf("%q is in the log %d times; want %d: %s", text, got, times, log)
		}
	}
	if status, out, log := runEvict(t, in, "--dry-run", "--reclaimed-threshold", "7"); status != 0 || !slices.Equal(thresholds(t, out)[:2], []string{"7 false", "7 false"}) {
		t.Errorf("with a flag: %d, %q, %s", status, thresholds(t, out), log)
	}
}

const guideKind = `apiVersion: config.katalyst.kubewharf.io/v1alpha1
kind: KatalystCustomConfig
metadata: {name: eviction-configuration}
spec: {targetType: {group: config.katalyst.kubewharf.io, resource: evictionconfigurations, version: v1alpha1}}
---
apiVersion: config.katalyst.kubewharf.io/v1alpha1
kind: EvictionConfiguration
metadata: {name: default}
spec: {config: {evictionPluginsConfig: {reclaimedResourcesEvictionPluginConfig: {evictionThreshold: {katalyst.kubewharf.io/reclaimed_millicpu: %s}}}}}
`

// A file of objects may be mounted from a ConfigMap: its directory is swapped, an invalid file is rejected with the line,
// and either of the two forms may follow the other.
func TestReloadObjects(t *testing.T) {
	dir := t.TempDir()
	version := 0
	write := func(text string) {
		t.Helper()
		version++
		data := fmt.Sprintf("..%d", version)
		next := filepath.Join(dir, "..data_tmp")
		for _, err := range []error{
			os.Mkdir(filepath.Join(dir, data), 0o755), os.WriteFile(filepath.Join(dir, data, "evict.yaml"), []byte(text), 0o644),
			os.Symlink(data, next), os.Rename(next, filepath.Join(dir, "..data")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	write(fmt.Sprintf(guideKind, "10"))
	path := filepath.Join(dir, "evict.yaml")
	if err := os.Symlink(filepath.Join("..data", "evict.yaml"), path); err != nil {
		t.Fatal(err)
	}
	p := startEvict(t, "--dry-run", "--config", path)
	ticks := overcommit("/a", "/b")
	at := 0
	threshold := func() float64 { at++; return p.put(ticks(at)).Pressures[0].Threshold }
	wait := func(what string, done func() bool) {
		t.Helper()
		await.Until(t, waitTimeout, what, await.Is(done))
	}
	if got := threshold(); got != 40000 {
		t.Fatalf("threshold %v; want 40000", got)
	}
	write(fmt.Sprintf(guideKind, "-2"))
	wait("refused with its line", func() bool { return strings.Contains(p.log.String(), path+":9: default/default: config.") })
	if got := threshold(); got != 40000 {
		t.Errorf("threshold after a bad file %v; want the old one", got)
	}
	write(fmt.Sprintf(guideKind, "3"))
	wait("the new threshold", func() bool { return threshold() == 12000 })
	write("reclaimed-threshold: 2\n")
	wait("a file of flags", func() bool { return threshold() == 8000 })
	write(fmt.Sprintf(guideKind, "4"))
	wait("objects again", func() bool { return threshold() == 16000 })
	p.close()
}

// The last valid object survives a restart of evict.
func TestLastValidConfigIsKept(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	if status, _, log := runEvict(t, configTick(0, ec("10"), ""), "--state", state, "--max-age", "1000000h", "--node", "n"); status != 0 {
		t.Fatal(log)
	}
	data, err := os.ReadFile(state)
	if err != nil || !strings.Contains(string(data), "evictionThreshold") {
		t.Fatalf("state %s, %v", data, err)
	}
	for what, in := range map[string]string{
		"a bad one":                        configTick(1, ec("-4"), ""),
		"not in collect's format":          configTick(1, `{"katalyst":{"evictionConfiguration":5}}`, ""),
		"no sample, and then nothing read": `{"v":1,"node":"n","time":"2026-01-01T12:00:01Z"}` + "\n" + configTick(2, "", `,"errors":[{"source":"config","error":"x"}]`),
		"nothing read":                     configTick(1, "", `,"errors":[{"source":"config","error":"x"}]`),
		"only Koordinator's":               configTick(1, `{"koordinator":{}}`, `,"errors":[{"source":"config","error":"x"}]`),
	} {
		_, out, log := runEvict(t, in, "--state", state, "--max-age", "1000000h", "--node", "n")
		if got := thresholds(t, out); len(got) == 0 || !strings.HasPrefix(got[len(got)-1], "10 ") {
			t.Errorf("%s: %q; want 10: %s", what, got, log)
		}
	}
	// A deleted object is no longer in force, whatever is wrong with the other dialect's.
	_, out, log := runEvict(t, configTick(1, `{"katalyst":{},"koordinator":{}}`, `,"errors":[{"source":"config","error":"x"}]`), "--state", state, "--max-age", "1000000h", "--node", "n")
	if got := thresholds(t, out); len(got) != 1 || strings.HasPrefix(got[0], "10 ") {
		t.Errorf("known to be absent: %q; want the default: %s", got, log)
	}
}

// Until the cluster's configuration was read for the first time, it may disable a rule: every rule is in dry run, for at most a
// minute.
func TestConfigNotReadYet(t *testing.T) {
	const reading = `,"errors":[{"source":"config","error":"the list of KatalystCustomConfigs is being read for the first time"}]`
	at := func(second int, config, rest string) string {
		return strings.Replace(configTick(0, config, rest), "12:00:00Z", fmt.Sprintf("12:%02d:%02dZ", second/60, second%60), 1)
	}
	known := ec("5")
	for _, tt := range []struct {
		name     string
		before   string // an earlier run's tick, with the same state
		ticks    []string
		inDryRun []bool
	}{
		{"no cluster", "", []string{at(0, "", "")}, []bool{false}},
		{"read at once", "", []string{at(0, known, ""), at(1, "", reading)}, []bool{false, false}},
		{"read at once, and there is none", "", []string{at(0, "", ""), at(1, "", reading)}, []bool{false, false}},
		{"read after some seconds", "", []string{at(0, "", reading), at(9, "", reading), at(10, known, ""), at(11, "", reading)}, []bool{true, true, false, false}},
		{"read in part", "", []string{at(0, "", reading), at(1, known, reading)}, []bool{true, false}},
		{"never read", "", []string{at(0, "", reading), at(59, "", reading), at(60, "", reading), at(61, "", reading)}, []bool{true, true, false, false}},
		{"only Koordinator's", "", []string{at(0, `{"koordinator":{}}`, reading), at(1, `{"katalyst":{},"koordinator":{}}`, reading)}, []bool{true, false}},
		{"another source", "", []string{at(0, "", strings.Replace(reading, `"config"`, `"pods"`, 1))}, []bool{false}},
		{"never read by an earlier run either", at(0, "", reading), []string{at(59, "", reading), at(60, "", reading)}, []bool{true, false}},
		{"read by an earlier run", at(0, known, ""), []string{at(60, "", reading)}, []bool{false}},
		{"the clock set back", "", []string{at(600, "", reading), at(0, "", reading), at(60, "", reading)}, []bool{true, true, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"--state", filepath.Join(t.TempDir(), "state"), "--max-age", "1000000h", "--node", "n"}
			if tt.before != "" {
				if status, _, log := runEvict(t, tt.before, args...); status != 0 {
					t.Fatal(log)
				}
			}
			status, out, log := runEvict(t, strings.Join(tt.ticks, ""), args...)
			if status != 0 || strings.Count(out, "\n") != len(tt.inDryRun) {
				t.Fatalf("status %d, %s, %s", status, out, log)
			}
			i := 0
			for line := range strings.Lines(out) {
				if dry := strings.Contains(line, `"dryRun":true`); dry != tt.inDryRun[i] || dry != strings.Contains(line, "configuration of this node is not read yet") {
					t.Errorf("tick %d: dry run %t; want %t, and the reason: %s", i, dry, tt.inDryRun[i], line)
				}
				i++
			}
			want := map[string]bool{"is not read yet": tt.inDryRun[0], "the dry run of the start has ended": tt.inDryRun[0] && !tt.inDryRun[len(tt.inDryRun)-1]}
			for text, logged := range want {
				if got := strings.Count(log, text); got > 1 || logged != (got == 1) {
					t.Errorf("%q is in the log %d times; want it once: %t: %s", text, got, logged, log)
				}
			}
		})
	}
}

// A node keeps Katalyst's objects of a file that its labels select while the Node object is unknown, as after a restart of collect without
// the API server. For Koordinator's that is in TestStrategiesOfFile.
func TestObjectsOfALabelledNodeStayWhileItIsUnread(t *testing.T) {
	const unread = `,"errors":[{"source":"node","error":"no answer"}]`
	const labelled = `,"labels":{"pool":"gpu"}`
	selected := filepath.Join(t.TempDir(), "evict.yaml")
	const keys = "nodeLabelSelectorAllowedKeyList: [{priority: 1, keyList: [pool]}]"
	text := strings.Replace(fmt.Sprintf(guideKind, "10"), "spec: {targetType:", "spec: {"+keys+", targetType:", 1) +
		"---\n" + strings.Replace(strings.Split(fmt.Sprintf(guideKind, "20"), "---\n")[1], "metadata: {name: default}\nspec: {",
		"metadata: {name: gpu}\nspec: {nodeLabelSelector: pool=gpu, priority: 1, ", 1)
	if err := os.WriteFile(selected, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	in := ""
	for i, rest := range []string{unread, labelled, unread, "", unread} {
		in += configTick(i, "", rest)
	}
	status, out, log := runEvict(t, in, "--dry-run", "--config", selected)
	want := []string{"10 false", "20 false", "20 false", "10 false", "10 false"}
	if got := thresholds(t, out); status != 0 || !slices.Equal(got, want) {
		t.Errorf("status %d: %q; want %q\n%s", status, got, want, log)
	}
}

// A stream of ever new node names does not let the state grow without a bound.
func TestNodesAreBounded(t *testing.T) {
	e := &engine{nodes: map[string]*node{}}
	for i := range tick.MaxNodes + 2 {
		e.node(fmt.Sprint(i))
	}
	if len(e.nodes) != tick.MaxNodes {
		t.Errorf("%d nodes are remembered; want %d", len(e.nodes), tick.MaxNodes)
	}
}
