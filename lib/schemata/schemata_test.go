package schemata

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"L3:0=fffff;1=fffff":              "L3:0=fffff;1=fffff",
		"    L3:0=00fff":                  "L3:0=fff",
		"    MB:0=2048;1=  16;2=2048":     "MB:0=2048;1=16;2=2048",
		"L3DATA:2=3c0;":                   "L3DATA:2=3c0",
		"L3CODE:1=1;0=2":                  "L3CODE:0=2;1=1",
		"MB:0=4294967295":                 "MB:0=4294967295",
		"L3:0=ffffffffffffffff":           "L3:0=ffffffffffffffff",
		" L3 : 0 = F ; 12 = f0 \r":        "L3:0=f;12=f0",
		"":                                "!",
		"L3":                              "!",
		"L3:":                             "!",
		"L3:0":                            "!",
		"L3:0=":                           "!",
		"L3:=f":                           "!",
		"L3:0=0xf":                        "!",
		"L3:0=g":                          "!",
		"L3:0=-1":                         "!",
		"L3:-1=f":                         "!",
		"L3:0=f;0=f":                      "!",
		"L3:0=f;;1=f":                     "!",
		"L3:0=1ffffffffffffffff":          "!",
		"L3:99999999999=f":                "!",
		"MB:0=ff":                         "!",
		"MB:0=1.5":                        "!",
		"L2:0=ff":                         "!",
		"SMBA:0=2048":                     "!",
		"L3:uninitialized":                "!",
		"L3:0=f\nMB:0=10":                 "!",
		"L3:" + strings.Repeat("0=f;", 9): "!",
	} {
		l, err := Parse(text)
		got := l.String()
		if err != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("Parse(%q) = %s, %v; want %s", text, got, err, want)
		}
	}
	var many strings.Builder
	many.WriteString("MB:0=1")
	for i := 1; i <= maxDomains; i++ {
		many.WriteString(";" + strings.TrimPrefix(Uniform(MB, []int64{int64(i)}, 1).String(), "MB:"))
	}
	if _, err := Parse(many.String()); err == nil {
		t.Error("a line of more domains than any machine has is taken")
	}
}

