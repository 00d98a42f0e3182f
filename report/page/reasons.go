package page

import (
	"strings"
)

// placeholder stands for a number in a pattern. Text from ticks never contains it, because control characters are removed.
const placeholder = '\x01'

// patterns are the sentences of a page without their numbers, each once: advise's reasons often differ only in their numbers.
type patterns struct {
	index map[string]int
	list  []string
}

// add encodes a sentence as the index of its pattern followed by the numbers in it, as they are written.
func (p *patterns) add(sentence string) []any {
	var pattern strings.Builder
	numbers := []any{0}
	for i := 0; i < len(sentence); {
		end := i
		for end < len(sentence) && isPartOfNumber(sentence, i, end) {
			end++
		}
		if end == i {
			pattern.WriteByte(sentence[i])
			i++
			continue
		}
		pattern.WriteByte(placeholder)
		numbers = append(numbers, sentence[i:end])
		i = end
	}
	text := pattern.String()
	n, known := p.index[text]
	if !known {
		n = len(p.list)
		p.index[text] = n
		p.list = append(p.list, text)
	}
	numbers[0] = n
	return numbers
}

// isPartOfNumber reports whether the byte at end continues the number, or list of CPUs, that begins at start.
func isPartOfNumber(s string, start, end int) bool {
	c := s[end]
	if '0' <= c && c <= '9' {
		return true
	}
	// A dot, a comma or a hyphen between two digits: 1.5, and 0-5,12-17.
	return end > start && (c == '.' || c == ',' || c == '-') && end+1 < len(s) && '0' <= s[end+1] && s[end+1] <= '9'
}
