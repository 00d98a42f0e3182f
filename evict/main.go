// Command evict measures pressure and decides which pods go. Its manual is in manual.go and under evict --help.
package main

import (
	"context"

	"polder/lib/stage"
)

func main() { stage.Main(command()) }

func command() stage.Command {
	var o options
	return stage.Command{
		Name:     "evict",
		Synopsis: "measure pressure on a node, taint it, and end the pods that must go",
		Manual:   manual,
		Kind:     stage.Kind{Reads: true, Writes: true, State: true, Acts: true},
		Flags:    o.flags,
		Run: func(ctx context.Context, s *stage.Session) error {
			if err := o.checkFleet(s); err != nil {
				return err
			}
			switch {
			case o.list && o.fleet:
				return listFleet(s, &o)
			case o.list:
				return list(s, &o)
			case o.checked != "":
				return checkConfig(s, &o)
			case o.thaw:
				return thaw(s)
			}
			return run(ctx, s, &o)
		},
	}
}
