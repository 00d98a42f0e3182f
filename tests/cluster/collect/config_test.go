package collect

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"polder/lib/tick"
)

// kcc puts a kind into force.
func kcc(resource string) string {
	return fmt.Sprintf(`
apiVersion: config.katalyst.kubewharf.io/v1alpha1
kind: KatalystCustomConfig
metadata: {name: %s, namespace: default}
spec:
  targetType: {group: config.katalyst.kubewharf.io, version: v1alpha1, resource: %s}
  nodeLabelSelectorAllowedKeyList: [{priority: 0, keyList: [katalyst.kubewharf.io/pool]}]
`, resource, resource)
}

// aqc is an AdminQoSConfiguration that reserves so much CPU.
func aqc(name, cpu, selection string) string {
	return fmt.Sprintf(`
apiVersion: config.katalyst.kubewharf.io/v1alpha1
kind: AdminQoSConfiguration
metadata: {name: %s, namespace: default}
spec:
  %s
  config:
    reclaimedResourceConfig: {enableReclaim: true, reservedResourceForAllocate: {cpu: %q}}
`, name, selection, cpu)
}

// inForce is the configuration without the status of the KatalystCustomConfigs.
func inForce(s *tick.Sample) string {
	var top struct {
		Katalyst map[string]tick.Raw `json:"katalyst"`
	}
	if s.Config == nil || tick.Unmarshal(s.Config, &top) != nil {
		return string(s.Config)
	}
	delete(top.Katalyst, "customConfigs")
	if len(top.Katalyst) == 0 {
		return ""
	}
	text, err := tick.Marshal(map[string]any{"katalyst": top.Katalyst})
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func config(want string) func(*tick.Sample) string {
	return func(s *tick.Sample) string {
		if got := inForce(s); got != want {
			return fmt.Sprintf("config %s; want %s; errors %q", got, want, sourceError(s, "config"))
		}
		if e := sourceError(s, "config"); e != "" {
			return e
		}
		return ""
	}
}

// frozen is the config with an error.
func frozen(want, problem string) func(*tick.Sample) string {
	return func(s *tick.Sample) string {
		if e := sourceError(s, "config"); inForce(s) != want || !strings.Contains(e, problem) {
			return fmt.Sprintf("config %s, errors %q; want %s and %q", inForce(s), e, want, problem)
		}
		return ""
	}
}

func TestConfig(t *testing.T) {
	l := start(t)
	l.ApplyFile("../../../deploy/kubernetes/crds")
	l.Established()
	t.Cleanup(func() { l.Kubectl("delete", "kcc,aqc,ec", "--all", "-n", "default") }) // they apply to all nodes
	state := filepath.Join(t.TempDir(), "state")
	x := l.collect("--state", state)
	l.until(x, "nothing", config(""))

	object := func(name, cpu string) string {
		return fmt.Sprintf(`{"adminQoSConfiguration":{"namespace":"default","name":%q,"config":{"reclaimedResourceConfig":{"enableReclaim":true,"reservedResourceForAllocate":{"cpu":%q}}}}`, name, cpu)
	}
	only := func(name, cpu string) string { return `{"katalyst":` + object(name, cpu) + `}}` }
	// Without a KatalystCustomConfig it is not in force.
	l.Apply(aqc("all", "5", ""))
	for range 5 {
		if s := x.Next().Sample; s.Config != nil {
			t.Fatalf("config %s without a KatalystCustomConfig", s.Config)
		}
	}
	l.Apply(kcc("adminqosconfigurations"))
	l.until(x, "its KatalystCustomConfig", config(only("all", "5")))
	l.Apply(aqc("all", "6", ""))
	l.until(x, "a change", config(only("all", "6")))

	// The guide's kind beside it.
	l.Apply(kcc("evictionconfigurations"))
	l.Apply(`
apiVersion: config.katalyst.kubewharf.io/v1alpha1
kind: EvictionConfiguration
metadata: {name: default, namespace: default}
spec:
  config:
    evictionPluginsConfig:
      reclaimedResourcesEvictionPluginConfig:
        evictionThreshold: {"katalyst.kubewharf.io/reclaimed_millicpu": 10}
`)
	l.until(x, "two kinds", func(s *tick.Sample) string {
		if c := string(s.Config); !strings.Contains(c, object("all", "6")) || !strings.Contains(c, `"evictionConfiguration":{"namespace":"default","name":"default","config":{"evictionPluginsConfig":{"reclaimedResourcesEvictionPluginConfig":{"evictionThreshold":{"katalyst.kubewharf.io/reclaimed_millicpu":10}}}}}`) {
			return c
		}
		return ""
	})
	l.Kubectl("delete", "kcc", "evictionconfigurations")
	l.until(x, "one kind again", config(only("all", "6")))

	// A second one for all nodes: neither can be chosen.
	l.Apply(aqc("more", "7", ""))
	l.until(x, "a contradiction", frozen(only("all", "6"), "default/more and default/all are both for all nodes: the previous configuration stays in force"))
	// The last good value outlasts a restart, since no other source has it.
	if err := x.End(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	x = l.collect("--state", state)
	l.until(x, "a restart", frozen(only("all", "6"), "both for all nodes"))
	l.until(l.collect(), "a start without a state", frozen("", "both for all nodes"))
	l.Apply(aqc("more", "7", "nodeLabelSelector: katalyst.kubewharf.io/pool=a"))
	l.until(x, "the end of the contradiction", config(only("all", "6")))
	l.Kubectl("label", "node", l.node, "katalyst.kubewharf.io/pool=a")
	l.until(x, "a label", config(only("more", "7")))
	l.Apply(aqc("mine", "8", "ephemeralSelector: {nodeNames: ["+l.node+"], lastDuration: 20s}"))
	l.until(x, "a name", config(only("mine", "8")))
	l.until(x, "the end of its time", config(only("more", "7")))
	l.Apply(aqc("all", "9", "paused: true"))
	l.Kubectl("delete", "adminqosconfiguration", "more")
	l.until(x, "a pause", frozen(only("more", "7"), "default/all is not applied: it is paused"))
	l.Kubectl("delete", "kcc", "adminqosconfigurations")
	l.until(x, "the end of it all", config(""))
}
