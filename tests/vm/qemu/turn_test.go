package qemu

import (
	"context"
	"errors"
	"testing"
)

// A guest of many CPUs waits for the other's end; one of few does not.
func TestTurn(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	done, err := Guide.Turn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Guide.Turn(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("beside another one: %v", err)
	}
	small, err := Small.Turn(ended)
	if err != nil {
		t.Errorf("a small one: %v", err)
	}
	small()
	next := make(chan error)
	go func() {
		done, err := Guide.Turn(t.Context())
		if err == nil {
			done()
		}
		next <- err
	}()
	done()
	if err := <-next; err != nil {
		t.Error(err)
	}
}
