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
	// maxSamples bounds a sample window: a larger one is an error, and each sample has a number for every shared pod.
	maxSamples = 10_000
	// MaxTimes bounds a count, MaxRatio a multiple.
	MaxTimes = 1_000_000
	MaxRatio = 1_000_000
	// day bounds time spans, in seconds: a longer one is an error.
	day = 24 * 60 * 60
)

// bounds define the valid values of a setting; expected describes them in words. Without check every value is valid.
type bounds[T any] struct {
	expected string
	check    func(T) error
}

// within returns the bounds of values for which isValid is true; expected completes the error "VALUE: want …".
func within[T any](expected string, isValid func(T) bool) bounds[T] {
	return bounds[T]{expected, func(v T) error {
		if !isValid(v) {
			return fmt.Errorf("%v: want %s", v, expected)
		}
		return nil
	}}
}

// NaN satisfies none of these: each comparison with it is false.

func positive(maximum float64) bounds[float64] {
	return within("a number over 0 and at most "+plain(maximum), func(v float64) bool { return v > 0 && v <= maximum })
}

func notBelowZero(maximum float64) bounds[float64] {
	return within("a number from 0 to "+plain(maximum), func(v float64) bool { return v >= 0 && v <= maximum })
}

func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func from1(maximum int) bounds[int] {
	return within(fmt.Sprintf("1 to %d", maximum), func(v int) bool { return v >= 1 && v <= maximum })
}

var (
	fraction = within("a part of the threshold, 0 and less than 1", func(v float64) bool { return v >= 0 && v < 1 })
	pods     = within("a number of pods, or -1 for no limit", func(n int) bool { return n >= Unlimited })
	upToDay  = within("0 to 24h", func(d time.Duration) bool { return d >= 0 && d <= day*time.Second })
	upToWeek = within("a time span over 0 and at most 168h0m0s", func(d time.Duration) bool { return d > 0 && d <= 7*day*time.Second })
	names    = bounds[[]string]{}

	notNegative      = within("a time span that is not negative", func(d time.Duration) bool { return d >= 0 })
	nonNegativeBytes = within("memory that is not negative", func(b Bytes) bool { return b >= 0 })
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
			return fmt.Errorf("%s: %s", describe(name), want)
		case slices.Contains(list[:i], name):
			return fmt.Errorf("%s occurs twice", describe(name))
		}
	}
	if len(list) == 0 {
		return errors.New("empty: " + want)
	}
	return nil
}

// Pair is two settings; the upper one must not be below the lower one.
type Pair struct{ Lower, Upper, Reason string }

// Pairs are all pairs of settings that bound each other.
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
	return fmt.Errorf("%v is under %s %v: %s", upper, lowerName, lower, p.Reason)
}
