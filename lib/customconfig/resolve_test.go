package customconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var (
	made = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	kcc  = `{"metadata":{"namespace":"sys","name":"kcc"},"spec":{"targetType":{"group":"config.katalyst.kubewharf.io","version":"v1alpha1","resource":"adminqosconfigurations"},
		"nodeLabelSelectorAllowedKeyList":[{"priority":0,"keyList":["zone","pool"]},{"priority":5,"keyList":["pool"]}]}}`
)

func decoded(t testing.TB, data string) Object {
	t.Helper()
	var o Object
	if err := json.Unmarshal([]byte(data), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// candidate is an object with the given fields in its spec.
func candidate(t testing.TB, name, spec string) *Candidate {
	t.Helper()
	return CandidateOf(AdminQoS, decoded(t, fmt.Sprintf(`{"metadata":{"namespace":"sys","name":%q,"creationTimestamp":%q},"spec":{%s"config":{"from":%q}}}`, name, made.Format(time.RFC3339), spec, name)))
}

// inForce returns the object in force of one kind on node n1, where last was in force before.
func inForce(in Configs, kind Kind, labels map[string]string, last *Chosen, now time.Time) (*Chosen, time.Time, error) {
	chosen, next, errs := in.InForce("n1", labels, map[string]*Chosen{kind.Key: last}, now)
	return chosen[kind.Key], next, errors.Join(errs...)
}

func TestResolve(t *testing.T) {
	const (
		global = ""
		poolA  = `"nodeLabelSelector":"pool=a",`
		poolA5 = `"nodeLabelSelector":"pool=a","priority":5,`
		zoneX  = `"nodeLabelSelector":"zone=x",`
		named  = `"ephemeralSelector":{"nodeNames":["n1","n2"],"lastDuration":"1h"},`
	)
	for name, c := range map[string]struct {
		specs map[string]string
		after time.Duration
		want  string // the object's name; empty: none, "last": the previous one
		err   string
		next  time.Duration
	}{
		"nothing":                    {nil, 0, "", "", 0},
		"for all nodes":              {map[string]string{"g": global}, 0, "g", "", 0},
		"a label before all nodes":   {map[string]string{"g": global, "a": poolA}, 0, "a", "", 0},
		"another node's label":       {map[string]string{"g": global, "b": `"nodeLabelSelector":"pool=b",`}, 0, "g", "", 0},
		"other nodes' alone":         {map[string]string{"b": `"nodeLabelSelector":"pool in (b,c)",`}, 0, "", "", 0},
		"the higher priority":        {map[string]string{"a": `"nodeLabelSelector":"zone=x,pool=a",`, "a5": poolA5}, 0, "a5", "", 0},
		"the name before all":        {map[string]string{"g": global, "a5": poolA5, "n": named}, time.Minute, "n", "", time.Hour},
		"an hour later":              {map[string]string{"g": global, "a5": poolA5, "n": named}, time.Hour, "a5", "", 0},
		"other nodes' names":         {map[string]string{"g": global, "n": `"ephemeralSelector":{"nodeNames":["n7"],"lastDuration":"1h"},`}, 0, "g", "", time.Hour},
		"two for all nodes":          {map[string]string{"g": global, "h": global}, 0, "last", "adminqosconfigurations sys/h and sys/g are both for all nodes: the previous configuration stays in force", 0},
		"the same priority":          {map[string]string{"a": poolA, "x": zoneX}, 0, "last", "sys/x and sys/a have the same priority 0", 0},
		"labels apart":               {map[string]string{"a": poolA, "b": `"nodeLabelSelector":"pool!=a,zone=x",`}, 0, "a", "", 0},
		"a node named twice":         {map[string]string{"m": named, "n": named}, 0, "last", "both name node n1", time.Hour},
		"a name twice, one over":     {map[string]string{"m": named, "n": `"ephemeralSelector":{"nodeNames":["n1"],"lastDuration":"1m"},`}, 2 * time.Minute, "m", "", time.Hour},
		"a key that is not allowed":  {map[string]string{"g": global, "t": `"nodeLabelSelector":"team=x",`}, 0, "last", "does not allow the key team in a nodeLabelSelector of priority 0", 0},
		"a priority not allowed":     {map[string]string{"t": `"nodeLabelSelector":"pool=a","priority":7,`}, 0, "last", "allows no nodeLabelSelector of priority 7", 0},
		"a broken selector":          {map[string]string{"g": global, "t": `"nodeLabelSelector":"pool in (",`}, 0, "last", `nodeLabelSelector: "pool in ("`, 0},
		"names and labels":           {map[string]string{"t": `"nodeLabelSelector":"pool=a","ephemeralSelector":{"nodeNames":["n1"],"lastDuration":"1h"},`}, 0, "last", "both nodeNames and a nodeLabelSelector", 0},
		"names for ever":             {map[string]string{"t": `"ephemeralSelector":{"nodeNames":["n1"]},`}, 0, "last", "nodeNames without lastDuration", 0},
		"a time for no names":        {map[string]string{"t": `"ephemeralSelector":{"lastDuration":"1h"},`}, 0, "last", "lastDuration without nodeNames", 0},
		"no time span":               {map[string]string{"t": `"ephemeralSelector":{"nodeNames":["n1"],"lastDuration":"soon"},`}, 0, "last", `lastDuration "soon" is not a time span`, 0},
		"no number":                  {map[string]string{"t": `"priority":"high",`}, 0, "last", "priority: it is not a whole number", 0},
		"paused":                     {map[string]string{"g": `"paused":true,`}, 0, "last", "sys/g is not applied: it is paused", 0},
		"paused elsewhere":           {map[string]string{"g": `"paused":true,`, "a": poolA}, 0, "a", "", 0},
		"a canary":                   {map[string]string{"g": `"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"canary":"10%"}},`}, 0, "last", "canary is 10%", 0},
		"a canary that has grown up": {map[string]string{"g": `"updateStrategy":{"rollingUpdate":{"canary":"100%"}},`}, 0, "g", "", 0},
	} {
		in := Configs{Targets: []*Target{TargetOf(decoded(t, kcc))}, Candidates: map[Kind][]*Candidate{AdminQoS: {}}}
		for name, spec := range c.specs {
			in.Candidates[AdminQoS] = append(in.Candidates[AdminQoS], candidate(t, name, spec))
		}
		last := &Chosen{Name: "last"}
		chosen, next, err := inForce(in, AdminQoS, map[string]string{"pool": "a", "zone": "x"}, last, made.Add(c.after))
		got := ""
		if chosen != nil {
			got = chosen.Name
		}
		if got != c.want {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: error %v; want %q", name, err, c.err)
		}
		if c.next == 0 != next.IsZero() || c.next != 0 && !next.Equal(made.Add(c.next)) {
			t.Errorf("%s: look again at %s; want after %s", name, next, c.next)
		}
		if chosen != nil && chosen != last && string(chosen.Config) != fmt.Sprintf(`{"from":%q}`, c.want) {
			t.Errorf("%s: config %s", name, chosen.Config)
		}
	}
}

// Without a KatalystCustomConfig a kind's objects do not count; with two for one kind nothing changes.
func TestTargets(t *testing.T) {
	objects := map[Kind][]*Candidate{AdminQoS: {candidate(t, "g", "")}, Eviction: {candidate(t, "e", "")}}
	last := &Chosen{Name: "last"}
	in := Configs{Candidates: objects}
	if chosen, _, err := inForce(in, AdminQoS, nil, last, made); chosen != nil || err != nil {
		t.Errorf("no target: %v, %v; want neither", chosen, err)
	}
	in.Targets = []*Target{TargetOf(decoded(t, kcc))}
	if chosen, _, err := inForce(in, Eviction, nil, last, made); chosen != nil || err != nil {
		t.Errorf("another kind's target: %v, %v; want neither", chosen, err)
	}
	in.Targets = append(in.Targets, TargetOf(decoded(t, strings.Replace(kcc, `"kcc"`, `"again"`, 1))))
	chosen, _, err := inForce(in, AdminQoS, nil, last, made)
	if chosen != last || err == nil || !strings.Contains(err.Error(), "sys/again and sys/kcc are both for adminqosconfigurations") {
		t.Errorf("two targets: %v, %v; want the last and an error", chosen, err)
	}
	in = Configs{Targets: in.Targets[:1], Candidates: map[Kind][]*Candidate{}}
	if chosen, _, err := inForce(in, AdminQoS, nil, last, made); chosen != last || err != nil {
		t.Errorf("not read yet: %v, %v; want the last", chosen, err)
	}
	for text, want := range map[string]string{
		`"group":"config.katalyst.kubewharf.io","version":"v1alpha1","resource":"x"`: "x",
		`"group":"other.io","version":"v1alpha1","resource":"x"`:                     "",
		`"group":"config.katalyst.kubewharf.io","version":"v2","resource":"x"`:       "",
	} {
		if got := TargetOf(decoded(t, `{"spec":{"targetType":{`+text+`},"nodeLabelSelectorKey":"pool"}}`)); got.Resource != want || got.Keys[0][0] != "pool" {
			t.Errorf("target %s: %+v", text, got)
		}
	}
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a=1", "a=1", true},
		{"a=1", "a=2", false},
		{"a=1", "b=1", true},
		{"a in (1,2)", "a in (2,3)", true},
		{"a in (1,2)", "a in (3)", false},
		{"a in (1,2)", "a notin (1,2)", false},
		{"a in (1,2)", "a notin (1)", true},
		{"a", "!a", false},
		{"a", "a!=1", true},
		{"!a", "a!=1", true}, // without the label, both are true
		{"!a", "a=1", false},
		{"a=1,b=1", "a=1,b=2", false},
		{"a!=1", "a!=2", true},
		{"a=5", "a>4", true},
		{"a=4", "a>4", false},
	} {
		x, y := candidate(t, "x", fmt.Sprintf(`"nodeLabelSelector":%q,`, c.a)), candidate(t, "y", fmt.Sprintf(`"nodeLabelSelector":%q,`, c.b))
		if got := overlap(x.Selector, y.Selector); got != c.want || overlap(y.Selector, x.Selector) != c.want {
			t.Errorf("%s and %s overlap: %v; want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestCandidateBounds(t *testing.T) {
	c := CandidateOf(AdminQoS, Object{"spec": Object{"config": Object{"x": strings.Repeat("y", maxConfig)}}})
	if c.Err == nil || c.Config != nil {
		t.Errorf("a configuration of %d bytes is taken: %v", len(c.Config), c.Err)
	}
	if c := CandidateOf(AdminQoS, Object{"spec": Object{}}); c.Err != nil || string(c.Config) != "{}" {
		t.Errorf("no configuration: %s, %v; want {}", c.Config, c.Err)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(kcc), []byte(`{"spec":{"nodeLabelSelector":"pool=a","priority":5,"config":{}}}`), []byte(`{"spec":{"ephemeralSelector":{"nodeNames":["n1"],"lastDuration":"1h"}}}`))
	f.Add([]byte(`{"spec":{"targetType":{"group":"config.katalyst.kubewharf.io","version":"v1alpha1","resource":"adminqosconfigurations"},"nodeLabelSelectorKey":"a"}}`), []byte(`{"spec":{"nodeLabelSelector":"a notin (1)"}}`), []byte(`{"spec":{"nodeLabelSelector":"a>1,a<2"}}`))
	f.Add([]byte(kcc), []byte(`{"spec":{"config":{"evictionConfig":{"dryRun":["*"],"cpuPressureEvictionConfig":{"loadMetricRingSize":4,"loadEvictionCoolDownTime":"5m"}}}}}`),
		[]byte(`{"spec":{"config":{"evictionPluginsConfig":{"reclaimedResourcesEvictionPluginConfig":{"evictionThreshold":{"katalyst.kubewharf.io/reclaimed_millicpu":10}},"memoryEvictionPluginConfig":{"gracePeriod":-1,"systemEvictionRankingMetrics":["qos.pod"]}}}}}`))
	f.Fuzz(func(t *testing.T, target, one, two []byte) {
		var objects [3]Object
		for i, data := range [][]byte{target, one, two} {
			if json.Unmarshal(data, &objects[i]) != nil {
				return
			}
		}
		a, b := CandidateOf(AdminQoS, objects[1]), CandidateOf(Eviction, objects[2])
		in := Configs{Targets: []*Target{TargetOf(objects[0])}, Candidates: map[Kind][]*Candidate{AdminQoS: {a, CandidateOf(AdminQoS, objects[2])}, Eviction: {b}}}
		for _, v := range in.Verdicts(made) {
			if v.Valid != nil && *v.Valid != (v.Reason == ReasonNormal) || len(v.Message) > maxMessage+4 {
				t.Fatalf("verdict %+v", v)
			}
		}
		for _, o := range []*Candidate{a, b} {
			if o.Err == nil && !json.Valid(o.Config) {
				t.Fatalf("config %q", o.Config)
			}
		}
		last := &Chosen{Name: "last"}
		for _, kind := range Kinds {
			labels := map[string]string{"pool": "a"}
			_, _, err := in.resolve(kind, "n1", labels, made)
			chosen, _, _ := inForce(in, kind, labels, last, made)
			if err != nil && chosen != last {
				t.Fatalf("%v, and not the previous configuration stays in force: %+v", err, chosen)
			}
			if chosen != nil && chosen != last && !json.Valid(chosen.Config) {
				t.Fatalf("config %q", chosen.Config)
			}
		}
	})
}
