package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/lib/sloconfig"
	"polder/lib/tick"
	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
)

// The ConfigMaps of Koordinator's guides, unchanged.
const (
	sloMemory = `apiVersion: v1
kind: ConfigMap
metadata:
  name: slo-controller-config
  namespace: koordinator-system
data:
  colocation-config: |
    {
      "enable": true
    }
  resource-threshold-config: |
    {
      "clusterStrategy": {
        "enable": true,
        "memoryEvictThresholdPercent": 70
      }
    }
`
	sloSatisfaction = `#ConfigMap slo-controller-config example。
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
	sloOff = `apiVersion: v1
kind: ConfigMap
metadata:
  name: slo-controller-config
  namespace: koordinator-system
data:
  resource-threshold-config: |
    {
      "clusterStrategy": {
        "enable": false
      }
    }
`
	// sloEntries is a ConfigMap with entries for nodes.
	sloEntries = `apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  colocation-config: |
    {"enable": true, "cpuReclaimThresholdPercent": 50,
     "nodeConfigs": [{"name": "gpu", "nodeSelector": {"matchLabels": {"example.com/pool": "gpu"}}, "cpuReclaimThresholdPercent": 30},
                     {"name": "big", "nodeSelector": {"matchLabels": {"example.com/size": "big"}}, "cpuReclaimThresholdPercent": 20}]}
  resource-qos-config: |
    {"clusterStrategy": {"beClass": {"cpuQOS": {"enable": true, "groupIdentity": -1}}}}
  host-application-config: |
    {"applications": [{"name": "nginx"}]}
`
)

// follow starts a collect that follows the ConfigMap, with the permissions of a node's agent.
func follow(t *testing.T, c *controlplane.ControlPlane, kubeconfig, state string) *lab {
	t.Helper()
	l := &lab{ControlPlane: c, t: t}
	l.run(fmt.Sprintf("exec %s --root %s --node n1 --kubeconfig %s --interval 100ms --slo-config koordinator-system/slo-controller-config --state %s",
		binaries.Path(t, "collect"), idleMachine(t), kubeconfig, state))
	return l
}

// settled waits until the strategies are the expected ones, in the form "field=value field=value", and so are the configuration errors.
func (l *lab) settled(what, want string, problems ...string) {
	l.t.Helper()
	begun := time.Now()
	l.Eventually(controlplane.Soon, what, func() string {
		t := l.newest()
		if t == nil {
			return "no tick"
		}
		var all strings.Builder
		for _, e := range t.Sample.Errors {
			if e.Source == "config" {
				all.WriteString(e.Error + "\n")
			}
		}
		for _, p := range problems {
			if !strings.Contains(all.String(), p) {
				return fmt.Sprintf("reported errors %q; want %q", all.String(), p)
			}
		}
		if len(problems) == 0 && all.Len() > 0 {
			return all.String()
		}
		s, err := sloconfig.Read(t.Sample.Config)
		if want == "" {
			if !errors.Is(err, sloconfig.ErrNotConfigured) {
				return fmt.Sprintf("config %s, %v; want none", t.Sample.Config, err)
			}
			return ""
		}
		if err != nil {
			return err.Error()
		}
		got := inShort(s)
		for pair := range strings.FieldsSeq(want) {
			if !strings.Contains(" "+got+" ", " "+pair+" ") {
				return fmt.Sprintf("%s; want %s", got, pair)
			}
		}
		return ""
	})
	l.t.Logf("%s: after %s", what, time.Since(begun).Round(time.Millisecond))
}

// logs waits until the text is in the pipe's logs, which are read beside its ticks.
func (l *lab) logs(text string) {
	l.t.Helper()
	l.Eventually(controlplane.Soon, "the log has "+text, func() string {
		if log := l.Log(); !strings.Contains(log, text) {
			return "it is:\n" + log
		}
		return ""
	})
}

func inShort(s *sloconfig.Strategies) string {
	value := func(p *int64) any {
		if p == nil {
			return "none"
		}
		return *p
	}
	return fmt.Sprintf("from=%s colocation=%v disabled=%v reclaim=%v threshold=%v evict=%v lower=%v upper=%v window=%v be=%v entry=%s",
		strings.ReplaceAll(s.From, " ", "_"), *s.Colocation.Enable, s.ColocationDisabled, value(s.Colocation.CPUReclaimThresholdPercent), *s.Threshold.Enable,
		value(s.Threshold.MemoryEvictThresholdPercent), value(s.Threshold.CPUEvictBESatisfactionLowerPercent), value(s.Threshold.CPUEvictBESatisfactionUpperPercent),
		value(s.Threshold.CPUEvictTimeWindowSeconds), *s.QOS.BE.CPU.Enable, s.Entries[sloconfig.KeyColocation])
}

const sloName = "koordinator-system/slo-controller-config"

// The guides' ConfigMaps take effect within a second; errors are named and keep the last good value; deleting the ConfigMap restores
// the defaults.
func TestSLOConfig(t *testing.T) {
	c := controlplane.Shared(t)
	c.MakeNode("n1", "8", "16Gi", "kubernetes.io/batch-cpu", "4k", "kubernetes.io/batch-memory", "8Gi", "kubernetes.io/mid-cpu", "1k")
	state := filepath.Join(t.TempDir(), "state")

	// Without the permission, which the chart grants with policy=koordinator, the state is unknown: no strategies, and an error.
	kubeconfig := c.AccountFor("collect")
	l := follow(t, c, kubeconfig, state)
	l.settled("no permission", "", "the ConfigMap "+sloName+" was never read: API server")
	c.AccountFor("collect", "policy=koordinator") // binds the role to another account, and so to the first one
	role := strings.TrimPrefix(c.Kubectl("get", "role", "-n", "koordinator-system", "-o", "name"), "role.rbac.authorization.k8s.io/")
	c.Kubectl("create", "rolebinding", "later", "-n", "koordinator-system", "--role="+role,
		"--serviceaccount="+controlplane.Namespace+":polder-collect")
	l.settled("no ConfigMap", "from="+sloName+"_(absent) colocation=false disabled=true threshold=false evict=70")
	if a := l.newest().Sample.Allocatable; a.ReclaimedMilliCPU == nil || *a.ReclaimedMilliCPU != 4000 || *a.ReclaimedMemoryBytes != 8<<30 || *a.MidMilliCPU != 1000 || a.MidMemoryBytes != nil || *a.MilliCPU != 8000 {
		text, err := tick.Marshal(a)
		t.Errorf("allocatable %s, %v", text, err)
	}

	l.create(sloMemory)
	l.settled("the guide on memory", "from="+sloName+" colocation=true disabled=false reclaim=60 threshold=true evict=70 lower=none")
	// The guide's command: kubectl patch --patch "$(cat configmap.yaml)".
	l.Kubectl("patch", "cm", "-n", "koordinator-system", "slo-controller-config", "--patch", sloSatisfaction)
	l.settled("the guide on CPU satisfaction", "colocation=true threshold=true evict=70 lower=60 upper=80 window=60")
	l.Kubectl("patch", "cm", "-n", "koordinator-system", "slo-controller-config", "--patch", sloOff)
	l.settled("the guide on suppression", "colocation=true threshold=false lower=none")

	// Entries by label, the first of two, the annotation, a ratio.
	if out, err := l.TryKubectl(sloEntries, "replace", "-f", "-"); err != nil {
		t.Fatalf("kubectl replace: %v\n%s", err, out)
	}
	l.settled("the cluster's", "colocation=true reclaim=50 be=true entry=")
	l.Kubectl("label", "node", "n1", "example.com/pool=gpu")
	l.settled("an entry by label", "reclaim=30 entry=gpu")
	l.Kubectl("label", "node", "n1", "example.com/size=big")
	l.settled("the first of two", "reclaim=30 entry=gpu", sloName+`: colocation-config: the node is selected by nodeConfigs[0] ("gpu") and by nodeConfigs[1] ("big"): the first one applies`)
	l.Kubectl("label", "node", "n1", "example.com/pool-")
	l.settled("the second alone", "reclaim=20 entry=big")
	l.Kubectl("annotate", "node", "n1", `node.koordinator.sh/colocation-strategy={"cpuReclaimThresholdPercent": 45}`)
	l.settled("the annotation", "reclaim=45 entry=big")
	l.Kubectl("label", "node", "n1", "node.koordinator.sh/cpu-reclaim-ratio=0.8")
	l.settled("the ratio", "reclaim=80 entry=big")
	l.Kubectl("annotate", "--overwrite", "node", "n1", `node.koordinator.sh/colocation-strategy={"enable": "no"}`)
	l.settled("a bad annotation", "colocation=true reclaim=80", "annotation node.koordinator.sh/colocation-strategy: enable: got string: want true or false: it is left out")
	l.Kubectl("annotate", "node", "n1", "node.koordinator.sh/colocation-strategy-")
	l.Kubectl("label", "node", "n1", "node.koordinator.sh/cpu-reclaim-ratio-", "example.com/size-")
	l.settled("the cluster's again", "reclaim=50 entry=")
	l.logs("that are not supported")
	if log := l.Log(); strings.Count(log, "that are not supported") != 1 || !strings.Contains(log, "host-application-config, resource-qos-config: clusterStrategy.beClass.cpuQOS.groupIdentity") {
		t.Errorf("the log does not name the unsupported field once:\n%s", log)
	}

	// Invalid edits: the key's last good document stays, and changes of other keys take effect.
	patch := func(data string) {
		l.Kubectl("patch", "cm", "-n", "koordinator-system", "slo-controller-config", "--type=merge", "-p", `{"data":`+data+`}`)
	}
	const bad = sloName + ": colocation-config: cpuReclaimThresholdPercent: -1: want 0 to 100000: the last valid one stays in force"
	patch(`{"colocation-config":"{\"enable\":true,\"cpuReclaimThresholdPercent\":-1}","resource-threshold-config":"{\"clusterStrategy\":{\"memoryEvictThresholdPercent\":80}}"}`)
	l.settled("a bad value", "colocation=true reclaim=50 evict=80", bad)
	patch(`{"colocation-config":"{\"enable\":true"}`)
	l.settled("no JSON", "colocation=true reclaim=50 evict=80", "colocation-config: it is not JSON: unexpected end of JSON input: the last valid one stays in force")
	l.logs(strings.TrimPrefix(bad, sloName+": "))
	if n := strings.Count(l.Log(), strings.TrimPrefix(bad, sloName+": ")); n != 1 { // many ticks contain the error, until the next one
		t.Errorf("it is logged %d times; want once:\n%s", n, l.Log())
	}
	patch(`{"colocation-config":"{\"enable\":true,\"cpuReclaimThresholdPercent\":40,\"nodeConfigs\":[{\"nodeSelector\":{},\"degradeTimeMinutes\":0,\"cpuReclaimThresholdPercent\":10}]}"}`)
	l.settled("a bad entry", "colocation=true reclaim=40 entry=", "colocation-config: nodeConfigs[0].degradeTimeMinutes: 0: want 1 to 1000000: the cluster's strategy applies instead")
	patch(`{"colocation-config":"{\"enable\":true,\"cpuReclaimThresholdPercent\":-1}"}`)
	l.settled("bad again", "reclaim=40", "the last valid one stays in force")

	// A restart while the server is away, and its return: the last good value stays.
	l.stop()
	c.StopAPIServer()
	l = follow(t, c, kubeconfig, state)
	l.settled("a restart without a server", "from="+sloName+" colocation=true reclaim=40 evict=80", "the ConfigMap "+sloName+" was never read: API server")
	c.StartAPIServer()
	l.settled("the server is back", "colocation=true reclaim=40 evict=80", bad)
	c.StopAPIServer()
	l.settled("the server is away", "colocation=true reclaim=40 evict=80", bad, "the ConfigMap "+sloName+" is stale")
	c.StartAPIServer()

	l.Kubectl("delete", "cm", "-n", "koordinator-system", "slo-controller-config")
	l.settled("its end", "from="+sloName+"_(absent) colocation=false reclaim=60 threshold=false evict=70 be=false")
	// The last good values are forgotten with the ConfigMap.
	l.create(strings.Replace(sloMemory, `"enable": true`, `"enable": 1`, 1))
	l.settled("a new, invalid ConfigMap", "from="+sloName+" colocation=false threshold=true", "colocation-config: enable: got number: want true or false: no earlier one was valid: the defaults apply, with nothing enabled")
}
