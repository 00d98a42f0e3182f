package tick

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unsafe"

	jsoniter "github.com/json-iterator/go"
	"github.com/modern-go/reflect2"
)

// Raw is JSON that is passed on as it is.
type Raw = json.RawMessage

// api is the one JSON configuration of the project: sorted map keys, no HTML escaping, full precision of numbers
// (json-iterator's ConfigFastest writes 1e-7 as 0), NaN and infinities refused.
var api = func() jsoniter.API {
	a := jsoniter.Config{SortMapKeys: true, ValidateJsonRawMessage: true}.Froze()
	a.RegisterExtension(jsoniter.DecoderExtension{
		reflect2.TypeOf(int64(0)): intDecoder{},
	})
	return a
}()

// intDecoder reads 44000 and also 44000.0, which is what a stage in another language writes after a division.
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

// Marshal encodes v as the stream does.
func Marshal(v any) ([]byte, error) { return api.Marshal(v) }

// Unmarshal decodes data as the stream does; on an error v holds nothing that may be used.
func Unmarshal(data []byte, v any) error { return api.Unmarshal(data, v) }

// AppendMarshal appends v's encoding to dst.
func AppendMarshal(dst []byte, v any) ([]byte, error) {
	s := api.BorrowStream(nil)
	defer api.ReturnStream(s)
	s.WriteVal(v)
	if s.Error != nil {
		return dst, fmt.Errorf("encode: %w", s.Error)
	}
	return append(dst, s.Buffer()...), nil
}
