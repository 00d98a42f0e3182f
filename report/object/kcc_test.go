package object

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/customconfig"
	"polder/lib/tick"
)

func verdict(valid *bool, reason, message string, invalid ...string) customconfig.Verdict {
	return customconfig.Verdict{Namespace: "default", Name: "x", ObservedGeneration: 2, Valid: valid, Reason: reason, Message: message, InvalidTargetConfigList: invalid}
}

func TestKCCStatus(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.FixedZone("", 3600))
	no := false
	bad := verdict(&no, "InvalidTargetConfig", "default/a and default/b are both for all nodes", "default/a", "default/b")
	first := KCCStatus(bad, nil, at)
	want := map[string]any{
		"apiVersion": "config.katalyst.kubewharf.io/v1alpha1", "kind": "KatalystCustomConfig", "metadata": map[string]any{"name": "x", "namespace": "default"},
		"status": map[string]any{
			"observedGeneration": int64(2), "invalidTargetConfigList": []any{"default/a", "default/b"},
			"conditions": []any{map[string]any{"type": "Valid", "status": "False", "reason": "InvalidTargetConfig", "message": "default/a and default/b are both for all nodes", "lastTransitionTime": "2026-01-01T11:00:00Z"}},
		},
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Fatal(diff)
	}
	// Another text is no transition; another status is.
	since := func(o map[string]any) any { return condition(o)["lastTransitionTime"] }
	if got := since(KCCStatus(verdict(&no, "TargetTypeOverlap", "two"), first, at.Add(time.Hour))); got != "2026-01-01T11:00:00Z" {
		t.Errorf("the same status is since %v", got)
	}
	good := KCCStatus(verdict(new(true), "Normal", ""), first, at.Add(time.Hour))
	if got := since(good); got != "2026-01-01T12:00:00Z" {
		t.Errorf("another status is since %v", got)
	}
	if _, there := at2(good, "status", "invalidTargetConfigList"); there {
		t.Error("a list of nothing is applied: it would stay")
	}
	if got := condition(KCCStatus(verdict(nil, "TargetTypeNotRead", "x"), nil, at))["status"]; got != "Unknown" {
		t.Errorf("a kind that is not read: %v", got)
	}

	for name, c := range map[string]struct {
		v    customconfig.Verdict
		want bool
	}{
		"itself":             {bad, true},
		"another message":    {verdict(&no, bad.Reason, "other", bad.InvalidTargetConfigList...), false},
		"another list":       {verdict(&no, bad.Reason, bad.Message, "default/a"), false},
		"another validity":   {verdict(nil, bad.Reason, bad.Message, bad.InvalidTargetConfigList...), false},
		"another generation": {customconfig.Verdict{Namespace: "default", Name: "x", ObservedGeneration: 3, Valid: &no, Reason: bad.Reason, Message: bad.Message, InvalidTargetConfigList: bad.InvalidTargetConfigList}, false},
	} {
		if got := KCCHolds(first, c.v); got != c.want || SameVerdict(bad, c.v) != c.want {
			t.Errorf("%s: holds %v, same %v; want %v", name, got, SameVerdict(bad, c.v), c.want)
		}
	}
	if KCCHolds(nil, bad) || KCCHolds(map[string]any{"status": map[string]any{"conditions": []any{"x", map[string]any{"type": "Other"}}}}, bad) {
		t.Error("an object without the condition holds it")
	}
}

func at2(o map[string]any, path ...string) (any, bool) {
	v := at(o, path...)
	return v, v != nil
}

func TestVerdicts(t *testing.T) {
	for text, want := range map[string]int{
		``:                                    0,
		`null`:                                0,
		`{"katalyst":{}}`:                     0,
		`{"katalyst":[]}`:                     0,
		`{"katalyst":{"customConfigs":null}}`: 0,
		`{"katalyst":{"customConfigs":"x"}}`:  0,
		`{"katalyst":{"customConfigs":[{}]}}`: 0,
		`{"katalyst":{"customConfigs":[{"namespace":"a","name":"b","reason":"Normal","valid":true},{"name":"c"}]}}`: 1,
	} {
		if got := Verdicts(tick.Raw(text)); len(got) != want {
			t.Errorf("%s: %v; want %d", text, got, want)
		}
	}
}
