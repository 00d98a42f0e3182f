// Package clip makes foreign text fit into a message or a line: it truncates it, and replaces what a terminal would act on. It is pure.
package clip

import (
	"strings"
	"unicode"
)

// Text returns the text if it has at most so many bytes, otherwise its beginning, cut between two characters, and an ellipsis.
func Text[T ~string | ~[]byte](text T, maximum int) string {
	if len(text) <= maximum {
		return string(text)
	}
	return Bytes(text, maximum) + "…"
}

// Columns returns the text if it has at most so many characters, otherwise its beginning and an ellipsis, together at most so many.
func Columns(text string, maximum int) string {
	if len(text) <= maximum { // no character is shorter than a byte
		return text
	}
	remaining := max(maximum, 0)
	end := 0 // the end of the part that fits beside the ellipsis
	for at := range text {
		if remaining--; remaining == 0 {
			end = at
		}
		if remaining < 0 {
			return text[:end] + "…"
		}
	}
	return text
}

// Bytes returns the longest beginning of a text that has at most so many bytes and ends between two characters.
func Bytes[T ~string | ~[]byte](text T, maximum int) string {
	if len(text) <= maximum {
		return string(text)
	}
	maximum = max(maximum, 0)
	const continuation, mask = 0x80, 0xC0 // of a byte that is not the first of a character (RFC 3629)
	for maximum > 0 && text[maximum]&mask == continuation {
		maximum--
	}
	return string(text[:maximum])
}

// Clean makes foreign text safe for a terminal: everybody who can create a pod or a cgroup can choose its name, and an escape
// sequence in it would otherwise draw on the reader's screen. Each rune of the result is one column wide.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 0x20 && r < 0x7f:
			return r
		case r < 0xa1 || r == 0xad || !unicode.IsPrint(r) || unicode.In(r, unicode.Mn, unicode.Me, unicode.Mc):
			return '?'
		case r < 0x590, r >= 0x2010 && r < 0x2028, r >= 0x2190 && r < 0x2300: // no right-to-left and no wide scripts
			return r
		}
		return '?'
	}, s)
}
