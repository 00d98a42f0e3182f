package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is a line of `go test -json` (see `go doc test2json`).
type event struct {
	Action     string
	Package    string
	ImportPath string // for the output of a package's build, which has no Package
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// results are the outcome of one `go test`. Progress is printed as it comes.
type results struct {
	printf func(format string, args ...any)
	cpu    *used // of the tier

	mu      sync.Mutex
	passed  int
	failed  []failure
	chance  []failure           // failed at first, and passed when they were run again alone
	skipped map[string][]string // the tests by the reason of their skip

	output  map[string][]string  // the output of unfinished tests and packages, by key
	begun   map[string]time.Time // unfinished top-level tests, by key
	failing map[string]bool      // packages with a test that failed, whose output is printed already
	cut     map[string]bool      // packages that panicked or ran out of time, so that some of their tests have not run
}

func newResults(printf func(string, ...any)) *results {
	return &results{
		printf: printf, skipped: map[string][]string{},
		output: map[string][]string{}, begun: map[string]time.Time{},
		failing: map[string]bool{}, cut: map[string]bool{},
	}
}

// A failure is a test, or a package, that failed.
type failure struct {
	key      string   // "package" or "package Test"
	messages []string // the first line of each of its messages
}

// part is what can be run again alone: a top-level test, or a whole package where test is empty.
type part struct{ pkg, test string }

// again returns the parts that failed, each once, in the order of their failures.
func (r *results) again() []part {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []part
	for _, f := range r.failed {
		pkg, test, _ := strings.Cut(f.key, " ")
		test, _, _ = strings.Cut(test, "/")
		if r.cut[pkg] {
			test = ""
		}
		if one := (part{pkg, test}); !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}

// forgive moves the failures of a part to those by chance. It has passed now, with so many tests.
func (r *results) forgive(one part, passed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed += passed
	r.failed = slices.DeleteFunc(r.failed, func(f failure) bool {
		pkg, test, _ := strings.Cut(f.key, " ")
		top, _, _ := strings.Cut(test, "/")
		if pkg != one.pkg || one.test != "" && top != one.test {
			return false
		}
		r.chance = append(r.chance, f)
		return true
	})
}

// slow is the duration from which on a single test has its own line.
const slow = 5.0

// read reads the events of one `go test` until its end. It prints lines that are no events unchanged.
func (r *results) read(in io.Reader) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		var e event
		if json.Unmarshal(scanner.Bytes(), &e) != nil {
			r.printf("%s", scanner.Text())
			continue
		}
		r.take(e)
	}
	return scanner.Err()
}

func (r *results) take(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := strings.TrimPrefix(e.Package, "polder/")
	key := strings.TrimSpace(name + " " + e.Test)
	topLevel := e.Test != "" && !strings.Contains(e.Test, "/")
	switch e.Action {
	case "build-output":
		r.printf("%s", strings.TrimSuffix(e.Output, "\n"))
	case "run":
		if topLevel {
			r.begun[key] = time.Now()
		}
	case "output":
		if strings.HasPrefix(e.Output, "panic: ") || strings.HasPrefix(e.Output, "fatal error: ") {
			r.cut[name] = true
		}
		r.output[key] = append(r.output[key], e.Output)
	case "pass":
		if e.Test == "" {
			r.printf("ok    %s  %.1f s", name, e.Elapsed)
			r.forget(name)
			return
		}
		r.passed++
		if topLevel && e.Elapsed >= slow {
			r.printf("ok    %s  %.1f s", key, e.Elapsed)
		}
		r.forgetTest(key)
	case "skip":
		if e.Test != "" {
			reason := reasonOf(r.output[key])
			r.skipped[reason] = append(r.skipped[reason], key)
		}
		r.forgetTest(key)
	case "fail":
		r.fail(name, key, e)
	}
}

// fail prints the output of a failed test, or of a package that failed by itself the output of all its unfinished tests.
func (r *results) fail(name, key string, e event) {
	if e.Test != "" {
		r.failing[name] = true
		first := messages(r.output[key])
		r.failed = append(r.failed, failure{key, first})
		r.printf("FAIL  %s  %.1f s\n%s\n%s", key, e.Elapsed, strings.Join(r.output[key], ""), strings.Join(first, "\n"))
		r.forgetTest(key)
		return
	}
	var text strings.Builder
	if !r.failing[name] { // the build failed, or it panicked, or ran out of time
		var printed []string
		for _, of := range r.of(name) {
			printed = append(printed, r.output[of]...)
		}
		text.WriteString(strings.Join(printed, ""))
		r.failed = append(r.failed, failure{name, messages(printed)})
	}
	r.printf("FAIL  %s  %.1f s\n%s", name, e.Elapsed, text.String())
	r.forget(name)
}

// of returns the keys of a package's unfinished output, sorted.
func (r *results) of(name string) []string {
	var keys []string
	for key := range r.output {
		if key == name || strings.HasPrefix(key, name+" ") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func (r *results) forget(name string) {
	for _, key := range r.of(name) {
		r.forgetTest(key)
	}
}

func (r *results) forgetTest(key string) {
	delete(r.output, key)
	delete(r.begun, key)
}

// reason is how `go test` prints the argument of t.Skip, and the first line of any message.
var reason = regexp.MustCompile(`^\s+\S+\.go:\d+: (.+)`)

// A failed test's messages are repeated at the end of the run, up to so many messages and bytes of each: the last ones, which describe
// its end. The end of a long log then shows why a test failed.
const (
	repeated      = 12
	repeatedBytes = 400
)

// messages are the first lines of the last messages in a test's output.
func messages(output []string) []string {
	var first []string
	for _, line := range output {
		if line = strings.TrimRight(line, "\n"); reason.MatchString(line) || strings.HasPrefix(line, "panic: ") {
			first = append(first, strings.ToValidUTF8(line[:min(len(line), repeatedBytes)], ""))
		}
	}
	return first[max(0, len(first)-repeated):]
}

// reasonOf finds the reason of a skip in a test's output.
func reasonOf(output []string) string {
	for _, line := range slices.Backward(output) {
		if m := reason.FindStringSubmatch(line); m != nil {
			return strings.TrimSpace(m[1])
		}
	}
	return "no reason given"
}

// running lists the running top-level tests, the longest first.
func (r *results) running() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []string
	for key := range r.begun {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int { return r.begun[a].Compare(r.begun[b]) })
	var b strings.Builder
	for i, key := range keys {
		if i == 3 {
			fmt.Fprintf(&b, ", and %d more", len(keys)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%d s)", key, int(time.Since(r.begun[key]).Seconds()))
	}
	return b.String()
}

// leftOut is one line about the skipped tests: their number by reason; empty if there are none.
func (r *results) leftOut() string {
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(r.skipped)) {
		parts = append(parts, fmt.Sprintf("%d: %s", len(r.skipped[why]), why))
	}
	return strings.Join(parts, "; ")
}
