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

// The guide's objects take effect within seconds, and deleting them restores the defaults.
func TestGuide(t *testing.T) {
	l := start(t)
	l.soon("the default", "5 met=true")

	l.create(reclaimed)
	l.soon("the guide's first text", "10 met=false")
	l.valid("eviction-configuration", "True", "Normal", "", "")
	if out := l.Kubectl("get", "kcc", "-n", "default"); !strings.Contains(out, "VALID") || !strings.Contains(out, "True") {
		t.Errorf("kubectl get kcc:\n%s", out)
	}

	// A change of the object; then a value that the schema accepts, but evict does not.
	patch := func(value string) {
		l.Kubectl("patch", "ec", "-n", "default", "default", "--type=merge", "-p",
			fmt.Sprintf(`{"spec":{"config":{"evictionPluginsConfig":{"reclaimedResourcesEvictionPluginConfig":{"evictionThreshold":{"katalyst.kubewharf.io/reclaimed_millicpu":%s}}}}}}`, value))
	}
	patch("3")
	l.soon("a change", "3 met=true")
	patch("30000000")
	l.valid("eviction-configuration", "False", "InvalidTargetConfig", "default/default: config.evictionPluginsConfig.reclaimedResourcesEvictionPluginConfig.evictionThreshold.katalyst.kubewharf.io/reclaimed_millicpu: 30000000: want a number over 0 and at most 1000000: the previous configuration stays in force", `["default/default"]`)
	l.stays("3 met=true")
	patch("4")
	l.soon("its repair", "4 met=true")
	l.valid("eviction-configuration", "True", "Normal", "", "")

	// Two objects apply to all nodes.
	l.create(strings.Replace(reclaimed[strings.Index(reclaimed, "---"):], "name: default", "name: other", 1))
	l.valid("eviction-configuration", "False", "InvalidTargetConfig", "default/other and default/default are both for all nodes", `["default/default","default/other"]`)
	l.stays("4 met=true")
	contradictions := func(tool string) (times int) {
		for line := range strings.Lines(l.Log()) {
			if strings.Contains(line, "tool="+tool) && strings.Contains(line, "both for all nodes") {
				times++
			}
		}
		return times
	}
	for tool, times := range map[string]int{"collect": 1, "report": 1, "evict": 0} { // once a change, whatever the number of ticks
		l.Eventually(controlplane.Soon, tool+" logs the contradiction", func() string {
			if got := contradictions(tool); got < times {
				return fmt.Sprint(got, " times")
			}
			return ""
		})
		if got := contradictions(tool); got != times {
			t.Errorf("%s logs the contradiction %d times; want %d:\n%s", tool, got, times, l.Log())
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
	l.Eventually(controlplane.Soon, "NUMA nodes are not evaluated", func() string { // the tick comes after its log
		for _, e := range l.newest().Eviction.Errors {
			if strings.Contains(e, "numa") {
				return e
			}
		}
		return ""
	})
	l.soon("it leaves the rest", "5 met=true")
}

// An object of today's kind does the same, and takes precedence over the guide's.
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
		t.Errorf("the API server accepts a threshold of 0: %s", out)
	}
	l.Kubectl("patch", "aqc", "-n", "default", "all", "--type=merge", "-p",
		`{"spec":{"config":{"evictionConfig":{"memoryPressureEvictionConfig":{"numaFreeBelowWatermarkTimesThreshold":2000000}}}}}`)
	const tooLarge = "default/all: config.evictionConfig.memoryPressureEvictionConfig.numaFreeBelowWatermarkTimesThreshold: 2000000: "
	l.valid("admin-qos", "False", "InvalidTargetConfig", tooLarge+"want a whole number from 1", `["default/all"]`)
	l.stays("8 met=false")
	// An object of a kind that no tool reads, and one that contradicts the first.
	l.Apply(strings.NewReplacer("eviction-configuration", "auth", "evictionconfigurations", "authconfigurations").Replace(reclaimed[:strings.Index(reclaimed, "---")]))
	l.valid("auth", "Unknown", "TargetTypeNotRead", "its target is not supported", "")
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

// report owns the status of a KatalystCustomConfig: it overwrites another writer's and logs it, keeps the transition time while the
// status stays the same, and names the missing permission in the tick.
func TestStatusOfOthers(t *testing.T) {
	c := controlplane.Shared(t)
	t.Cleanup(func() { c.Kubectl("delete", "kcc", "--all", "-n", "default") })
	c.Apply(strings.Replace(reclaimed[:strings.Index(reclaimed, "---")], "metadata:", "metadata:\n  namespace: default", 1))
	const path = "/apis/config.katalyst.kubewharf.io/v1alpha1/namespaces/default/katalystcustomconfigs/eviction-configuration"
	if status, body := c.API("PATCH", path+"/status?fieldManager=somebody", `{"status":{"conditions":[{"type":"Valid","status":"False","reason":"Old","lastTransitionTime":"2020-01-01T00:00:00Z"},{"type":"Other","status":"True"}]}}`); status != 200 {
		t.Fatalf("%d: %s", status, body)
	}
	l := &lab{ControlPlane: c, t: t}
	expect := func(tool *pipe.Tool, verdict, want string) {
		t.Helper()
		c.Eventually(controlplane.Soon, "report's state "+want, func() string {
			in := &tick.Tick{V: tick.Version, Node: "n1", Time: time.Now(), Sample: &tick.Sample{Config: tick.Raw(`{"katalyst":{"customConfigs":[` + verdict + `]}}`)}}
			out := tool.Put(in).Report.Targets[0]
			if got := fmt.Sprint(out.State, " ", out.Error); !strings.HasPrefix(got, want) {
				return "so far: " + got
			}
			return ""
		})
	}
	const verdict = `{"namespace":"default","name":"eviction-configuration","observedGeneration":1,"valid":%v,"reason":%q}`
	may := pipe.Start(t, "report", "--max-age", "10m", "--to", "kcc", "--node", "n1", "--kubeconfig", c.AccountFor("report", toKCC))
	expect(may, fmt.Sprintf(verdict, false, "InvalidTargetConfig"), "written")
	l.valid("eviction-configuration", "False", "InvalidTargetConfig", "", "")
	if got := c.Kubectl("get", "kcc", "-n", "default", "eviction-configuration", "-o", `jsonpath={range .status.conditions[*]}{.type} {.lastTransitionTime},{end}`); got != "Valid 2020-01-01T00:00:00Z,Other ," {
		t.Errorf("conditions %q; want the old transition time, and the other condition unchanged", got)
	}
	may.AwaitLog("replacing a status that another program has written", 1)
	may.AwaitLog("somebody", 1)
	// While the server is away, a write waits, and is made when the server is back.
	c.StopAPIServer()
	expect(may, fmt.Sprintf(verdict, true, "Normal"), tick.TargetFailed+" default/eviction-configuration: ")
	c.StartAPIServer()
	expect(may, fmt.Sprintf(verdict, true, "Normal"), "written")
	l.valid("eviction-configuration", "True", "Normal", "", "")
	// An object that is gone is ignored.
	c.Kubectl("delete", "kcc", "-n", "default", "eviction-configuration")
	expect(may, fmt.Sprintf(verdict, false, "Again"), "unchanged")

	mayNot := pipe.Start(t, "report", "--max-age", "10m", "--to", "kcc", "--node", "n1", "--kubeconfig", c.AccountFor("report"))
	expect(mayNot, fmt.Sprintf(verdict, true, "Normal"), tick.TargetFailed+" default/eviction-configuration: katalystcustomconfigs.config.katalyst.kubewharf.io \"eviction-configuration\" is forbidden")
	expect(mayNot, fmt.Sprintf(verdict, true, "Normal"), tick.TargetFailed)
	mayNot.AwaitLog("for --to kcc katalystcustomconfigs: get; katalystcustomconfigs/status: patch", 1)
}
