// Command collect samples the machine: one line of JSON, a tick, an interval. Its manual is in manual.go and under collect --manual.
package main

import (
	"polder/collect/fleet"
	"polder/lib/stage"
)

func main() { stage.Main(command()) }

// command is the tool as a value, so that tests can run it in their own process.
func command() stage.Command {
	o := new(options)
	return stage.Command{
		Name:     "collect",
		Synopsis: "sample the machine: one tick an interval, with the node's and the containers' use",
		Summary:  summary,
		Tasks:    tasks,
		Manual:   manual,
		Kind:     stage.Kind{Writes: true, State: true},
		Flags:    o.flags,
		Run:      o.run,

		Subcommands: []stage.Command{fleet.Command()},
	}
}
