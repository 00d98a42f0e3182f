package await

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// Log collects a program's output, and can be read while the program writes.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Await waits until the text is in the log, that many times at least.
func (l *Log) Await(t testing.TB, limit time.Duration, text string, times int) {
	t.Helper()
	Until(t, limit, fmt.Sprintf("%q is in the log %d times", text, times), func() string {
		if log := l.String(); strings.Count(log, text) < times {
			return "the log is:\n" + log
		}
		return ""
	})
}
