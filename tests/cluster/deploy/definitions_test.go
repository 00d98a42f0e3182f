package deploy

import (
	"fmt"
	"strings"
	"testing"
)

// The colocation guide's objects, as it prints them.
const guideReclaimed = `apiVersion: config.katalyst.kubewharf.io/v1alpha1
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

var guideMemory = guideReclaimed[:strings.Index(guideReclaimed, "      reclaimedResources")] + `      memoryEvictionPluginConfig:
        enableNumaLevelDetection: false
        systemKswapdRateExceedTimesThreshold: 1
        systemKswapdRateThreshold: 2000
`

func TestGuideObjectsAreAccepted(t *testing.T) {
	c := cluster(t)
	for name, yaml := range map[string]string{"reclaimed": guideReclaimed, "memory": guideMemory} {
		t.Run(name, func(t *testing.T) {
			out, err := c.TryKubectl(yaml, "create", "-f", "-")
			if err != nil {
				t.Fatal(err)
			}
			if want := "katalystcustomconfig.config.katalyst.kubewharf.io/eviction-configuration created\nevictionconfiguration.config.katalyst.kubewharf.io/default created"; out != want {
				t.Errorf("kubectl create prints %q, want %q", out, want)
			}
			// The kinds are namespaced, and the guide sets no namespace.
			if got := c.Kubectl("get", "kcc,ec", "--all-namespaces", "-o", "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {end}"); got != "default/eviction-configuration default/default" {
				t.Errorf("there are %q", got)
			}
			got := c.Kubectl("get", "ec", "default", "-o", "jsonpath={.spec.config.evictionPluginsConfig}")
			if name == "reclaimed" && got != `{"reclaimedResourcesEvictionPluginConfig":{"evictionThreshold":{"katalyst.kubewharf.io/reclaimed_memory":10,"katalyst.kubewharf.io/reclaimed_millicpu":10}}}` ||
				name == "memory" && got != `{"memoryEvictionPluginConfig":{"enableNumaLevelDetection":false,"systemKswapdRateExceedTimesThreshold":1,"systemKswapdRateThreshold":2000}}` {
				t.Errorf("the server stored %s", got)
			}
			c.Kubectl("delete", "kcc,ec", "--all", "--namespace", "default")
		})
	}
}

// Fields of Katalyst that Polder does not use are preserved.
func TestKatalystFieldsAreKept(t *testing.T) {
	c := cluster(t)
	c.Apply(`apiVersion: config.katalyst.kubewharf.io/v1alpha1
kind: AdminQoSConfiguration
metadata: {name: kept, namespace: default}
spec:
  nodeLabelSelector: pool=batch
  priority: 5
  config:
    evictionConfig:
      cpuPressureEvictionConfig: {loadUpperBoundRatio: 1.8, numaCPUPressureEvictionConfig: {enableEviction: true}}
      rootfsPressureEvictionConfig: {minimumImageFsFreeThreshold: 10%}
    fineGrainedResourceConfig: {cpuBurstConfig: {enableDedicatedCoresDefaultCPUBurst: true}}
    reclaimedResourceConfig:
      enableReclaim: true
      reservedResourceForAllocate: {cpu: 4, memory: 5Gi}
