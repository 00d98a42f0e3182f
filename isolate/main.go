// Isolate applies the advised state of cgroups. See manual.go, or isolate --manual.
package main

import "polder/lib/stage"

func main() { stage.Main(command()) }
