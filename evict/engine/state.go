package engine

import (
	"polder/evict/act"
	"polder/lib/stage"
	"polder/lib/tick"
)

const stateVersion = 1

// savedState is the state file's content.
type savedState struct {
	Nodes map[string]*node `json:"nodes"`
}

func (e *engine) load(action string) error {
	var s savedState
	found, err := e.session.LoadState(stateVersion, &s)
	switch {
	case err != nil:
		return err
	case found:
	case action == act.FreezePods && !e.session.DryRun: // this run would replace the only list of the frozen pods
		if err := checkNoState(e.session); err != nil {
			return stage.Usagef("--action %s: %w", action, err)
		}
		return nil
	default:
		return nil
	}
	for name, n := range s.Nodes {
		if n != nil {
			n.DropInvalid()
			n.dropEndedByReboot(e.session.StateBoot, action)
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
			if n.EncodedWindows == nil {
				n.EncodedWindows = map[string]tick.Raw{}
			}
			n.EncodedWindows[name] = raw
		}
	}
	return tick.Marshal(savedState{Nodes: e.nodes})
}
