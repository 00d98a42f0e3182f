package config

import (
	"strings"
	"testing"
	"time"

	"polder/lib/customconfig"
)

// guide is the colocation guide's text, with an AdminQoSConfiguration for two nodes.
const guide = `apiVersion: config.katalyst.kubewharf.io/v1alpha1
kind: KatalystCustomConfig
metadata:
  name: eviction-configuration
spec:
  targetType:
    group: config.katalyst.kubewharf.io
    resource: evictionconfigurations
    version: v1alpha1

---
apiVersion: config.katalyst.kubewharf.io/v1alpha1
kind: EvictionConfiguration
metadata:
  name: default
spec:
  config:
    evictionPluginsConfig:
      reclaimedResourcesEvictionPluginConfig:
        evictionThreshold:
          "katalyst.kubewharf.io/reclaimed_millicpu": 10
          "katalyst.kubewharf.io/reclaimed_memory": 10
`

const admin = `
---
# a comment alone
---
apiVersion: v1
kind: List
items:
- apiVersion: config.katalyst.kubewharf.io/v1alpha1
  kind: KatalystCustomConfig
  metadata: {name: aqc, namespace: sys, creationTimestamp: 2026-01-01T00:00:00Z}
  spec:
    targetType: {group: config.katalyst.kubewharf.io, resource: adminqosconfigurations, version: v1alpha1}
    nodeLabelSelectorAllowedKeyList: [{priority: 0, keyList: [pool]}]
- apiVersion: config.katalyst.kubewharf.io/v1alpha1
  kind: AdminQoSConfiguration
  metadata: {name: a, namespace: sys}
  spec:
    nodeLabelSelector: pool=a
    config: {evictionConfig: {dryRun: ["*"]}}
- apiVersion: config.katalyst.kubewharf.io/v1alpha1
  kind: AdminQoSConfiguration
  metadata: {name: n, namespace: sys, creationTimestamp: 2026-01-01T00:00:00Z}
  spec:
    ephemeralSelector: {nodeNames: [n7], lastDuration: 1h}
`

// customConfig are Katalyst's objects in a file.
func customConfig(path string, data []byte) (*customconfig.File, error) {
	found, err := ReadObjects(path, data)
	return found.Custom, err
}

func TestCustomConfig(t *testing.T) {
	f, err := customConfig("x.yaml", []byte(guide+admin))
	if err != nil || f == nil {
		t.Fatalf("%v, %v", f, err)
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		node, pool string
		at         time.Time
		eviction   string
		admin      string
	}{
		{"n1", "", at, "default/default x.yaml:12", ""},
		{"n1", "a", at, "default/default x.yaml:12", "sys/a x.yaml:36"},
		{"n7", "a", at, "default/default x.yaml:12", "sys/n x.yaml:42"},
		{"n7", "a", at.Add(time.Hour), "default/default x.yaml:12", "sys/a x.yaml:36"},
	} {
		var local customconfig.Local
		labels := map[string]string{}
		if c.pool != "" {
			labels["pool"] = c.pool
		}
		chosen, errs := local.InForce(f, c.node, labels, c.at)
		got := map[string]string{}
		for key, x := range chosen {
			got[key] = x.Namespace + "/" + x.Name + " " + x.At
		}
		if len(errs) > 0 || got["evictionConfiguration"] != c.eviction || got["adminQoSConfiguration"] != c.admin {
			t.Errorf("%s, pool %q, %s: %v, %v; want %q, %q", c.node, c.pool, c.at, got, errs, c.eviction, c.admin)
		}
	}
	for _, text := range []string{"", "# nothing\n", "reclaimed-threshold: 10\n", "[", "---\n---\n", "- 1", "5", "a: 1\n---\nkind: x"} {
		if f, err := customConfig("x.yaml", []byte(text)); f != nil || err != nil {
			t.Errorf("%q: %v, %v; want to be none of these files", text, f, err)
		}
	}
}

