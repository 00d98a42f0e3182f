package apply

import (
	"bytes"
	"unicode/utf8"

	"polder/lib/tick"
)

// journalPath is a cgroup's path in the journal. JSON cannot hold a name that is not UTF-8, and the file of such a cgroup could not be
// restored; so a path with such a name is an object with its bytes. For earlier versions of isolate, which accept only a string, that is an
// entry of another version, which they keep.
type journalPath string

// pathBytes are the bytes of a path that is not UTF-8.
type pathBytes struct {
	Bytes []byte `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (p journalPath) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(p)) {
		return tick.Marshal(string(p))
	}
	return tick.Marshal(pathBytes{Bytes: []byte(p)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *journalPath) UnmarshalJSON(data []byte) error {
	if !bytes.HasPrefix(data, []byte("{")) { // invalid JSON may be empty here
		return tick.Unmarshal(data, (*string)(p))
	}
	var b pathBytes
	if err := tick.Unmarshal(data, &b); err != nil {
		return err
	}
	*p = journalPath(b.Bytes)
	return nil
}
