package config

import (
	"fmt"
	"strings"
	"testing"

	"polder/lib/sloconfig"
)

// sloGuide is the ConfigMap of Koordinator's guide on CPU satisfaction.
const sloGuide = `#ConfigMap slo-controller-config example。
apiVersion: v1
kind: ConfigMap
metadata:
  name: slo-controller-config # name should be set as the configuration of koord-manager, e.g. ack-slo-config
  namespace: koordinator-system # namespace should be set as the configuration of installation, e.g. kube-system
data:
  # enable the eviction strategy base on CPU satisfaction
  resource-threshold-config: |
    {
      "clusterStrategy": {
        "enable": true,
        "cpuEvictBESatisfactionLowerPercent": 60,
        "cpuEvictBESatisfactionUpperPercent": 80,
        "cpuEvictBEUsageThresholdPercent": 90,
        "CPUEvictTimeWindowSeconds": 60
      }
    }
`

const sloEntries = `  colocation-config: |
    {"enable": true,
     "nodeConfigs": [
       {"name": "gpu", "nodeSelector": {"matchLabels": {"pool": "gpu"}}, "cpuReclaimThresholdPercent": 30}]}
`

func TestReadObjectsConfigMap(t *testing.T) {
	for name, text := range map[string]string{
		"alone":                    sloGuide + sloEntries,
		"after Katalyst's":         guide + "---\n" + sloGuide + sloEntries,
		"before Katalyst's":        sloGuide + sloEntries + "---\n" + guide,
		"in a List":                "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(strings.SplitN(sloGuide, "\n", 2)[1]+sloEntries), "\n", "\n  ") + "\n",
		"as kubectl get -o yaml":   strings.Replace(sloGuide+sloEntries, "metadata:\n", "immutable: false\nbinaryData: {x: AAAA}\nmetadata:\n  creationTimestamp: 2026-01-01T00:00:00Z\n  resourceVersion: \"1\"\n", 1),
		"as kubectl get -o json":   `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"resource-threshold-config":"{\"clusterStrategy\":{\"enable\":true,\"CPUEvictTimeWindowSeconds\":60}}","colocation-config":"{\"enable\":true,\"nodeConfigs\":[{\"name\":\"gpu\",\"nodeSelector\":{\"matchLabels\":{\"pool\":\"gpu\"}},\"cpuReclaimThresholdPercent\":30}]}"}}`,
		"with further, empty keys": sloGuide + sloEntries + "  resource-qos-config:\n  cpu-burst-config: \"\"\n",
		"several, with empty ones": "---\n---\n" + sloGuide + sloEntries + "---\n",
	} {
		found, err := ReadObjects("x.yaml", []byte(text))
		if err != nil || found.IsEmpty() || found.SLO == nil || (found.Custom != nil) != strings.Contains(name, "Katalyst") {
			t.Errorf("%s: %+v, %v", name, found, err)
			continue
		}
		for pool, want := range map[string]int64{"gpu": 30, "": 60} {
			var local sloconfig.Local
			raw, errs := local.InForce(found.SLO, map[string]string{"pool": pool}, nil)
			s, err := sloconfig.Read(sloconfig.Overlay(nil, raw))
			if err != nil || len(errs) > 0 || s.From != "x.yaml" || *s.Threshold.CPUEvictTimeWindowSeconds != 60 || *s.Colocation.CPUReclaimThresholdPercent != want {
				t.Errorf("%s, pool %q: %v, %v, %s", name, pool, err, errs, raw)
			}
			if again, _ := local.InForce(found.SLO, map[string]string{"pool": pool}, nil); &again[0] != &raw[0] || local.Version != 1 {
				t.Errorf("%s: resolved again, version %d", name, local.Version)
			}
		}
	}
	for _, text := range []string{"", "# nothing\n", "policy: koordinator\n", "data: {colocation-config: x}\n"} {
		if found, err := ReadObjects("x.yaml", []byte(text)); !found.IsEmpty() || err != nil {
			t.Errorf("%q: %+v, %v; want to be none of these files", text, found, err)
		}
	}
}

