package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"time"

	"polder/tests/vmnode/wire"
)

// serve is the agent: every request is a script, every response its result.
func serve() error {
	http.Handle("POST "+wire.RunPath, wire.NewAgent(run))
	return http.ListenAndServe(fmt.Sprintf(":%d", wire.AgentPort), nil)
}

func run(c wire.Command) wire.Result {
	if r, ok := quick(c.Script); ok {
		return r
	}
	return shell(c)
}

// shell runs a script.
func shell(c wire.Command) wire.Result {
	cmd := exec.Command("/bin/sh", "-c", c.Script)
	var out, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(c.Input), &out, &stderr
	cmd.WaitDelay = time.Second // processes that it left in the background may hold its output
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		return wire.Result{Status: -1, Stderr: err.Error()}
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		fmt.Fprintln(&stderr, "the script left something in the background that holds its output")
	}
	return wire.Result{Status: cmd.ProcessState.ExitCode(), Output: out.Bytes(), Stderr: stderr.String()}
}
