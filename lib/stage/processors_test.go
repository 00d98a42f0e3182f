package stage

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A tool runs on one processor until more ticks come than on a node, and on all of them from then on.
func TestOneProcessorUntilThereIsWork(t *testing.T) {
	var sets []int
	s := &Session{Env: Env{
		Getenv:     func(string) string { return "" },
		Processors: func(n int) int { sets = append(sets, n); return 8 },
	}}
	s.OneProcessor()
	p := &s.processors
	now := time.Unix(1000, 0)
	for range 200 { // one tick per second, or ten
		for range 10 {
			now = now.Add(100 * time.Millisecond)
			p.tick(now)
		}
	}
	now = now.Add(-time.Hour) // the clock was set back
	p.tick(now)
	if want := []int{1}; !slices.Equal(sets, want) {
		t.Fatalf("with ten ticks a second it is set to %v; want %v", sets, want)
	}
	for range 200 {
		now = now.Add(time.Millisecond)
		p.tick(now)
	}
	if want := []int{1, 8}; !slices.Equal(sets, want) {
		t.Errorf("with a thousand ticks a second it is set to %v; want %v", sets, want)
	}
}

// GOMAXPROCS takes precedence.
func TestGOMAXPROCSIsKept(t *testing.T) {
	s := &Session{Env: Env{
		Getenv:     func(name string) string { return map[string]string{"GOMAXPROCS": "3"}[name] },
		Processors: func(n int) int { t.Error("set to " + fmt.Sprint(n)); return 8 },
	}}
	s.OneProcessor()
	s.processors.tick(time.Unix(1000, 0))
}
