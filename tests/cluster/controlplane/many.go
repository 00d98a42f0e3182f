package controlplane

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"

	"polder/tests/cluster/program"
)

// Each calls f for every number under n, 16 at a time.
func Each(n int, f func(int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	all.Wait()
}

// kwokStages make kwok act as the kubelets: nodes become ready, pods run, and deleted pods end.
const kwokStages = `
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-initialize}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions: [{key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}]
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      {{ range NodeConditions }}
      - {lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }}, message: {{ .message | Quote }}, reason: {{ .reason | Quote }}, status: {{ .status | Quote }}, type: {{ .type | Quote }}}
      {{ end }}
      capacity: {cpu: "48", memory: 195924424Ki, pods: "110"}
      allocatable: {cpu: "48", memory: 195924424Ki, pods: "110"}
      phase: Running
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - {key: '.status.phase', operator: NotIn, values: [Running]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      phase: Running
      startTime: {{ $now | Quote }}
      conditions:
      - {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-delete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions: [{key: '.metadata.deletionTimestamp', operator: Exists}]
  next:
    finalizers: {empty: true}
    delete: true
`

// Kwok runs kwok for the nodes with these labels, or for all, until the test ends.
func (c *ControlPlane) Kwok(selector string) *program.Program {
	c.Helper()
	dir := Need(c.TB, "kwok")
	stages, nodes := c.path("stages.yaml"), []string{"--manage-all-nodes=true"}
	if selector != "" {
		nodes = []string{"--manage-all-nodes=false", "--manage-nodes-with-label-selector=" + selector}
	}
	if err := os.WriteFile(stages, []byte(kwokStages), 0o600); err != nil {
		c.Fatal(err)
	}
	kwok, err := program.Start(c.path("kwok.log"), exec.Command(filepath.Join(dir, "kwok"), append(nodes,
		"--kubeconfig", c.Kubeconfig(), "--config", stages, "--node-lease-duration-seconds=40", "--cidr=10.0.0.0/8")...))
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(kwok.Kill)
	return kwok
}
