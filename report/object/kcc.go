package object

import (
	"slices"
	"time"

	"polder/lib/customconfig"
	"polder/lib/tick"
)

// conditionValid is the type of a KatalystCustomConfig's condition.
const conditionValid = "Valid"

// maxVerdicts bounds the verdicts of one tick.
const maxVerdicts = 100

// Verdicts are the verdicts on KatalystCustomConfigs in a tick's configuration. Invalid ones are left out, so that nothing is written
// to an object that was not checked.
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

// KCCStatus is the status to apply to a KatalystCustomConfig, whose present state is given. The condition's time stays
// where its status does.
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
			"type": conditionValid, "status": validity(v), "reason": v.Reason, "message": v.Message, "lastTransitionTime": since,
		}},
	}
	if len(v.InvalidTargetConfigList) > 0 { // fields that are no longer applied are removed
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
		if c, ok := x.(map[string]any); ok && c["type"] == conditionValid {
			return c
		}
	}
	return nil
}
