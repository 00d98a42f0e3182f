package kubernetes

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// Mid resources are counted besides the others, and do not make a pod reclaimed.
func TestMid(t *testing.T) {
	p := (&Reading{BestEffort: tick.QoSShared}).Pod(decoded(t, `{"spec":{"containers":[
		{"name":"a","resources":{"requests":{"kubernetes.io/mid-cpu":"1500","kubernetes.io/mid-memory":"1Gi"},"limits":{"kubernetes.io/mid-cpu":"2k","kubernetes.io/mid-memory":"1Gi"}}},
		{"name":"b","resources":{"requests":{"kubernetes.io/mid-cpu":500}}}]}}`))
	want := &tick.Resources{MidMilliCPU: new(2000.0), MidMemoryBytes: new(float64(1 << 30))}
	if diff := cmp.Diff(want, p.Tick.Requests); diff != "" || p.Tick.QoS != tick.QoSShared || p.Tick.QoSSource != tick.QoSFromKubernetes || p.Tick.Errors != nil {
		t.Errorf("%s by %s, errors %q, requests %s", p.Tick.QoS, p.Tick.QoSSource, p.Tick.Errors, diff)
	}
	if l := p.Containers[0].Limits; l == nil || *l.MidMilliCPU != 2000 || *l.MidMemoryBytes != 1<<30 || l.ReclaimedMilliCPU != nil {
		t.Errorf("limits %+v", l)
	}
	p = (&Reading{}).Pod(decoded(t, `{"spec":{"containers":[{"name":"a","resources":{"requests":{"kubernetes.io/mid-cpu":"x","kubernetes.io/mid-memory":"-1"}}}]}}`))
	if p.Tick.Requests != nil || len(p.Tick.Errors) != 2 {
		t.Errorf("%+v, errors %q; want none, and two errors", p.Tick.Requests, p.Tick.Errors)
	}
}

// A sidecar's batch resources are added to those of the containers; an init container's count where they are more.
func TestBatchOfSidecar(t *testing.T) {
	res := func(milli int) string {
		return fmt.Sprintf(`"resources":{"requests":{"kubernetes.io/batch-cpu":"%d","kubernetes.io/batch-memory":"%dMi"}}`, milli, milli)
	}
	for name, c := range map[string]struct {
		inits string
		want  float64
	}{
		"none":                    {``, 1000},
		"sidecar":                 {`{"name":"s","restartPolicy":"Always",` + res(500) + `}`, 1500},
		"two":                     {`{"name":"s","restartPolicy":"Always",` + res(500) + `},{"name":"r","restartPolicy":"Always",` + res(200) + `}`, 1700},
		"init":                    {`{"name":"i",` + res(500) + `}`, 1000},
		"sidecar and larger init": {`{"name":"s","restartPolicy":"Always",` + res(500) + `},{"name":"i",` + res(3000) + `}`, 3500},
	} {
		p := (&Reading{}).Pod(decoded(t, `{"metadata":{"labels":{"koordinator.sh/qosClass":"BE"}},"spec":{"initContainers":[`+c.inits+`],"containers":[{"name":"a",`+res(1000)+`}]}}`))
		if got := p.Tick.Requests; *got.ReclaimedMilliCPU != c.want || *got.ReclaimedMemoryBytes != c.want*(1<<20) || len(p.Tick.Errors) > 0 {
			t.Errorf("%s: %v milli, %v bytes, errors %q; want %v", name, *got.ReclaimedMilliCPU, *got.ReclaimedMemoryBytes, p.Tick.Errors, c.want)
		}
	}
}

func TestKubernetesClass(t *testing.T) {
	for name, c := range map[string]struct{ pod, want string }{
		"the class in the status":       {`{"status":{"qosClass":"Guaranteed"},"spec":{"containers":[{}]}}`, "Guaranteed"},
		"what is none":                  {`{"status":{"qosClass":"Best"},"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}`, "Burstable"},
		"nothing":                       {`{}`, "BestEffort"},
		"batch resources alone":         {`{"spec":{"containers":[{"resources":{"requests":{"kubernetes.io/batch-cpu":"1"}}}]}}`, "BestEffort"},
		"limits alone":                  {`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1","memory":"1Gi"}}}]}}`, "Guaranteed"},
		"a marked pod, whatever it is":  {`{"metadata":{"labels":{"koordinator.sh/qosClass":"BE"}},"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}`, "Burstable"},
		"one container without a limit": {`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1","memory":"1Gi"}}},{}]}}`, "Burstable"},
	} {
		if got := (&Reading{}).Pod(decoded(t, c.pod)).Tick.KubernetesQOS; got != c.want {
			t.Errorf("%s: %s; want %s", name, got, c.want)
		}
	}
}

// Resources of the node object under Koordinator's names, the old ones too, are read; those under Katalyst's names are not.
func TestNodePublished(t *testing.T) {
	resources := func(milli, bytes, batch, batchBytes, mid, midBytes float64) *tick.Resources {
		r := amountsOf(milli, bytes, batch, batchBytes)
		if mid >= 0 {
			r.MidMilliCPU = new(mid)
		}
		if midBytes >= 0 {
			r.MidMemoryBytes = new(midBytes)
		}
		return r
	}
	for name, c := range map[string]struct {
		list string
		want *tick.Resources
	}{
		"today's":      {`"cpu":"8","memory":"1Gi","kubernetes.io/batch-cpu":"4541","kubernetes.io/batch-memory":"17236565027","kubernetes.io/mid-cpu":"1k","kubernetes.io/mid-memory":"1Gi"`, resources(8000, 1<<30, 4541, 17236565027, 1000, 1<<30)},
		"the guide's":  {`"cpu":"8","koordinator.sh/batch-cpu":"4541","koordinator.sh/batch-memory":"17236565027"`, resources(8000, -1, 4541, 17236565027, -1, -1)},
		"withdrawn":    {`"cpu":"8","kubernetes.io/batch-cpu":"0"`, resources(8000, -1, 0, -1, -1, -1)},
		"Katalyst's":   {`"cpu":"8","resource.katalyst.kubewharf.io/reclaimed_millicpu":"44k"`, resources(8000, -1, -1, -1, -1, -1)},
		"none at all":  {`"pods":"110"`, nil},
		"no whole one": {`"cpu":"8","kubernetes.io/batch-cpu":"x"`, resources(8000, -1, -1, -1, -1, -1)},
	} {
		n := NodeOf(decoded(t, `{"metadata":{"name":"n"},"status":{"capacity":{`+c.list+`},"allocatable":{`+c.list+`}}}`))
		if diff := cmp.Diff(c.want, n.Capacity); diff != "" {
			t.Errorf("%s: capacity %s", name, diff)
		}
		if diff := cmp.Diff(c.want, n.Allocatable); diff != "" {
			t.Errorf("%s: allocatable %s", name, diff)
		}
		if (len(n.Problems) > 0) != (name == "no whole one") {
			t.Errorf("%s: problems %q", name, n.Problems)
		}
	}
}
