package engine

import (
	"polder/lib/tick"
)

const stateVersion = 1

// saved is the state file's content.
type saved struct {
	Nodes map[string]*node `json:"nodes"`
}

func (e *engine) load(action string) error {
	var s saved
	found, err := e.session.LoadState(stateVersion, &s)
	if err != nil || !found {
		return err
	}
	for name, n := range s.Nodes {
		if n != nil {
			n.DropInvalid()
			n.ofBoot(e.session.StateBoot, action)
			e.nodes[name] = n
		}
	}
	return nil
}

// snapshot encodes the state, on the goroutine of the stream.
func (e *engine) snapshot() (tick.Raw, error) {
	for _, n := range e.nodes {
		for name, w := range n.Windows {
			raw, err := tick.Marshal(w)
			if err != nil {
				return nil, err
			}
			if n.Rules == nil {
				n.Rules = map[string]tick.Raw{}
			}
			n.Rules[name] = raw
		}
	}
	return tick.Marshal(saved{Nodes: e.nodes})
}
