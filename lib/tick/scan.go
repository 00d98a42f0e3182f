package tick

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a line; a tick's own depth is 8.
const maxDepth = 256

// maxElements bounds the elements of all arrays of a line: an element of three bytes becomes a [Pod] of hundreds, so that a line within
// --max-line could need ten gigabytes. A tick of 10,000 containers on 16 NUMA nodes has fewer than 200,000.
const maxElements = 1 << 18

// member is one key and value of an object, as offsets into the line.
type member struct {
	key              []byte // between the quotes, as written
	keyStart         int    // the opening quote
	valStart, valEnd int
}

// scanner checks that bytes are JSON (RFC 8259).
//
// Every tool scans every line, so this code is optimized for speed: no allocation, one pass, and half
// of the time of json-iterator's Skip (BenchmarkScan).
type scanner struct {
	b          []byte
	escapedKey bool // a key with an escape occurred
	elements   int  // of all arrays
}

// object checks that b[i:] begins with an object and calls f for each of its members in order; it returns the offset
// after the object. If f returns false the scan ends early, and object returns the offset reached.
func (s *scanner) object(i, depth int, f func(member) bool) (int, error) {
	b := s.b
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
		if bytes.IndexByte(m.key, '\\') >= 0 {
			s.escapedKey = true
		}
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ':' {
			return i, syntaxError(b, i, "a colon")
		}
		m.valStart = skipSpace(b, i+1)
		if m.valEnd, err = s.value(m.valStart, depth+1); err != nil {
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

func (s *scanner) array(i, depth int) (int, error) {
	b := s.b
	if depth > maxDepth {
		return i, fmt.Errorf("offset %d: nested deeper than %d", i, maxDepth)
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, nil
	}
	for {
		if s.elements++; s.elements > maxElements {
			return i, fmt.Errorf("offset %d: more than %d elements in arrays", i, maxElements)
		}
		var err error
		if i, err = s.value(i, depth+1); err != nil {
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

func (s *scanner) value(i, depth int) (int, error) {
	b := s.b
	if i >= len(b) {
		return i, syntaxError(b, i, "a value")
	}
	switch c := b[i]; {
	case c == '"':
		return scanString(b, i)
	case c == '{':
		return s.object(i, depth, nil)
	case c == '[':
		return s.array(i, depth)
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

// plain marks the bytes that a string contains literally: all except the quote, the backslash and the control characters.
var plain = func() (t [256]bool) {
	for i := range t {
		t[i] = i >= 0x20 && i != '"' && i != '\\'
	}
	return t
}()

// plain8 reports whether eight bytes at once are plain. A byte x is less than 0x20, or equal to a searched byte (their
// difference is less than 1), if subtracting borrows into its highest bit and that bit was not set before; bytes of
// multi-byte characters have it set and are plain.
func plain8(x uint64) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	quote, escape := x^('"'*ones), x^('\\'*ones)
	return ((x-0x20*ones)&^x|(quote-ones)&^quote|(escape-ones)&^escape)&high == 0
}

func scanString(b []byte, i int) (int, error) {
	if i >= len(b) || b[i] != '"' {
		return i, syntaxError(b, i, "a string")
	}
	for i++; i < len(b); i++ {
		for i+8 <= len(b) && plain8(binary.LittleEndian.Uint64(b[i:])) {
			i += 8
		}
		for i < len(b) && plain[b[i]] {
			i++
		}
		if i >= len(b) {
			break
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
				for range 4 {
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
