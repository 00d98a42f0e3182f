// Wire is the network test's program in its namespaces: a service with its client, and a job that sends as much as it can with its sink.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "wire:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if dir := os.Getenv("WIRE_CGROUP"); dir != "" { // a socket belongs to the cgroup in which it was made
		if err := os.WriteFile(dir+"/cgroup.procs", []byte("0"), 0); err != nil {
			return err
		}
	}
	if len(args) < 2 {
		return fmt.Errorf("want serve ADDRESS, sink ADDRESS, ask ADDRESS COUNT BYTES, or flood ADDRESS CONNECTIONS")
	}
	switch args[0] {
	case "serve":
		return listen(args[1], serve)
	case "sink":
		return listen(args[1], func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	case "ask":
		return ask(args[1:])
	case "flood":
		return flood(args[1:])
	}
	return fmt.Errorf("no such part: %s", args[0])
}

// listen prints a line on standard output once it listens.
func listen(address string, handle func(net.Conn)) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			handle(c)
		}()
	}
}

// answer is the number of bytes of a response.
const answer = 30_000

// serve answers each byte.
func serve(c net.Conn) {
	data := make([]byte, answer)
	one := make([]byte, 1)
	for {
		if _, err := io.ReadFull(c, one); err != nil {
			return
		}
		if _, err := c.Write(data); err != nil {
			return
		}
	}
}

// Result is the client's latency.
type Result struct {
	P50, P99, Seconds, Bytes float64
}

func ask(args []string) error {
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	c, err := net.Dial("tcp", args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	data := make([]byte, answer)
	var took []float64
	begin := time.Now()
	for range count {
		at := time.Now()
		if _, err := c.Write([]byte{1}); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, data); err != nil {
			return err
		}
		took = append(took, time.Since(at).Seconds())
	}
	r := Result{Seconds: time.Since(begin).Seconds(), Bytes: float64(count) * answer}
	slices.Sort(took)
	r.P50, r.P99 = took[len(took)/2], took[len(took)*99/100]
	return json.NewEncoder(os.Stdout).Encode(r)
}

// flood sends until it is ended, and prints a line when it has started.
func flood(args []string) error {
	connections, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	failed := make(chan error)
	for range connections {
		c, err := net.Dial("tcp", args[0])
		if err != nil {
			return err
		}
		go func() {
			data := make([]byte, 64<<10)
			for {
				if _, err := c.Write(data); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	fmt.Println("flooding")
	return <-failed
}
