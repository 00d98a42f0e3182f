// Package clip truncates foreign text to a length that fits a message.
package clip

// Text returns the text if it has at most so many bytes, otherwise its beginning, cut between two characters, and an ellipsis.
func Text[T ~string | ~[]byte](text T, maximum int) string {
	if len(text) <= maximum {
		return string(text)
	}
	return Bytes(text, maximum) + "…"
}

// Columns returns the text if it has at most so many characters, otherwise its beginning and an ellipsis, together at most so many.
func Columns(text string, maximum int) string {
	if len(text) <= maximum { // no character is shorter than a byte
		return text
	}
	remaining := max(maximum, 0)
	end := 0 // the end of the part that fits beside the ellipsis
	for at := range text {
		if remaining--; remaining == 0 {
			end = at
		}
		if remaining < 0 {
			return text[:end] + "…"
		}
	}
	return text
}

// Bytes returns the longest beginning of a text that has at most so many bytes and ends between two characters.
func Bytes[T ~string | ~[]byte](text T, maximum int) string {
	if len(text) <= maximum {
		return string(text)
	}
	maximum = max(maximum, 0)
	const continuation, mask = 0x80, 0xC0 // of a byte that is not the first of a character (RFC 3629)
	for maximum > 0 && text[maximum]&mask == continuation {
		maximum--
	}
	return string(text[:maximum])
}
