package wire

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"
)

// answerAfter is how long the agent delays a response until the command's end before it responds that the command still runs.
const answerAfter = 5 * time.Second

// kept is how many results the agent keeps for hosts that ask again. Few commands run at a time.
const kept = 32

// Agent runs the commands that it receives, each number once, and returns the result to every request with that number.
type Agent struct {
	run    func(Command) Result
	answer time.Duration

	mu       sync.Mutex
	commands map[int64]*running
	ended    []int64 // in their order; the oldest are forgotten
}

// running is a command that runs or has ended.
type running struct {
	done   chan struct{} // closed at its end
	result Result        // after that
}

// NewAgent returns one that runs commands by a function.
func NewAgent(run func(Command) Result) *Agent {
	return &Agent{run: run, answer: answerAfter, commands: map[int64]*running{}}
}

// ServeHTTP responds with the command's result, or with status 202 if it still runs.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c Command
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.answer)
	defer cancel()
	running := a.start(c)
	select {
	case <-running.done:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(running.result) // a host that did not receive it asks again
	case <-ctx.Done():
		w.WriteHeader(http.StatusAccepted)
	}
}

// start runs a command unless its number is known.
func (a *Agent) start(c Command) *running {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.commands[c.Number]; known != nil {
		return known
	}
	this := &running{done: make(chan struct{})}
	a.commands[c.Number] = this
	go func() {
		this.result = a.run(c)
		a.mu.Lock()
		defer a.mu.Unlock()
		defer close(this.done)
		if a.ended = append(a.ended, c.Number); len(a.ended) > kept {
			delete(a.commands, a.ended[0])
			a.ended = slices.Delete(a.ended, 0, 1)
		}
	}()
	return this
}
