package engine

import (
	"maps"
	"slices"
	"time"

	"polder/evict/fleet"
	"polder/evict/pick"
	"polder/lib/tick"
)

const (
	stateVersion = 1
	saveEvery    = 10 * time.Second
)

// saved is the state file's content.
type saved struct {
	Nodes map[string]*node `json:"nodes"`
	Fleet *fleet.State     `json:"fleet,omitempty"`
}

// evictionStates are those that the contract knows: an entry of a state file that has another one is no eviction.
var evictionStates = []string{tick.StateWouldEvict, tick.StateRequested, tick.StateCreated, tick.StateSucceeded, tick.StateFailed}

func (e *engine) load(action string) error {
	var s saved
	found, err := e.session.LoadState(stateVersion, &s)
	if err != nil || !found {
		return err
	}
	if e.controller != nil && s.Fleet != nil {
		e.controller.state = *s.Fleet
		e.controller.state.Init()
	}
	for name, n := range s.Nodes {
		if n != nil {
			maps.DeleteFunc(n.Going, func(_ string, l *pick.Leaving) bool {
				return l == nil || !slices.Contains(evictionStates, l.Eviction.State)
			})
			if e.controller == nil { // the fleet controller's own machine is none of its nodes
				n.ofBoot(e.session.StateBoot, action)
			}
			e.nodes[name] = n
		}
	}
	return nil
}

// snapshot encodes what is remembered, on the goroutine of the stream.
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
	s := saved{Nodes: e.nodes}
	if e.controller != nil {
		s.Fleet = &e.controller.state
	}
	return tick.Marshal(s)
}
