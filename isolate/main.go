// Isolate makes the advised state of cgroups true. See manual.go, or isolate --manual.
package main

import "polder/lib/stage"

func main() { stage.Main(command()) }
