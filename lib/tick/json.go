package tick

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
	"unsafe"

	jsoniter "github.com/json-iterator/go"
	"github.com/modern-go/reflect2"
)

// Raw is JSON that is passed on unchanged.
type Raw = json.RawMessage

// api is the only JSON configuration of the project: sorted map keys, no HTML escaping, full precision of
// numbers (json-iterator's ConfigFastest writes 1e-7 as 0), NaN and infinities rejected, names matched exactly.
//
// plainKeys is the same for texts without any escape in a key, which saves a copy of every key.
var (
	api       = freeze(jsoniter.Config{SortMapKeys: true, ValidateJsonRawMessage: true, CaseSensitive: true})
	plainKeys = freeze(jsoniter.Config{CaseSensitive: true, ObjectFieldMustBeSimpleString: true})
)

func freeze(c jsoniter.Config) jsoniter.API {
	a := c.Froze()
	a.RegisterExtension(jsoniter.DecoderExtension{
		reflect2.TypeOf(int64(0)):        intDecoder{},
		reflect2.TypeOf((*float64)(nil)): floatDecoder{},
	})
	a.RegisterExtension(jsoniter.EncoderExtension{reflect2.TypeOf(float64(0)): floatEncoder{}})
	return a
}

// floatDecoder decodes optional numbers, of which samples have many: it allocates them in blocks.
type floatDecoder struct{}

const floatsPerBlock = 256

func (floatDecoder) Decode(ptr unsafe.Pointer, iter *jsoniter.Iterator) {
	if iter.ReadNil() {
		*(**float64)(ptr) = nil
		return
	}
	block, _ := iter.Attachment.(*[]float64)
	if block == nil || len(*block) == cap(*block) {
		fresh := make([]float64, 0, floatsPerBlock)
		block = &fresh
		iter.Attachment = block
	}
	*block = append(*block, iter.ReadFloat64())
	*(**float64)(ptr) = &(*block)[len(*block)-1]
}

// omitFields makes decoders skip fields.
type omitFields struct {
	jsoniter.DummyExtension
	fields []string
}

// UpdateStructDescriptor implements [jsoniter.Extension].
func (x *omitFields) UpdateStructDescriptor(d *jsoniter.StructDescriptor) {
	for _, b := range d.Fields {
		if slices.Contains(x.fields, d.Type.Type1().Name()+"."+b.Field.Name()) {
			b.FromNames = nil
		}
	}
}

// intDecoder reads 44000 and also 44000.0, which a stage in another language may write after a division.
type intDecoder struct{}

func (intDecoder) Decode(ptr unsafe.Pointer, iter *jsoniter.Iterator) {
	if iter.WhatIsNext() != jsoniter.NumberValue {
		iter.Skip()
		iter.ReportError("read integer", "want a whole number")
		return
	}
	text := string(iter.ReadNumber())
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		*(*int64)(ptr) = n
		return
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		iter.ReportError("read integer", "want a whole number, got "+text)
		return
	}
	*(*int64)(ptr) = int64(f)
}

// Marshal encodes v as the stream does: see [AppendMarshal].
func Marshal(v any) ([]byte, error) { return AppendMarshal(nil, v) }

// Unmarshal decodes data as the stream does; after an error v must not be used.
func Unmarshal(data []byte, v any) error { return api.Unmarshal(data, v) }

// AppendMarshal appends v's encoding to dst: one line of UTF-8. A cgroup's name can have any bytes: invalid ones become U+FFFD, because
// otherwise the next stage would drop the whole line.
func AppendMarshal(dst []byte, v any) ([]byte, error) {
	s := api.BorrowStream(nil)
	defer api.ReturnStream(s)
	s.WriteVal(v)
	if s.Error != nil {
		return dst, fmt.Errorf("encode: %w", s.Error)
	}
	text := s.Buffer()
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	if bytes.IndexByte(text, '\n') < 0 {
		return append(dst, text...), nil
	}
	var line bytes.Buffer // a Raw that came from a file may have line breaks between its tokens
	if err := json.Compact(&line, text); err != nil {
		return dst, fmt.Errorf("encode: %w", err)
	}
	return append(dst, line.Bytes()...), nil
}
