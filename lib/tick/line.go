package tick

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	jsoniter "github.com/json-iterator/go"

	"polder/lib/clip"
)

// maxShownBytes is the maximum length of foreign text in a message.
const maxShownBytes = 40

// Line is one tick as it was read, with the positions of its sections, whose contents are not decoded.
type Line struct {
	// Number counts the input's lines from 1, including blank ones.
	Number int64
	Node   string
	Time   time.Time

	raw        []byte // without the newline
	members    []member
	escapedKey bool // some key, at any depth, has an escape
}

// ErrInvalidTick is wrapped by every error about a line that is not a valid tick.
var ErrInvalidTick = errors.New("not a valid tick")

// ParseLine checks that raw is a tick and finds its sections. The Line keeps raw.
func ParseLine(raw []byte) (*Line, error) {
	l := &Line{}
	if err := l.parse(raw); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Line) parse(raw []byte) error {
	l.raw, l.members = raw, l.members[:0]
	if err := l.find(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidTick, err)
	}
	return nil
}

// maxMembers bounds the top-level keys of a line, each of which is compared with all others.
const maxMembers = 256

func (l *Line) find() error {
	if !utf8.Valid(l.raw) {
		return errors.New("not UTF-8")
	}
	scan := scanner{b: l.raw}
	end, err := scan.object(skipSpace(l.raw, 0), 0, func(m member) bool {
		l.members = append(l.members, m)
		return len(l.members) <= maxMembers
	})
	l.escapedKey = scan.escapedKey
	if err != nil {
		return err
	}
	if len(l.members) > maxMembers {
		return fmt.Errorf("more than %d top-level keys", maxMembers)
	}
	if rest := skipSpace(l.raw, end); rest != len(l.raw) {
		return syntaxError(l.raw, rest, "the line's end")
	}
	for i, m := range l.members {
		if slices.Contains(m.key, '\\') {
			return fmt.Errorf("offset %d: an escape in a top-level key", m.keyStart)
		}
		for _, other := range l.members[:i] {
			if string(other.key) == string(m.key) {
				return fmt.Errorf("offset %d: key %q occurs twice", m.keyStart, m.key)
			}
		}
	}
	return l.head()
}

func (l *Line) head() error {
	v := l.Section("v")
	if v == nil {
		return errors.New(`no "v"`)
	}
	var version int64
	if err := Unmarshal(v, &version); err != nil || version != Version {
		return fmt.Errorf("v is %s, want %d", clip.Text(v, maxShownBytes), Version)
	}
	node := l.Section("node")
	if node == nil {
		return errors.New(`no "node"`)
	}
	// Usually it is the same node as in the previous line. With an escape the text is not the name.
	if !(len(node) > 2 && node[0] == '"' && string(node[1:len(node)-1]) == l.Node && !slices.Contains(node, '\\')) {
		l.Node = "" // an invalid name must not count as that of the previous line
		var name string
		if err := Unmarshal(node, &name); err != nil || name == "" {
			return fmt.Errorf("node is %s, want a name", clip.Text(node, maxShownBytes))
		}
		if err := CheckName(name); err != nil {
			return fmt.Errorf("node: %w", err)
		}
		l.Node = name
	}
	at := l.Section("time")
	if at == nil {
		return errors.New(`no "time"`)
	}
	var err error
	l.Time = time.Time{} // of the previous line
	if len(at) > 2 && at[0] == '"' {
		l.Time, err = time.Parse(time.RFC3339Nano, string(at[1:len(at)-1]))
	}
	if err != nil || l.Time.IsZero() {
		return fmt.Errorf("time is %s, want RFC 3339", clip.Text(at, maxShownBytes))
	}
	return nil
}

// CheckName rejects names that are too long for a Kubernetes object or that would disturb a terminal.
func CheckName(name string) error {
	if len(name) > 253 {
		return fmt.Errorf("name of %d bytes, the limit is 253", len(name))
	}
	for _, r := range name {
		if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return fmt.Errorf("name %q with a control character", name)
		}
	}
	return nil
}

// Bytes returns the line without its newline. It must not be changed.
func (l *Line) Bytes() []byte { return l.raw }

// Section returns a top-level value undecoded, nil if there is none.
func (l *Line) Section(name string) []byte {
	for _, m := range l.members {
		if string(m.key) == name {
			return l.raw[m.valStart:m.valEnd]
		}
	}
	return nil
}

