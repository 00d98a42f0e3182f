package evictconfig

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxRing bounds a sample window: a larger one is an error, and each sample has a number for every shared pod.
	maxRing = 10_000
	// MaxTimes bounds a count, MaxRatio a multiple.
	MaxTimes = 1_000_000
	MaxRatio = 1_000_000
	// day bounds time spans, in seconds: a longer one is an error.
	day = 24 * 60 * 60
)

// bounds define the valid values of a setting; want describes them in words. Without check every value is valid.
type bounds[T any] struct {
	want  string
	check func(T) error
}

// within returns the bounds of values for which good is true; want completes the error "VALUE: want …".
func within[T any](want string, good func(T) bool) bounds[T] {
	return bounds[T]{want, func(v T) error {
		if !good(v) {
			return fmt.Errorf("%v: want %s", v, want)
		}
		return nil
	}}
}

// NaN satisfies none of these: each comparison with it is false.

func overZero(most float64) bounds[float64] {
	return within("a number over 0 and at most "+plain(most), func(v float64) bool { return v > 0 && v <= most })
}

func fromZero(most float64) bounds[float64] {
	return within("a number from 0 to "+plain(most), func(v float64) bool { return v >= 0 && v <= most })
}

func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func from1(most int) bounds[int] {
	return within(fmt.Sprintf("1 to %d", most), func(v int) bool { return v >= 1 && v <= most })
}

var (
	aPart = within("a part of the threshold, 0 and less than 1", func(v float64) bool { return v >= 0 && v < 1 })
	pods  = within("a number of pods, or -1 for no limit", func(n int) bool { return n >= Unlimited })
	aDay  = within("0 to 24h", func(d time.Duration) bool { return d >= 0 && d <= day*time.Second })
	aWeek = within("a time span over 0 and at most 168h0m0s", func(d time.Duration) bool { return d > 0 && d <= 7*day*time.Second })
	names = bounds[[]string]{}

	notNegative = within("a time span that is not negative", func(d time.Duration) bool { return d >= 0 })
	anAmount    = within("memory that is not negative", func(b Bytes) bool { return b >= 0 })
)

// someOf returns lists of some of the allowed names, each once.
func someOf(allowed []string) bounds[[]string] {
	return bounds[[]string]{"", func(list []string) error { return checkList(list, allowed, nil) }}
}

// checkList checks a list of names; passed are names that are valid without effect.
func checkList(list, allowed, passed []string) error {
	want := "want some of " + strings.Join(allowed, ", ")
	for i, name := range list {
		switch {
		case !slices.Contains(allowed, name) && !slices.Contains(passed, name):
			return fmt.Errorf("%s: %s", shown(name), want)
		case slices.Contains(list[:i], name):
			return fmt.Errorf("%s stands twice", shown(name))
		}
	}
	if len(list) == 0 {
		return errors.New("empty: " + want)
	}
	return nil
}

// Pair is two settings; the upper one must not be below the lower one.
type Pair struct{ Lower, Upper, Because string }

// Pairs are all of them.
var Pairs = []Pair{
	{"load-lower-bound-ratio", "load-upper-bound-ratio", "a pod would be evicted before the node is tainted"},
}

// Check compares two values of the same type; lowerName is the lower one's name in the error.
func (p Pair) Check(lower, upper any, lowerName string) error {
	under := false
	switch u := upper.(type) {
	case float64:
		l, ok := lower.(float64)
		under = ok && u < l
	case time.Duration:
		l, ok := lower.(time.Duration)
		under = ok && u < l
	}
	if !under {
		return nil
	}
	return fmt.Errorf("%v is under %s %v: %s", upper, lowerName, lower, p.Because)
}
