package kubernetes

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"polder/lib/qos"
	"polder/lib/tick"
)

// Annotations that protect a pod from eviction are passed on whatever other annotations it has.
func TestProtectionIsKept(t *testing.T) {
	const optOut, own = "polder/evict", "example.com/keep"
	crowd := map[string]any{}
	for i := range 40 { // they sort before
		crowd[fmt.Sprintf("a.koordinator.sh/many-%02d", i)] = strings.Repeat("y", 1000)
	}
	alone := map[string]any{}
	list := `["MemoryEvict","` + strings.Repeat("x", maxValue) + `"]`
	for name, c := range map[string]struct {
		others    map[string]any
		key, text string
		want      string
		problem   string
		rule      bool // MemoryEvict may evict it
	}{
		"policy":                    {crowd, qos.EvictionPolicy, "[]", "[]", "", false},
		"policy for the rule":       {crowd, qos.EvictionPolicy, `["MemoryEvict"]`, `["MemoryEvict"]`, "", true},
		"long policy":               {alone, qos.EvictionPolicy, list, "", "koordinator.sh/eviction-policy of 4", false},
		"long policy among many":    {crowd, qos.EvictionPolicy, list, "", "koordinator.sh/eviction-policy of 4", false},
		"policy of controls":        {crowd, qos.EvictionPolicy, strings.Repeat("\x01", maxValue/5), "", "is passed on as empty", false},
		"policy as long as may be":  {crowd, qos.EvictionPolicy, strings.Repeat("x", maxValue-len(qos.EvictionPolicy)), strings.Repeat("x", maxValue-len(qos.EvictionPolicy)), "", false},
		"opt-out":                   {crowd, optOut, "false", "false", "", true},
		"opt-out by the key":        {crowd, optOut, strings.Repeat("because ", maxValue), "", "polder/evict of 32", true},
		"another opt-out":           {crowd, own, "true", "true", "", true},
		"another opt-out, too long": {alone, own, strings.Repeat("\"", maxValue/2), "", "example.com/keep of ", true},
	} {
		annotations := maps.Clone(c.others)
		annotations[c.key] = c.text
		p := (&Reading{Annotations: []string{optOut, own}}).Pod(object{"metadata": object{"annotations": annotations}})
		if got, ok := p.Tick.Annotations[c.key]; !ok || got != c.want {
			t.Errorf("%s: %.40q, %t of %d annotations; want %.40q", name, got, ok, len(p.Tick.Annotations), c.want)
		}
		if got := qos.MayEvict(&p.Tick, "MemoryEvict"); got != c.rule {
			t.Errorf("%s: MayEvict = %t", name, got)
		}
		// Its error is before those that may be cut off.
		first := ""
		if c.problem != "" && len(p.Tick.Errors) > 0 {
			first = p.Tick.Errors[0]
		}
		if !strings.Contains(first, c.problem) || len(c.others) == 0 && (c.problem == "") != (len(p.Tick.Errors) == 0) {
			t.Errorf("%s: errors %q; want %q first", name, p.Tick.Errors, c.problem)
		}
		size := 0
		for key, value := range p.Tick.Annotations {
			size += encoded(key) + encoded(value) + entryOverhead
		}
		if size > maxValues || len(c.others) > 0 && len(p.Tick.Annotations) < 10 {
			t.Errorf("%s: %d annotations of %d bytes", name, len(p.Tick.Annotations), size)
		}
	}
	// Further keys that are named twice or absent do not displace them.
	p := (&Reading{Annotations: []string{optOut, own, optOut}}).Pod(object{"metadata": object{"annotations": object{optOut: "false", "team": "a"}}})
	if len(p.Tick.Annotations) != 1 || p.Tick.Annotations[optOut] != "false" || len(p.Tick.Errors) > 0 {
		t.Errorf("%q, errors %q", p.Tick.Annotations, p.Tick.Errors)
	}
}

// The labels and annotations of a pod together are within the bound, as the tick has them, whatever is in them; and those that decide are
// not displaced by others.
func TestMarksAreBounded(t *testing.T) {
	for name, crowd := range map[string]func(i int) (key, value string){
		"many":  func(i int) (string, string) { return fmt.Sprintf("koordinator.sh/%d", i), "" },
		"large": func(i int) (string, string) { return fmt.Sprintf("a.koordinator.sh/%d", i), strings.Repeat("y", 1000) },
		"controls": func(i int) (string, string) {
			return fmt.Sprintf("a.koordinator.sh/%d", i), strings.Repeat("\x01\x7f\"", 100)
		},
		"no UTF-8": func(i int) (string, string) {
			return fmt.Sprintf("a.koordinator.sh/%d", i), strings.Repeat("\xffa", 500)
		},
	} {
		labels, annotations := object{qos.KoordinatorClass: "LS"}, object{qos.KatalystLevel: "shared_cores", qos.EvictionPolicy: "[]"}
		for i := range 1000 {
			key, value := crowd(i)
			labels[key], annotations[key] = value, value
		}
		p := (&Reading{}).Pod(object{"metadata": object{"labels": labels, "annotations": annotations}})
		text, err := tick.Marshal(map[string]any{"labels": p.Tick.Labels, "annotations": p.Tick.Annotations})
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > maxValues+100 || len(text) < maxValues/3 {
			t.Errorf("%s: %d bytes of labels and annotations; want %d at most, and not far from it", name, len(text), maxValues)
		}
		own := p.Tick.Annotations
		if p.Tick.Labels[qos.KoordinatorClass] == "" || own[qos.KatalystLevel] == "" || own[qos.EvictionPolicy] == "" {
			t.Errorf("%s: what decides or protects is displaced", name)
		}
		if len(p.Tick.Errors) == 0 {
			t.Errorf("%s: no error", name)
		}
	}
}

// The size that is counted is never less than that in a tick.
func TestEncoded(t *testing.T) {
	for _, text := range []string{"", "a", "ä€😀", "\x00\n\t\x1f\x7f", `"\`, "<>&\u2028", "\xff", "\xff\xfea\xff", "\uFFFD"} {
		raw, err := tick.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := encoded(text); got < len(raw)-2 || got > 6*len(text) {
			t.Errorf("%q: %d; want %d or a little more", text, got, len(raw)-2)
		}
	}
}
