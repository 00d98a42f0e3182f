package view

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Amounts in the sentences of the tools, which count in milli-CPU and bytes.
var (
	milliCPUs = regexp.MustCompile(`-?\d+m`)
	inBytes   = regexp.MustCompile(`\d{4,} ?(?:bytes of memory|bytes|B)`)
	bareSum   = regexp.MustCompile(`\d{7,}(?:\.\d+)?`)
)

// Amounts is a reason or a message with its figures in the units of the screen: cores, and GiB. A figure that is a part of a name stays.
func Amounts(text string) string {
	text = replaceWords(milliCPUs, text, func(s string) string { return InCores(*amountIn(strings.TrimSuffix(s, "m"))) })
	text = replaceWords(inBytes, text, func(s string) string {
		digits := strings.TrimRight(s, " bytesofmrB")
		if strings.Contains(s, "memory") {
			return Bytes(amountIn(digits)) + " of memory"
		}
		return Bytes(amountIn(digits))
	})
	if strings.Contains(text, "memory") {
		text = replaceWords(bareSum, text, func(s string) string { return Bytes(amountIn(s)) })
	}
	return text
}

// InCores formats an amount of CPU with its unit.
func InCores(milliCPU float64) string {
	number := Cores(&milliCPU)
	if number == "1.00" {
		return "1.00 core"
	}
	return number + " cores"
}

// replaceWords replaces the matches of an expression that are whole words: a pod may be called job-20m, and a cgroup /batch/20m.
func replaceWords(e *regexp.Regexp, text string, replace func(string) string) string {
	var b strings.Builder
	end := 0
	for _, at := range e.FindAllStringIndex(text, -1) {
		if continuesBefore(text[:at[0]]) || continuesAfter(text[at[1]:]) {
			continue
		}
		b.WriteString(text[end:at[0]])
		b.WriteString(replace(text[at[0]:at[1]]))
		end = at[1]
	}
	return b.String() + text[end:]
}

// isInName reports whether a name may contain a character, and thus does not end beside it.
func isInName(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(`-_./:@"`, r)
}

// continuesBefore reports whether a text ends within a name.
func continuesBefore(text string) bool {
	r, size := utf8.DecodeLastRuneInString(text)
	return size > 0 && isInName(r)
}

// continuesAfter reports whether a text begins within a name. A full stop or a colon at the end of a word is punctuation.
func continuesAfter(text string) bool {
	r, size := utf8.DecodeRuneInString(text)
	if size == 0 || !isInName(r) {
		return false
	}
	next, more := utf8.DecodeRuneInString(text[size:])
	return r != '.' && r != ':' || more > 0 && !unicode.IsSpace(next)
}

func amountIn(digits string) *float64 {
	v, _ := strconv.ParseFloat(digits, 64) // an optional term without digits is 0
	return &v
}
