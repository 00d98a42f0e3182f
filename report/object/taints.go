package object

import (
	"slices"
	"strings"
	"time"

	"polder/lib/tick"
)

// taintsAnnotation names the taints of a node's report in the object, because all writers share the list of taints, and not
// every version of the CRD lets each of them own its part.
const taintsAnnotation = "polder/taints"

// taintQoS is the class of pods for which our taints of a CustomNodeResource are.
const taintQoS = "reclaimed_cores"

// TaintPrefix is the prefix of the taints for pressures.
const TaintPrefix = "node.katalyst.kubewharf.io/"

// Taints are an object's taints and which of them are ours.
type Taints struct {
	list []any
	ours []string // "key:effect"

	in              map[string]any // the object
	annotation, qos string
}

// TaintsOf reads the taints of a CustomNodeResource.
func TaintsOf(cnr map[string]any) Taints { return taintsBy(cnr, taintsAnnotation, taintQoS) }

// NodeTaintsOf reads the taints of a Node, which are for every pod.
func NodeTaintsOf(node map[string]any) Taints { return taintsBy(node, taintsAnnotation, "") }

// taintsBy reads an object's taints for the writer whose taints the annotation names, and for pods of the class.
func taintsBy(o map[string]any, annotation, qos string) Taints {
	list, _ := at(o, "spec", "taints").([]any)
	text, _ := at(o, "metadata", "annotations", annotation).(string)
	return Taints{list: list, ours: strings.FieldsFunc(text, func(r rune) bool { return r == ',' }), in: o, annotation: annotation, qos: qos}
}

// Want sets our taints to the desired ones; those of other programs stay. A present taint keeps its time; one that
// another program has set is not ours and will not be removed.
func (t Taints) Want(desired []tick.Taint, at time.Time) Taints {
	names := map[string]bool{}
	for _, w := range desired {
		names[w.Key+":"+w.Effect] = true
	}
	next := Taints{in: t.in, annotation: t.annotation, qos: t.qos}
	present := map[string]bool{}
	for _, item := range t.list {
		name := taintName(item)
		isOurs := slices.Contains(t.ours, name)
		if isOurs && !names[name] {
			continue
		}
		next.list, present[name] = append(next.list, item), true
		if isOurs && !slices.Contains(next.ours, name) {
			next.ours = append(next.ours, name)
		}
	}
	for _, w := range desired {
		name := w.Key + ":" + w.Effect
		if present[name] || w.Key == "" || strings.Contains(name, ",") {
			continue
		}
		present[name] = true
		taint := map[string]any{"key": w.Key, "effect": w.Effect, "timeAdded": at.UTC().Format(time.RFC3339)}
		if t.qos != "" {
			taint["qosLevel"] = t.qos
		}
		next.list, next.ours = append(next.list, taint), append(next.ours, name)
	}
	slices.Sort(next.ours)
	return next
}

func taintName(item any) string {
	m, _ := item.(map[string]any)
	key, _ := m["key"].(string)
	effect, _ := m["effect"].(string)
	return key + ":" + effect
}

// List are the taints as they are in the object.
func (t Taints) List() []any { return t.list }

// Ours are the names of our taints, "key:effect".
func (t Taints) Ours() []string { return t.ours }

// Equal reports whether there is nothing to write.
func (t Taints) Equal(u Taints) bool {
	return slices.Equal(t.ours, u.ours) && slices.EqualFunc(t.list, u.list, func(a, b any) bool { return Holds(a, b) && Holds(b, a) })
}

// Patch sets the object's taints, if no other program has changed them since they were read.
func (t Taints) Patch() Patch {
	var p Patch
	var list, ours any
	if len(t.list) > 0 {
		list = t.list
	}
	if len(t.ours) > 0 {
		ours = strings.Join(t.ours, ",")
	}
	p.set(t.in, list, "spec", "taints")
	p.set(t.in, ours, "metadata", "annotations", t.annotation)
	return p
}

// forNode are our taints that a Node can have, and the names of the others: kube-apiserver has three effects, and a tick
// must not change other programs' taints.
func forNode(all []tick.Taint) (accepted []tick.Taint, rejected []string) {
	accepted = []tick.Taint{}
	for _, t := range all {
		name, ours := strings.CutPrefix(t.Key, TaintPrefix)
		if ours && labelName(name) && slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, t.Effect) {
			accepted = append(accepted, t)
		} else {
			rejected = append(rejected, t.Key+":"+t.Effect)
		}
	}
	return accepted, rejected
}

// labelName reports whether Kubernetes accepts a name after a key's slash.
func labelName(s string) bool {
	alphanumeric := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	for i := range len(s) {
		if !alphanumeric(s[i]) && !strings.ContainsRune("-_.", rune(s[i])) {
			return false
		}
	}
	return s != "" && len(s) <= 63 && alphanumeric(s[0]) && alphanumeric(s[len(s)-1])
}
