// Isolate applies the advised state of cgroups. See manual.go, or isolate --manual.
package main

import (
	"polder/isolate/resched"
	"polder/lib/stage"
)

func main() {
	if resched.IsChild() {
		resched.RunChild()
	}
	stage.Main(command())
}
