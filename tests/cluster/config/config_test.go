package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

// What the guide creates holds within seconds, and its end restores the defaults.
func TestGuide(t *testing.T) {
	l := start(t)
	l.soon("the default", "5 met=true")

	l.create(reclaimed)
	l.soon("the guide's first text", "10 met=false")
	l.valid("eviction-configuration", "True", "Normal", "", "")
	if out := l.Kubectl("get", "kcc", "-n", "default"); !strings.Contains(out, "VALID") || !strings.Contains(out, "True") {
		t.Errorf("kubectl get kcc:\n%s", out)
	}

	// A change of it; then a value that the schema takes, and that is none.
	patch := func(value string) {
		l.Kubectl("patch", "ec", "-n", "default", "default", "--type=merge", "-p",
			fmt.Sprintf(`{"spec":{"config":{"evictionPluginsConfig":{"reclaimedResourcesEvictionPluginConfig":{"evictionThreshold":{"katalyst.kubewharf.io/reclaimed_millicpu":%s}}}}}}`, value))
	}
	patch("3")
	l.soon("a change", "3 met=true")
	patch("30000000")
	l.valid("eviction-configuration", "False", "InvalidTargetConfig", "default/default: config.evictionPluginsConfig.reclaimedResourcesEvictionPluginConfig.evictionThreshold.katalyst.kubewharf.io/reclaimed_millicpu: 30000000: want a number over 0 and at most 1000000: what was in force stays", `["default/default"]`)
	l.stays("3 met=true")
	patch("4")
	l.soon("its repair", "4 met=true")
	l.valid("eviction-configuration", "True", "Normal", "", "")

	// Two objects for all nodes.
	l.create(strings.Replace(reclaimed[strings.Index(reclaimed, "---"):], "name: default", "name: other", 1))
	l.valid("eviction-configuration", "False", "InvalidTargetConfig", "default/other and default/default are both for all nodes", `["default/default","default/other"]`)
	l.stays("4 met=true")
	for tool, times := range map[string]int{"collect": 1, "report": 1, "evict": 0} { // once a change, however many ticks there are
		got := 0
		for line := range strings.Lines(l.Log()) {
			if strings.Contains(line, "tool="+tool) && strings.Contains(line, "both for all nodes") {
				got++
			}
		}
		if got != times {
			t.Errorf("the contradiction is in %s's log %d times; want %d:\n%s", tool, got, times, l.Log())
		}
	}
	l.Kubectl("delete", "ec", "-n", "default", "default")
	l.soon("one of them alone", "10 met=false")
	l.valid("eviction-configuration", "True", "Normal", "", "")

	l.Kubectl("delete", "ec,kcc", "-n", "default", "--all")
	l.soon("the end of it", "5 met=true")

	l.create(memory)
	l.Eventually(controlplane.Soon, "the guide's second text", func() string {
		if !strings.Contains(l.Log(), "memory-numa-enabled=false memory-kswapd-times=1") {
			return "evict's log does not have it"
		}
		return ""
	})
	for _, e := range l.newest().Eviction.Errors {
		if strings.Contains(e, "numa") {
			t.Errorf("NUMA nodes are looked at: %s", e)
		}
	}
	l.soon("it leaves the rest", "5 met=true")
}

// Today's kind does the same, and goes before the guide's.
func TestAdminQoSConfiguration(t *testing.T) {
	l := start(t)
	l.soon("the default", "5 met=true")
	l.create(fmt.Sprintf(admin, "8"))
	l.soon("an AdminQoSConfiguration", "8 met=false")
	l.valid("admin-qos", "True", "Normal", "", "")
	l.create(reclaimed)
	l.valid("eviction-configuration", "True", "Normal", "", "")
	l.stays("8 met=false")
	if out, err := l.TryKubectl(fmt.Sprintf(admin, "0"), "apply", "--server-side", "-f", "-"); err == nil {
		t.Errorf("a threshold of 0 is taken by the API server: %s", out)
	}
	l.Kubectl("patch", "aqc", "-n", "default", "all", "--type=merge", "-p", `{"spec":{"config":{"evictionConfig":{"memoryPressureEvictionConfig":{"numaFreeBelowWatermarkTimesThreshold":0}}}}}`)
	l.valid("admin-qos", "False", "InvalidTargetConfig", "default/all: config.evictionConfig.memoryPressureEvictionConfig.numaFreeBelowWatermarkTimesThreshold: 0: want a whole number from 1", `["default/all"]`)
	l.stays("8 met=false")
	// One of a kind that nobody here reads, and one that does not agree with the first.
	l.Apply(strings.NewReplacer("eviction-configuration", "auth", "evictionconfigurations", "authconfigurations").Replace(reclaimed[:strings.Index(reclaimed, "---")]))
	l.valid("auth", "Unknown", "TargetTypeNotRead", "its target is none that is read here", "")
	l.Apply(strings.Replace(reclaimed[:strings.Index(reclaimed, "---")], "name: eviction-configuration", "name: again", 1))
	for _, name := range []string{"again", "eviction-configuration"} {
		l.valid(name, "False", "TargetTypeOverlap", "KatalystCustomConfigs default/again and default/eviction-configuration are both for evictionconfigurations", "")
	}
	l.Kubectl("delete", "kcc", "-n", "default", "again")
	l.valid("eviction-configuration", "True", "Normal", "", "")
	l.Kubectl("delete", "kcc", "-n", "default", "admin-qos")
	l.soon("the guide's alone", "10 met=false")
	l.Kubectl("delete", "kcc", "-n", "default", "--all")
	l.soon("the end of it", "5 met=true")
}

