// Package choice checks words against a list: the values of flags, the keys of files. If a word is not in the list, it suggests a
// similar one.
package choice

import (
	"fmt"
	"slices"
	"strings"
)

// Check returns nil if the list contains the word, otherwise an error that names the word, the list, and a similar word.
func Check(word string, list []string) error {
	if slices.Contains(list, word) {
		return nil
	}
	return fmt.Errorf("%q: want %s%s", word, oneOf(list), Suggestion(word, list))
}

// oneOf formats a list: "a", "a or b", "one of a, b, c".
func oneOf(list []string) string {
	if len(list) <= 2 {
		return strings.Join(list, " or ")
	}
	return "one of " + strings.Join(list, ", ")
}

// Suggestion returns the end of an error about an unknown word: "; did you mean harvest?", or nothing if no word is similar.
func Suggestion(word string, list []string) string {
	if near := Nearest(word, list); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// Nearest returns the word of the list that is most similar to another one: it begins with that one, or differs in at most a third
// of its letters and at most three; case is ignored. It is empty if no word is similar.
func Nearest(word string, list []string) string {
	if len(word) < 2 || len(word) > 40 {
		return ""
	}
	word = strings.ToLower(word)
	near, minimum := "", min(3, len(word)/3)+1
	for _, candidate := range list {
		c := strings.ToLower(candidate)
		d := distance(word, c)
		if strings.HasPrefix(c, word) {
			d = min(d, 1)
		}
		if d < minimum {
			near, minimum = candidate, d
		}
	}
	return near
}

// distance is the number of letters to insert, delete, change, or swap with the next one to turn a into b (Damerau-Levenshtein distance,
// no letter being edited twice).
func distance(a, b string) int {
	previous, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], previous[j-1]+1)
			}
		}
		previous, last, row = last, row, previous
	}
	return last[len(b)]
}
