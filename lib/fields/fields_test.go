package fields

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A field of another type than the API's counts as absent, and never causes a panic.
func TestAnotherTypeIsAbsent(t *testing.T) {
	var o Object
	text := `{"a":{"text":"t","yes":true,"n":4,"half":1.5,"list":["x",1,{"y":"z"},null],"map":{"k":"v","n":1}},"no":null,"five":5}`
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	if got := Text(o, "a", "text"); got != "t" {
		t.Errorf("Text = %q", got)
	}
	for _, path := range [][]string{{"a", "n"}, {"a", "text", "more"}, {"no"}, {"no", "x"}, {"five", "x"}, {"missing", "x"}} {
		if got := Text(o, path...); got != "" {
			t.Errorf("Text %v = %q; want none", path, got)
		}
	}
	if !Bool(o, "a", "yes") || Bool(o, "a", "text") {
		t.Error("Truth")
	}
	if diff := cmp.Diff([]Object{{"y": "z"}}, List(o, "a", "list")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"x"}, Texts(o, "a", "list")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"k": "v"}, TextMap(o, "a", "map")); diff != "" {
		t.Error(diff)
	}
	if Child(o, "a", "text") != nil || TextMap(o, "no") != nil || Any(nil, "x") != nil {
		t.Error("something out of nothing")
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		v       any
		whole   int64
		isWhole bool
		number  float64
		is      bool
	}{
		{int64(4), 4, true, 4, true},
		{4, 4, true, 4, true},
		{4.0, 4, true, 4, true},
		{1.5, 1, false, 1.5, true},
		{json.Number("4"), 4, true, 4, true},
		{json.Number("1.5"), 0, false, 1.5, true},
		{json.Number("x"), 0, false, 0, false},
		{"4", 0, false, 0, false},
		{nil, 0, false, 0, false},
		{true, 0, false, 0, false},
	} {
		if n, ok := AsInteger(c.v); ok != c.isWhole || ok && n != c.whole {
			t.Errorf("AsWhole(%v) = %d, %v", c.v, n, ok)
		}
		if f, ok := AsNumber(c.v); ok != c.is || ok && f != c.number {
			t.Errorf("AsNumber(%v) = %v, %v", c.v, f, ok)
		}
	}
	if got := Clip(strings.Repeat("x", 300)); len(got) > 110 {
		t.Errorf("Clip leaves %d bytes", len(got))
	}
}
