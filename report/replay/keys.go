package replay

import (
	"strings"
	"unicode/utf8"
)

// Key is a pressed key: one of those below, or a character.
type Key string

// Keys with names.
const (
	KeyLeft       Key = "left"
	KeyRight      Key = "right"
	KeyShiftLeft  Key = "shift-left"
	KeyShiftRight Key = "shift-right"
	KeyEnter      Key = "enter"
	KeyEscape     Key = "escape"
	KeyBackspace  Key = "backspace"
	KeyInterrupt  Key = "interrupt"
	keyUnknown    Key = ""
)

// sequences are the terminals' codes of keys (ECMA-48 with xterm's modifiers; SS3 in application mode; rxvt's shifted arrows).
var sequences = map[string]Key{
	"[D": KeyLeft, "[C": KeyRight, "OD": KeyLeft, "OC": KeyRight,
	"[1;2D": KeyShiftLeft, "[1;2C": KeyShiftRight, "[d": KeyShiftLeft, "[c": KeyShiftRight,
}

// Keys are the keys in a text that a terminal has sent. A lone escape is that key; an unknown sequence is no key.
func Keys(sent []byte) (keys []Key) {
	for len(sent) > 0 {
		key, n := nextKey(sent)
		sent = sent[n:]
		if key != keyUnknown {
			keys = append(keys, key)
		}
	}
	return keys
}

func nextKey(b []byte) (Key, int) {
	switch c := b[0]; {
	case c == 0x1b && len(b) > 1 && (b[1] == '[' || b[1] == 'O'):
		end := 2
		for end < len(b) && (b[end] < 0x40 || b[end] > 0x7e) {
			end++
		}
		end = min(end+1, len(b))
		return sequences[string(b[1:end])], end
	case c == 0x1b:
		return KeyEscape, 1
	case c == '\r' || c == '\n':
		return KeyEnter, 1
	case c == 0x7f || c == 0x08:
		return KeyBackspace, 1
	case c == 0x03 || c == 0x04:
		return KeyInterrupt, 1
	case c < 0x20:
		return keyUnknown, 1
	}
	r, n := utf8.DecodeRune(b)
	if r == utf8.RuneError {
		return keyUnknown, n
	}
	return Key(r), n
}

// longestSearch bounds the characters of a search.
const longestSearch = 100

// Search is the line for searching a pod.
type Search struct {
	// Open means that keys are added to the text.
	Open bool
	Text string
}

// Press handles a key while the line is open.
func (s *Search) Press(k Key) {
	switch k {
	case KeyEnter:
		s.Open = false
	case KeyEscape:
		s.Open, s.Text = false, ""
	case KeyBackspace:
		if r := []rune(s.Text); len(r) > 0 {
			s.Text = string(r[:len(r)-1])
		}
	default:
		if utf8.RuneCountInString(string(k)) == 1 && len(s.Text) < longestSearch {
			s.Text += string(k)
		}
	}
}

// Matches reports whether a pod matches the search.
func (s *Search) Matches(name string) bool {
	return strings.Contains(strings.ToLower(name), strings.ToLower(s.Text))
}