// These are real files: Cascade Lake, one with CDP, an AMD machine, and a group that is being pseudo-locked.
func TestParseFile(t *testing.T) {
	for text, want := range map[string]string{
		"L3:0=fffff;1=fffff\nMB:0=100;1=100\n":                           "L3:0=fffff;1=fffff MB:0=100;1=100",
		"L3DATA:0=001ff;1=001ff\nL3CODE:0=001ff;1=001ff\nL2:0=ff\n":      "L3DATA:0=1ff;1=1ff L3CODE:0=1ff;1=1ff",
		"  SMBA:0=2048;1=2048\n    MB:0=2048;1=  16\n    L3:0=ffff;1=ff": "MB:0=2048;1=16 L3:0=ffff;1=ff",
		"L3:uninitialized\n":                  "",
		"L3:0=f\nMB:0=10\nL3:0=3\n":           "L3:0=3 MB:0=10", // a copy that was appended to
		"\x00\xff\n:::\nL3:0=\nL3:0=7;1=x\n=": "",
	} {
		var got []string
		for _, l := range ParseFile(text) {
			got = append(got, l.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("ParseFile(%q) = %q; want %q", text, got, want)
		}
	}
}

func TestHolds(t *testing.T) {
	parse := func(text string) Line {
		l, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, c := range []struct {
		present, want string
		holds         bool
	}{
		{"L3:0=f;1=f", "L3:0=f;1=f", true},
		{"L3:0=f;1=f", "L3:1=f", true},
		{"L3:0=f;1=f", "L3:1=7", false},
		{"L3:0=f", "L3:0=f;1=f", false},
		{"L3:0=10", "MB:0=10", false},
	} {
		if got := parse(c.present).Contains(parse(c.want)); got != c.holds {
			t.Errorf("%s holds %s: %v", c.present, c.want, got)
		}
	}
	if got := parse("L3:0=f;1=3;2=1").Select(parse("L3:2=8;0=8;5=8")).String(); got != "L3:0=f;2=1" {
		t.Errorf("Only = %s", got)
	}
	if (Line{}).Contains(parse("L3:0=f")) {
		t.Error("no line holds a line")
	}
	if got := Uniform(L3, []int64{7, 0, 7, -1 << 62, 1 << 62}, 0xf); len(got.Values) != 4 || got.Values[0].ID != -1<<62 {
		t.Errorf("Uniform = %s; want each domain once, in order", got)
	}
}

func TestContiguous(t *testing.T) {
	for mask, want := range map[uint64]bool{0: false, 1: true, 0b1010: false, 0xff0: true, 1 << 63: true, 1<<63 | 1: false, ^uint64(0): true} {
		if Contiguous(mask) != want {
			t.Errorf("Contiguous(%b) = %v", mask, !want)
		}
	}
	for text, want := range map[string]uint64{"fffff\n": 0xfffff, "0007f": 0x7f, "": 0, "0xff": 0, "-1": 0, "fffffffffffffffff": 0} {
		got, err := Mask(text)
		if got != want && err == nil || (err != nil) != (want == 0) {
			t.Errorf("Mask(%q) = %x, %v", text, got, err)
		}
	}
}

// These are the machines of the tests.
var (
	intel = &tick.Resctrl{Vendor: Intel, CBMMask: "7ff", MinCBMBits: 2, CLOSIDs: 8, L3: []int64{0, 1}, MB: []int64{0, 1}, MBMin: 10, MBGranularity: 10}
	amd   = &tick.Resctrl{Vendor: AMD, CBMMask: "ffff", MinCBMBits: 1, CLOSIDs: 16, L3: []int64{0, 8}, MB: []int64{0, 8}, MBGranularity: 1}
	other = &tick.Resctrl{MB: []int64{0}, MBMin: 1, MBGranularity: 1}
	cdp   = &tick.Resctrl{Vendor: Intel, CBMMask: "fffff", MinCBMBits: 1, L3: []int64{0}, CDP: true}
	mbps  = &tick.Resctrl{Vendor: Intel, MB: []int64{0}, MBps: true}
	torn  = &tick.Resctrl{Vendor: Intel, CBMMask: "-", L3: []int64{0}}
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		machine    *tick.Resctrl
		line, want string // want begins with ! for an error that contains the rest
	}{
		{intel, "L3:0=f;1=f", "L3:0=f;1=f"},
		{intel, "L3:1=700", "L3:1=700"},
		{intel, "L3:0=7ff", "L3:0=7ff"},
		{intel, "L3:0=0", "!without a way"},
		{intel, "L3:0=fff", "!fff is not within the machine's mask 7ff"},
		{intel, "L3:0=5", "!5 is not one block"},
		{intel, "L3:0=4", "!4 has fewer ways than the minimum of 2"},
		{intel, "L3:2=f", "!no domain 2: the machine has [0 1]"},
		{intel, "L3:0=f;1=1", "!domain 1: 1 has fewer"},
		{intel, "L3CODE:0=f", "!not divided for code and data"},
		{intel, "MB:0=20;1=100", "MB:0=20;1=100"},
		{intel, "MB:0=11", "MB:0=20"},
		{intel, "MB:0=95", "MB:0=100"},
		{intel, "MB:0=9", "!9 is not from 10 to 100 %"},
		{intel, "MB:0=101", "!101 is not from 10 to 100 %"},
		{intel, "MB:0=18446744073709551615", "!is not from"},
		{amd, "MB:0=2048;8=16", "MB:0=2048;8=16"},
		{amd, "MB:0=2049", "!2049 is not from 1 to 2048 eighths"},
		{amd, "MB:0=0", "!0 is not from 1"},
		{amd, "MB:1=16", "!no domain 1"},
		{other, "MB:0=3", "MB:0=3"},
		{other, "L3:0=3", "!cannot divide that"},
		{cdp, "L3CODE:0=3", "L3CODE:0=3"},
		{cdp, "L3DATA:0=30", "L3DATA:0=30"},
		{cdp, "L3:0=3", "!L3CODE and L3DATA"},
		{cdp, "MB:0=10", "!cannot divide that"},
		{mbps, "MB:0=10", "!MiB/s"},
		{torn, "L3:0=f", "!the machine's mask"},
		{&tick.Resctrl{}, "MB:0=10", "!cannot divide that"},
		{&tick.Resctrl{MB: []int64{0}, MBGranularity: 1<<63 - 1}, "MB:0=10", "MB:0=100"},
	} {
		l, err := Parse(c.line)
		if err != nil {
			t.Fatal(err)
		}
		before := l.String()
		got, err := Check(c.machine, l)
		switch text, fails := strings.CutPrefix(c.want, "!"); {
		case fails && (err == nil || !strings.Contains(err.Error(), text)):
			t.Errorf("Check(%s) = %s, %v; want an error with %q", c.line, got, err, text)
		case !fails && (err != nil || got.String() != c.want):
			t.Errorf("Check(%s) = %s, %v; want %s", c.line, got, err, c.want)
		}
		if l.String() != before {
			t.Errorf("Check(%s) changed its argument to %s", before, l)
		}
	}
	if _, err := Check(intel, Line{Resource: L3}); err == nil {
		t.Error("a line of no domain is taken")
	}
}

// Any text that is parsed is written and parsed again to the same value, and a line that passes the check is one that the
// machine supports.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"L3:0=fffff;1=fffff\nMB:0=100;1=100", "    MB:0=2048;1=  16", "L3CODE:0=1ff;", "L3:uninitialized", "L3:0=f;0=f", "MB:0=18446744073709551615", "L3:=;:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, l := range ParseFile(text) {
			again, err := Parse(l.String())
			if err != nil || !cmp.Equal(l, again) {
				t.Fatalf("%s is read as %s, %v", l, again, err)
			}
			if !l.Contains(l) || len(l.Values) == 0 {
				t.Fatalf("%s does not hold itself", l)
			}
			for _, m := range []*tick.Resctrl{intel, amd, other, cdp, mbps, torn} {
				sound, err := Check(m, l)
				if err != nil {
					continue
				}
				whole, _ := Mask(m.CBMMask)
				for _, v := range sound.Values {
					if l.Resource == MB && (v.Part == 0 || v.Part > UnlimitedAMD) || l.Resource != MB && (v.Part&^whole != 0 || !Contiguous(v.Part)) {
						t.Fatalf("%s passes as %s on %+v", l, sound, m)
					}
				}
				if second, err := Check(m, sound); err != nil || second.String() != sound.String() {
					t.Fatalf("%s passes as %s, which passes as %s, %v", l, sound, second, err)
				}
			}
		}
	})
}

// A merged line keeps its own values and gets those of domains that it does not name, in order.
func TestMerge(t *testing.T) {
	for _, c := range []struct{ line, other, want string }{
		{"L3:1=f", "L3:0=ff;1=ff;2=ff", "L3:0=ff;1=f;2=ff"},
		{"L3:0=f;2=f", "L3:0=ff", "L3:0=f;2=f"},
		{"", "MB:1=20", "MB:1=20"},
	} {
		var line Line
		if c.line != "" {
			line = mustParse(t, c.line)
		}
		if got := line.Merge(mustParse(t, c.other)).String(); got != c.want {
			t.Errorf("%q merged with %s is %s, want %s", c.line, c.other, got, c.want)
		}
	}
}

func mustParse(t *testing.T, text string) Line {
	t.Helper()
	l, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
