package dynamic

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/customconfig"
	"polder/lib/tick"
)

const (
	threshold = `{"evictionPluginsConfig":{"reclaimedResourcesEvictionPluginConfig":{"evictionThreshold":{"katalyst.kubewharf.io/reclaimed_millicpu":%v}}}}`
	newer     = `{"evictionConfig":{"reclaimedResourcesEvictionConfig":{"evictionThreshold":{"resource.katalyst.kubewharf.io/reclaimed_millicpu":%v}}}}`
)

// configured is a tick's configuration; an empty config means none.
func configured(eviction, admin string) tick.Raw {
	var parts []string
	for key, config := range map[string]string{"evictionConfiguration": eviction, "adminQoSConfiguration": admin} {
		if config != "" {
			parts = append(parts, fmt.Sprintf(`%q:{"namespace":"default","name":"x","config":%s}`, key, config))
		}
	}
	return tick.Raw(`{"katalyst":{` + strings.Join(parts, ",") + `}}`)
}

func chosen(config string) *customconfig.Chosen {
	return &customconfig.Chosen{Namespace: "default", Name: "f", At: "x.yaml:3", Config: []byte(config)}
}

// in returns the settings in force, by name, with their sources.
func in(objects []Object, given ...string) map[string]string {
	out := map[string]string{}
	for _, s := range Settings(objects, func(name string) bool {
		return slices.Contains(given, name)
	}) {
		out[s.Setting] = fmt.Sprint(s.V, " ", s.From)
	}
	return out
}

const (
	fromEviction = "katalyst evictionConfiguration default/x"
	fromAdmin    = "katalyst adminQoSConfiguration default/x"
)

