package suppress

import (
	"polder/advise/policy"
	"polder/lib/cpus"
)

type (
	set   = cpus.Set
	shape = policy.Shape
)

// parse reads a list of our own, or a state file's: what is no list is empty.
func parse(list string) set {
	s, _ := cpus.Parse(list)
	return s
}