`)
	for path, want := range map[string]string{
		".evictionConfig.cpuPressureEvictionConfig.numaCPUPressureEvictionConfig": `{"enableEviction":true}`,
		".evictionConfig.rootfsPressureEvictionConfig":                            `{"minimumImageFsFreeThreshold":"10%"}`,
		".fineGrainedResourceConfig":                                              `{"cpuBurstConfig":{"enableDedicatedCoresDefaultCPUBurst":true}}`,
		".reclaimedResourceConfig.reservedResourceForAllocate":                    `{"cpu":4,"memory":"5Gi"}`,
	} {
		if got := c.Kubectl("get", "aqc", "kept", "-o", "jsonpath={.spec.config"+path+"}"); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	if got, want := fields(c.Kubectl("get", "aqc", "kept")), "NAME PAUSED SELECTOR PRIORITY NODES DURATION VALID AGE"; got[0] != want {
		t.Errorf("kubectl get aqc prints the column headers %q, want %q", got[0], want)
	}
}

func TestBadObjectsAreRefused(t *testing.T) {
	c := cluster(t)
	config := func(kind, spec string) string {
		return fmt.Sprintf("apiVersion: config.katalyst.kubewharf.io/v1alpha1\nkind: %s\nmetadata: {name: bad, namespace: default}\nspec: %s\n", kind, spec)
	}
	cnr := func(spec string) string {
		return "apiVersion: node.katalyst.kubewharf.io/v1alpha1\nkind: CustomNodeResource\nmetadata: {name: bad}\nspec: " + spec + "\n"
	}
	for name, one := range map[string]struct{ yaml, want string }{
		"labels and names": {
			config("AdminQoSConfiguration", `{config: {}, nodeLabelSelector: a=b, ephemeralSelector: {nodeNames: [n1], lastDuration: 1h}}`),
			"nodeLabelSelector and ephemeralSelector.nodeNames exclude each other: nodes are chosen by labels or by name",
		},
		"labels and names of the guide's kind": {
			config("EvictionConfiguration", `{config: {}, nodeLabelSelector: a=b, ephemeralSelector: {nodeNames: [n1], lastDuration: 1h}}`),
			"nodeLabelSelector and ephemeralSelector.nodeNames exclude each other: nodes are chosen by labels or by name",
		},
		"names without a duration": {
			config("AdminQoSConfiguration", `{config: {}, ephemeralSelector: {nodeNames: [n1]}}`),
			"nodeNames and lastDuration go together: what is for nodes by name holds for a limited time",
		},
		"a duration without names": {
			config("EvictionConfiguration", `{ephemeralSelector: {lastDuration: 1h}}`),
			"nodeNames and lastDuration go together: what is for nodes by name holds for a limited time",
		},
		"no duration": {
			config("AdminQoSConfiguration", `{config: {}, ephemeralSelector: {nodeNames: [n1], lastDuration: 1 day}}`),
			"spec.ephemeralSelector.lastDuration in body should match",
		},
		"priority of nothing": {
			config("AdminQoSConfiguration", `{config: {}, priority: 3}`),
			"priority counts among label selectors alone: set nodeLabelSelector too",
		},
		"reversed bounds": {
			config("AdminQoSConfiguration", `{config: {evictionConfig: {cpuPressureEvictionConfig: {loadLowerBoundRatio: 3, loadUpperBoundRatio: 2}}}}`),
			"loadLowerBoundRatio must not be above loadUpperBoundRatio: the node is tainted before anybody is evicted",
		},
		"a percentage over one": {
			config("AdminQoSConfiguration", `{config: {evictionConfig: {cpuPressureEvictionConfig: {loadThresholdMetPercentage: 80}}}}`),
			"loadThresholdMetPercentage in body should be less than or equal to 1",
		},
		"a negative reserve": {
			config("AdminQoSConfiguration", `{config: {reclaimedResourceConfig: {reservedResourceForAllocate: {cpu: "-4"}}}}`),
			"reservedResourceForAllocate.cpu in body should match",
		},
		"no config": {config("AdminQoSConfiguration", `{}`), "spec.config: Required value"},
		"a threshold of 0": {
			config("EvictionConfiguration", `{config: {evictionPluginsConfig: {reclaimedResourcesEvictionPluginConfig: {evictionThreshold: {katalyst.kubewharf.io/reclaimed_millicpu: 0}}}}}`),
			"should be greater than 0",
		},
		"a typing error": {
			config("EvictionConfiguration", `{config: {evictionPluginsConfig: {memoryEvictionPluginConfig: {systemKswapdRateTreshold: 2000}}}}`),
			`unknown field "spec.config.evictionPluginsConfig.memoryEvictionPluginConfig.systemKswapdRateTreshold"`,
		},
		"a target without a version": {
			config("KatalystCustomConfig", `{targetType: {group: config.katalyst.kubewharf.io, resource: evictionconfigurations}}`),
			"spec.targetType.version: Required value",
		},
		"a kind for a resource": {
			config("KatalystCustomConfig", `{targetType: {group: config.katalyst.kubewharf.io, resource: EvictionConfiguration, version: v1alpha1}}`),
			"spec.targetType.resource in body should match",
		},
		"one priority twice": {
			config("KatalystCustomConfig", `{targetType: {group: g, resource: r, version: v}, nodeLabelSelectorAllowedKeyList: [{priority: 1, keyList: [a]}, {priority: 1, keyList: [b]}]}`),
			`spec.nodeLabelSelectorAllowedKeyList[1]: Duplicate value: {"priority":1}`,
		},
		"an unknown effect": {cnr(`{taints: [{key: k, effect: Never}]}`), `spec.taints[0].effect: Unsupported value: "Never"`},
		"a taint twice":     {cnr(`{taints: [{key: k, effect: NoSchedule}, {key: k, effect: NoSchedule, value: v}]}`), `spec.taints[1]: Duplicate value: {"effect":"NoSchedule","key":"k"}`},
		"no quantity":       {cnr(`{nodeResourceProperties: [{propertyName: numa, propertyQuantity: two}]}`), "propertyQuantity in body should match"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.TryKubectl(one.yaml, "create", "-f", "-")
			if err == nil {
				t.Fatal("the object was accepted")
			}
			if !strings.Contains(err.Error(), one.want) {
				t.Errorf("the server refused it with\n%v\nwant %s", err, one.want)
			}
		})
	}
}

// fields are the lines of a table with single spaces between its columns.
func fields(table string) []string {
	var lines []string
	for line := range strings.Lines(table) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func TestCustomNodeResource(t *testing.T) {
	c := cluster(t)
	apply := func(manager, subresource, yaml string) {
		t.Helper()
		args := []string{"apply", "--server-side", "--field-manager", manager, "-f", "-"}
		if subresource != "" {
			args = append(args, "--subresource", subresource)
		}
		if _, err := c.TryKubectl("apiVersion: node.katalyst.kubewharf.io/v1alpha1\nkind: CustomNodeResource\nmetadata: {name: node-1}\n"+yaml, args...); err != nil {
			t.Fatal(err)
		}
	}
	apply("polder-report", "", "spec: {taints: [{key: node.katalyst.kubewharf.io/CPUPressure, effect: NoSchedule, timeAdded: \"2023-01-05T05:26:51Z\"}]}")
	// The guide's status, and the fields that Polder writes beside it today.
	apply("polder-report", "status", `status:
    resourceAllocatable:
        katalyst.kubewharf.io/reclaimed_memory: "195257901056"
        katalyst.kubewharf.io/reclaimed_millicpu: 44k
    resourceCapacity:
        katalyst.kubewharf.io/reclaimed_memory: "195257901056"
        katalyst.kubewharf.io/reclaimed_millicpu: 44k
    resources:
        allocatable: {resource.katalyst.kubewharf.io/reclaimed_millicpu: 44k}
        capacity: {resource.katalyst.kubewharf.io/reclaimed_millicpu: 44k}
    topologyZone:
    - {type: Socket, name: "0", children: [{type: Numa, name: "0", resources: {allocatable: {resource.katalyst.kubewharf.io/reclaimed_millicpu: 22k}}, children: [{type: L3CacheGroup, name: "3"}]}]}
