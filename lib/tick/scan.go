package tick

import (
	"fmt"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a line; a tick's own is 8.
const maxDepth = 256

// member is one key and value of an object, as offsets into the line.
type member struct {
	key              []byte // between the quotes, as written
	keyStart         int    // the opening quote
	valStart, valEnd int
}

// scanObject checks that b[i:] begins with a JSON object (RFC 8259) and calls f for each of its members in order; it
// returns the offset behind the object. Where f returns false the scan ends early, with the offset reached.
//
// Every line goes through here in every tool, so this is written for speed: no allocation, one pass, and half of the
// time that json-iterator's Skip takes (BenchmarkScan).
func scanObject(b []byte, i, depth int, f func(member) bool) (int, error) {
	if i >= len(b) || b[i] != '{' {
		return i, syntaxError(b, i, "an object")
	}
	if depth > maxDepth {
		return i, fmt.Errorf("offset %d: nested deeper than %d", i, maxDepth)
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		m := member{keyStart: i}
		end, err := scanString(b, i)
		if err != nil {
			return end, err
		}
		m.key = b[i+1 : end-1]
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ':' {
			return i, syntaxError(b, i, "a colon")
		}
		m.valStart = skipSpace(b, i+1)
		if m.valEnd, err = scanValue(b, m.valStart, depth+1); err != nil {
			return m.valEnd, err
		}
		if f != nil && !f(m) {
			return m.valEnd, nil
		}
		i = skipSpace(b, m.valEnd)
		if i >= len(b) {
			return i, syntaxError(b, i, "a comma or the object's end")
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
		case '}':
			return i + 1, nil
		default:
			return i, syntaxError(b, i, "a comma or the object's end")
		}
	}
}

func scanArray(b []byte, i, depth int) (int, error) {
	if depth > maxDepth {
		return i, fmt.Errorf("offset %d: nested deeper than %d", i, maxDepth)
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, nil
	}
	for {
		var err error
		if i, err = scanValue(b, i, depth+1); err != nil {
			return i, err
		}
		i = skipSpace(b, i)
		if i >= len(b) {
			return i, syntaxError(b, i, "a comma or the array's end")
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
		case ']':
			return i + 1, nil
		default:
			return i, syntaxError(b, i, "a comma or the array's end")
		}
	}
}

func scanValue(b []byte, i, depth int) (int, error) {
	if i >= len(b) {
		return i, syntaxError(b, i, "a value")
	}
	switch c := b[i]; {
	case c == '"':
		return scanString(b, i)
	case c == '{':
		return scanObject(b, i, depth, nil)
	case c == '[':
		return scanArray(b, i, depth)
	case c == '-' || c >= '0' && c <= '9':
		return scanNumber(b, i)
	case c == 't':
		return scanWord(b, i, "true")
	case c == 'f':
		return scanWord(b, i, "false")
	case c == 'n':
		return scanWord(b, i, "null")
	}
	return i, syntaxError(b, i, "a value")
}

// plain marks the bytes that a string holds as they are: all but the quote, the backslash and the control characters.
var plain = func() (t [256]bool) {
	for i := range t {
		t[i] = i >= 0x20 && i != '"' && i != '\\'
	}
	return t
}()

func scanString(b []byte, i int) (int, error) {
	if i >= len(b) || b[i] != '"' {
		return i, syntaxError(b, i, "a string")
	}
	for i++; i < len(b); i++ {
		if plain[b[i]] {
			continue
		}
		switch b[i] {
		case '"':
			return i + 1, nil
		case '\\':
			i++
			if i >= len(b) {
				return i, syntaxError(b, i, "an escape")
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for k := 0; k < 4; k++ {
					i++
					if i >= len(b) || !isHex(b[i]) {
						return i, syntaxError(b, i, "four hexadecimal digits")
					}
				}
			default:
				return i, syntaxError(b, i, "an escape")
			}
		default:
			return i, fmt.Errorf("offset %d: control character %#02x in a string", i, b[i])
		}
	}
	return i, syntaxError(b, i, "the string's end")
}

func scanNumber(b []byte, i int) (int, error) {
	if b[i] == '-' {
		i++
	}
	digits := func() bool {
		start := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > start
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return i, syntaxError(b, i, "a digit")
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return i, syntaxError(b, i, "a digit")
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return i, syntaxError(b, i, "a digit")
		}
	}
	return i, nil
}

func scanWord(b []byte, i int, word string) (int, error) {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return i, syntaxError(b, i, word)
	}
	return i + len(word), nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func syntaxError(b []byte, i int, want string) error {
	if i >= len(b) {
		return fmt.Errorf("offset %d: want %s, got the line's end", i, want)
	}
	r, _ := utf8.DecodeRune(b[i:])
	return fmt.Errorf("offset %d: want %s, got %q", i, want, r)
}
