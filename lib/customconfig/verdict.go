package customconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"polder/lib/clip"
)

// VerdictsKey is the verdicts' key in sample.config, beside the kinds' keys.
const VerdictsKey = "customConfigs"

// Verdict is the report about a KatalystCustomConfig, as it is in sample.config.
type Verdict struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// ObservedGeneration is the generation of the KatalystCustomConfig that was checked.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Valid reports whether the objects of its kind are valid; it is absent if the kind is not read here.
	Valid *bool `json:"valid,omitempty"`
	// Reason is the reason in one word, Message a sentence for users.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// InvalidTargetConfigList are the objects that are invalid, as namespace/name.
	InvalidTargetConfigList []string `json:"invalidTargetConfigList,omitempty"`
}

// These are the verdicts' reasons: Katalyst's, and two of Polder's own for cases that Katalyst does not have.
const (
	ReasonNormal   = "Normal"
	ReasonOverlap  = "TargetTypeOverlap"
	ReasonNotExist = "TargetTypeNotExist"
	ReasonInvalid  = "InvalidTargetConfig"
	ReasonNotRead  = "TargetTypeNotRead"
)

// These bound a verdict, which is in every tick of every node.
const (
	maxVerdicts = 50
	maxMessage  = 1000
	maxInvalid  = 20
)

// Verdicts returns the verdicts on all KatalystCustomConfigs, by name. One whose objects were not read yet has none.
func (c *Configs) Verdicts(now time.Time) []Verdict {
	var all []Verdict
	for _, t := range c.Targets {
		if v, ok := c.verdict(t, now); ok {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b Verdict) int { return compareNames(a.Namespace, a.Name, b.Namespace, b.Name) })
	return all[:min(len(all), maxVerdicts)]
}

func (c *Configs) verdict(t *Target, now time.Time) (Verdict, bool) {
	v := Verdict{Namespace: t.Namespace, Name: t.Name, ObservedGeneration: t.Generation}
	with := func(valid bool, reason, message string) (Verdict, bool) {
		v.Valid, v.Reason, v.Message = &valid, reason, clip.Text(message, maxMessage)
		return v, true
	}
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Resource == t.Resource })
	if i < 0 {
		with(false, ReasonNotRead, fmt.Sprintf("its target is not supported: want group %s, version %s and resource %s", group, version, resources()))
		v.Valid = nil
		return v, true
	}
	kind := Kinds[i]
	if targets := c.targets(kind); len(targets) > 1 {
		return with(false, ReasonOverlap, overlapping(kind, targets).Error()+": the previous configuration stays in force")
	}
	if slices.Contains(c.Absent, kind) {
		return with(false, ReasonNotExist, fmt.Sprintf("the cluster has no %s.%s", kind.Resource, group))
	}
	if _, read := c.Candidates[kind]; !read {
		return v, false
	}
	live, _ := c.unexpired(kind, now)
	problems := validate(live, t)
	if len(problems) == 0 {
		return with(true, ReasonNormal, "")
	}
	named := map[string]bool{}
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = strings.ReplaceAll(p.Err.Error(), "\n", "; ")
		for _, x := range p.Objects {
			named[x.name()] = true
		}
	}
	v.InvalidTargetConfigList = slices.Sorted(maps.Keys(named))
	v.InvalidTargetConfigList = v.InvalidTargetConfigList[:min(len(v.InvalidTargetConfigList), maxInvalid)]
	return with(false, ReasonInvalid, strings.Join(texts, "; ")+": the previous configuration stays in force")
}

func resources() string {
	names := make([]string, len(Kinds))
	for i, k := range Kinds {
		names[i] = k.Resource
	}
	return strings.Join(names, " or ")
}
