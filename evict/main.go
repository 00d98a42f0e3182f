// Command evict measures pressure and decides which pods are evicted. Its manual is in manual.go and under evict --manual.
package main

import (
	"polder/evict/engine"
	"polder/evict/fleet"
	"polder/lib/stage"
)

func main() { stage.Main(command()) }

func command() stage.Command {
	c := engine.Command()
	c.Summary, c.Tasks, c.Manual = summary, tasks, manual
	c.Subcommands = []stage.Command{fleet.Command()}
	return c
}
