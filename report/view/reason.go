package view

import (
	"regexp"
	"strconv"
	"strings"
)

// Amounts in the sentences of the tools, which count in milli-CPU and bytes.
var (
	milliCPUs = regexp.MustCompile(`(-?)\b(\d+)m\b`)
	inBytes   = regexp.MustCompile(`\b(\d{4,}) ?(?:bytes of memory|bytes|B)(\b|$)`)
	bareSum   = regexp.MustCompile(`\b(\d{7,})(?:\.\d+)?\b`)
)

// Amounts is a reason or a message with its figures in the units of the screen: cores, and GiB.
func Amounts(text string) string {
	text = milliCPUs.ReplaceAllStringFunc(text, func(s string) string {
		switch number := Cores(amountIn(strings.TrimSuffix(s, "m"))); number {
		case "1.00":
			return "1.00 core"
		default:
			return number + " cores"
		}
	})
	text = inBytes.ReplaceAllStringFunc(text, func(s string) string {
		digits := strings.TrimRight(s, " bytesofmrB")
		if strings.Contains(s, "memory") {
			return Bytes(amountIn(digits)) + " of memory"
		}
		return Bytes(amountIn(digits))
	})
	if strings.Contains(text, "memory") {
		text = bareSum.ReplaceAllStringFunc(text, func(s string) string { return Bytes(amountIn(s)) })
	}
	return text
}

func amountIn(digits string) *float64 {
	v, _ := strconv.ParseFloat(digits, 64) // an optional term without digits is 0
	return &v
}
