package engine

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"polder/lib/stage"
	"polder/lib/tick"
	"polder/lib/tick/ticktest"
)

// runEvict runs the tool once.
func runEvict(t *testing.T, in string, args ...string) (status int, out, log string) {
	t.Helper()
	var stdout, stderr strings.Builder
	status = command().Execute(t.Context(), stage.Env{
		Args: append([]string{"evict"}, args...), In: strings.NewReader(in), Out: &stdout, Err: &stderr,
		Getenv: func(string) string { return "" }, Now: func() time.Time { return noon },
	})
	return status, stdout.String(), stderr.String()
}

// Whatever a configuration file contains, it is rejected with its name or results in settings with which rules can measure.
func FuzzConfig(f *testing.F) {
	for _, seed := range []string{
		"", "rules: [reclaimed-resource-pressure-eviction-plugin]\nreclaimed-threshold: 10\nload-sync-period: 15s\n", "burst: -1\nopt-out: [a=b]\n", "burst: -2",
		"reclaimed-threshold: .nan", "load-threshold-met-percentage: 2", "load-metric-ring-size: 1e9", "load-sync-period: 9223372036854775807ns", "a: &a [*a]", "rules: {}", "- 1", "\x00", "burst: 1\nburst: 2",
		"apiVersion: config.katalyst.kubewharf.io/v1alpha1\nkind: KatalystCustomConfig\nmetadata: {name: x}\nspec: {targetType: {group: config.katalyst.kubewharf.io, resource: evictionconfigurations, version: v1alpha1}}\n---\n" +
			"apiVersion: config.katalyst.kubewharf.io/v1alpha1\nkind: EvictionConfiguration\nmetadata: {name: default}\nspec: {config: {evictionPluginsConfig: {memoryEvictionPluginConfig: {systemKswapdRateExceedTimesThreshold: 1}}}}\n",
		plainConfig, plainConfig + "---\n" + plainConfig, strings.ReplaceAll(plainConfig, "60", "1e99"), "kind: ConfigMap\napiVersion: v1\ndata: {resource-threshold-config: '{'}\n",
		"dry-run-rules: ['*']\nper-rule: -1\n", "dry-run-rules: [x]", "per-rule: -2", "per-hour: 0\nper-namespace: 0", "per-hour: 1e99",
	} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "evict.yaml")
	one, err := tick.Marshal(overcommit("/polder-none/a", "/polder-none/b")(0))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		status, out, log := runEvict(t, string(one)+"\n", "--config", path, "--dry-run")
		switch {
		case status == 2 && !strings.Contains(log, path):
			t.Errorf("refused without the file's name: %s", log)
		case status == 0:
			if err := ticktest.ValidateAll([]byte(out)); err != nil || out == "" {
				t.Errorf("output %q breaks the contract: %v", out, err)
			}
		case status != 2:
			t.Errorf("status %d: %s", status, log)
		}
	})
}