// Decode decodes the head and the named sections; the others stay nil.
func (l *Line) Decode(sections ...string) (*Tick, error) { return l.decode(plainKeys, sections) }

// Decoder decodes ticks without some of their fields, which stay nil, so that fields that a tool does not need cost nothing.
type Decoder struct{ api jsoniter.API }

// NewDecoder returns a Decoder that omits the named fields, as TYPE.FIELD of this package ("Container.ID").
func NewDecoder(without ...string) *Decoder {
	a := freeze(jsoniter.Config{CaseSensitive: true, ObjectFieldMustBeSimpleString: true})
	a.RegisterExtension(&omitFields{fields: without})
	return &Decoder{api: a}
}

// Decode is like [Line.Decode] without the Decoder's fields.
func (d *Decoder) Decode(l *Line, sections ...string) (*Tick, error) {
	return l.decode(d.api, sections)
}

func (l *Line) decode(plain jsoniter.API, sections []string) (*Tick, error) {
	t := &Tick{V: Version, Node: l.Node, Time: l.Time}
	for _, name := range sections {
		raw := l.Section(name)
		if raw == nil || string(raw) == "null" {
			continue
		}
		var into any
		switch name {
		case SectionSample:
			t.Sample = new(Sample)
			into = t.Sample
		case SectionAdvice:
			t.Advice = new(Advice)
			into = t.Advice
		case SectionIsolation:
			t.Isolation = new(Isolation)
			into = t.Isolation
		case SectionEviction:
			t.Eviction = new(Eviction)
			into = t.Eviction
		case SectionReport:
			t.Report = new(Report)
			into = t.Report
		case SectionNetwork:
			t.Network = new(NetworkIsolation)
			into = t.Network
		default:
			return nil, fmt.Errorf("decode section %q: no such section", name)
		}
		decode := plain
		if l.escapedKey {
			decode = api
		}
		if err := decode.Unmarshal(raw, into); err != nil {
			return nil, fmt.Errorf("%w: section %s: %w", ErrInvalidTick, name, err)
		}
	}
	return t, nil
}

// Interval returns the time between two ticks: the sample's periodSeconds, or its intervalSeconds, which a late tick makes
// longer; 0 if it has neither. It does not decode the sample.
func (l *Line) Interval() time.Duration {
	sample := l.Section(SectionSample)
	if len(sample) == 0 || sample[0] != '{' {
		return 0
	}
	var period, interval time.Duration
	scan := scanner{b: sample}
	_, _ = scan.object(0, 1, func(m member) bool { // the line was checked: only f can end this early
		switch string(m.key) {
		case "periodSeconds":
			period = asDuration(sample[m.valStart:m.valEnd])
		case "intervalSeconds":
			interval = asDuration(sample[m.valStart:m.valEnd])
		}
		return period == 0
	})
	return cmp.Or(period, interval)
}

// MaxIntervalSeconds is the interval from which on it counts as invalid.
const MaxIntervalSeconds = 1e6

// asDuration converts a number of seconds; it returns 0 if that is invalid or too large.
func asDuration(data []byte) time.Duration {
	var seconds float64
	if Unmarshal(data, &seconds) != nil || !(seconds > 0 && seconds < MaxIntervalSeconds) {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

// Splice appends to dst the line with section's value replaced by value, or added at the end, and a newline. All
// other bytes are unchanged.
func (l *Line) Splice(dst []byte, section string, value []byte) []byte {
	for _, m := range l.members {
		if string(m.key) == section {
			dst = append(dst, l.raw[:m.valStart]...)
			dst = append(dst, value...)
			dst = append(dst, l.raw[m.valEnd:]...)
			return append(dst, '\n')
		}
	}
	end := len(l.raw) - 1
	for l.raw[end] != '}' {
		end-- // white space after the object
	}
	dst = append(dst, l.raw[:end]...)
	dst = append(dst, ',', '"')
	dst = append(dst, section...)
	dst = append(dst, '"', ':')
	dst = append(dst, value...)
	dst = append(dst, l.raw[end:]...)
	return append(dst, '\n')
}

// CopyTo makes other a copy of the line that outlives the Reader's next call, using other's memory.
func (l *Line) CopyTo(other *Line) {
	raw, members := append(other.raw[:0], l.raw...), append(other.members[:0], l.members...)
	*other = *l
	other.raw, other.members = raw, members
	for i, m := range members {
		other.members[i].key = raw[m.keyStart+1 : m.keyStart+1+len(m.key)]
	}
}
