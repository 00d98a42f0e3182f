package policy

import (
	"strconv"
	"strings"

	"polder/lib/clip"
)

// Quote returns external text for a reason: clipped, and quoted.
func Quote(text string) string { return strconv.Quote(clip.Text(text, 100)) }

// OneLine returns an error as part of a sentence.
func OneLine(err error) string { return clip.Text(strings.ReplaceAll(err.Error(), "\n", "; "), 300) }
