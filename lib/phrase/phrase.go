// Package phrase formats numbers and lists in sentences.
package phrase

import (
	"fmt"
	"strings"
)

// Count formats a number of things whose plural ends in s: "1 pod", "2 pods".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// First joins at most limit names with commas, and counts the others: "a, b and 3 more".
func First(names []string, limit int) string {
	if len(names) <= limit {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
}

// Number is a number with the name of what it counts: "3 not restored".
type Number struct {
	N    int
	Text string
}

// Nonzero returns a text followed by those of the numbers that are not zero, joined by commas.
func Nonzero(text string, numbers ...Number) string {
	var b strings.Builder
	b.WriteString(text)
	for _, n := range numbers {
		if n.N != 0 {
			fmt.Fprintf(&b, ", %d %s", n.N, n.Text)
		}
	}
	return b.String()
}
