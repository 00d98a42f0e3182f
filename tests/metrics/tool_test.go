package metrics

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"polder/tests/await"
)

// soon is a limit for what takes a second on an idle machine.
const soon = 3 * time.Minute

// process is a running tool.
type process struct {
	*exec.Cmd
	url chan string // the address of its metrics, once

	mu  sync.Mutex
	log strings.Builder
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

var urlInLog = regexp.MustCompile(`url=(http://\S+)`)

// start runs a tool with its metrics on a free port.
func start(t *testing.T, in io.Reader, out *os.File, tool string, args ...string) *process {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &process{Cmd: exec.CommandContext(ctx, filepath.Join(bin, tool), append(args, "--metrics-addr", "127.0.0.1:0")...), url: make(chan string, 1)}
	p.Stdin = in
	if out != nil {
		p.Stdout = out
	}
	errors, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(errors); s.Scan(); {
			if m := urlInLog.FindStringSubmatch(s.Text()); m != nil {
				select {
				case p.url <- m[1]:
				default:
				}
			}
			p.mu.Lock()
			fmt.Fprintln(&p.log, s.Text())
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		stop()
		<-read
		_ = p.Wait()
	})
	return p
}

// address is the address of a tool's metrics.
func (p *process) address(t *testing.T) string {
	t.Helper()
	select {
	case url := <-p.url:
		p.url <- url
		return url
	case <-time.After(soon):
		t.Fatalf("%s does not log the address of its metrics: %s", p.Path, p.text())
		return ""
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Timeout: soon}
	defer client.CloseIdleConnections()
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	page, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v: %.300s", url, r.Status, err, page)
	}
	return string(page)
}

// scrape reads a tool's metrics as soon as they have the wanted ones.
func (p *process) scrape(t *testing.T, want string) string {
	t.Helper()
	page := ""
	await.Until(t, soon, p.Path+" tells "+want, func() string {
		if page = get(t, p.address(t)); strings.Contains(page, want) {
			return ""
		}
		return page + "\n" + p.text()
	})
	return page
}

// family is a metric as a page shows it.
type family struct {
	kind, help string
	labels     map[string]bool
}

var (
	comment = regexp.MustCompile(`^# (HELP|TYPE) (\S+) (.*)$`)
	sample  = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+$`)
	oneName = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"`)
	parts   = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// families parses a page; an invalid line fails the test.
func families(t *testing.T, into map[string]*family, page string) {
	t.Helper()
	of := func(name string) *family {
		if into[name] == nil {
			into[name] = &family{labels: map[string]bool{}}
		}
		return into[name]
	}
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if m := comment.FindStringSubmatch(line); m != nil {
			if f := of(m[2]); m[1] == "HELP" {
				f.help = m[3]
			} else {
				f.kind = m[3]
			}
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("the page has the line %q", line)
		}
		name := m[1]
		if base := parts.ReplaceAllString(name, ""); into[base] != nil && (into[base].kind == "histogram" || into[base].kind == "summary") {
			name = base
		}
		for _, l := range oneName.FindAllStringSubmatch(m[2], -1) {
			of(name).labels[l[1]] = true
		}
	}
}
