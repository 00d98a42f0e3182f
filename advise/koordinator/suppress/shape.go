package suppress

import (
	"polder/advise/policy"
	"polder/lib/cpus"
)

type (
	set   = cpus.Set
	shape = policy.Shape
)

// parse reads a list of our own, or a state file's: an invalid list counts as empty.
func parse(list string) set {
	s, _ := cpus.Parse(list)
	return s
}
