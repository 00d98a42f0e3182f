package object

import (
	"slices"
	"time"

	"polder/lib/customconfig"
	"polder/lib/tick"
)

// ConditionValid is the type of a KatalystCustomConfig's condition.
const ConditionValid = "Valid"

// maxVerdicts bounds what is taken from one tick.
const maxVerdicts = 100

// Verdicts are what a tick's configuration contains about KatalystCustomConfigs. What is no verdict is left out: nothing is written
// to an object that was not looked at.
func Verdicts(raw tick.Raw) []customconfig.Verdict {
	var top struct {
		Katalyst map[string]tick.Raw `json:"katalyst"`
	}
	if len(raw) == 0 || tick.Unmarshal(raw, &top) != nil {
		return nil
	}
	list := top.Katalyst[customconfig.VerdictsKey]
	var all []customconfig.Verdict
	if len(list) == 0 || tick.Unmarshal(list, &all) != nil {
		return nil
	}
	all = slices.DeleteFunc(all, func(v customconfig.Verdict) bool { return v.Name == "" || v.Namespace == "" || v.Reason == "" })
	return all[:min(len(all), maxVerdicts)]
}

// SameVerdict reports whether two verdicts are the same.
func SameVerdict(a, b customconfig.Verdict) bool {
	return validity(a) == validity(b) && a.ObservedGeneration == b.ObservedGeneration && a.Reason == b.Reason && a.Message == b.Message &&
		slices.Equal(a.InvalidTargetConfigList, b.InvalidTargetConfigList)
}

func validity(v customconfig.Verdict) string {
	switch {
	case v.Valid == nil:
		return "Unknown"
	case *v.Valid:
		return "True"
	}
	return "False"
}

// KCCStatus is what is to be applied to a KatalystCustomConfig, which is present as it is given. The condition's time is kept
// where its status stays.
func KCCStatus(v customconfig.Verdict, present map[string]any, now time.Time) map[string]any {
	since := now.UTC().Format(time.RFC3339)
	if c := condition(present); c != nil && c["status"] == validity(v) {
		if t, ok := c["lastTransitionTime"].(string); ok && t != "" {
			since = t
		}
	}
	status := map[string]any{
		"observedGeneration": v.ObservedGeneration,
		"conditions": []any{map[string]any{
			"type": ConditionValid, "status": validity(v), "reason": v.Reason, "message": v.Message, "lastTransitionTime": since,
		}},
	}
	if len(v.InvalidTargetConfigList) > 0 { // what is not applied any more is removed
		list := make([]any, len(v.InvalidTargetConfigList))
		for i, name := range v.InvalidTargetConfigList {
			list[i] = name
		}
		status["invalidTargetConfigList"] = list
	}
	return map[string]any{
		"apiVersion": "config.katalyst.kubewharf.io/v1alpha1",
		"kind":       "KatalystCustomConfig",
		"metadata":   map[string]any{"name": v.Name, "namespace": v.Namespace},
		"status":     status,
	}
}

// KCCHolds reports whether the object has it already.
func KCCHolds(present map[string]any, v customconfig.Verdict) bool {
	c := condition(present)
	if c == nil {
		return false
	}
	message, _ := c["message"].(string)
	generation, _ := at(present, "status", "observedGeneration").(int64)
	invalid, _ := at(present, "status", "invalidTargetConfigList").([]any)
	return c["status"] == validity(v) && c["reason"] == v.Reason && message == v.Message && generation == v.ObservedGeneration &&
		slices.EqualFunc(invalid, v.InvalidTargetConfigList, func(a any, b string) bool { return a == b })
}

// condition is the object's condition Valid, nil where it has none.
func condition(o map[string]any) map[string]any {
	list, _ := at(o, "status", "conditions").([]any)
	for _, x := range list {
		if c, ok := x.(map[string]any); ok && c["type"] == ConditionValid {
			return c
		}
	}
	return nil
}
