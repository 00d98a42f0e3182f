package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// Quote is what others wrote, for a reason: clipped, and quoted.
func Quote(text string) string { return strconv.Quote(clip(text, 100)) }

// OneLine is an error as a part of a sentence.
func OneLine(err error) string { return clip(strings.ReplaceAll(err.Error(), "\n", "; "), 300) }

// Count is a number of things, whose plural ends in s.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// clip cuts text after so many bytes at most, between characters.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && text[most]&0xC0 == 0x80 {
		most--
	}
	return text[:most] + "…"
}