// The strategies of a file for a node depend on the node's labels and annotations, and on the file.
func TestLocal(t *testing.T) {
	found, err := ReadObjects("x.yaml", []byte(sloGuide+sloEntries))
	if err != nil {
		t.Fatal(err)
	}
	other, err := ReadObjects("y.yaml", []byte(sloGuide))
	if err != nil {
		t.Fatal(err)
	}
	var local sloconfig.Local
	version := uint64(0)
	for _, step := range []struct {
		name                string
		file                *sloconfig.File
		labels, annotations map[string]string
		reclaim             int64 // 0 for nothing at all
		from, problem       string
		changed             bool
	}{
		{name: "no file"},
		{"a file", found.SLO, nil, nil, 60, "x.yaml", "", true},
		{"the same", found.SLO, nil, nil, 60, "x.yaml", "", false},
		{"a label", found.SLO, map[string]string{"pool": "gpu"}, nil, 30, "x.yaml", "", true},
		{"an annotation", found.SLO, map[string]string{"pool": "gpu"}, map[string]string{sloconfig.AnnotationColocation: `{"cpuReclaimThresholdPercent":20}`}, 20, "x.yaml", "", true},
		{"a bad one", found.SLO, map[string]string{"pool": "gpu"}, map[string]string{sloconfig.AnnotationColocation: `{`}, 30, "x.yaml", "it is not JSON", true},
		{"reported again", found.SLO, map[string]string{"pool": "gpu"}, map[string]string{sloconfig.AnnotationColocation: `{`}, 30, "x.yaml", "it is not JSON", false},
		{"another file", other.SLO, map[string]string{"pool": "gpu"}, nil, 60, "y.yaml", "", true},
		{"no file any more", nil, map[string]string{"pool": "gpu"}, nil, 0, "", "", true},
		{"and still none", nil, nil, nil, 0, "", "", false},
	} {
		raw, errs := local.InForce(step.file, step.labels, step.annotations)
		if (local.Version != version) != step.changed {
			t.Errorf("%s: version %d after %d; want a change: %v", step.name, local.Version, version, step.changed)
		}
		version = local.Version
		if all := fmt.Sprint(errs); !strings.Contains(all, step.problem) || (len(errs) > 0) != (step.problem != "") {
			t.Errorf("%s: %v; want %q", step.name, errs, step.problem)
		}
		tickSays := []byte(`{"katalyst":{"a":1},"koordinator":{"from":"tick"}}`)
		over := sloconfig.Overlay(tickSays, raw)
		s, err := sloconfig.Read(over)
		switch {
		case err != nil:
			t.Errorf("%s: %v", step.name, err)
		case step.reclaim == 0 && (raw != nil || s.From != "tick"):
			t.Errorf("%s: %s; want the tick's own", step.name, over)
		case step.reclaim != 0 && (s.From != step.from || *s.Colocation.CPUReclaimThresholdPercent != step.reclaim || !strings.Contains(string(over), `"katalyst":{"a":1}`)):
			t.Errorf("%s: %s", step.name, over)
		}
	}
	if over := sloconfig.Overlay([]byte("rubbish"), []byte(`{"from":"x"}`)); string(over) != `{"koordinator":{"from":"x"}}` {
		t.Errorf("over what is no configuration: %s", over)
	}
}

