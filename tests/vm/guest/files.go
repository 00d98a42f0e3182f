package main

import "os/exec"

// newFiles is a benchmark: the cost of collect's files of disks and of memory's events on version 2.
var newFiles = suite{
	name:  "files",
	doc:   "what it costs to read io.stat, io.pressure and memory.events of 500 pods",
	mount: mountV2,
	tests: []test{{"new files", func(t *T) {
		out, err := exec.Command("/bin/source.test", "-test.run=^$", "-test.bench=NewFiles", "-test.benchtime=20x").CombinedOutput()
		t.Logf("%s", out)
		t.Must(err)
	}}},
}