func TestCustomConfigErrors(t *testing.T) {
	const head = "apiVersion: config.katalyst.kubewharf.io/v1alpha1\n"
	for name, c := range map[string]struct {
		text, want string
	}{
		"a value":           {strings.Replace(guide, "memory\": 10", "memory\": -1", 1), `x.yaml:22: default/default: config.evictionPluginsConfig.reclaimedResourcesEvictionPluginConfig.evictionThreshold.katalyst.kubewharf.io/reclaimed_memory: -1: want a number over 0`},
		"a number as text":  {strings.Replace(guide, "millicpu\": 10", "millicpu\": \"10\"", 1), `x.yaml:21: default/default: config.`},
		"a key in the spec": {strings.Replace(guide, "  config:\n", "  confg:\n", 1), "x.yaml:17: EvictionConfiguration default/default: key confg is not known in its spec"},
		"another kind":      {guide + "---\n" + head + "kind: AuthConfiguration\n", `x.yaml:25: kind "AuthConfiguration": want some of AdminQoSConfiguration, EvictionConfiguration, KatalystCustomConfig`},
		"another group":     {guide + "---\napiVersion: v1\nkind: Pod\n", `x.yaml:24: apiVersion "v1": want config.katalyst.kubewharf.io/v1alpha1`},
		"no registry":       {guide[strings.Index(guide, "---"):], "x.yaml:2: EvictionConfiguration default/default is ignored: the file has no KatalystCustomConfig for evictionconfigurations"},
		"another target":    {strings.Replace(guide, "evictionconfigurations", "evictionconfiguration", 1), "x.yaml:6: KatalystCustomConfig default/eviction-configuration is for an unsupported kind"},
		"two targets":       {guide + "---\n" + strings.Replace(guide[:strings.Index(guide, "---")], "name: eviction", "name: my-eviction", 1), "x.yaml:29: KatalystCustomConfigs default/eviction-configuration and default/my-eviction-configuration are both for evictionconfigurations"},
		"the same twice":    {guide + guide[strings.Index(guide, "---"):], "x.yaml:27: EvictionConfiguration default/default occurs twice"},
		"two for all":       {guide + strings.Replace(guide[strings.Index(guide, "---"):], "name: default", "name: other", 1), "x.yaml:28: default/other and default/default are both for all nodes"},
		"no name":           {strings.Replace(guide, "  name: default", "  labels: {}", 1), "x.yaml:14: the EvictionConfiguration has no name"},
		"a key twice":       {guide + "    evictionPluginsConfig: {}\n", "x.yaml:23: key \"evictionPluginsConfig\" occurs twice"},
		"broken":            {guide + "\t\n---\n[", "x.yaml:2"},
		"broken later":      {guide + "---\nkind: [\n", "x.yaml:2"},
		"no object":         {guide + "---\n- 1\n", "x.yaml:24: want an object with apiVersion and kind"},
		"an alias":          {guide + "---\na: &a [1]\nb: *a\n", "x.yaml:25: aliases are not supported"},
		"a merge":           {guide + "---\n<<: {a: 1}\n", "x.yaml:24: want a plain key"},
		"a label":           {strings.Replace(guide, "  config:\n", "  nodeLabelSelector: pool=a\n  config:\n", 1), "x.yaml:16: default/default: KatalystCustomConfig default/eviction-configuration allows no nodeLabelSelector of priority 0"},
		"no time to count":  {strings.Replace(guide, "  config:\n", "  ephemeralSelector: {nodeNames: [n], lastDuration: 1h}\n  config:\n", 1), "x.yaml:17: default/default: ephemeralSelector: lastDuration without a metadata.creationTimestamp to count from"},
	} {
		f, err := customConfig("x.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want %q", name, f, err, c.want)
		}
	}
}

// objectSeeds are files of objects for the fuzzer.
var objectSeeds = []string{guide, guide + admin, "kind: List\nitems: [1, {}]", "apiVersion: &a x\nkind: *a", "kind: x\n? [a]\n: b", strings.ReplaceAll(guide, "10", ".nan")}

// fuzzObjects parses the same data as configuration objects.
func fuzzObjects(t *testing.T, data []byte) {
	file, err := customConfig("x.yaml", data)
	if err != nil {
		if file != nil || !strings.HasPrefix(err.Error(), "x.yaml") {
			t.Fatalf("%v, and an error without its place: %v", file, err)
		}
		return
	}
	var local customconfig.Local
	chosen, errs := local.InForce(file, "n1", map[string]string{"pool": "a"}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if file == nil && len(chosen) > 0 {
		t.Fatalf("out of nothing: %v", chosen)
	}
	for key, c := range chosen {
		if c.At == "" || c.Namespace == "" || c.Name == "" {
			t.Fatalf("%s: %+v, %v", key, c, errs)
		}
	}
}
