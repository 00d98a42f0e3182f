// Package classify selects the cgroups that are pods, with their class, on a machine without a cluster. The rules come
// from a file; the default one is default.yaml in this directory.
package classify

import (
	_ "embed"
	"fmt"
	"path"
	"strings"

	"polder/lib/kubepods"
	"polder/lib/tick"
)

//go:embed default.yaml
var defaultFile []byte

// DefaultBelow is the default file for a kubelet with this cgroupRoot, where kubepods are below that cgroup; empty is the
// root.
func DefaultBelow(cgroupRoot string) ([]byte, error) {
	elements := split(cgroupRoot)
	if len(elements) == 0 {
		return defaultFile, nil
	}
	if _, err := parseGlob(cgroupRoot); err != nil {
		return nil, err
	}
	if strings.ContainsAny(cgroupRoot, "*?[\\\"'\n") || strings.Contains(cgroupRoot, ": ") || strings.Contains(cgroupRoot, " #") {
		return nil, fmt.Errorf("cgroup %q: want a path, not a glob", cgroupRoot)
	}
	var none, cgroupfs, systemd string
	for i := range elements {
		cgroupfs, systemd = kubepods.Roots(strings.Join(elements[:i+1], "/"))
		for _, root := range []string{cgroupfs, systemd} {
			if rule := "  - cgroup: " + path.Dir(root) + "\n    class: none\n"; !strings.Contains(none, rule) {
				none += rule
			}
		}
	}
	moved := strings.NewReplacer(
		"cgroup: /kubepods/", "cgroup: "+cgroupfs+"/",
		"/kubepods.slice", systemd,
		"/kubepods-", "/"+strings.TrimSuffix(path.Base(systemd), ".slice")+"-",
		"rules:\n", "rules:\n  # kubelet's cgroupRoot: pods are inside\n"+none+"\n",
	)
	return []byte(moved.Replace(string(defaultFile))), nil
}

// classNone is the class of cgroups that are not pods even if a later rule's glob matches them.
const classNone = "none"

// Rule describes the cgroups that its glob matches.
type Rule struct {
	glob []string // the elements; "**" stands for any number of them

	// Line is the rule's line in its file.
	Line int

	// Class is one of the stream's classes, or empty for cgroups that are not pods.
	Class string
	// ChildContainers means that a pod's containers are its child cgroups; otherwise the pod is its only container.
	ChildContainers  bool
	Namespace, Name  string
	Requests, Limits *tick.Resources
}

// IsPod reports whether the cgroups that the rule matches are pods.
func (r *Rule) IsPod() bool { return r != nil && r.Class != "" }

// Cgroup is the rule's glob.
func (r *Rule) Cgroup() string { return "/" + strings.Join(r.glob, "/") }

// Rules is an ordered list of rules.
type Rules struct {
	rules []Rule
}

// All are the rules in their order.
func (r *Rules) All() []Rule { return r.rules }

// Match returns the first rule that matches a cgroup, nil where none does.
func (r *Rules) Match(cgroup string) *Rule {
	elements := split(cgroup)
	for i := range r.rules {
		if match(r.rules[i].glob, elements) {
			return &r.rules[i]
		}
	}
	return nil
}

// Below reports whether a rule could match a cgroup below this one.
func (r *Rules) Below(cgroup string) bool {
	elements := split(cgroup)
	for i := range r.rules {
		if below(r.rules[i].glob, elements) {
			return true
		}
	}
	return false
}

func split(cgroup string) []string {
	cgroup = strings.TrimPrefix(cgroup, "/")
	if cgroup == "" {
		return nil
	}
	return strings.Split(cgroup, "/")
}

func match(glob, elements []string) bool {
	// Backtracking to the last ** alone is enough: whatever an earlier ** could match, this one can.
	g, e, star, from := 0, 0, -1, 0
	for e < len(elements) {
		switch {
		case g < len(glob) && glob[g] == "**":
			star, from = g, e
			g++
		case g < len(glob) && matchElement(glob[g], elements[e]):
			g, e = g+1, e+1
		case star >= 0:
			from++
			g, e = star+1, from
		default:
			return false
		}
	}
	for g < len(glob) && glob[g] == "**" {
		g++
	}
	return g == len(glob)
}

func below(glob, elements []string) bool {
	for i, element := range elements {
		if i == len(glob) {
			return false
		}
		if glob[i] == "**" {
			return true
		}
		if !matchElement(glob[i], element) {
			return false
		}
	}
	return len(elements) < len(glob)
}

func matchElement(glob, element string) bool {
	ok, err := path.Match(glob, element)
	return ok && err == nil
}
