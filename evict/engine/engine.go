// Package engine takes a node's ticks through evict's rules, choice and action. tick.go processes one tick.
package engine

import (
	"polder/evict/progress"
	"polder/evict/settings"
	"polder/lib/config"
	"polder/lib/stage"
)

// engine takes each tick through the rules, the choice and the action.
type engine struct {
	*progress.Tracker
	session    *stage.Session
	settings   *settings.Live
	nodes      map[string]*node
	cgroups    *cgroups // nil where none is frozen or killed
	explaining bool
	input      input
	reported   config.Reported
}