// The status of a KatalystCustomConfig is one's own: another writer's is taken over with a word, its transition time stays where
// the status does, and without the permission the tick says what is lacking.
func TestStatusOfOthers(t *testing.T) {
	c := controlplane.Shared(t)
	t.Cleanup(func() { c.Kubectl("delete", "kcc", "--all", "-n", "default") })
	c.Apply(strings.Replace(reclaimed[:strings.Index(reclaimed, "---")], "metadata:", "metadata:\n  namespace: default", 1))
	const path = "/apis/config.katalyst.kubewharf.io/v1alpha1/namespaces/default/katalystcustomconfigs/eviction-configuration"
	if status, body := c.API("PATCH", path+"/status?fieldManager=somebody", `{"status":{"conditions":[{"type":"Valid","status":"False","reason":"Old","lastTransitionTime":"2020-01-01T00:00:00Z"},{"type":"Other","status":"True"}]}}`); status != 200 {
		t.Fatalf("%d: %s", status, body)
	}
	l := &lab{ControlPlane: c, t: t}
	said := func(tool *pipe.Tool, verdict, want string) {
		t.Helper()
		c.Eventually(controlplane.Soon, "report says "+want, func() string {
			in := &tick.Tick{V: tick.Version, Node: "n1", Time: time.Now(), Sample: &tick.Sample{Config: tick.Raw(`{"katalyst":{"customConfigs":[` + verdict + `]}}`)}}
			out := tool.Put(in).Report.Targets[0]
			if got := fmt.Sprint(out.State, " ", out.Error); !strings.HasPrefix(got, want) {
				return "so far: " + got
			}
			return ""
		})
	}
	const verdict = `{"namespace":"default","name":"eviction-configuration","observedGeneration":1,"valid":%v,"reason":%q}`
	may := pipe.Start(t, "report", "--to", "kcc", "--node", "n1", "--kubeconfig", c.AccountFor("report", toKCC))
	said(may, fmt.Sprintf(verdict, false, "InvalidTargetConfig"), "written")
	l.valid("eviction-configuration", "False", "InvalidTargetConfig", "", "")
	if got := c.Kubectl("get", "kcc", "-n", "default", "eviction-configuration", "-o", `jsonpath={range .status.conditions[*]}{.type} {.lastTransitionTime},{end}`); got != "Valid 2020-01-01T00:00:00Z,Other ," {
		t.Errorf("conditions %q; want the old transition time, and the other one as it was", got)
	}
	if !strings.Contains(may.Log(), "replacing a status that another program has written") || !strings.Contains(may.Log(), "somebody") {
		t.Errorf("the log does not name the other writer: %s", may.Log())
	}
	// The server away: what is due waits, and is written when it is back.
	c.StopAPIServer()
	said(may, fmt.Sprintf(verdict, true, "Normal"), "failed default/eviction-configuration: ")
	c.StartAPIServer()
	said(may, fmt.Sprintf(verdict, true, "Normal"), "written")
	l.valid("eviction-configuration", "True", "Normal", "", "")
	// One that is gone is nobody's business.
	c.Kubectl("delete", "kcc", "-n", "default", "eviction-configuration")
	said(may, fmt.Sprintf(verdict, false, "Again"), "unchanged")

	mayNot := pipe.Start(t, "report", "--to", "kcc", "--node", "n1", "--kubeconfig", c.AccountFor("report"))
	said(mayNot, fmt.Sprintf(verdict, true, "Normal"), "failed default/eviction-configuration: katalystcustomconfigs.config.katalyst.kubewharf.io \"eviction-configuration\" is forbidden")
	said(mayNot, fmt.Sprintf(verdict, true, "Normal"), "failed")
	if !strings.Contains(mayNot.Log(), "for --to kcc katalystcustomconfigs: get; katalystcustomconfigs/status: patch") {
		t.Errorf("the log does not say what is lacking: %s", mayNot.Log())
	}
}
