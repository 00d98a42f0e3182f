package tick

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const head = `"v":1,"node":"n1","time":"2026-01-01T00:00:00Z"`

func TestSplice(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"added at the end", `{` + head + `}`, `{` + head + `,"advice":{"policy":"p"}}`},
		{"replaced where it stands", `{"advice" : { "policy":"old"} ,` + head + `,"x":1}`, `{"advice" : {"policy":"p"} ,` + head + `,"x":1}`},
		{
			"other sections and unknown fields byte for byte",
			`{"mine": {"b":1.50,"a":[1e-7,"é\u00e9"]}, ` + head + `,"sample":{ "zzz" : 1 }}`,
			`{"mine": {"b":1.50,"a":[1e-7,"é\u00e9"]}, ` + head + `,"sample":{ "zzz" : 1 },"advice":{"policy":"p"}}`,
		},
		{"white space behind the object", `{` + head + `}  `, `{` + head + `,"advice":{"policy":"p"}}  `},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := ParseLine([]byte(c.line))
			if err != nil {
				t.Fatal(err)
			}
			got := string(l.Splice(nil, "advice", []byte(`{"policy":"p"}`)))
			if diff := cmp.Diff(c.want+"\n", got); diff != "" {
				t.Errorf("Splice (-want +got):\n%s", diff)
			}
			var other Line
			l.CopyTo(&other)
			clear(l.raw)
			if again := string(other.Splice(nil, "advice", []byte(`{"policy":"p"}`))); again != got {
				t.Errorf("Splice of the copy = %s; want %s", again, got)
			}
		})
	}
}

// manyKeys are members of an object with different keys.
func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%d":1`, i)
	}
	return b.String()
}

