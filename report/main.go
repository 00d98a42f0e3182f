// Command report shows ticks: on a screen, as lines, as metrics. Its manual is in manual.go and under report --manual.
package main

import (
	"polder/lib/stage"
	"polder/report/fleet"
)

func main() { stage.Main(command()) }

func command() stage.Command {
	var o options
	return stage.Command{
		Name:     "report",
		Synopsis: "show what was observed, decided and done, and write it as metrics",
		Summary:  summary,
		Tasks:    tasks,
		Manual:   manual,
		Kind:     stage.Kind{Reads: true, Writes: true, Acts: true},
		Flags:    o.flags,
		Run:      o.run,

		Subcommands: []stage.Command{fleet.Command()},
	}
}
