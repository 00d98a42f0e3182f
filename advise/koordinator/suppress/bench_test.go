package suppress

import (
	"fmt"
	"testing"

	"polder/lib/tick"
)

// BenchmarkAdvise measures a tick of a node of 48 CPUs with 200 pods, a quarter of them batch pods with varying load.
func BenchmarkAdvise(b *testing.B) {
	var pods []tick.Pod
	for i := range 200 {
		name := fmt.Sprint("p", i)
		if i%4 > 0 {
			pod := service(50)
			pod.UID, pod.Cgroup, pod.Containers[0].Cgroup = name, "/kubepods/burstable/pod"+name, "/kubepods/burstable/pod"+name+"/c"
			pods = append(pods, pod)
			continue
		}
		pod := labelled("BE", name, 100)
		pod.Limits = &tick.Resources{ReclaimedMilliCPU: new(2000.0), ReclaimedMemoryBytes: new(1e9)}
		pod.Containers[0].Limits = pod.Limits
		pods = append(pods, pod)
	}
	st, s, slo := &State{}, machine(pods...), with(nil)
	s.Kubelet.ExclusiveCPUs = "20-23"
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Pods[1].UsageMilliCPU = new(float64(i % 20_000))
		st.step(s, slo)
	}
}