// Flags and files of flags take precedence over the file's objects, those over the tick's, and the present kind over the guide's.
func TestPrecedence(t *testing.T) {
	ec, aqc := func(v any) string { return fmt.Sprintf(threshold, v) }, func(v any) string { return fmt.Sprintf(newer, v) }
	const cpu = "reclaimed-cpu-threshold"
	kswapd := func(times int) string {
		return fmt.Sprintf(`{"evictionPluginsConfig":{"memoryEvictionPluginConfig":{"systemKswapdRateExceedTimesThreshold":%d}}}`, times)
	}
	const duration = `{"evictionConfig":{"memoryPressureEvictionConfig":{"systemKswapdRateExceedDurationThreshold":120}}}`
	for name, c := range map[string]struct {
		raw   tick.Raw
		file  map[string]*customconfig.Chosen
		given []string
		want  map[string]string
	}{
		"nothing":                      {nil, nil, nil, map[string]string{}},
		"null":                         {tick.Raw("null"), nil, nil, map[string]string{}},
		"only verdicts":                {tick.Raw(`{"katalyst":{"customConfigs":[{"name":"x"}]}}`), nil, nil, map[string]string{}},
		"the guide's":                  {configured(ec(10), ""), nil, nil, map[string]string{cpu: "10 " + fromEviction}},
		"today's":                      {configured("", aqc(8)), nil, nil, map[string]string{cpu: "8 " + fromAdmin}},
		"both":                         {configured(ec(10), aqc(8)), nil, nil, map[string]string{cpu: "8 " + fromAdmin}},
		"both, another field":          {configured(ec(10), duration), nil, nil, map[string]string{cpu: "10 " + fromEviction, "memory-kswapd-duration": "2m0s " + fromAdmin}},
		"given":                        {configured(ec(10), aqc(8)), nil, []string{cpu}, map[string]string{}},
		"given for both resources":     {configured(ec(10), aqc(8)), nil, []string{"reclaimed-threshold"}, map[string]string{}},
		"another setting is given":     {configured(ec(10), ""), nil, []string{"burst"}, map[string]string{cpu: "10 " + fromEviction}},
		"a file before the tick":       {configured(ec(10), aqc(8)), map[string]*customconfig.Chosen{"evictionConfiguration": chosen(ec(3))}, nil, map[string]string{cpu: "3 katalyst evictionConfiguration default/f (x.yaml:3)"}},
		"a file in place of the tick":  {configured(ec(10), ""), map[string]*customconfig.Chosen{"evictionConfiguration": chosen("{}")}, nil, map[string]string{}},
		"a file beside the tick":       {configured(ec(10), aqc(8)), map[string]*customconfig.Chosen{"adminQoSConfiguration": chosen("{}")}, nil, map[string]string{cpu: "10 " + fromEviction}},
		"given before the file":        {nil, map[string]*customconfig.Chosen{"evictionConfiguration": chosen(ec(3))}, []string{cpu}, map[string]string{}},
		"kswapd duration":              {configured(kswapd(1), duration), nil, nil, map[string]string{"memory-kswapd-times": "1 " + fromEviction, "memory-kswapd-duration": "2m0s " + fromAdmin}},
		"kswapd times, given":          {configured("", duration), nil, []string{"memory-kswapd-times"}, map[string]string{}},
		"kswapd times, in the file":    {configured("", duration), map[string]*customconfig.Chosen{"evictionConfiguration": chosen(kswapd(2))}, nil, map[string]string{"memory-kswapd-times": "2 katalyst evictionConfiguration default/f (x.yaml:3)"}},
		"an object without a section":  {configured(`{}`, `{"reclaimedResourceConfig":{"enableReclaim":true}}`), nil, nil, map[string]string{}},
		"an object without config":     {tick.Raw(`{"katalyst":{"evictionConfiguration":{"namespace":"a","name":"b"}}}`), nil, nil, map[string]string{}},
		"a place that the tick claims": {tick.Raw(`{"katalyst":{"evictionConfiguration":{"namespace":"default","name":"x","at":"/etc/passwd:1","config":` + ec(4) + `}}}`), nil, nil, map[string]string{cpu: "4 " + fromEviction}},
	} {
		objects, err := Objects(c.raw, c.file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, in(objects, c.given...)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Whatever sample.config contains, an invalid object is named and not used.
func TestInvalidTickObjects(t *testing.T) {
	for _, text := range []string{`5`, `"x"`, `[]`, `{"katalyst":[]}`, `{"katalyst":{"evictionConfiguration":5}}`, `{"katalyst":{"adminQoSConfiguration":{"name":5}}}`} {
		objects, err := Objects(tick.Raw(text), nil)
		if err == nil || len(in(objects)) > 0 {
			t.Errorf("%s: %v, %v; want an error and nothing", text, objects, err)
		}
	}
	objects, err := Objects(configured(`[1]`, ""), nil)
	if err != nil || len(objects) != 1 || objects[0].Err == nil {
		t.Errorf("a config that is no object: %+v, %v", objects, err)
	}
}

// An invalid object leaves the last valid one of its kind in force, until it is valid again or deleted.
func TestResolve(t *testing.T) {
	m := LastValid{}
	errTooLarge := errors.New("more than 100")
	check := func(objects []Object) error {
		for _, o := range objects {
			for _, v := range o.Values {
				if f, ok := v.V.(float64); ok && f > 100 {
					return errTooLarge
				}
			}
		}
		return nil
	}
	for i, c := range []struct {
		ec, aqc string // thresholds, or whole configs
		want    string // of CPU
		refused []string
	}{
		{"-1", "", "", []string{fromEviction + " is refused: evictionPluginsConfig.reclaimedResourcesEvictionPluginConfig.evictionThreshold.katalyst.kubewharf.io/reclaimed_millicpu: -1: want a number over 0 and at most 1000000: none of its values is in force"}},
		{"10", "", "10 " + fromEviction, nil},
		{"-1", "", "10 " + fromEviction, []string{"the last valid one stays in force"}},
		{"-1", "", "10 " + fromEviction, []string{"the last valid one stays in force"}},
		{"200", "", "10 " + fromEviction, []string{"more than 100: the last valid one stays in force"}},
		{"20", "", "20 " + fromEviction, nil},
		{"200", "7", "7 " + fromAdmin, []string{fromEviction + " is refused: more than 100: the last valid one stays in force"}},
		{"30", "500", "7 " + fromAdmin, []string{fromAdmin + " is refused: more than 100: the last valid one stays in force"}},
		{"30", "", "30 " + fromEviction, nil},
		{"40", "500", "40 " + fromEviction, []string{"none of its values is in force"}}, // the last valid one was deleted with the object
		{"", "", "", nil},
		{"-1", "", "", []string{"none of its values is in force"}},
	} {
		ec, aqc := "", ""
		if c.ec != "" {
			ec = fmt.Sprintf(threshold, c.ec)
		}
		if c.aqc != "" {
			aqc = fmt.Sprintf(newer, c.aqc)
		}
		objects, err := Objects(configured(ec, aqc), nil)
		if err != nil {
			t.Fatal(err)
		}
		inForce, refused := m.Resolve(objects, check)
		if got := in(inForce)["reclaimed-cpu-threshold"]; got != c.want {
			t.Errorf("%d: %q; want %q", i, got, c.want)
		}
		if len(refused) != len(c.refused) {
			t.Errorf("%d: refused %q; want %q", i, refused, c.refused)
			continue
		}
		for j, want := range c.refused {
			if !strings.Contains(refused[j], want) {
				t.Errorf("%d: refused %q; want %q", i, refused[j], want)
			}
		}
		// The state can be reported again, for example if nothing is known after a restart.
		again, err := Objects(m.Raw(), nil)
		if got := in(again)["reclaimed-cpu-threshold"]; err != nil || len(c.refused) == 0 && got != c.want {
			t.Errorf("%d: reported again %q, %v; want %q", i, got, err, c.want)
		}
		data, err := tick.Marshal(m) // a restart in between changes nothing
		if err != nil {
			t.Fatal(err)
		}
		m = LastValid{}
		if err := tick.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
	}
}

// Only the valid parts of an old state file are used.
func TestResolveOldState(t *testing.T) {
	objects, err := Objects(configured(fmt.Sprintf(threshold, -1), fmt.Sprintf(newer, -1)), nil)
	if err != nil {
		t.Fatal(err)
	}
	m := LastValid{"evictionConfiguration": nil, "adminQoSConfiguration": {Config: []byte(`{"evictionConfig":5}`)}, "nonsense": {}}
	inForce, refused := m.Resolve(objects, func([]Object) error { return nil })
	if len(inForce) != 0 || len(refused) != 2 {
		t.Errorf("in force %+v, refused %q; want nothing, and both", inForce, refused)
	}
}