func TestParseLineRefuses(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{``, "want an object"},
		{`[]`, "want an object"},
		{`{` + head, "line's end"},
		{`{` + head + `} {}`, "want the line's end"},
		{`{` + head + `,}`, "want a string"},
		{`{` + head + `,"a":01}`, "want a comma"},
		{`{` + head + `,"a":1.}`, "want a digit"},
		{`{` + head + `,"a":NaN}`, "want a value"},
		{`{` + head + `,"a":nul}`, "want null"},
		{`{` + head + `,"a":"\x"}`, "want an escape"},
		{`{` + head + `,"a":"\u12G4"}`, "four hexadecimal digits"},
		{`{` + head + `,"a":[1,]}`, "want a value"},
		{`{` + head + `,"a":[1 2]}`, "a comma or the array's end"},
		{`{` + head + `,"a":{"b" 1}}`, "want a colon"},
		{"{" + head + ",\"a\":\"\x01\"}", "control character"},
		{"{" + head + ",\"a\":\"\xff\"}", "not UTF-8"},
		{`{` + head + `,"a":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, "nested deeper"},
		{`{` + head + `,"sample":{"pods":[` + strings.Repeat(`{},`, maxElements) + `{}]}}`, "more than 262144 elements in arrays"},
		{`{` + head + `,"a":[` + strings.Repeat(`[0],`, maxElements/2) + `0]}`, "more than 262144 elements in arrays"},
		{`{` + head + manyKeys(256-3+1) + `}`, "more than 256 top-level keys"},
		{`{` + head + `,"node":"twice"}`, `key "node" occurs twice`},
		{`{` + head + `,"sam\u0070le":{}}`, "an escape in a top-level key"},
		{`{"node":"n","time":"2026-01-01T00:00:00Z"}`, `no "v"`},
		{`{"v":2,"node":"n","time":"2026-01-01T00:00:00Z"}`, "v is 2, want 1"},
		{`{"v":"1","node":"n","time":"2026-01-01T00:00:00Z"}`, `v is "1", want 1`},
		{`{"v":1,"time":"2026-01-01T00:00:00Z"}`, `no "node"`},
		{`{"v":1,"node":"","time":"2026-01-01T00:00:00Z"}`, `node is "", want a name`},
		{`{"v":1,"node":7,"time":"2026-01-01T00:00:00Z"}`, `node is 7`},
		{`{"v":1,"node":"a\u001b[2J","time":"2026-01-01T00:00:00Z"}`, "control character"},
		{`{"v":1,"node":"` + strings.Repeat("n", 300) + `","time":"2026-01-01T00:00:00Z"}`, "the limit is 253"},
		{`{"v":1,"node":"n"}`, `no "time"`},
		{`{"v":1,"node":"n","time":"yesterday"}`, `time is "yesterday", want RFC 3339`},
		{`{"v":1,"node":"n","time":12}`, `time is 12, want RFC 3339`},
	} {
		l, err := ParseLine([]byte(c.line))
		if err == nil || !errors.Is(err, ErrInvalidTick) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("ParseLine(%.80s) = %v, %v; want an error with %q", c.line, l, err, c.want)
		}
	}
}

func TestDecode(t *testing.T) {
	l, err := ParseLine([]byte(`{` + head + `,"sample":{"pods":[{"uid":"u","name":"p","qos":"shared","load1":1.5}]},"advice":{"policy":"mine","reclaimed":{"milliCPU":44000.0},"cgroups":[{"cgroup":"/a","cpuMaxMilliCPU":-1}]},"report":null}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.Decode(SectionSample, SectionAdvice, SectionReport)
	if err != nil {
		t.Fatal(err)
	}
	want := &Tick{
		V: 1, Node: "n1", Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Sample: &Sample{Pods: []Pod{{UID: "u", Name: "p", QoS: "shared", Load1: new(1.5)}}},
		Advice: &Advice{Policy: "mine", Reclaimed: &Reclaimed{MilliCPU: new(int64(44000))}, Cgroups: []Cgroup{{Cgroup: "/a", CPUMaxMilliCPU: new(int64(-1))}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Decode (-want +got):\n%s", diff)
	}
	for _, bad := range []string{`{"reclaimed":{"milliCPU":0.5}}`, `{"reclaimed":{"milliCPU":"1"}}`, `{"reclaimed":{"milliCPU":1e30}}`, `[]`, `{"cgroups":{}}`} {
		l, err := ParseLine([]byte(`{` + head + `,"advice":` + bad + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Decode(SectionAdvice); !errors.Is(err, ErrInvalidTick) {
			t.Errorf("Decode of advice %s: %v; want ErrNoTick", bad, err)
		}
	}
}

func TestInterval(t *testing.T) {
	for section, want := range map[string]time.Duration{
		`{"pods":[],"intervalSeconds":1.5}`:                  1500 * time.Millisecond,
		`{"intervalSeconds":-1}`:                             0,
		`{"periodSeconds":1,"intervalSeconds":20}`:           time.Second, // a late tick
		`{"intervalSeconds":20,"pods":[],"periodSeconds":1}`: time.Second,
		`{"periodSeconds":0,"intervalSeconds":2}`:            2 * time.Second,
		`{"periodSeconds":"x","intervalSeconds":2}`:          2 * time.Second,
		`{"intervalSeconds":"x"}`:                            0,
		`{}`:                                                 0,
		`null`:                                               0,
	} {
		l, err := ParseLine([]byte(`{` + head + `,"sample":` + section + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Interval(); got != want {
			t.Errorf("Interval of %s = %s; want %s", section, got, want)
		}
	}
}

func TestMarshal(t *testing.T) {
	got, err := Marshal(&Sample{
		CPU:    &NodeCPU{Load1: new(0.0000001), UsageMilliCPU: new(44000.0)},
		Labels: map[string]string{"b": "<&>", "a": "é"},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"cpu":{"usageMilliCPU":44000,"load1":1e-07},"labels":{"a":"é","b":"<&>"}}`
	if string(got) != want {
		t.Errorf("Marshal = %s; want %s", got, want)
	}
	nan := 0.0
	if got, err := Marshal(&NodeCPU{Load1: new(nan / nan)}); err == nil {
		t.Errorf("Marshal of NaN = %s; want an error", got)
	}
}

// FuzzLine: what the scanner accepts is JSON for the standard library too, and a splice forwards the rest byte for byte.
func FuzzLine(f *testing.F) {
	for _, seed := range []string{
		`{` + head + `}`, `{` + head + `,"advice":{"cgroups":[]},"x":[1,-0.5e+3,true,null,"\u00e9\n"]}`, `{`, "{\"v\":1\xff}",
		`{` + head + `,"sample":{"intervalSeconds":1,"pods":[{"containers":[{"load1":1}]}]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, scanErr := (&scanner{b: data}).value(skipSpace(data, 0), 0)
		if json.Valid(data) && scanErr != nil && !strings.Contains(scanErr.Error(), "nested deeper") &&
			!strings.Contains(scanErr.Error(), "elements in arrays") {
			t.Fatalf("scanner refuses valid JSON: %v", scanErr)
		}
		l, err := ParseLine(data)
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("the scanner takes what encoding/json refuses: %q", data)
		}
		if _, err := l.Decode(SectionSample, SectionAdvice, SectionIsolation, SectionEviction, SectionReport); err != nil && !errors.Is(err, ErrInvalidTick) {
			t.Fatalf("Decode: %v", err)
		}
		out := l.Splice(nil, "fuzz", []byte(`0`))
		again, err := ParseLine(bytes.TrimSuffix(out, []byte{'\n'}))
		if err != nil {
			t.Fatalf("a spliced line is no tick: %v", err)
		}
		for _, m := range l.members {
			if string(m.key) != "fuzz" && !bytes.Equal(l.Section(string(m.key)), again.Section(string(m.key))) {
				t.Fatalf("section %s has changed", m.key)
			}
		}
	})
}

// recorded returns a line of a 48-core node with n pods.
func recorded(n int) []byte {
	tk := &Tick{V: 1, Node: "node-1", Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Sample: &Sample{IntervalSeconds: new(1.0)}}
	for i := range n {
		c := Container{
			Name: "app", ID: strings.Repeat("0123456789abcdef", 4), Cgroup: fmt.Sprintf("/kubepods/burstable/pod%036d/%064d", i, i), CPUSetCPUs: "0-10,12-21,24-34,36-45",
			UsageMilliCPU: new(123.4 + float64(i)), Load1: new(0.125), Load5: new(0.25), Threads: new(12.0), ThrottledPercent: new(0.5),
			Memory: &Memory{UsageBytes: new(123456789.0), WorkingSetBytes: new(123456000.0), RSSBytes: new(120000000.0), CacheBytes: new(3456789.0)},
		}
		tk.Sample.Pods = append(tk.Sample.Pods, Pod{
			UID: fmt.Sprintf("%036d", i), Namespace: "default", Name: fmt.Sprintf("service-%d", i), QoS: QoSShared, QoSSource: QoSFromRule, Cgroup: fmt.Sprintf("/kubepods/burstable/pod%036d", i),
			UsageMilliCPU: c.UsageMilliCPU, Load1: c.Load1, Load5: c.Load5, Threads: c.Threads, Memory: c.Memory,
			Requests: &Resources{MilliCPU: new(2000.0), MemoryBytes: new(1073741824.0)}, Containers: []Container{c},
		})
	}
	line, err := Marshal(tk)
	if err != nil {
		panic(err)
	}
	return line
}

func BenchmarkScan(b *testing.B) {
	line := recorded(100)
	b.Run("scanner", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		for b.Loop() {
			if _, err := (&scanner{b: line}).value(0, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("json-iterator", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		iter := api.BorrowIterator(line)
		for b.Loop() {
			iter.ResetBytes(line)
			iter.Skip()
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		for b.Loop() {
			json.Valid(line)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		l, err := ParseLine(line)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := l.Decode(SectionSample); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestMarshalIsUTF8(t *testing.T) {
	got, err := Marshal(map[string]string{"cgroup": "/a\xff/\xe2\x82"})
	if want := "{\"cgroup\":\"/a\uFFFD/\uFFFD\"}"; err != nil || string(got) != want {
		t.Errorf("Marshal gave %q, %v; want %q", got, err, want)
	}
}

// A line with as many top-level keys as are permitted is a tick.
func TestManyKeys(t *testing.T) {
	if _, err := ParseLine([]byte(`{` + head + `,"a":[` + strings.Repeat(`[0],`, maxElements/2-1) + `0]}`)); err != nil {
		t.Errorf("ParseLine of as many elements as permitted: %v", err)
	}
	if _, err := ParseLine([]byte(`{` + head + manyKeys(256-3) + `}`)); err != nil {
		t.Error(err)
	}
}

// A Raw with line breaks, as from a file that a person has formatted, does not break the line.
func TestMarshalIsOneLine(t *testing.T) {
	got, err := Marshal(struct {
		Config Raw    `json:"config"`
		Text   string `json:"text"`
	}{Raw("{\n  \"a\": [1,\r\n\t2]\n}\n"), "two\nlines"})
	if want := `{"config":{"a":[1,2]},"text":"two\nlines"}`; err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}
