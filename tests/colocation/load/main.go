// Command load is an open-loop client: it starts a request whenever one is due, whatever happened to earlier ones, and counts a request's
// latency from the time when it was due. A service that stops for a second so has a second's requests that are up to a second late,
// which a client that waits for each response would not see (coordinated omission).
//
//	load -protocol http|redis|set -address HOST:PORT -rate N -for SPAN [-skip SPAN]
//	load -serve HOST:PORT
//
// It prints one line of JSON, a [Result]: the requests that were due within the span, except those of its beginning (-skip).
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Result is the output. Latencies are in milliseconds.
type Result struct {
	Requests int     `json:"requests"`
	Errors   int     `json:"errors"`
	P50      float64 `json:"p50"`
	P99      float64 `json:"p99"`
	P999     float64 `json:"p999"`
	Max      float64 `json:"most"`
}

// connections is how many requests can be in flight at once. Further ones wait for a connection, and their latency continues.
const connections = 128

// responseTimeout is the timeout of one response.
const responseTimeout = 10 * time.Second

func main() {
	protocol := flag.String("protocol", "http", "http, redis or set")
	address := flag.String("address", "", "`HOST:PORT` of the service")
	rate := flag.Float64("rate", 100, "requests a second")
	span := flag.Duration("for", 5*time.Second, "run for this long")
	skip := flag.Duration("skip", 0, "do not count the requests of this first part")
	service := flag.String("serve", "", "serve HTTP at this `HOST:PORT` instead of sending requests, and print the address")
	flag.Parse()
	if *service != "" {
		fmt.Fprintln(os.Stderr, "load:", serve(*service))
		os.Exit(1)
	}
	exchange, ok := map[string]func(*bufio.ReadWriter, int) error{"http": getPage, "redis": manyCommands, "set": oneSet}[*protocol]
	if !ok || *rate <= 0 || *span <= *skip {
		flag.Usage()
		os.Exit(2)
	}
	result := run(*address, *rate, *span, *skip, exchange)
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// run sends the requests and waits for the responses.
func run(address string, rate float64, span, skip time.Duration, exchange func(*bufio.ReadWriter, int) error) Result {
	total := int(rate * span.Seconds())
	due := make(chan int, total)
	latencies := make([]time.Duration, total)
	var failed atomic.Int64
	begin := time.Now()
	at := func(i int) time.Duration { return time.Duration(float64(i) / rate * float64(time.Second)) }
	var workers sync.WaitGroup
	for range min(connections, total) {
		workers.Go(func() {
			var conn *connection
			for i := range due {
				var err error
				if conn == nil {
					conn, err = dial(address)
				}
				if err == nil {
					err = conn.do(func(rw *bufio.ReadWriter) error { return exchange(rw, i) })
				}
				if latencies[i] = time.Since(begin) - at(i); err != nil {
					failed.Add(1)
					conn = conn.close()
				}
			}
			conn.close()
		})
	}
	sendWhenDue(begin, total, at, due)
	close(due)
	workers.Wait()
	counted := slices.Clone(latencies[min(int(rate*skip.Seconds()), total):])
	slices.Sort(counted)
	percentile := func(p float64) float64 {
		if len(counted) == 0 {
			return 0
		}
		return float64(counted[min(int(p*float64(len(counted))), len(counted)-1)]) / float64(time.Millisecond)
	}
	return Result{Requests: len(counted), Errors: int(failed.Load()), P50: percentile(0.50), P99: percentile(0.99), P999: percentile(0.999), Max: percentile(1)}
}

// sendWhenDue sends each request's number when it is due. Go's own timers are as coarse as a millisecond where a process is otherwise idle.
func sendWhenDue(begin time.Time, total int, at func(int) time.Duration, due chan<- int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := range total {
		for {
			remaining := at(i) - time.Since(begin)
			if remaining <= 0 {
				break
			}
			sleep := unix.NsecToTimespec(int64(remaining))
			_ = unix.Nanosleep(&sleep, nil) // a signal ends it early, and the loop continues
		}
		due <- i
	}
}

// connection is one to the service.
type connection struct {
	net.Conn
	rw *bufio.ReadWriter
}

func dial(address string) (*connection, error) {
	c, err := net.DialTimeout("tcp", address, responseTimeout)
	if err != nil {
		return nil, err
	}
	return &connection{c, bufio.NewReadWriter(bufio.NewReaderSize(c, 64<<10), bufio.NewWriterSize(c, 64<<10))}, nil
}

func (c *connection) do(exchange func(*bufio.ReadWriter) error) error {
	if err := c.SetDeadline(time.Now().Add(responseTimeout)); err != nil {
		return err
	}
	return exchange(c.rw)
}

func (c *connection) close() *connection {
	if c != nil {
		_ = c.Conn.Close() // its requests have failed, or are complete
	}
	return nil
}

// getPage requests the page that the service has to compress.
func getPage(rw *bufio.ReadWriter, _ int) error {
	if _, err := rw.WriteString("GET /page.html HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n"); err != nil {
		return err
	}
	if err := rw.Flush(); err != nil {
		return err
	}
	response, err := http.ReadResponse(rw.Reader, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Encoding") != "gzip" {
		return fmt.Errorf("status %s, encoding %q", response.Status, response.Header.Get("Content-Encoding"))
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// commandsPerRequest is how many commands one request to redis has: half SET, half GET, of values of a KiB.
const commandsPerRequest = 100

var value = bytes.Repeat([]byte("polder, "), 128)

func manyCommands(rw *bufio.ReadWriter, i int) error {
	for n := range commandsPerRequest / 2 {
		key := fmt.Sprintf("key-%d", (i*commandsPerRequest+n)%10_000)
		if err := command(rw, "SET", key, string(value)); err != nil {
			return err
		}
		if err := command(rw, "GET", key); err != nil {
			return err
		}
	}
	if err := rw.Flush(); err != nil {
		return err
	}
	for range commandsPerRequest {
		if err := reply(rw.Reader); err != nil {
			return err
		}
	}
	return nil
}

// oneSet is a single write, which the service commits to the disk before it responds.
func oneSet(rw *bufio.ReadWriter, i int) error {
	if err := command(rw, "SET", fmt.Sprintf("key-%d", i%10_000), string(value)); err != nil {
		return err
	}
	if err := rw.Flush(); err != nil {
		return err
	}
	return reply(rw.Reader)
}

// command writes a command in redis' protocol.
func command(rw *bufio.ReadWriter, arguments ...string) error {
	if _, err := fmt.Fprintf(rw, "*%d\r\n", len(arguments)); err != nil {
		return err
	}
	for _, argument := range arguments {
		if _, err := fmt.Fprintf(rw, "$%d\r\n%s\r\n", len(argument), argument); err != nil {
			return err
		}
	}
	return nil
}

// reply reads a simple string or a bulk one.
func reply(r *bufio.Reader) error {
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	switch line[0] {
	case '+':
		return nil
	case '$':
		var n int
		if _, err := fmt.Sscanf(line, "$%d", &n); err != nil || n < 0 {
			return fmt.Errorf("redis responded %q", line)
		}
		_, err := r.Discard(n + len("\r\n"))
		return err
	}
	return fmt.Errorf("redis responded %q", line)
}
