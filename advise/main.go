// Command advise decides, from collect's samples, what may be reclaimed and which CPUs or quotas each pod gets.
//
// See advise --help, and docs/advise.md.
package main

import "polder/lib/stage"

func main() { stage.Main(command()) }
