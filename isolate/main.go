// Command isolate applies the advised state of cgroups. Its manual is in manual.go and under isolate --manual.
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