// An invalid file is rejected as a whole, with the line and the key.
func TestReadObjectsRefuses(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
	for name, c := range map[string]struct{ text, want string }{
		"a value":                       {strings.Replace(sloGuide, "UsageThresholdPercent\": 90", "UsageThresholdPercent\": 101", 1), "x.yaml:15: resource-threshold-config: clusterStrategy.cpuEvictBEUsageThresholdPercent: 101: want 0 to 100"},
		"a value, its name in capitals": {strings.Replace(sloGuide, "Seconds\": 60", "Seconds\": 0", 1), "x.yaml:16: resource-threshold-config: clusterStrategy.cpuEvictTimeWindowSeconds: 0: want 1 to"},
		"a type":                        {strings.Replace(sloGuide, "Seconds\": 60", "Seconds\": \"60\"", 1), "x.yaml:16: resource-threshold-config: clusterStrategy.cpuEvictTimeWindowSeconds: got string: want a whole number"},
		"no JSON":                       {strings.Replace(sloGuide, "\": 80,", "\": 80", 1), "x.yaml:15: resource-threshold-config: it is not JSON: invalid character '\"' after object key:value pair"},
		"an entry":                      {sloGuide + strings.Replace(sloEntries, "30", "-30", 1), "x.yaml:22: colocation-config: nodeConfigs[0].cpuReclaimThresholdPercent: -30: want 0 to"},
		"a selector":                    {sloGuide + strings.Replace(sloEntries, "matchLabels", "matchLabel", 1), "x.yaml:22: colocation-config: nodeConfigs[0].nodeSelector.matchLabel: unknown key"},
		"an entry that is none":         {sloGuide + "  cpu-burst-config: |\n    {\"nodeStrategies\": [\n      {},\n      3]}\n", "x.yaml:22: cpu-burst-config: nodeStrategies[1]: got number: want an object"},
		"in one line":                   {head + "data:\n  cpu-burst-config: '{\"clusterStrategy\":{\"policy\":\"x\"}}'\n", `x.yaml:5: cpu-burst-config: clusterStrategy.policy: "x": want none, cpuBurstOnly`},
		"two":                           {strings.Replace(strings.Replace(sloGuide, "60,", "160,", 1), "80,", "180,", 1), "x.yaml:14: resource-threshold-config: clusterStrategy.cpuEvictBESatisfactionUpperPercent: 180: want 0 to 100"},
		"an object for a text":          {head + "data:\n  cpu-burst-config: {clusterStrategy: {policy: auto}}\n", "x.yaml:5: cpu-burst-config: want a string, as in a ConfigMap: put a | after the colon"},
		"none of the keys":              {head + "data:\n  nginx.conf: |\n    x\n", "x.yaml:4: the ConfigMap has none of the keys colocation-config, resource-threshold-config, resource-qos-config, cpu-burst-config"},
		"no data":                       {head, "x.yaml:1: the ConfigMap has none of the keys"},
		"an alias":                      {head + "data: &a {}\nx: *a\n", "aliases are not supported"},
		"another version":               {strings.Replace(sloGuide, "v1", "v2", 1), `x.yaml:2: apiVersion "v2" of a ConfigMap: want v1`},
		"a second one":                  {sloGuide + "---\n" + sloGuide, "x.yaml:24: a second ConfigMap"},
		"something else":                {sloGuide + "---\napiVersion: v1\nkind: Namespace\n", `x.yaml:20: apiVersion "v1": want config.katalyst.kubewharf.io/v1alpha1`},
		"bad beside Katalyst's":         {guide + "---\n" + head + "data:\n  cpu-burst-config: '{'\n", "cpu-burst-config: it is not JSON: unexpected end of JSON input"},
		"Katalyst's bad":                {sloGuide + "---\n" + strings.Replace(guide, "memory\": 10", "memory\": -1", 1), "x.yaml:41: default/default: config."},
	} {
		found, err := ReadObjects("x.yaml", []byte(c.text))
		if err == nil || !found.IsEmpty() || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v; want %q", name, found, err, c.want)
		}
	}
	// Both faults are named, but only a few of many.
	text := strings.Replace(strings.Replace(sloGuide, "60,", "160,", 1), "80,", "180,", 1)
	if _, err := ReadObjects("x.yaml", []byte(text)); !strings.Contains(fmt.Sprint(err), "x.yaml:13: ") || !strings.Contains(fmt.Sprint(err), "x.yaml:14: ") {
		t.Errorf("%v; want both lines", err)
	}
	many := head + "data:\n  colocation-config: |\n    {\"nodeConfigs\": [" + strings.Repeat(`{"nodeSelector":{},"enable":3},`, 900) + "{}]}\n"
	if _, err := ReadObjects("x.yaml", []byte(many)); err == nil || strings.Count(err.Error(), "\n") > 10 || !strings.Contains(err.Error(), "more") {
		t.Errorf("%v; want a few", err)
	}
}

func FuzzReadObjects(f *testing.F) {
	for _, seed := range append(objectSeeds, sloGuide, sloGuide+sloEntries, guide+"---\n"+sloGuide) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := ReadObjects("x.yaml", data)
		if err != nil {
			if !found.IsEmpty() || !strings.HasPrefix(err.Error(), "x.yaml") {
				t.Fatalf("%+v, and an error without its place: %v", found, err)
			}
			return
		}
		var local sloconfig.Local
		raw, _ := local.InForce(found.SLO, map[string]string{"pool": "gpu"}, nil)
		if _, err := sloconfig.Read(sloconfig.Overlay(nil, raw)); (found.SLO != nil) != (err == nil) {
			t.Fatalf("%v of %s", err, raw)
		}
	})
}
