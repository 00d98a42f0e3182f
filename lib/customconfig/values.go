package customconfig

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"polder/lib/fields"
	"polder/lib/quantity"
)

// The bounds of values are those of evict's settings, so that what one node's collect takes its evict can use.

// most bounds factors and rates: a larger one is a mistake.
const most = 1_000_000

func number(v any, want string, good func(float64) bool) (float64, error) {
	f, ok := fields.AsNumber(v)
	if !ok || math.IsNaN(f) || !good(f) {
		return 0, fmt.Errorf("%s: want %s", show(v), want)
	}
	return f, nil
}

func factor(v any) (any, error) {
	return number(v, "a number over 0 and at most 1000000", func(f float64) bool { return f > 0 && f <= most })
}

// part is a share that may be none.
func part(v any) (any, error) {
	return number(v, "a number from 0 to 1", func(f float64) bool { return f >= 0 && f <= 1 })
}

func share(v any) (any, error) {
	return number(v, "a number over 0 and at most 1", func(f float64) bool { return f > 0 && f <= 1 })
}

func rate(v any) (any, error) {
	return number(v, "a number from 0 to 2147483647", func(f float64) bool { return f >= 0 && f <= math.MaxInt32 })
}

func whole(v any, least, most int64) (int64, error) {
	n, ok := fields.AsWhole(v)
	if !ok || n < least || n > most {
		return 0, fmt.Errorf("%s: want a whole number from %d to %d", show(v), least, most)
	}
	return n, nil
}

func count(v any) (any, error) {
	n, err := whole(v, 1, most)
	return int(n), err
}

func ring(v any) (any, error) {
	n, err := whole(v, 1, 10_000)
	return int(n), err
}

// day bounds time spans.
const day = 24 * 60 * 60

func seconds(v any) (any, error) {
	n, err := whole(v, 0, day)
	return time.Duration(n) * time.Second, err
}

// grace is a grace period in seconds; -1 is the pod's own, and so is 0: no pod goes without one.
func grace(v any) (any, error) {
	n, err := whole(v, -1, day)
	return time.Duration(max(n, 0)) * time.Second, err
}

// span is a time span as text, or in nanoseconds as Go writes it.
func span(v any) (any, error) {
	if text, ok := v.(string); ok {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d > day*time.Second {
			return nil, fmt.Errorf("%s: want a time span of 0 to 24h, such as 300s", show(v))
		}
		return d, nil
	}
	n, err := whole(v, 0, day*int64(time.Second))
	return time.Duration(n), err
}

func truth(v any) (any, error) {
	b, ok := v.(bool)
	if !ok {
		return nil, fmt.Errorf("%s: want true or false", show(v))
	}
	return b, nil
}

// ranking reads a list of measures by which pods are ranked.
func ranking(allowed []string) func(any) (any, error) {
	return func(v any) (any, error) {
		read, err := names(v)
		if err != nil {
			return nil, err
		}
		list := read.([]string)
		for i, name := range list {
			switch {
			case !slices.Contains(allowed, name) && !slices.Contains(notRanked, name):
				return nil, fmt.Errorf("%s: want some of %s", show(name), strings.Join(allowed, ", "))
			case slices.Contains(list[:i], name):
				return nil, fmt.Errorf("%s stands twice", show(name))
			}
		}
		if len(list) == 0 {
			return nil, fmt.Errorf("empty: want some of %s", strings.Join(allowed, ", "))
		}
		return list, nil
	}
}

// names is a list of texts.
func names(v any) (any, error) {
	list, ok := v.([]any)
	out := []string{}
	for _, x := range list {
		text, is := x.(string)
		if ok = ok && is && text != "" && len(text) <= 200 && len(out) < 100; !ok {
			break
		}
		out = append(out, text)
	}
	if !ok {
		return nil, fmt.Errorf("%s: want a list of names", show(v))
	}
	return out, nil
}

// bytes is an amount of memory.
func bytes(v any) (any, error) {
	n, err := quantity.Whole(v)
	return int64(n), err
}

func show(v any) string {
	if text, ok := v.(string); ok {
		return strconv.Quote(fields.Clip(text))
	}
	return fields.Clip(fmt.Sprint(v))
}