// FuzzTick measures arbitrary samples, with an arbitrary earlier state: the output follows the contract, and only pods of
// the sample are named.
func FuzzTick(f *testing.F) {
	every, err := os.ReadFile("../settings/testdata/every.json")
	if err != nil {
		f.Fatal(err)
	}
	const pod = `{"uid":"u","name":"p","qos":"reclaimed","cgroup":"/x","requests":{"reclaimedMilliCPU":1e9}}`
	for _, seed := range []string{
		`{"topology":{"cpus":"0-7"},"pods":[` + pod + `]}`, `{"topology":{"cpus":"0-8191"},"pods":[{"qos":"shared","load1":1e308},{"qos":"shared","containers":[{"load1":-1}]}]}`,
		`{"errors":[{"source":"pods"}],"pods":[{"uid":"u","annotations":{"polder/evict":"false"}}]}`, `{}`, `null`, `{"pods":null}`,
	} {
		f.Add(seed, `{"policy":"x","reclaimed":{"milliCPU":1},"pools":[{"name":"share","cpus":"0-1"}]}`, `{"nodes":{"n":{"going":{"u":{"eviction":{"uid":"u","state":"created"},"requested":"2026-01-01T00:00:00Z"}}}}}`)
	}
	f.Add(`{"pods":[]}`, `{"policy":"x","reclaimed":{"milliCPU":-9223372036854775808}}`, `{"nodes":{"n":null,"m":{"taints":{"a":"2026-01-01T00:00:00Z"},"cooldowns":{"x":null},"going":{"u":null}}}}`)
	f.Add(`{}`, `{"policy":"x"}`, `{"nodes":{"n":{"taints":{"a":"9999-01-01T00:00:00Z","":"2026-11-21T12:00:00Z","b:NoSchedule":"2026-11-21T12:00:00Z"}}}}`)
	f.Add(`{"pods":[`+pod+`,`+pod+`]}`, `{"policy":"x","reclaimed":{"milliCPU":1}}`, `{"nodes":{"n":{"hour":[{"at":"9999-01-01T00:00:00Z","uid":"u"}],"queue":{"u":"9999-01-01T00:00:00Z"},"steady":{"start":"9999-01-01T00:00:00Z"},"going":{"u":{"unanswered":true,"spared":"2026-01-01T00:00:00Z","rules":["x"]}}}}}`)
	f.Add(`{"intervalSeconds":1e300,"pods":[{"uid":"u","name":"\u001b[2J","qos":"reclaimed","priority":-9223372036854775808,"requests":{"reclaimedMilliCPU":1e308}}]}`, `{"policy":"x","reclaimed":{"milliCPU":1}}`, `{"nodes":{"n":{"hour":[{}],"going":{"":null}}}}`)
	f.Add(`{"config":`+strings.NewReplacer("\n", "", "\t", "").Replace(string(every))+`,"errors":[{"source":"config","error":"x"}]}`, `{"policy":"x"}`, `{"nodes":{"n":{"config":{"evictionConfiguration":null,"x":{"config":5},"file adminQoSConfiguration":{"name":"a"}}}}}`)
	f.Add(`{"intervalSeconds":5,"config":`+string(configOf(all))+`,"cpu":{"usageMilliCPU":9e3},"memory":{"totalBytes":100,"availableBytes":1},"capacity":{"milliCPU":1e4,"memoryBytes":100},"allocatable":{"reclaimedMilliCPU":1,"reclaimedMemoryBytes":1},`+
		`"tiers":[{"name":"besteffort","cgroup":"/b","cpusetCPUs":"0-1","usageMilliCPU":2000}],"pods":[{"uid":"u","namespace":"d","name":"\u202e","qos":"reclaimed","labels":{"koordinator.sh/qosClass":"BE","koordinator.sh/eviction-enabled":"true"},`+
		`"requests":{"reclaimedMilliCPU":1e5,"reclaimedMemoryBytes":50},"usageMilliCPU":1e3,"memory":{"rssBytes":40}}]}`, `{"policy":"koordinator"}`,
		`{"nodes":{"n":{"rules":{"BECPUEvict":{"watched":{"start":"2026-11-21T11:59:00Z","last":"2026-11-21T11:59:55Z"},"policy":"evictByRealLimit"},"CPUEvict":{"usage":{"points":null}},"MemoryAllocatableEvict":{"over":{"memory":null}}},"cooldowns":{"koordinator cpu":{"last":"9999-01-01T00:00:00Z"}}}}}`)
	state := filepath.Join(f.TempDir(), "state.json")
	f.Fuzz(func(t *testing.T, sample, advice, before string) {
		if err := os.WriteFile(state, []byte(`{"tool":"evict","version":1,"state":`+before+`}`), 0o600); err != nil {
			t.Fatal(err)
		}
		line := `{"v":1,"node":"n","time":"2026-11-21T12:00:00Z","sample":` + sample + `,"advice":` + advice + `}`
		parsed, err := tick.ParseLine([]byte(line))
		if err != nil || strings.ContainsAny(line, "\n\r") {
			return
		}
		if _, err := parsed.Decode(tick.SectionSample, tick.SectionAdvice); err != nil {
			return
		}
		status, out, log := runEvict(t, line+"\n"+line+"\n", "--state", state, "--node", "n")
		if status != 0 {
			t.Fatalf("status %d: %s", status, log)
		}
		for one := range strings.Lines(out) {
			back, err := tick.ParseLine([]byte(strings.TrimSpace(one)))
			if err != nil {
				t.Fatalf("output: %v: %s", err, one)
			}
			x, err := back.Decode(tick.SectionEviction)
			if err != nil {
				t.Fatalf("eviction of %q: %v", one, err)
			}
			for _, p := range x.Eviction.Pressures {
				if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) {
					t.Errorf("pressure %+v", p)
				}
			}
			for _, p := range x.Eviction.Evictions {
				if p.State == tick.StateWouldEvict && !strings.Contains(sample, p.UID) && !strings.Contains(sample, `\`) {
					t.Errorf("%+v would be evicted but is not in the sample", p)
				}
			}
		}
		status, out, log = runEvict(t, line+"\n", "--explain", "--state", state)
		if status != 0 || !strings.HasPrefix(out, "NODE n  2026-11-21T12:00:00Z\n") {
			t.Fatalf("--explain: status %d, %q: %s", status, out, log)
		}
		if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("--explain prints %q", out[i:min(i+8, len(out))])
		}
	})
}
