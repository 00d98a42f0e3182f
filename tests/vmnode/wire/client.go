package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// Client sends commands to an agent.
type Client struct {
	URL string
	// Alive reports whether the machine runs: requests to one that has ended are not retried.
	Alive func() bool

	number atomic.Int64
	try    time.Duration // the first timeout of a request; firstTry if 0
}

// firstTry is how long a response may take before it counts as lost. Each later one may take longer by half, for a machine on a busy
// host.
const firstTry = 4 * answerAfter

// retryPause is the time between two requests of which the first was refused at once, so that they are not a busy loop.
const retryPause = 200 * time.Millisecond

// Run makes the agent run a script once, however often it must request the result. The error is about the connection to the agent.
func (c *Client) Run(ctx context.Context, script string, input []byte) (Result, error) {
	body, err := json.Marshal(Command{Number: c.number.Add(1), Script: script, Input: input})
	if err != nil {
		return Result{}, err
	}
	limit := c.try
	if limit == 0 {
		limit = firstTry
	}
	for ; ; limit += limit / 2 {
		r, err := c.askUntilEnd(ctx, body, limit)
		if err == nil {
			return r, nil
		}
		err = fmt.Errorf("the node's agent: %w", err)
		if ctx.Err() != nil || !c.Alive() {
			return Result{}, err
		}
		select {
		case <-ctx.Done():
			return Result{}, err
		case <-time.After(retryPause):
		}
	}
}

// askUntilEnd requests a command's result for as long as the agent responds that the command runs.
func (c *Client) askUntilEnd(ctx context.Context, body []byte, limit time.Duration) (Result, error) {
	for {
		r, ended, err := c.ask(ctx, body, limit)
		if err != nil || ended {
			return r, err
		}
	}
}

// ask sends one request.
func (c *Client) ask(ctx context.Context, body []byte, limit time.Duration) (r Result, ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return r, false, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return r, false, err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusAccepted {
		return r, false, nil
	}
	if err := json.NewDecoder(answer.Body).Decode(&r); err != nil {
		return r, false, fmt.Errorf("%s: %w", answer.Status, err)
	}
	return r, true, nil
}
