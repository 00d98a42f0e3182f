// Package phrase formats numbers and lists in sentences.
package phrase

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Count formats a number of things whose plural ends in s: "1 pod", "2 pods".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// largestInDigits is the largest number that is written digit by digit. Larger ones are no measurement, and may have 300 digits.
const largestInDigits = 1e15

// Decimal formats a number with so many decimals, and a very large one with an exponent.
func Decimal(v float64, decimals int) string {
	if !(math.Abs(v) < largestInDigits) { // not a number, too
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
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