`)
	table := fields(c.Kubectl("get", "kcnr"))
	if table[0] != "NAME RECLAIMED MILLICPU RECLAIMED BYTES TAINTS AGE" {
		t.Errorf("kubectl get kcnr prints the column headers %q", table[0])
	}
	if want := `node-1 44k 195257901056 [{"effect":"NoSchedule","key":"node.katalyst.kubewharf.io/CPUPressure","timeAdded":"2023-01-05T05:26:51Z"}] `; !strings.HasPrefix(table[1], want) {
		t.Errorf("kubectl get kcnr prints %q, want %q", table[1], want)
	}
	if got := c.Kubectl("get", "kcnr", "node-1", "-o", "jsonpath={.status.topologyZone[0].children[0].children[0]}"); got != `{"name":"3","type":"L3CacheGroup"}` {
		t.Errorf("the third level of the topology is %s", got)
	}

	// Each writer has its own taints.
	apply("somebody-else", "", "spec: {taints: [{key: node.kubernetes.io/unschedulable, effect: NoScheduleForReclaimedTasks}]}")
	apply("polder-report", "", "spec: {taints: []}")
	if got := c.Kubectl("get", "kcnr", "node-1", "-o", "jsonpath={.spec.taints[*].key}"); got != "node.kubernetes.io/unschedulable" {
		t.Errorf("after report removed its taint there are %q", got)
	}
	// The status can be written only through its subresource.
	apply("polder-report", "", "status: {resourceAllocatable: {katalyst.kubewharf.io/reclaimed_millicpu: 1k}}")
	if got := c.Kubectl("get", "kcnr", "node-1", "-o", `jsonpath={.status.resourceAllocatable.katalyst\.kubewharf\.io/reclaimed_millicpu}`); got != "44k" {
		t.Errorf("a write that bypassed the subresource made the status %q", got)
	}
}

// TestEveryFieldIsDescribed checks the schemas that the server returns.
func TestEveryFieldIsDescribed(t *testing.T) {
	c := cluster(t)
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct {
				Names    struct{ ShortNames []string }
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
					}
				}
			}
			Status struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
	}
	c.Get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &list)
	short := map[string]string{}
	for _, crd := range list.Items {
		if !strings.HasSuffix(crd.Metadata.Name, ".katalyst.kubewharf.io") && !strings.HasSuffix(crd.Metadata.Name, ".koordinator.sh") {
			continue
		}
		short[crd.Metadata.Name] = strings.Join(crd.Spec.Names.ShortNames, ",")
		for _, condition := range crd.Status.Conditions {
			if condition.Type == "NonStructuralSchema" && condition.Status == "True" {
				t.Errorf("%s: %s", crd.Metadata.Name, condition.Message)
			}
		}
		n := 0
		describe(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, crd.Metadata.Name, func(path string, described bool) {
			if n++; !described && !strings.HasSuffix(path, ".metadata") {
				t.Errorf("%s has no description", path)
			}
		})
		if n < 15 {
			t.Errorf("%s has %d fields", crd.Metadata.Name, n)
		}
	}
	want := map[string]string{
		"customnoderesources.node.katalyst.kubewharf.io":      "kcnr",
		"katalystcustomconfigs.config.katalyst.kubewharf.io":  "kcc",
		"adminqosconfigurations.config.katalyst.kubewharf.io": "aqc",
		"evictionconfigurations.config.katalyst.kubewharf.io": "ec",
		"clustercolocationprofiles.config.koordinator.sh":     "",
		"nodemetrics.slo.koordinator.sh":                      "",
	}
	if fmt.Sprint(short) != fmt.Sprint(want) {
		t.Errorf("the kinds and their short names are %v, want %v", short, want)
	}
}

func describe(schema map[string]any, path string, report func(path string, described bool)) {
	properties, _ := schema["properties"].(map[string]any)
	for name, one := range properties {
		property := one.(map[string]any)
		text, _ := property["description"].(string)
		report(path+"."+name, text != "")
		describe(property, path+"."+name, report)
	}
	for _, under := range []string{"items", "additionalProperties"} {
		if inner, ok := schema[under].(map[string]any); ok {
			describe(inner, path+"[]", report)
		}
	}
}
