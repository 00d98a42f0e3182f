package await

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a test that only notes how it failed.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Until returns as soon as nothing is missing, and fails with what was missing last.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			there time.Duration // when the state is there
			want  string
		}{
			{0, ""}, {time.Second, ""}, {time.Minute, "not within 5s: the state: only 5 s"},
		} {
			f := &failing{TB: t}
			begun := time.Now()
			done := make(chan struct{})
			go func() {
				defer close(done)
				Until(f, 5*time.Second, "the state", func() string {
					if since := time.Since(begun); since < tt.there {
						return fmt.Sprintf("only %.0f s", since.Seconds())
					}
					return ""
				})
			}()
			<-done
			if took := time.Since(begun); f.message != tt.want || took < min(tt.there, 5*time.Second) || took > 6*time.Second {
				t.Errorf("there after %s: %q after %s; want %q", tt.there, f.message, took, tt.want)
			}
		}
	})
}

func TestIs(t *testing.T) {
	if got := Is(func() bool { return true })(); got != "" {
		t.Errorf("a true condition lacks %q", got)
	}
	if got := Is(func() bool { return false })(); got == "" {
		t.Error("a false condition lacks nothing")
	}
}
