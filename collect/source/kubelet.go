package source

import (
	"polder/lib/cpumanager"
	"polder/lib/tick"
)

// Kubelet is the state that the node's kubelet keeps on disk, and the version of the cgroups that it uses. A node without
// kubelet is no error. After an error the section is absent, because the exclusive CPUs are then not known.
var Kubelet = Source{
	Name: "kubelet",
	Doc:  "kubelet's CPU manager: its policy, the CPUs that it assigned to containers exclusively, from cpu_manager_state",
	New: func(e *Env) Reader {
		return &kubeletReader{env: e, file: cpumanager.NewReader(e.Host.Path(e.KubeletRoot))}
	},
}

type kubeletReader struct {
	env  *Env
	file *cpumanager.Reader
	of   *cpumanager.State // what out was made from
	out  tick.Kubelet
}

func (k *kubeletReader) Read(r *Round) error {
	if t := k.env.pods.tree; t != nil {
		r.Sample.CgroupVersion = t.h.Version("cpuset")
	}
	state, err := k.file.Read()
	if err != nil || state == nil {
		return err
	}
	if state != k.of {
		k.of = state
		k.out = tick.Kubelet{CPUManagerPolicy: state.Policy, ExclusiveCPUs: state.Exclusive.String()}
	}
	r.Sample.Kubelet = &k.out
	return nil
}
