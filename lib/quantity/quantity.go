// Package quantity converts the amounts of API objects ("500m", "44k", "1Gi", 4) to numbers, and numbers to the API's
// format. It is pure.
package quantity

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"polder/lib/clip"
)

// maxText bounds an amount's text; the longest reasonable one has some twenty characters. maxExponent bounds its power of ten.
const (
	maxText     = 64
	maxExponent = 30
)

// These are the largest valid amounts: a billion cores, and the largest bytes that a float64 represents exactly.
const (
	maxMilli = 1e12
	maxWhole = 1 << 53
)

// Milli returns an amount in thousandths, as for CPU: "1" and 1 are 1000, "250m" is 250. Fractions of a thousandth are rounded up.
func Milli(v any) (float64, error) {
	q, err := parse(v)
	if err != nil {
		return 0, err
	}
	if q.CmpInt64(maxMilli/1000) > 0 {
		return 0, fmt.Errorf("%q is larger than %d", clip.Text(fmt.Sprint(v), 40), int64(maxMilli/1000))
	}
	return float64(q.MilliValue()), nil
}

// Integer returns an amount in whole units, as for memory in bytes, or for the resources that count milli-CPU: "44k" is
// 44000. Fractions of a unit are rounded up.
func Integer(v any) (float64, error) {
	q, err := parse(v)
	if err != nil {
		return 0, err
	}
	if q.CmpInt64(maxWhole) > 0 {
		return 0, fmt.Errorf("%q is larger than %d", clip.Text(fmt.Sprint(v), 40), int64(maxWhole))
	}
	return float64(q.Value()), nil
}

// Format returns a number of whole units in the API's format: 44000 is "44k", 1500 is "1500".
func Format(n int64) string { return resource.NewQuantity(n, resource.DecimalSI).String() }

// FormatBytes returns a number of bytes as the API formats memory: 18255872 is "17828Ki", 1815637738 is "1815637738".
func FormatBytes(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

// FormatMilli returns a number of thousandths in the API's format: 44000 is "44", 1500 is "1500m".
func FormatMilli(n int64) string { return resource.NewMilliQuantity(n, resource.DecimalSI).String() }

// parse parses a quantity as a JSON decoder returns it: text, or a number if the writer omitted the quotes.
func parse(v any) (resource.Quantity, error) {
	text, ok := asText(v)
	switch {
	case !ok:
		return resource.Quantity{}, fmt.Errorf("%q is not an amount", clip.Text(fmt.Sprint(v), 40))
	case len(text) > maxText:
		return resource.Quantity{}, fmt.Errorf("%q is not an amount: longer than %d bytes", clip.Text(fmt.Sprint(v), 40), maxText)
	}
	if i := strings.LastIndexAny(text, "eE"); i >= 0 { // 1e1000000000 would be written out digit by digit
		n, err := strconv.Atoi(text[i+1:])
		if errors.Is(err, strconv.ErrRange) || err == nil && (n < -maxExponent || n > maxExponent) {
			return resource.Quantity{}, fmt.Errorf("%q is not an amount: its exponent is out of range", clip.Text(fmt.Sprint(v), 40))
		}
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || !strings.ContainsAny(text, "0123456789") { // the library accepts "m" as 0
		return q, fmt.Errorf("%q is not an amount: want one such as 500m, 2 or 1Gi", clip.Text(fmt.Sprint(v), 40))
	}
	if q.Sign() < 0 {
		return q, fmt.Errorf("%q is negative", clip.Text(fmt.Sprint(v), 40))
	}
	return q, nil
}

func asText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return string(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case int:
		return strconv.Itoa(v), true
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return "", false
		}
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}
